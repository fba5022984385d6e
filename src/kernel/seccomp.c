/* Loading the filter that seccomp_gen.c made at build time. */
#include "kernel/seccomp.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "seccomp_filter.h"

static int load(const struct sock_filter *code, size_t size, unsigned flags, struct hc_err *err)
{
    struct sock_fprog program = {
        .len = (unsigned short)(size / sizeof *code),
        .filter = (struct sock_filter *)(uintptr_t)code,
    };
    int result = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "loading the system call filter");
    return result;
}

int hc_seccomp_load(struct hc_err *err)
{
    return load(seccomp_filter, sizeof seccomp_filter, 0, err);
}

int hc_seccomp_load_reporting(enum seccomp_wait wait, struct hc_err *err)
{
    enum { WAIT_KILLABLE_RECV = 1 << 5 }; /* later than some headers */
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | (wait == SECCOMP_WAIT_FIRM ? WAIT_KILLABLE_RECV : 0);
    return load(seccomp_reporting_filter, sizeof seccomp_reporting_filter, flags, err);
}

int hc_seccomp_probe(struct hc_err *err)
{
    static const uint32_t actions[] = {SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS};
    for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++)
        if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &actions[i]) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "seccomp action %#x", actions[i]);
    return 0;
}

bool hc_seccomp_probe_reporting(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(hc_seccomp_load_reporting(SECCOMP_WAIT_ANY, NULL) >= 0 ? 0 : 1);
    int status = 1;
    pid_t ended;
    do
        ended = child > 0 ? waitpid(child, &status, 0) : -1;
    while (ended < 0 && errno == EINTR && child > 0);
    return ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
