/*
 * What a run will be: everything about a request that can be decided, checked and refused before a cell exists. After this only the host can fail.
 */
#ifndef HC_RUN_PLAN_H
#define HC_RUN_PLAN_H

#include "cell/spec.h"
#include "run/config.h"
#include "run/language.h"
#include "run/request.h"

struct plan_stage {
    char name[32];
    bool compile;         /* a failure here is a compile_error; stdin is empty; both streams are one */
    struct words argv;
    struct limits limits;
};

struct plan {
    struct cell_spec cell;
    struct cell_mount mounts[CELL_MAX_MOUNTS]; /* cell.mount_count of them */
    struct plan_stage *stages;
    size_t stage_count;
    struct words env;     /* of every stage */
    int files;            /* sealed archive, or -1 */
    struct language *language; /* NULL for a plain command */
    char *entry;
    uint64_t output_cap;
    const struct request *request; /* not owned */
};

/* The host folders that a cell may be given: canonical paths of the configuration's allow-lists, the first *writable of them from the list for
 * writing. */
int plan_hosts(const struct config *config, struct words *hosts, size_t *writable, struct hc_err *err);

int plan_make(const struct config *config, const struct request *request, const struct words *hosts, struct plan *plan,
              struct hc_err *err);
void plan_release(struct plan *plan);
/* The limits in the warden's words. */
void plan_job_limits(const struct limits *limits, struct job_limits *out);

#endif
