/* Which control group hierarchies this machine has, and where we are in them. For cgroup_base.c. */
#ifndef HC_KERNEL_CGROUP_FIND_H
#define HC_KERNEL_CGROUP_FIND_H

#include "kernel/cgroup.h"
#include <limits.h>

struct hierarchy {
    char mount[PATH_MAX];
    char own[PATH_MAX]; /* our own group's path below the mount */
    bool found;
};

/* `found`: CGROUP_SLOTS of them, all zero. What is not there stays so. */
void cgroup_find(struct hierarchy *found);
/* Whether systemd says that the group is ours to divide. */
bool cgroup_is_delegated(int dir);

#endif
