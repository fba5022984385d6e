/* The options of hotcell mcp and hotcell tools. Their texts are in all three programs. */
#ifndef HC_CLI_MCP_VERBS_H
#define HC_CLI_MCP_VERBS_H

#include "cli/client_verbs.h"
#include "cli/options.h"

enum tools_option { TOOLS_FORMAT = OPTION_FIRST_OWN };

#endif
