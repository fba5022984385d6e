/* The gateway's system call filter: see syscalls_gateway.h for the table. */
#ifndef HC_KERNEL_SECCOMP_GATEWAY_H
#define HC_KERNEL_SECCOMP_GATEWAY_H

#include "base/err.h"

/* Load the filter into every thread of the process. Needs no_new_privs. There is no way back. */
int hc_seccomp_load_gateway(struct hc_err *err);

#endif
