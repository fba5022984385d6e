/* Which control group hierarchies this machine has, and where we are in them. For cgroup_base.c. */
#ifndef HC_KERNEL_CGROUP_FIND_H
#define HC_KERNEL_CGROUP_FIND_H

#include "kernel/cgroup.h"
#include <limits.h>

struct hierarchy { /* 25 KiB for all slots: each page that is not written to is a page fault less for every run */
    bool found;
    char mount[1024];
    char own[PATH_MAX]; /* our own group's path below the mount */
};

/* Fills CGROUP_SLOTS of them. What is not there is not `found`, and empty. */
void cgroup_find(struct hierarchy *found);
/* Whether systemd says that the group is ours to divide. */
bool cgroup_is_delegated(int dir);

#endif
