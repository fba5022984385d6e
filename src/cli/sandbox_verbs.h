/* The options of hotcell sandbox, shell, cp and volume. Their texts are in all three programs, so that help needs only
 * one; what a run has as well is of enum run_option. */
#ifndef HC_CLI_SANDBOX_VERBS_H
#define HC_CLI_SANDBOX_VERBS_H

#include "cli/run.h"
#include "cli/verbs.h"

enum sandbox_option {
    SANDBOX_STATE = RUN_OPTION_END,
    SANDBOX_VOLUME,
    SANDBOX_IDLE_TIMEOUT,
    SANDBOX_MAX_LIFETIME,
    SANDBOX_RECOVER,
    SANDBOX_METADATA,
    SANDBOX_STATUS,
    SANDBOX_IDS,
    SANDBOX_INTERACTIVE,
    SANDBOX_CWD,
    SANDBOX_SESSION,
    SANDBOX_DETACH,
    SANDBOX_NAME,
    SANDBOX_FOLLOW,
    SANDBOX_ALL,
    SANDBOX_SIZE,
    SANDBOX_COMMAND,
    SANDBOX_ATTACH,
};

/* The acts of hotcell sandbox and of hotcell volume. */
extern const struct verb act_create, act_list, act_inspect, act_exec, act_cp, act_logs, act_pause, act_resume, act_rm;
extern const struct verb act_volume_create, act_volume_list, act_volume_remove;

#endif
