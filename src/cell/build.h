/* What the two halves of building a cell share: build.c, which clones and lists the steps, and mounts.c, which has
 * those that make its file system. Included by these two alone. */
#ifndef HC_CELL_BUILD_H
#define HC_CELL_BUILD_H

#include "cell/cell.h"

struct build {
    const struct cell_host *host;
    const struct cell_spec *spec;
    const struct cell_mount *mounts;
    const int *trees; /* of the mounts' host folders; NULL: they are below IMAGE_HOST */
    const struct cgroup *group;
    struct witness witness; /* its ends for pid 1 */
    int go;                 /* end of the warden's pipe: one byte once the maps are written */
    int report;
    int built; /* a byte in it when the namespaces are there, one when the file system is, and one of pid 1's */
    int init;
    int lookups;   /* for pid 1; or -1 */
    uid_t uid;     /* of init, in the cell */
    bool own_root; /* it needs a root that differs from the warden's: see image.h */
    bool net_made; /* the network namespace was made beforehand, its loopback up */
};

/* Steps (child.h), in the order in which they are carried out. */
int mounts_scratch(void *plan, struct hc_err *err);
int mounts_root(void *plan, struct hc_err *err);
int mounts_top(void *plan, struct hc_err *err);
int mounts_usr(void *plan, struct hc_err *err);
int mounts_etc(void *plan, struct hc_err *err);
int mounts_dev(void *plan, struct hc_err *err);
int mounts_proc_early(void *plan, struct hc_err *err); /* where the root is there already */
int mounts_proc(void *plan, struct hc_err *err);
int mounts_work(void *plan, struct hc_err *err);
int mounts_hosts(void *plan, struct hc_err *err);
int mounts_seal(void *plan, struct hc_err *err);
int mounts_pivot(void *plan, struct hc_err *err);

#endif
