/* Loading the gateway's filter, which seccomp_gen.c made at build time. */
#include "kernel/seccomp_gateway.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_gateway_filter.h"

int hc_seccomp_load_gateway(struct hc_err *err)
{
    struct sock_fprog program = {
        .len = sizeof seccomp_filter / sizeof *seccomp_filter,
        .filter = (struct sock_filter *)(uintptr_t)seccomp_filter,
    };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "loading the gateway's system call filter");
    return 0;
}
