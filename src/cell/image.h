/*
 * The warden's own root, from which every cell is made: a small tmpfs with the image's parts in it, and nothing else of
 * the host. It is built once, by the keeper's child, in the warden's mount namespace and before the warden is exec'ed.
 * What is not allowed is not refused in a cell: it is not there.
 *
 *   /usr            the host's, read-only
 *   /bin /lib …     as on the host (symlinks into /usr, or folders of their own)
 *   /image/etc      made up, with those entries of the host's /etc that the configuration lists
 *   /image/nothing  an empty file, to cover others with
 *   /image/dev      null zero full random urandom, fd stdin stdout stderr
 *   /host/0, /1, …  host folders that the operator allows and a request asks for
 *   /proc           of the warden's pid namespace
 *   /cell /scratch /empty   mount points, used inside each cell's own mount namespace
 */
#ifndef HC_CELL_IMAGE_H
#define HC_CELL_IMAGE_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct image_plan {
    char *const *etc; /* entries relative to /etc; a last component may end in '*' */
    size_t etc_count;
    char *const *host;         /* canonical paths of folders or files that are to be mounted into cells */
    const bool *host_writable; /* of each: may it be mounted writable? */
    const int *host_fds;       /* where not -1: a detached mount of it, made by real root; else it is bound by path */
    size_t host_count;
};

/* Builds the root, enters it and detaches the old one. The caller is alone in new user, mount and pid namespaces. */
int image_build(const struct image_plan *plan, struct hc_err *err);

#endif
