/*
 * Resources: the files of sandboxes, and those that runs have brought back.
 *
 *     hotcell://sandbox/{id}/{path}    path is absolute: workspace/a.txt is /workspace/a.txt
 *     hotcell://run/{id}/{path}        of a run that collected it
 *
 * A list has one page for each sandbox: its cursor is the number of the sandbox in the list of them.
 */
#include "base/fd.h"
#include "gateway/http_url.h"
#include "gateway/mcp.h"
#include "gateway/tools_internal.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_SANDBOXES, LIST_FILES };
static const char SANDBOX[] = "hotcell://sandbox/", RUN[] = "hotcell://run/";

/* ---- asking ---- */

static void on_head(void *data, int status, const char *content_type)
{
    (void)content_type;
    struct mcp_call *call = data;
    call->reply_status = status;
    hc_buf_reset(&call->body);
}

static void on_piece(void *data, const char *bytes, size_t length)
{
    struct mcp_call *call = data;
    hc_buf_add(&call->body, bytes, length);
}

static void fail(struct mcp_call *call, enum mcp_code code, const char *text)
{
    struct mcp_exchange *exchange = call->exchange;
    if (code == MCP_NO_RESOURCE && exchange->version->modern)
        code = MCP_INVALID_PARAMS;
    mcp_call_answer(call, mcp_error(call->id, code, text, NULL));
}

static void ask(struct mcp_call *call, const char *target, void (*end)(void *data))
{
    struct http_inside_ask request = {.method = HTTP_GET, .target = target};
    struct http_inside_events events = {.data = call, .head = on_head, .piece = on_piece, .end = end};
    struct hc_err err = {0};
    struct mcp_exchange *exchange = call->exchange;
    if (gateway_ask(exchange->gateway, exchange->request, &request, &events, &call->inside, &err) < 0)
        fail(call, MCP_NO_RESOURCE, err.message);
}

static json_t *read_body(const struct mcp_call *call)
{
    json_t *value = NULL;
    if (hc_buf_status(&call->body) == 0 && call->body.data != NULL)
        hc_json_read(call->body.data, call->body.length, MCP_DEPTH, &value, NULL);
    return value;
}

/* ---- resources/list ---- */

static void add_resource(json_t *list, const char *sandbox, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *type = json_string_value(json_object_get(entry, "type"));
    if (name == NULL || type == NULL || strcmp(type, "file") != 0)
        return;
    struct tool_ask uri = {.target = HC_BUF_INIT(TOOL_TARGET_LIMIT)};
    hc_buf_printf(&uri.target, "%s%s/workspace/", SANDBOX, sandbox);
    ask_encoded(&uri, name, true);
    if (hc_buf_status(&uri.target) == 0)
        json_array_append_new(list, json_pack("{s:s, s:s, s:O}", "uri", uri.target.data, "name", name, "size",
                                              json_object_get(entry, "size")));
    hc_buf_release(&uri.target);
}

static void on_files(void *data)
{
    struct mcp_call *call = data;
    call->inside = NULL;
    hc_cleanup_json json_t *reply = call->reply_status == 200 ? read_body(call) : NULL;
    const char *sandbox = json_string_value(json_object_get(call->kept, "sandbox"));
    json_t *list = json_array(), *entry;
    size_t index;
    json_array_foreach(json_object_get(reply, "entries"), index, entry) add_resource(list, sandbox, entry);
    json_t *result = json_pack("{s:o}", "resources", list);
    if (json_object_get(call->kept, "next") != NULL)
        json_object_set(result, "nextCursor", json_object_get(call->kept, "next"));
    mcp_call_answer(call, mcp_finished(call->exchange, call->id, result, 0));
}

static void on_sandboxes(void *data)
{
    struct mcp_call *call = data;
    call->inside = NULL;
    hc_cleanup_json json_t *reply = call->reply_status == 200 ? read_body(call) : NULL;
    const json_t *sandboxes = json_object_get(reply, "sandboxes");
    size_t index = (size_t)call->step, count = json_array_size(sandboxes);
    const char *id = json_string_value(json_object_get(json_array_get(sandboxes, index), "id"));
    if (id == NULL) {
        json_t *none = json_pack("{s:[]}", "resources");
        mcp_call_answer(call, mcp_finished(call->exchange, call->id, none, 0));
        return;
    }
    char next[24], target[256];
    snprintf(next, sizeof next, "%zu", index + 1);
    call->kept = json_pack("{s:s}", "sandbox", id);
    if (index + 1 < count)
        json_object_set_new(call->kept, "next", json_string(next));
    snprintf(target, sizeof target, "/v1/sandboxes/%.80s/files?path=/workspace&depth=4", id);
    ask(call, target, on_files);
}

void mcp_resources_list(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    const json_t *cursor = mcp_param(message, "cursor");
    const char *text = json_string_value(cursor);
    char *end = NULL;
    unsigned long index = text != NULL ? strtoul(text, &end, 10) : 0;
    if (cursor != NULL && (text == NULL || end == text || *end != '\0' || index > INT16_MAX)) {
        mcp_answer_error(exchange, message->id, MCP_INVALID_PARAMS, "params.cursor is not one of ours");
        return;
    }
    struct mcp_call *call = mcp_call_new(exchange, message->id);
    if (call == NULL) {
        mcp_answer(exchange, NULL);
        return;
    }
    call->step = (int)index;
    ask(call, "/v1/sandboxes?state=running", on_sandboxes);
}

/* ---- resources/templates/list ---- */

void mcp_resources_templates(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    json_t *result =
        json_pack("{s:[{s:s, s:s, s:s}, {s:s, s:s, s:s}]}", "resourceTemplates", "uriTemplate",
                  "hotcell://sandbox/{sandbox}/{+path}", "name", "A file of a sandbox", "description",
                  "A file by its absolute path: hotcell://sandbox/sbx_…/workspace/main.py is /workspace/main.py",
                  "uriTemplate", "hotcell://run/{run}/{+path}", "name", "A file that a run brought back", "description",
                  "A file that \"collect\" of run_code or run_command asked for, by its path in the working directory");
    mcp_answer(exchange, mcp_finished(exchange, message->id, result, 0));
}

/* ---- resources/read ---- */

static void answer_bytes(struct mcp_call *call, const char *bytes, size_t length)
{
    const char *uri = json_string_value(json_object_get(call->kept, "uri"));
    bool text = hc_utf8_valid(bytes, length) && memchr(bytes, '\0', length) == NULL;
    size_t encoded_length;
    hc_cleanup_free char *encoded = text ? NULL : hc_base64_encode(bytes, length, &encoded_length);
    json_t *value = text ? json_stringn(bytes, length) : encoded != NULL ? json_string(encoded) : NULL;
    json_t *result = json_pack("{s:[{s:s, s:s, s:o}]}", "contents", "uri", uri, "mimeType",
                               content_type_of(uri, bytes, length), text ? "text" : "blob", value);
    mcp_call_answer(call, mcp_finished(call->exchange, call->id, result, 0));
}

/* 404 and the like, in the words of the server. */
static void answer_problem(struct mcp_call *call)
{
    hc_cleanup_json json_t *problem = read_body(call);
    const char *detail = json_string_value(json_object_get(problem, "detail"));
    fail(call, call->reply_status < 500 ? MCP_NO_RESOURCE : MCP_INTERNAL,
         detail != NULL ? detail : "it cannot be read");
}

static void on_file(void *data)
{
    struct mcp_call *call = data;
    call->inside = NULL;
    if (call->reply_status != 200)
        answer_problem(call);
    else if (hc_buf_status(&call->body) != 0)
        fail(call, MCP_INTERNAL, "the file is too large to be read as a resource");
    else
        answer_bytes(call, call->body.data != NULL ? call->body.data : "", call->body.length);
}

static void on_run(void *data)
{
    struct mcp_call *call = data;
    call->inside = NULL;
    if (call->reply_status != 200) {
        answer_problem(call);
        return;
    }
    hc_cleanup_json json_t *run = read_body(call);
    const char *path = json_string_value(json_object_get(call->kept, "path"));
    size_t index, length;
    json_t *file;
    json_array_foreach(json_object_get(run, "files"), index, file)
    {
        hc_cleanup_free char *bytes = NULL;
        const char *own = json_string_value(json_object_get(file, "path"));
        const char *encoded = json_string_value(json_object_get(file, "base64"));
        if (own == NULL || encoded == NULL || strcmp(own, path) != 0 ||
            hc_base64_decode(encoded, strlen(encoded), &bytes, &length) < 0)
            continue;
        answer_bytes(call, bytes, length);
        return;
    }
    fail(call, MCP_NO_RESOURCE, "the run has not brought back such a file");
}

/* `id` is `length` bytes of the address, and behind it is the path. */
static void read_resource(struct mcp_call *call, const char *uri, const char *id, size_t length, bool sandbox)
{
    struct tool_ask made = {.target = HC_BUF_INIT(TOOL_TARGET_LIMIT)};
    char path[TOOL_TARGET_LIMIT / 4];
    int decoded = http_percent_decode(id + length, strlen(id + length), false, path, sizeof path);
    if (sandbox)
        hc_buf_printf(&made.target, "/v1/sandboxes/%.*s/files/?path=", (int)length, id);
    else
        hc_buf_printf(&made.target, "/v1/runs/%.*s", (int)length, id);
    if (decoded > 0 && sandbox)
        ask_encoded(&made, path, true);
    call->kept = decoded > 0 ? json_pack("{s:s, s:s}", "uri", uri, "path", path + 1) : NULL;
    if (call->kept == NULL || hc_buf_status(&made.target) != 0)
        fail(call, MCP_NO_RESOURCE, "this is no address of a file, or too long");
    else
        ask(call, made.target.data, sandbox ? on_file : on_run);
    hc_buf_release(&made.target);
}

void mcp_resources_read(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    const char *uri = json_string_value(mcp_param(message, "uri"));
    bool sandbox = uri != NULL && strncmp(uri, SANDBOX, sizeof SANDBOX - 1) == 0;
    bool run = uri != NULL && strncmp(uri, RUN, sizeof RUN - 1) == 0;
    const char *id = uri == NULL ? "" : uri + (sandbox ? sizeof SANDBOX : sizeof RUN) - 1;
    size_t length = sandbox || run ? strcspn(id, "/") : 0;
    if (length == 0 || length > 80 || id[length] == '\0' || id[length + 1] == '\0' || strchr(id, '?') != NULL) {
        bool modern = exchange->version->modern || uri == NULL;
        mcp_answer_error(exchange, message->id, modern ? MCP_INVALID_PARAMS : MCP_NO_RESOURCE,
                         "params.uri must be such as hotcell://sandbox/ID/workspace/FILE");
        return;
    }
    struct mcp_call *call = mcp_call_new(exchange, message->id);
    if (call == NULL)
        mcp_answer(exchange, NULL);
    else
        read_resource(call, uri, id, length, sandbox);
}
