/* See progress.h. */
#include "cli/progress.h"

#include "base/buf.h"
#include "base/loop.h"
#include "base/size.h"
#include "cli/stream.h"
#include "cli/table.h"
#include <stdio.h>
#include <unistd.h>

enum { PATIENCE = 1000 * 1000, PERIOD = 200 * 1000 /* µs */, CEILING = 4096 };

void progress_start(struct progress *progress, const char *what, bool quiet)
{
    uint64_t now = hc_now();

    *progress = (struct progress){
        .wanted = !quiet && isatty(STDERR_FILENO), .what = what, .start = now, .next = now + PATIENCE};
}

void progress_add(struct progress *progress, uint64_t bytes)
{
    struct hc_buf line = HC_BUF_INIT(CEILING);
    char done[32], total[32], rate[32];

    progress->done += bytes;
    uint64_t now = progress->wanted ? hc_now() : 0;
    if (now < progress->next || !progress->wanted)
        return;
    uint64_t second = (now - progress->start) / 1000;
    hc_buf_add_str(&line, "\r");
    table_add_printable(&line, progress->what);
    hc_buf_printf(&line, ": %s", hc_format_size(progress->done, done, sizeof done));
    if (progress->total > 0)
        hc_buf_printf(&line, " of %s", hc_format_size(progress->total, total, sizeof total));
    hc_buf_printf(&line, ", %s/s\033[K",
                  hc_format_size(progress->done * 1000 / (second ? second : 1), rate, sizeof rate));
    if (hc_buf_status(&line) == 0)
        stream_write(STDERR_FILENO, line.data, line.length);
    hc_buf_release(&line);
    progress->shown = true;
    progress->next = now + PERIOD;
}

void progress_end(struct progress *progress)
{
    static const char clear[] = "\r\033[K";

    if (progress->shown)
        stream_write(STDERR_FILENO, clear, sizeof clear - 1);
    progress->shown = false;
}
