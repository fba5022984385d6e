/* What the parts of the public library share. Not installed. */
#ifndef HC_RUN_ENGINE_H
#define HC_RUN_ENGINE_H

#include "hotcell.h"
#include "run/config.h"
#include "run/explain.h"
#include "run/language.h"
#include "run/link.h"
#include "run/request.h"
#include "run/result.h"
#include "run/snapshot.h"
#include "warden/keeper.h"

struct hc_config {
    struct config *config;
};

struct hc_request {
    struct request *request;
    int input;
    hc_output_fn output;
    void *output_data;
    bool endless;          /* no wall clock unless it was set, and output is told and not kept */
    uint64_t keep;         /* drive_options.keep; what is kept goes to: */
    struct snapshot *kept; /* NULL: nowhere */
};

struct hc_result {
    struct result result;
    struct language *language; /* its version is found when it is first asked for */
    struct explain_kept *kept; /* of a run that failed: what its diagnosis needs when that is asked for */
    char summary[512];
    char *out, *err, *json;
    size_t out_length, err_length;
};

struct engine_run;

struct hc_engine {
    const struct config *config;
    struct keeper keeper; /* without its socket, which is the link's */
    struct hc_loop *loop;
    struct link *link;      /* NULL: no warden yet */
    struct engine_run *run; /* the one under way */
    struct hc_err refusal;  /* the greeting's */
    int cancel;
    bool greeted;
    bool single; /* one run, then it is closed */
    bool empty;  /* the run's cell is known to be empty, and its warden goes */
    uint32_t isolation;
    uint32_t cgroup_mode;
    char why[448], remedy[256]; /* about what this machine cannot enforce */
};

const struct config *engine_config(const hc_config *config);
int engine_give_error(hc_error **out, const struct hc_err *err); /* -err->code */
/* Wait for the warden's greeting: engine->isolation and the rest hold after it. */
int engine_greet(hc_engine *engine, struct hc_err *err);

#endif
