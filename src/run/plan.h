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

/* Where code goes that must not be in the working directory: private to the cell. */
#define PLAN_APART "/tmp/.hotcell/code/"
#define PLAN_APART_OWN "/tmp/.hotcell/%s" /* request->apart */

struct plan_stage {
    char name[RUN_NAME_SIZE];
    bool compile; /* a failure here is a compile_error; stdin is empty; both streams are one */
    struct words argv;
    struct limits limits;
    bool own[LIMIT_COUNT]; /* those of them that the language's file sets for its compiler */
    uint64_t warm;         /* what may stand in for its exec: warm_spec.id; 0: nothing */
    uint32_t warm_stage;   /* and which of its programs */
};

/* The program once more, in a cell of its own, which begins with what the stages left in the working directory and in
 * /tmp, or with the request's files where there are no stages. */
struct plan_test {
    char name[RUN_NAME_SIZE];
    struct words argv;
    struct limits limits;
    const struct blob *input;
    const struct blob *expect; /* stdout that makes it pass; NULL: to complete is enough */
    uint64_t warm;             /* as in a stage */
    uint32_t warm_stage;
    uint64_t cell_warm; /* as `warm` of the plan, for its own cell */
};

struct plan {
    struct cell_spec cell;
    struct words hosts; /* what is mounted in the cell: canonical paths, in the order of `mounts` */
    bool host_writable[CELL_MAX_MOUNTS];
    struct plan_stage *stages; /* with tests, those before the program */
    size_t stage_count;
    struct plan_test *tests; /* instead of the program's own stage */
    size_t test_count;
    struct words env;          /* of every stage */
    int files;                 /* sealed archive, or -1 */
    struct language *language; /* NULL for a plain command */
    char *entry;
    uint64_t output_cap;
    uint64_t warm; /* the primed programs in whose cell the stages should be: warm_spec.id; 0: any cell */
    const struct request *request; /* not owned */
    /* cell.mount_count of them, and what follows is nothing: last, for it is large, and most have none. */
    struct cell_mount mounts[CELL_MAX_MOUNTS];
};

/* What request->apart has put into the cell, and is to be removed afterwards: malloc'ed; NULL: nothing. */
char *plan_rubbish(const struct plan *plan);
/* Where its programs begin. */
const char *plan_cwd(const struct plan *plan);
int plan_make(const struct config *config, const struct request *request, struct plan *plan, struct hc_err *err);
void plan_release(struct plan *plan);
/* The limits in the warden's words. */
void plan_job_limits(const struct limits *limits, struct job_limits *out);

#endif
