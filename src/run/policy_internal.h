/* Shared by the policy*.c files only: the forbidden list. */
#ifndef HC_RUN_POLICY_INTERNAL_H
#define HC_RUN_POLICY_INTERNAL_H

#include "run/policy.h"
#include <limits.h>
#include <sys/types.h>

struct policy_entry {
    char *path; /* absolute and clean; need not exist */
    const char *reason;
    bool exists; /* then its identity: */
    dev_t device;
    ino_t inode;
};

#define FORBIDDEN_BY_SETTING "mounts.forbidden_paths has it" /* why a path is, where the operator says so */

struct policy_forbidden {
    struct policy_entry *item;
    size_t count, capacity;
    char own[PATH_MAX]; /* the caller's home, the one folder of /home that is not forbidden; "" when there is none */
};

/* Everything that may not be mounted: the built-in list, homes, and the configuration's forbidden_paths. Each path that
 * exists and resolves to another one is there twice. `forbidden` is zeroed by the caller. 0 or -errno. */
int policy_forbidden_load(const struct config *config, struct policy_forbidden *forbidden);
/* One more. `reason` stays the caller's. */
int policy_forbidden_add(struct policy_forbidden *forbidden, const char *path, const char *reason);
void policy_forbidden_release(struct policy_forbidden *forbidden);

/* Whether path is folder, or lies under it. Both absolute and clean. '/data-x' is not under '/data'. */
bool policy_is_under(const char *path, const char *folder);
/* Whether `path` is the entry, under it, or a parent of it: then why, else NULL. */
const char *policy_refuse_name(const char *path, const struct policy_entry *entry, char *why, size_t size);
/* Without empty and "." components; "" for the root. -EINVAL when there is a "..", -ENAMETOOLONG. */
int policy_clean_path(const char *path, char *clean, size_t size);
/* policy_open for config->served; the target has been checked. */
int policy_open_served(const struct config *config, const struct request_mount *mount, struct policy_mount *out,
                       struct hc_err *err);

#endif
