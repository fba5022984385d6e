/*
 * Letting go of namespaces without waiting for it. The last reference to a mount namespace is expensive to drop: the
 * kernel unmounts everything in it and waits for a grace period, in whichever process dropped it, and whoever waits for
 * that process waits as well. So the references are put where the kernel drops them in the background: into a socket
 * that holds itself, which its garbage collector frees (from Linux 6.10 on in a worker of its own; before that, in the
 * process that lets go, as if there were none of this).
 */
#ifndef HC_KERNEL_LATER_H
#define HC_KERNEL_LATER_H

#include <stddef.h>

/* pair[0] holds itself, and what is sent through pair[1]. 0 or -errno. */
int hc_later_open(int pair[2]);
/* Adds references; the fds stay the caller's. 0 or -errno. */
int hc_later_add(int sender, const int *fds, size_t count);
/* Lets go of everything that was added. */
void hc_later_release(int holder);

#endif
