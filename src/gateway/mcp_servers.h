/*
 * Somebody else's MCP servers, attached: [mcp.servers.NAME] of the configuration. Each runs in a cell of its own, and
 * its tools are offered beside hotcell's as NAME__tool. One that dies is started again, later each time; one that
 * speaks nonsense is ended like one that died. Calls meanwhile fail, with a text that says so.
 *
 * What always holds: what such a server says is not trusted. It is parsed with the limits below, answers go only to
 * calls that were made, and none of it reaches anything but the caller's result and the list of tools.
 */
#ifndef HC_GATEWAY_MCP_SERVERS_H
#define HC_GATEWAY_MCP_SERVERS_H

#include "gateway/gateway.h"
#include "gateway/tools.h"

struct mcp_servers;
struct mcp_forward; /* a call of one of their tools */

struct mcp_servers *mcp_servers_new(struct gateway *gateway); /* NULL: out of memory */
void mcp_servers_free(struct mcp_servers *servers);           /* after the link */
/* The configuration in force, also the first: those that are new or changed are started, others ended. */
void mcp_servers_configure(struct mcp_servers *servers);
void mcp_servers_warden_up(struct mcp_servers *servers); /* gateway->link is there (again) */

/* Whether such a tool is offered, by its definition's name. */
bool mcp_servers_has(const struct mcp_servers *servers, const char *tool);
/* As tool_call_start: `done` is called from the loop, never from here. 0 or -errno. */
int mcp_forward_start(struct mcp_servers *servers, const char *tool, const json_t *arguments,
                      const struct tool_events *events, struct mcp_forward **out);
void mcp_forward_drop(struct mcp_forward *forward); /* it is cancelled; NULL is fine */

#endif
