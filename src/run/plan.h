/*
 * What a run will be: everything about a request that can be decided, checked and refused before a cell exists. After
 * this only the host can fail.
 */
#ifndef HC_RUN_PLAN_H
#define HC_RUN_PLAN_H

#include "cell/spec.h"
#include "run/config.h"
#include "run/language.h"
#include "run/request.h"

struct plan_stage {
    char name[32];
    bool compile; /* a failure here is a compile_error; stdin is empty; both streams are one */
    struct words argv;
    struct limits limits;
};

struct plan {
    struct cell_spec cell;
    struct cell_mount mounts[CELL_MAX_MOUNTS]; /* cell.mount_count of them */
    struct words hosts;                        /* what is mounted there: canonical paths, in the same order */
    bool host_writable[CELL_MAX_MOUNTS];
    struct plan_stage *stages;
    size_t stage_count;
    struct words env;          /* of every stage */
    int files;                 /* sealed archive, or -1 */
    struct language *language; /* NULL for a plain command */
    char *entry;
    uint64_t output_cap;
    const struct request *request; /* not owned */
};

int plan_make(const struct config *config, const struct request *request, struct plan *plan, struct hc_err *err);
void plan_release(struct plan *plan);
/* The limits in the warden's words. */
void plan_job_limits(const struct limits *limits, struct job_limits *out);

#endif
