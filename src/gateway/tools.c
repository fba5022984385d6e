/*
 * One call of a tool, from its arguments to its result. A tool is a row: how to ask, and what to make of the reply.
 * Most take one request; some look first and act after (edit_file), so a row may ask again.
 */
#include "run/tools.h"
#include "base/fd.h"
#include "gateway/mcp_servers.h"
#include "gateway/tools_internal.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLY_DEPTH = 64 };

/* ---- the definitions ---- */

struct tools {
    json_t *list;
};

int tools_new(struct tools **out, struct hc_err *err)
{
    struct tools *tools = calloc(1, sizeof *tools);
    if (tools != NULL)
        tools->list = tools_load();
    if (tools == NULL || tools->list == NULL) {
        free(tools);
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "there is no memory for the list of tools");
    }
    *out = tools;
    return 0;
}

void tools_free(struct tools *tools)
{
    if (tools == NULL)
        return;
    json_decref(tools->list);
    free(tools);
}

void tools_replace(struct tools *tools, const char *prefix, const json_t *list)
{
    json_t *all = json_array(), *tool;
    size_t index;
    json_array_foreach(tools->list, index, tool)
    {
        if (strncmp(json_string_value(json_object_get(tool, "name")), prefix, strlen(prefix)) != 0)
            json_array_append(all, tool);
    }
    json_array_extend(all, (json_t *)list);
    json_decref(tools->list); /* a call has its own reference to its definition */
    tools->list = all;
}

const json_t *tools_list(const struct tools *tools)
{
    return tools->list;
}

const json_t *tools_find(const struct tools *tools, const char *name)
{
    size_t index;
    json_t *tool;
    json_array_foreach(tools->list, index, tool)
    {
        if (strcmp(json_string_value(json_object_get(tool, "name")), name) == 0)
            return tool;
    }
    return NULL;
}

static const struct tool_row *find_row(const char *name)
{
    const struct tool_row *const groups[] = {TOOLS_RUN, TOOLS_SANDBOX, TOOLS_FILES};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        for (const struct tool_row *row = groups[i]; row->name != NULL; row++)
            if (strcmp(row->name, name) == 0)
                return row;
    return NULL;
}

/* ---- results ---- */

json_t *tool_text_result(const char *text, bool is_error)
{
    json_t *result = json_pack("{s:[{s:s, s:o}]}", "content", "type", "text", "text", hc_json_text_lossy(text));
    if (result != NULL && is_error)
        json_object_set_new(result, "isError", json_true());
    return result;
}

static void release(struct tool_call *call)
{
    json_decref(call->definition);
    json_decref(call->arguments);
    json_decref(call->kept);
    hc_buf_release(&call->body);
    free(call->last);
    free(call);
}

static void finish(struct tool_call *call, json_t *result)
{
    struct tool_events events = call->events;
    release(call);
    events.done(events.data, result);
}

static void finish_error(struct tool_call *call, const struct hc_err *err)
{
    char text[sizeof err->field + sizeof err->message + sizeof err->remedy + 8];
    bool named = err->field[0] == '\0' || strstr(err->message, err->field) != NULL;
    snprintf(text, sizeof text, "%s%s%s%s%s", named ? "" : err->field, named ? "" : ": ", err->message,
             err->remedy[0] != '\0' ? "; " : "", err->remedy);
    finish(call, tool_text_result(text, true));
}

/* What a reply that is no 2xx says: problem+json, as all of them. */
static void finish_problem(struct tool_call *call, const char *body, size_t length)
{
    hc_cleanup_json json_t *problem = NULL;
    char text[1024];
    hc_json_read(body, length, REPLY_DEPTH, &problem, NULL);
    const char *detail = json_string_value(json_object_get(problem, "detail"));
    if (detail != NULL)
        snprintf(text, sizeof text, "%s", detail);
    else
        snprintf(text, sizeof text, "the server answered with %d", call->status);
    finish(call, tool_text_result(text, true));
}

void tool_finish(struct tool_call *call, json_t *content, json_t *structured)
{
    call->result = json_pack("{s:o}", "content", content);
    if (structured != NULL && call->result != NULL)
        json_object_set_new(call->result, "structuredContent", structured);
}

const json_t *tool_argument(const struct tool_call *call, const char *name)
{
    const json_t *value = json_object_get(call->arguments, name);
    return json_is_null(value) ? NULL : value;
}

const char *tool_text(const struct tool_call *call, const char *name)
{
    return json_string_value(tool_argument(call, name));
}

/* ---- replies ---- */

static int begin(struct tool_call *call);

static void take(struct tool_call *call)
{
    struct hc_err err = {0};
    if (hc_buf_status(&call->body) != 0) {
        hc_fail(&err, HC_CLASS_REQUEST, EFBIG, "there is more than a tool can bring back at once (%d MiB)",
                TOOL_REPLY_LIMIT >> 20);
        finish_error(call, &err);
        return;
    }
    if (call->status / 100 != 2) {
        finish_problem(call, call->body.data != NULL ? call->body.data : "", call->body.length);
        return;
    }
    int more = call->row->take(call, &err);
    if (more < 0)
        finish_error(call, &err);
    else if (more > 0)
        begin(call);
    else
        finish(call, call->result);
}

/* A piece of output that a stream told of. */
static void tell_output(struct tool_call *call, const char *data)
{
    hc_cleanup_json json_t *event = NULL;
    if (call->events.progress == NULL || hc_json_read(data, strlen(data), REPLY_DEPTH, &event, NULL) < 0)
        return;
    const json_t *text = json_object_get(event, "text");
    if (json_is_string(text)) {
        call->output += json_string_length(text);
        call->events.progress(call->events.data, json_string_value(text), json_string_length(text), call->output);
        return;
    }
    hc_cleanup_free char *bytes = NULL;
    size_t length;
    const char *encoded = json_string_value(json_object_get(event, "base64"));
    if (encoded == NULL || hc_base64_decode(encoded, strlen(encoded), &bytes, &length) < 0)
        return;
    struct hc_buf clean = HC_BUF_INIT(TOOL_TEXT_LIMIT);
    hc_utf8_replace(&clean, bytes, length);
    call->output += length;
    if (hc_buf_status(&clean) == 0 && clean.length > 0)
        call->events.progress(call->events.data, clean.data, clean.length, call->output);
    hc_buf_release(&clean);
}

/* One event of a stream of our own making: "event: NAME", perhaps an id, and one "data: " line. */
static void take_event(struct tool_call *call, char *event)
{
    char *name = NULL, *data = NULL, *rest = event;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (strncmp(line, "event: ", 7) == 0)
            name = line + 7;
        else if (strncmp(line, "data: ", 6) == 0)
            data = line + 6;
    }
    if (name == NULL || data == NULL)
        return;
    if (strcmp(name, "stdout") == 0 || strcmp(name, "stderr") == 0)
        tell_output(call, data);
    bool failed = strcmp(name, "error") == 0;
    if (!failed && strcmp(name, "result") != 0)
        return;
    call->status = failed ? 503 : 200;
    free(call->last);
    call->last = strdup(data);
}

static void split_events(struct tool_call *call)
{
    char *at = call->body.data, *end;
    while (at != NULL && (end = strstr(at, "\n\n")) != NULL) {
        *end = '\0';
        take_event(call, at);
        at = end + 2;
    }
    if (at == NULL || at == call->body.data)
        return;
    size_t left = call->body.length - (size_t)(at - call->body.data);
    memmove(call->body.data, at, left + 1);
    call->body.length = left;
}

static void on_head(void *data, int status, const char *content_type)
{
    struct tool_call *call = data;
    call->status = status;
    call->is_stream = strncmp(content_type, "text/event-stream", 17) == 0;
}

static void on_piece(void *data, const char *bytes, size_t length)
{
    struct tool_call *call = data;
    bool whole = memchr(bytes, '\n', length) != NULL;
    hc_buf_add(&call->body, bytes, length);
    if (call->is_stream && whole && hc_buf_status(&call->body) == 0)
        split_events(call);
}

static void on_end(void *data)
{
    struct tool_call *call = data;
    call->inside = NULL;
    if (call->is_stream && hc_buf_status(&call->body) == 0) {
        hc_cleanup_free char *last = HC_TAKE_PTR(call->last);
        hc_buf_reset(&call->body);
        if (last != NULL)
            hc_buf_add_str(&call->body, last);
        else
            call->status = 500;
    }
    take(call);
}

/* ---- requests ---- */

static void ask_release(struct tool_ask *ask)
{
    hc_buf_release(&ask->target);
    json_decref(ask->json);
    free(ask->bytes);
}

static int send_ask(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    hc_cleanup_free char *text = ask->json != NULL ? hc_json_write(ask->json, false) : NULL;
    if (hc_buf_status(&ask->target) == -EFBIG)
        return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "the arguments are too long");
    if (hc_buf_status(&ask->target) != 0 || (ask->json != NULL && text == NULL))
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
    struct http_inside_ask request = {
        .method = ask->method,
        .target = ask->target.data,
        .accept = ask->streamed && call->events.progress != NULL ? "text/event-stream" : NULL,
        .type = ask->json != NULL ? NULL : "application/octet-stream",
        .body = text != NULL ? text : ask->bytes,
        .length = text != NULL ? strlen(text) : ask->length,
    };
    struct http_inside_events events = {.data = call, .head = on_head, .piece = on_piece, .end = on_end};
    hc_buf_reset(&call->body);
    call->is_stream = false;
    return gateway_ask(call->gateway, call->from, &request, &events, &call->inside, err);
}

/* The call may be over after it. */
static int begin(struct tool_call *call)
{
    struct hc_err err = {0};
    struct tool_ask ask = {.method = HTTP_GET, .target = HC_BUF_INIT(TOOL_TARGET_LIMIT)};
    int status = call->row->ask(call, &ask, &err);
    if (status == 0)
        status = send_ask(call, &ask, &err);
    ask_release(&ask);
    if (status < 0)
        finish_error(call, &err);
    return 0;
}

/* ---- tools of attached servers ---- */

static void on_progress(void *data, const char *text, size_t length, uint64_t total)
{
    struct tool_call *call = data;
    call->events.progress(call->events.data, text, length, total);
}

static void on_forwarded(void *data, json_t *result)
{
    struct tool_call *call = data;
    call->forward = NULL;
    finish(call, result);
}

/* Whether the arguments are right is the server's to say. */
static int forward(struct tool_call *call, const char *name, struct tool_call **out)
{
    struct tool_events events = {
        .data = call, .progress = call->events.progress != NULL ? on_progress : NULL, .done = on_forwarded};
    int status = mcp_forward_start(call->gateway->servers, name, call->arguments, &events, &call->forward);
    if (status < 0)
        release(call);
    else
        *out = call;
    return status;
}

int tool_call_start(struct gateway *gateway, const struct http_request *from, const json_t *definition,
                    const json_t *arguments, const struct tool_events *events, struct tool_call **out)
{
    struct tool_call *call = calloc(1, sizeof *call);
    struct hc_err err = {0};
    *out = NULL;
    if (call == NULL)
        return -ENOMEM;
    *call = (struct tool_call){.gateway = gateway, .from = from, .events = *events};
    call->definition = json_incref((json_t *)definition);
    call->body = HC_BUF_INIT(TOOL_REPLY_LIMIT);
    call->arguments = arguments != NULL ? json_incref((json_t *)arguments) : json_object();
    const char *name = json_string_value(json_object_get(definition, "name"));
    call->row = find_row(name);
    if (call->row == NULL && mcp_servers_has(gateway->servers, name))
        return forward(call, name, out);
    if (call->row == NULL || call->arguments == NULL) {
        release(call);
        return -ENOMEM;
    }
    if (tool_check(call->arguments, json_object_get(definition, "inputSchema"), &err) < 0) {
        finish_error(call, &err);
        return 0;
    }
    *out = call; /* before the first request: it may have its end in it, and `done` then forgets the call */
    begin(call);
    return 0;
}

void tool_call_drop(struct tool_call *call)
{
    if (call == NULL)
        return;
    http_inside_drop(HC_TAKE_PTR(call->inside));
    mcp_forward_drop(HC_TAKE_PTR(call->forward));
    release(call);
}
