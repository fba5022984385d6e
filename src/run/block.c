/* See block.h. The counts come first, so that whoever reads it needs to know nothing else. */
#include "run/block.h"

#include "base/buf.h"
#include "base/fd.h"
#include "run/stock.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK_LIMIT = 4 << 20 };

int argument_block(const char *cwd, const struct words *argv, const struct words *env)
{
    struct hc_buf buf = HC_BUF_INIT(BLOCK_LIMIT);
    char counts[2 * 24];
    int length = snprintf(counts, sizeof counts, "%zu%c%zu", argv->count, 0, env ? env->count : 0);
    hc_buf_add(&buf, counts, (size_t)length + 1);
    hc_buf_add(&buf, cwd, strlen(cwd) + 1);
    for (size_t i = 0; i < argv->count; i++)
        hc_buf_add(&buf, argv->item[i], strlen(argv->item[i]) + 1);
    for (size_t i = 0; env && i < env->count; i++)
        hc_buf_add(&buf, env->item[i], strlen(env->item[i]) + 1);
    int fd = hc_buf_status(&buf);
    if (fd == 0)
        fd = hc_memfd_fill(stock_memfd(), buf.data, buf.length);
    hc_buf_release(&buf);
    return fd;
}
