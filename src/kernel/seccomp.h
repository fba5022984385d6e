/* The guest's system call filter: see syscalls.h for the table. */
#ifndef HC_KERNEL_SECCOMP_H
#define HC_KERNEL_SECCOMP_H

#include "base/err.h"
#include <stdbool.h>

/* Load the filter into the calling thread. Needs no_new_privs. There is no way back. */
int hc_seccomp_load(struct hc_err *err);
enum seccomp_wait {
    SECCOMP_WAIT_ANY,  /* whoever waits for an answer can be frozen, with its sandbox, like any process that waits; a
                          signal that comes meanwhile makes it ask again */
    SECCOMP_WAIT_FIRM, /* whoever waits, and has been heard, waits until it is answered or killed. Linux 5.19 */
};
/* The same, with a listener who is asked about the calls that are reported (reported.h): its fd, close-on-exec. Whoever
 * holds it decides what becomes of these calls; without a holder each is refused with ENOSYS. */
int hc_seccomp_load_reporting(enum seccomp_wait wait, struct hc_err *err);
/* Whether that can be done here; tried in a child. Older kernels cannot, nor can whoever has a listener already (of a
 * container's filter): there is one at most. Needs no_new_privs. */
bool hc_seccomp_probe_reporting(void);
/* 0 when the kernel has seccomp filters with the actions that ours uses. */
int hc_seccomp_probe(struct hc_err *err);

#endif
