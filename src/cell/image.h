/*
 * The warden's own root: a small tmpfs with the image's parts in it, and nothing else of the host. It is built once, by
 * the keeper's child, in the warden's mount namespace and before the warden is exec'ed. What is not allowed is not
 * refused in a cell: it is not there.
 *
 * It has the layout of a cell, because it is what a cell starts from. A cell with a read-only root is this very tree,
 * seen from a mount namespace of its own, with an overlay over /usr, its own /proc, and its own scratch space mounted;
 * one that is different (a writable root, host folders, another working directory) makes a root of its own in
 * /.hotcell/cell and moves there.
 *
 *   /usr, and /bin, /lib … as on the host (symlinks into /usr, or folders of their own), read-only
 *   /etc      made up, with those entries of the host's /etc that the configuration lists
 *   /dev      null zero full random urandom, fd stdin stdout stderr; shm is a mount point
 *   /proc     of the warden's pid namespace; covered in a cell by its own
 *   /workspace /tmp   mount points; /run /var /home … are empty
 *   /.hotcell mount points and covers for the builders of cells, below
 */
#ifndef HC_CELL_IMAGE_H
#define HC_CELL_IMAGE_H

#include "base/err.h"
#include "cell/spec.h"
#include <stdbool.h>
#include <stddef.h>

#define IMAGE_OWN "/.hotcell"
#define IMAGE_CELL "/.hotcell/cell"       /* where a cell's own root is put together */
#define IMAGE_SCRATCH "/.hotcell/scratch" /* where its writable space is mounted first */
#define IMAGE_EMPTY "/.hotcell/empty"     /* a folder, to cover others with */
#define IMAGE_NOTHING "/.hotcell/nothing" /* a file, likewise */
#define IMAGE_HOST "/.hotcell/host"       /* /0, /1 …: host folders that the operator allows and a request asks for */

#define IMAGE_WARM "/.hotcell/warm" /* what interpreters that wait for a program are started with */

#define IMAGE_CACHE "/.hotcell/cache" /* what compilers can use, read-only */

/* A file of hotcell's own that goes into IMAGE_WARM. */
struct image_file {
    const char *path; /* below it: "python/driver.py"; at most one folder */
    int fd;           /* the content, from its beginning */
    bool program;     /* it may be executed or mapped */
};

struct image_plan {
    char *const *etc; /* entries relative to /etc; a last component may end in '*' */
    size_t etc_count;
    char *const *host;         /* canonical paths of folders or files that are to be mounted into cells */
    const bool *host_writable; /* of each: may it be mounted writable? */
    const int *host_fds;       /* where not -1: a detached mount of it, made by real root; else it is bound by path */
    size_t host_count;
    const struct image_file *files;
    size_t file_count;
    const char *cache; /* a host folder that cells have as IMAGE_CACHE; NULL: none */
    int cache_fd;      /* where cache is set and this is not -1: a detached mount of it, made by real root */
};

/* What of the host goes into it, opened. */
struct image_parts {
    int usr, cache;
    int host[CELL_MAX_HOSTS];
};

/* The first half, which needs no uid yet: opens the parts. The caller is alone in new user, mount and pid namespaces.
 */
int image_open(const struct image_plan *plan, struct image_parts *parts, struct hc_err *err);
/* Builds the root. */
int image_build(const struct image_plan *plan, const struct image_parts *parts, struct hc_err *err);
/* Enters it and detaches the old one. */
int image_enter(struct hc_err *err);

#endif
