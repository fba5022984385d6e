/*
 * What a client of the Model Context Protocol says, up to where a request is made of it: messages are taken apart, and
 * arguments of tools are held against their schemas. What always holds: a message is of one kind, with what that kind
 * needs; arguments that pass have the members that are required and none that are not known; a projection holds nothing
 * that the value did not.
 */
#include "gateway/mcp_message.h"
#include "gateway/tools_internal.h"
#include "run/tools.h"
#include "text/json.h"
#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_message(const struct mcp_message *message)
{
    check((message->kind == MCP_INVALID) == (message->why != NULL));
    check(message->method != NULL);
    if (message->kind == MCP_REQUEST)
        check(message->id != NULL);
    if (message->kind == MCP_REQUEST || message->kind == MCP_NOTIFICATION)
        check(message->params == NULL || json_is_object(message->params));
    if (message->kind == MCP_NOTIFICATION)
        check(message->id == NULL);
}

static void check_arguments(const json_t *tool, const json_t *arguments)
{
    const json_t *schema = json_object_get(tool, "inputSchema");
    struct hc_err err = {0};
    size_t index;
    json_t *name;
    const char *key;
    int status = tool_check(arguments, schema, &err);
    check((status < 0) == (err.code != 0));
    hc_cleanup_json json_t *kept = tool_project(arguments, schema);
    check(kept != NULL);
    if (status < 0)
        return;
    check(json_is_object(arguments));
    json_array_foreach(json_object_get(schema, "required"), index, name)
        check(json_object_get(arguments, json_string_value(name)) != NULL);
    json_object_foreach((json_t *)arguments, key, name)
        check(json_object_get(json_object_get(schema, "properties"), key) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *tools; /* read once: it is the same for every input */
    hc_cleanup_json json_t *value = NULL;
    struct mcp_message message;
    size_t index;
    json_t *tool;
    if (tools == NULL)
        tools = tools_load();
    check(tools != NULL);
    if (hc_json_read((const char *)data, size, 64, &value, NULL) < 0)
        return 0;
    mcp_message_read(value, &message);
    check_message(&message);
    const json_t *arguments = mcp_param(&message, "arguments");
    json_array_foreach(tools, index, tool)
    {
        if (arguments != NULL)
            check_arguments(tool, arguments);
        check_arguments(tool, value);
    }
    return 0;
}
