/*
 * Landlock: what a process may do with files, whatever the mounts say, and that it can neither signal nor reach by
 * abstract socket anyone outside. Raw system calls; the numbers are the kernel's ABI, so that an older libc-dev does
 * not hide newer rights.
 */
#ifndef HC_KERNEL_LANDLOCK_H
#define HC_KERNEL_LANDLOCK_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

enum landlock_access {
    LANDLOCK_READ,   /* read files and folders, execute */
    LANDLOCK_DEVICE, /* read and write existing files, device ioctls */
    LANDLOCK_WRITE,  /* everything but device nodes */
};

struct landlock_path {
    const char *path; /* a path that does not exist is left out */
    enum landlock_access access;
};

/* The kernel's ABI version, 0 when there is no Landlock. */
int hc_landlock_abi(void);
/* Restrict the calling thread to these paths, by every right that the kernel's ABI knows. Needs no_new_privs. `alone`:
 * it can neither signal nor reach by abstract socket anyone who is not its descendant; without it the namespaces alone
 * see to that, as between the jobs of one sandbox, which may. */
int hc_landlock_restrict(const struct landlock_path *paths, size_t count, bool alone, struct hc_err *err);

#endif
