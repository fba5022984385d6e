/* The methods of the Model Context Protocol: one table, and those of them that are answered at once. */
#include "gateway/mcp.h"
#include "base/fd.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOOLS_TTL = 60000, DISCOVER_TTL = 300000 }; /* ms */

static const char INSTRUCTIONS[] = "hotcell runs code that nobody trusts in sealed cells without a network. For one "
                                   "program use run_code or run_command: "
                                   "each call starts from nothing. For work of several steps make a sandbox with "
                                   "create_sandbox, give its id to the other "
                                   "tools, and delete it at the end.";

const struct mcp_version MCP_VERSIONS[] = {
    {.name = "2026-07-28", .modern = true},
    {.name = "2025-11-25"},
    {.name = "2025-06-18"},
    {.name = "2025-03-26", .batches = true},
    {.name = "2024-11-05", .batches = true},
    {0},
};

const struct mcp_version *mcp_version_find(const char *name)
{
    for (const struct mcp_version *version = MCP_VERSIONS; version->name != NULL; version++)
        if (strcmp(version->name, name) == 0)
            return version;
    return NULL;
}

json_t *mcp_version_names(void)
{
    json_t *names = json_array();
    for (const struct mcp_version *version = MCP_VERSIONS; version->name != NULL; version++)
        json_array_append_new(names, json_string(version->name));
    return names;
}

static json_t *server_info(void)
{
    return json_pack("{s:s, s:s, s:s}", "name", "hotcell", "title", "hotcell", "version", HC_VERSION);
}

static json_t *capabilities(void)
{
    return json_pack("{s:{}, s:{}}", "tools", "resources");
}

json_t *mcp_finished(const struct mcp_exchange *exchange, const json_t *id, json_t *result, int ttl)
{
    if (result != NULL && exchange->version->modern) {
        json_object_set_new(result, "resultType", json_string("complete"));
        json_object_set_new(result, "_meta", json_pack("{s:o}", "io.modelcontextprotocol/serverInfo", server_info()));
        if (ttl >= 0) {
            json_object_set_new(result, "ttlMs", json_integer(ttl));
            json_object_set_new(result, "cacheScope", json_string("private"));
        }
    }
    return mcp_result(id, result);
}

/* ---- the beginning ---- */

static void initialize(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    const char *asked = json_string_value(mcp_param(message, "protocolVersion"));
    if (asked == NULL) {
        mcp_answer_error(exchange, message->id, MCP_INVALID_PARAMS, "params.protocolVersion must be a string");
        return;
    }
    if (exchange->batch || exchange->session != NULL) {
        mcp_answer_error(exchange, message->id, MCP_INVALID_REQUEST,
                         exchange->batch ? "initialize must not be part of a batch" : "this session has begun already");
        return;
    }
    const struct mcp_version *version = mcp_version_find(asked);
    for (const struct mcp_version *at = MCP_VERSIONS; version == NULL || version->modern; at++)
        version = at; /* the newest that begins with initialize: the client decides whether it will do */
    const struct caller *caller = exchange->request->context;
    struct mcp_session *session = mcp_session_new(exchange->gateway->mcp, caller->tenant, version);
    if (session == NULL) {
        mcp_answer_error(exchange, message->id, MCP_INTERNAL, "there are too many sessions; try again later");
        return;
    }
    exchange->version = version;
    http_add_header(exchange->request, "Mcp-Session-Id", session->id);
    json_t *result = json_pack("{s:s, s:o, s:o, s:s}", "protocolVersion", version->name, "capabilities", capabilities(),
                               "serverInfo", server_info(), "instructions", INSTRUCTIONS);
    mcp_answer(exchange, mcp_finished(exchange, message->id, result, -1));
}

static void discover(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    json_t *result = json_pack("{s:o, s:o, s:o, s:s}", "supportedVersions", mcp_version_names(), "capabilities",
                               capabilities(), "serverInfo", server_info(), "instructions", INSTRUCTIONS);
    mcp_answer(exchange, mcp_finished(exchange, message->id, result, DISCOVER_TTL));
}

static void ping(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    mcp_answer(exchange, mcp_finished(exchange, message->id, json_object(), -1));
}

/* ---- tools/list ---- */

static void list_tools(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    const json_t *tools = tools_list(exchange->gateway->tools), *cursor = mcp_param(message, "cursor");
    const char *text = json_string_value(cursor);
    char *end = NULL;
    unsigned long first = text != NULL ? strtoul(text, &end, 10) : 0;
    if (cursor != NULL && (text == NULL || end == text || *end != '\0' || first >= json_array_size(tools))) {
        mcp_answer_error(exchange, message->id, MCP_INVALID_PARAMS, "params.cursor is not one of ours");
        return;
    }
    json_t *page = json_array();
    size_t at = first;
    for (; at < json_array_size(tools) && at < first + MCP_PAGE; at++)
        json_array_append(page, json_array_get(tools, at));
    json_t *result = json_pack("{s:o}", "tools", page);
    if (at < json_array_size(tools)) {
        char next[24];
        snprintf(next, sizeof next, "%zu", at);
        json_object_set_new(result, "nextCursor", json_string(next));
    }
    mcp_answer(exchange, mcp_finished(exchange, message->id, result, TOOLS_TTL));
}

/* ---- the table ---- */

enum { LEGACY = 1, MODERN = 2, ALL = 3 };

static const struct method {
    const char *name;
    unsigned eras;
    void (*handle)(struct mcp_exchange *exchange, const struct mcp_message *message);
} METHODS[] = {
    {"initialize", LEGACY, initialize},
    {"ping", LEGACY, ping},
    {"server/discover", MODERN, discover},
    {"tools/list", ALL, list_tools},
    {"tools/call", ALL, mcp_call_tool},
    {"resources/list", ALL, mcp_resources_list},
    {"resources/templates/list", ALL, mcp_resources_templates},
    {"resources/read", ALL, mcp_resources_read},
};

static void handle_request(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    unsigned era = exchange->version->modern ? MODERN : LEGACY;
    for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++) {
        if (strcmp(METHODS[i].name, message->method) != 0 || (METHODS[i].eras & era) == 0)
            continue;
        METHODS[i].handle(exchange, message);
        return;
    }
    char text[160];
    snprintf(text, sizeof text, "there is no method \"%.100s\"", message->method);
    mcp_answer_error(exchange, message->id, MCP_NO_METHOD, text);
}

void mcp_handle(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    switch (message->kind) {
    case MCP_REQUEST:
        handle_request(exchange, message);
        break;
    case MCP_NOTIFICATION: /* those that are not known are not answered either */
        if (strcmp(message->method, "notifications/cancelled") == 0)
            mcp_cancel(exchange, message);
        break;
    case MCP_RESPONSE:
        break;
    case MCP_INVALID:
        mcp_answer_error(exchange, message->id, MCP_INVALID_REQUEST, message->why);
        break;
    }
}
