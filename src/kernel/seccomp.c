/* Loading the filter that seccomp_gen.c made at build time. */
#include "kernel/seccomp.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_filter.h"

int hc_seccomp_load(struct hc_err *err)
{
    struct sock_fprog program = {
        .len = sizeof seccomp_filter / sizeof *seccomp_filter,
        .filter = (struct sock_filter *)(uintptr_t)seccomp_filter,
    };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "loading the system call filter");
    return 0;
}

int hc_seccomp_probe(struct hc_err *err)
{
    static const uint32_t actions[] = {SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS};
    for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++)
        if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &actions[i]) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "seccomp action %#x", actions[i]);
    return 0;
}
