/* The guest's system call filter: see syscalls.h for the table. */
#ifndef HC_KERNEL_SECCOMP_H
#define HC_KERNEL_SECCOMP_H

#include "base/err.h"

/* Load the filter into the calling thread. Needs no_new_privs. There is no way back. */
int hc_seccomp_load(struct hc_err *err);
/* 0 when the kernel has seccomp filters with the actions that ours uses. */
int hc_seccomp_probe(struct hc_err *err);

#endif
