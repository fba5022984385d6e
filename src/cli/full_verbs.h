/* The options of the verbs that hotcell-full has. Their texts are in all three programs, so that help needs only one.
 */
#ifndef HC_CLI_FULL_VERBS_H
#define HC_CLI_FULL_VERBS_H

#include "cli/options.h"

enum serve_option {
    OPTION_LISTEN = OPTION_FIRST_OWN,
    OPTION_STATE,
    OPTION_WORKSPACE,
    OPTION_CONCURRENT,
    OPTION_WEAK,
    OPTION_CHECK
};

enum languages_option { OPTION_NAMES = OPTION_FIRST_OWN };

#endif
