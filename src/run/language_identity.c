/* Which tools a language has, exactly: what was made by others is of no use, or of doubtful use, with these. */
#include "run/language.h"

#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void add_file(struct hc_buf *text, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        hc_buf_printf(text, "%s -\n", path);
        return;
    }
    hc_buf_printf(text, "%s %ju %jd %jd.%09ld %jd.%09ld\n", path, (uintmax_t)st.st_ino, (intmax_t)st.st_size,
                  (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (intmax_t)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

void language_identity(const struct language *language, struct hc_buf *text)
{
    for (size_t i = 0; i < language->needs.count; i++) {
        char real[PATH_MAX], folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s", language->needs.item[i]);
        add_file(text, language->needs.item[i]);
        add_file(text, dirname(folder));
        if (!realpath(language->needs.item[i], real))
            continue;
        add_file(text, real);
        add_file(text, dirname(real));
    }
}
