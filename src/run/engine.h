/* What the parts of the public library share. Not installed. */
#ifndef HC_RUN_ENGINE_H
#define HC_RUN_ENGINE_H

#include "hotcell.h"
#include "run/config.h"
#include "warden/keeper.h"

struct hc_engine {
    const struct config *config;
    struct keeper keeper;
    int cancel;
    bool greeted;
    bool single; /* one run, then it is closed */
    uint32_t isolation;
    uint32_t cgroup_mode;
    char why[448], remedy[256]; /* about what this machine cannot enforce */
};

const struct config *engine_config(const hc_config *config);
int engine_give_error(hc_error **out, const struct hc_err *err); /* -err->code */
/* Wait for the warden's greeting: engine->isolation and the rest hold after it. */
int engine_greet(hc_engine *engine, struct hc_err *err);

#endif
