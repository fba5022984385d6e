/* JSON-RPC 2.0 as the Model Context Protocol has it: one message, taken apart strictly; and answers. Pure. */
#ifndef HC_GATEWAY_MCP_MESSAGE_H
#define HC_GATEWAY_MCP_MESSAGE_H

#include <jansson.h>

enum mcp_code {
    MCP_PARSE_ERROR = -32700,
    MCP_INVALID_REQUEST = -32600,
    MCP_NO_METHOD = -32601,
    MCP_INVALID_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_NO_RESOURCE = -32002, /* until 2025-11-25 */
    MCP_HEADER_MISMATCH = -32020,
    MCP_UNSUPPORTED_VERSION = -32022,
};

enum mcp_kind {
    MCP_REQUEST,
    MCP_NOTIFICATION,
    MCP_RESPONSE, /* to something that we never asked */
    MCP_INVALID,
};

/* All of it is borrowed from the message. */
struct mcp_message {
    enum mcp_kind kind;
    const char *method;   /* "" for a response */
    const json_t *id;     /* a string or an integer; NULL: none that can be used */
    const json_t *params; /* an object, or NULL */
    const char *why;      /* of MCP_INVALID: a sentence */
};

void mcp_message_read(const json_t *value, struct mcp_message *message);

/* Answers: new references; NULL: out of memory. `result` and `data` are taken; `id` NULL becomes null. */
json_t *mcp_result(const json_t *id, json_t *result);
json_t *mcp_error(const json_t *id, enum mcp_code code, const char *text, json_t *data);
json_t *mcp_notification(const char *method, json_t *params);

/* A member of params, or NULL. */
const json_t *mcp_param(const struct mcp_message *message, const char *name);
/* params._meta[name], or NULL. */
const json_t *mcp_meta(const struct mcp_message *message, const char *name);

#endif
