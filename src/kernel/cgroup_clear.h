/*
 * Removing control groups that nobody needs any more: a keeper's own, at its end, and those of keepers that are dead. A
 * base that lives is known by the lock on its first folder, which the kernel drops with its holder.
 */
#ifndef HC_KERNEL_CGROUP_CLEAR_H
#define HC_KERNEL_CGROUP_CLEAR_H

#include <stddef.h>

#define CGROUP_BASE_PREFIX "hotcell-"
#define CGROUP_FIRST_CELL "cell0"
#define CGROUP_WARDEN "warden"

/* A base, with all groups in it, ending what still lives there. */
void cgroup_clear_base(int dir, const char *name);
/* `dirs`: the folders, one a hierarchy, in which a base may have its parts; the first carries the locks, and is locked
 * by the caller. All are looked through, for the part with the lock may be gone already. */
void cgroup_clear_stale(const int *dirs, size_t count);

#endif
