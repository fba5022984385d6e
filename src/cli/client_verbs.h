/* The options of the verbs that hotcell-client has. Their texts are in all three programs, so that help needs only one.
 */
#ifndef HC_CLI_CLIENT_VERBS_H
#define HC_CLI_CLIENT_VERBS_H

#include "cli/options.h"

enum client_option {
    CLIENT_STATE = OPTION_FIRST_OWN,
    CLIENT_LIMIT,
    CLIENT_LANGUAGE,
    CLIENT_STATUS,
    CLIENT_BEFORE,
    CLIENT_REPORT,
    CLIENT_ERRORS,
    CLIENT_ERROR_TYPE,
    CLIENT_FINGERPRINT,
    CLIENT_RUNS_PER_MINUTE,
    CLIENT_CONCURRENT,
    CLIENT_CPU_SECONDS,
    CLIENT_NO_COMPILE_CACHE,
    CLIENT_EVENT,
    CLIENT_KEPT,
    MCP_PRIVATE,
    MCP_WEAK,
    CLIENT_OPTION_END
};

#endif
