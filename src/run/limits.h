/*
 * The limits of a run: one table says their names, kinds, defaults and bounds. Requests, configuration (defaults and
 * ceilings), the command line, results and the documentation are all read from it.
 */
#ifndef HC_RUN_LIMITS_H
#define HC_RUN_LIMITS_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum limit_id {
    LIMIT_TIMEOUT,    /* wall clock, µs */
    LIMIT_CPU_TIME,   /* of the whole cell, µs; 0: none */
    LIMIT_MEMORY,     /* bytes */
    LIMIT_SWAP,       /* bytes on top of memory */
    LIMIT_CPUS,       /* thousandths of a CPU */
    LIMIT_CPU_SHARES, /* Docker's scale, 1024 is ordinary */
    LIMIT_PIDS,       /* processes and threads */
    LIMIT_OUTPUT,     /* bytes kept, of each stream */
    LIMIT_DISK,       /* bytes in /workspace, /tmp and /dev/shm together */
    LIMIT_INODES,     /* files and folders there */
    LIMIT_FILES_OPEN, /* RLIMIT_NOFILE */
    LIMIT_COUNT
};

enum limit_kind { LIMIT_KIND_DURATION, LIMIT_KIND_SIZE, LIMIT_KIND_MILLI, LIMIT_KIND_NUMBER };

struct limit_info {
    const char *name; /* "cpu_time": in JSON and TOML; the option is --cpu-time */
    enum limit_kind kind;
    uint64_t initial;    /* the default */
    uint64_t low, high;  /* what is accepted at all */
    const char *summary; /* one line for --help and the manual */
};

extern const struct limit_info limit_table[LIMIT_COUNT];

struct limits {
    uint64_t value[LIMIT_COUNT];
    bool set[LIMIT_COUNT]; /* given by someone, rather than left open */
};

int limit_find(const char *name); /* the id, or -1 */
/* Parse text by the limit's kind and bounds. err names the field as `limits.<name>` and suggests a value. */
int limit_parse(enum limit_id id, const char *text, uint64_t *value, struct hc_err *err);
/* The same for a number, as JSON and TOML have them: seconds, bytes, CPUs, a count. NaN, negative, too large: an
 * error. */
int limit_from_number(enum limit_id id, double number, uint64_t *value, struct hc_err *err);
/* "64 MiB", "2 s", "0.5", "100"; "none" for a cpu_time of 0. `text` has at least 32 bytes. */
const char *limit_format(enum limit_id id, uint64_t value, char *text, size_t size);
/* "--cpu-time" for LIMIT_CPU_TIME. `text` has at least 32 bytes. */
const char *limit_option(enum limit_id id, char *text, size_t size);
/* What is in force: each of `asked`, else of `defaults`, else the table's. A value over its ceiling (where the
 * ceiling is set) that was asked for is an error that names both; a default over the ceiling is lowered to it. */
int limits_resolve(const struct limits *asked, const struct limits *defaults, const struct limits *ceilings,
                   struct limits *out, struct hc_err *err);

#endif
