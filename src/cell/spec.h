/*
 * What a cell is to be. Plain data of a fixed size, without pointers: it travels in one message and is checked before
 * the first clone (cell_spec_check). Strings are NUL-terminated within their arrays.
 */
#ifndef HC_CELL_SPEC_H
#define HC_CELL_SPEC_H

#include "base/err.h"
#include <stdint.h>

enum { CELL_MAX_MOUNTS = 16, CELL_MAX_HOSTS = 16, CELL_MAX_LOOKUPS = 8192 };
/* From here on the number of a mount is not one of the keeper's host folders but of a volume that it has opened. */
enum { CELL_FIRST_VOLUME = 0x10000 };

enum cell_flags {
    CELL_WRITABLE_ROOT = 1 << 0, /* a private writable layer over the image, still in memory and limited */
};

struct cell_mount {
    char path[256]; /* in the cell */
    uint32_t host;  /* what to mount: the number of a folder that the keeper gave to the warden */
    uint32_t read_only;
    char below[512];        /* and what of it: a path without symlinks, "" for the folder itself */
    uint64_t device, inode; /* of what the policy checked; anything else found there is refused. 0: not known */
};

struct cell_spec {
    uint64_t disk; /* bytes */
    uint64_t inodes;
    uint32_t flags;
    uint32_t mount_count; /* that many struct cell_mount come beside it */
    uint32_t lookups;     /* and that many bytes of names for pid 1 (init.c), a NUL after each */
    uint32_t unused;
    char hostname[64];
    char work_dir[256];
};

struct job_limits {
    uint64_t memory, swap; /* bytes */
    uint64_t cpu_milli;    /* thousandths of a CPU; 0: no quota */
    uint64_t cpu_shares;
    uint64_t pids;
    uint64_t wall, cpu_time; /* µs; 0: none */
    uint64_t files_open;
    uint64_t file_size; /* RLIMIT_FSIZE */
};

/* Ranges, termination of strings, targets that are absolute and clean. The warden trusts nobody's arithmetic but its
 * own. */
int cell_spec_check(const struct cell_spec *spec, const struct cell_mount *mounts, struct hc_err *err);
int job_limits_check(const struct job_limits *limits, struct hc_err *err);

#endif
