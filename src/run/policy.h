/*
 * Which host folders may be mounted into a cell (seed 003's MountPolicy without its holes). The path is resolved once,
 * into an O_PATH fd that is what gets mounted: what was checked is what is used. Forbidden beats allowed; the parent of
 * a forbidden path is forbidden; an empty allow-list denies.
 */
#ifndef HC_RUN_POLICY_H
#define HC_RUN_POLICY_H

#include "run/config.h"

struct policy_mount {
    int fd;          /* O_PATH of the resolved folder or file; owned. -1: a server's, found by the two after it */
    unsigned served; /* which of config->served_hosts */
    char below[512]; /* and what of it; "" for the folder itself */
    char host[4096]; /* canonical path */
    char path[256];  /* in the cell: absolute, canonical */
    bool read_only;
};

/* 0, or -EACCES / -ENOENT / -EINVAL with an error that says which rule refused which path, and the remedy. */
int policy_open(const struct config *config, const struct request_mount *mount, struct policy_mount *out,
                struct hc_err *err);
/* The path rules alone, for tests and for the doctor: NULL when allowed, else the rule as a sentence in `why`. */
const char *policy_check(const struct config *config, const char *canonical, bool writable, char *why, size_t size);
/* Everything that is forbidden on this machine, for one that cannot look: a path, why, a path, why, … */
int policy_forbidden_words(const struct config *config, struct words *out);
/* For a folder that a server allows, whose requests are checked by name alone: NULL, or why it is another name of
 * something forbidden, or of one of `own`. What the name itself tells is not looked at. */
const char *policy_other_name(const struct config *config, const struct words *own, const char *canonical, char *why,
                              size_t size);
/* A target inside the cell: absolute, no "..", not /, /proc, /dev, /sys, /usr, /etc … */
int policy_check_target(const char *path, char *canonical, size_t size, struct hc_err *err);

#endif
