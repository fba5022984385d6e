/* See child.h. */
#include "cell/child.h"

#include "base/fd.h"
#include "kernel/sys.h"
#include <stdlib.h>

void child_die(int report, struct hc_err *err)
{
    /* Smaller than PIPE_BUF, so it arrives whole or not at all. */
    (void)hc_write_all(report, err, sizeof *err);
    _exit(125);
}

void child_run(const struct child_step *steps, unsigned count, void *plan, const int *report)
{
    struct hc_err err = {0};
    for (unsigned i = 0; i < count; i++) {
        if (steps[i].act(plan, &err) >= 0)
            continue;
        hc_err_context(&err, "%s", steps[i].what);
        child_die(*report, &err);
    }
}

int child_keep_fds(int first, int **fds, unsigned count, struct hc_err *err)
{
    /* Out of the way first: a target number may be one of the fds that are still to be moved. */
    for (unsigned i = 0; i < count; i++) {
        if (*fds[i] < 0)
            continue;
        int moved = fcntl(*fds[i], F_DUPFD_CLOEXEC, first + (int)count);
        if (moved < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "moving an fd");
        *fds[i] = moved;
    }
    for (unsigned i = 0; i < count; i++) {
        if (*fds[i] < 0)
            continue;
        if (dup3(*fds[i], first + (int)i, O_CLOEXEC) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "placing an fd");
        *fds[i] = first + (int)i;
    }
    for (unsigned i = 0; i < count; i++)
        if (*fds[i] < 0)
            close(first + (int)i);
    if (hc_close_range((unsigned)first + count, ~0U, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "closing inherited fds");
    return 0;
}
