/*
 * The stdio transport of the Model Context Protocol: messages on stdin, one on a line, are sent to a server's /mcp, and
 * what it answers comes out on stdout. Several requests may be under way; each has a connection and a thread of its
 * own. The relay knows of a message only what the transport asks of it: its id, what it cancels, and the session.
 */
#ifndef HC_CLI_CLIENT_RELAY_H
#define HC_CLI_CLIENT_RELAY_H

#include "cli/server.h"

/* Until stdin ends and all is answered, stdout is closed, or a signal comes. 0 or -errno. */
int relay_run(struct server *server, struct hc_err *err);

#endif
