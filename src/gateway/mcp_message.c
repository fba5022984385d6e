/* See mcp_message.h. */
#include "gateway/mcp_message.h"
#include "text/json.h"
#include <stdbool.h>
#include <string.h>

static const char *fault_of(const json_t *value, const struct mcp_message *message)
{
    const char *version = json_string_value(json_object_get(value, "jsonrpc"));
    const json_t *id = json_object_get(value, "id"), *params = json_object_get(value, "params");
    if (!json_is_object(value))
        return "a message is a JSON object";
    if (version == NULL || strcmp(version, "2.0") != 0)
        return "jsonrpc must be \"2.0\"";
    if (id != NULL && message->id == NULL)
        return "id must be a string or an integer";
    if (message->kind == MCP_RESPONSE)
        return NULL;
    if (!json_is_string(json_object_get(value, "method")))
        return "method must be a string";
    if (params != NULL && !json_is_object(params))
        return "params must be an object";
    return NULL;
}

void mcp_message_read(const json_t *value, struct mcp_message *message)
{
    const json_t *id = json_object_get(value, "id"), *method = json_object_get(value, "method");
    bool answers = json_object_get(value, "result") != NULL || json_object_get(value, "error") != NULL;
    *message = (struct mcp_message){.method = json_is_string(method) ? json_string_value(method) : ""};
    message->id = json_is_string(id) || json_is_integer(id) ? id : NULL;
    message->params = json_object_get(value, "params");
    if (method == NULL && answers)
        message->kind = MCP_RESPONSE;
    else
        message->kind = id != NULL ? MCP_REQUEST : MCP_NOTIFICATION;
    message->why = fault_of(value, message);
    if (message->why != NULL)
        message->kind = MCP_INVALID;
}

json_t *mcp_result(const json_t *id, json_t *result)
{
    return json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
}

json_t *mcp_error(const json_t *id, enum mcp_code code, const char *text, json_t *data)
{
    json_t *error = json_pack("{s:i, s:o}", "code", (int)code, "message", hc_json_text_lossy(text));
    if (data != NULL && json_object_set_new(error, "data", data) < 0) {
        json_decref(error);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id != NULL ? json_incref((json_t *)id) : json_null(),
                     "error", error);
}

json_t *mcp_notification(const char *method, json_t *params)
{
    return json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params);
}

const json_t *mcp_param(const struct mcp_message *message, const char *name)
{
    return json_object_get(message->params, name);
}

const json_t *mcp_meta(const struct mcp_message *message, const char *name)
{
    return json_object_get(json_object_get(message->params, "_meta"), name);
}
