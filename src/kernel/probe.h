/* What this kernel gives us, by trying: for the doctor. Each probe leaves nothing behind. */
#ifndef HC_KERNEL_PROBE_H
#define HC_KERNEL_PROBE_H

#include "base/err.h"
#include <stddef.h>

struct probe_namespace {
    const char *name; /* "pid namespace" */
    const char *what; /* what it gives a cell */
    int flag;         /* CLONE_NEW*, besides CLONE_NEWUSER */
};

extern const struct probe_namespace probe_namespaces[];
extern const size_t probe_namespace_count;

/* Make a namespace of this kind, in a child, as we would for a cell: inside a new user namespace. 0 or -errno. */
int probe_namespace(const struct probe_namespace *kind);
/* The ABI version of Landlock, 0 when there is none. */
int probe_landlock(void);
/* 0 when seccomp filters with the actions that ours uses are there. */
int probe_seccomp(struct hc_err *err);
/* "none", "v1", "hybrid", "v2" for the mode in a warden's greeting. */
const char *probe_cgroup_word(unsigned mode);

#endif
