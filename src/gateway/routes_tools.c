/* Tools over plain HTTP, for who gives tools to a model without the Model Context Protocol. */
#include "base/fd.h"
#include "base/suggest.h"
#include "gateway/tools.h"
#include "run/tools.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_DEPTH = 32, NAMES = 256 };

static void reply_made(struct http_request *request, int status, const json_t *value)
{
    hc_cleanup_free char *text = value != NULL ? hc_json_write(value, false) : NULL;
    if (text != NULL)
        reply_json(request, status, text);
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}

/* ---- GET /v1/tools ---- */

void handle_tool_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    static const char *const known[] = {"format", NULL};
    char name[64], format[32] = "json", detail[128];
    struct hc_err err = {0};
    hc_cleanup_json json_t *list = NULL;
    if (http_query_unknown(request, known, name, sizeof name) != NULL) {
        snprintf(detail, sizeof detail, "there is no parameter \"%s\"; there is format", name);
        reply_problem(request, 400, "invalid_request", detail);
        return;
    }
    if (http_query_value(request, "format", format, sizeof format) < 0)
        snprintf(format, sizeof format, "?");
    if (tools_format(tools_list(gateway->tools), format, &list, &err) < 0) {
        reply_error(request, &err);
        return;
    }
    hc_cleanup_json json_t *answer = json_pack("{s:O}", "tools", list);
    reply_made(request, 200, answer);
}

/* ---- POST /v1/tools/{name} ---- */

/* Who waits for a call: request->data. */
struct waiter {
    struct http_request *request;
    struct tool_call *call;
};

static void on_gone(struct http_request *request)
{
    struct waiter *waiter = request->data;
    tool_call_drop(waiter->call);
    free(waiter);
}

/* All texts of a result as one: what a model is to be told by who has no use for the rest. */
static json_t *joined_text(const json_t *content)
{
    hc_cleanup_json json_t *text = json_string("");
    size_t index;
    json_t *item;
    struct hc_buf buf = HC_BUF_INIT(SIZE_MAX / 2);
    json_array_foreach((json_t *)content, index, item)
    {
        const json_t *part = json_object_get(item, "text");
        if (!json_is_string(part))
            continue;
        if (buf.length > 0 && buf.data[buf.length - 1] != '\n')
            hc_buf_add_str(&buf, "\n");
        hc_buf_add(&buf, json_string_value(part), json_string_length(part));
    }
    json_t *out = buf.length > 0 ? json_stringn(buf.data, buf.length) : json_incref(text);
    hc_buf_release(&buf);
    return out;
}

static void on_done(void *data, json_t *result)
{
    struct waiter *waiter = data;
    struct http_request *request = waiter->request;
    hc_cleanup_json json_t *owned = result;
    free(waiter);
    request->on_gone = NULL;
    const json_t *content = json_object_get(owned, "content"),
                 *structured = json_object_get(owned, "structuredContent");
    hc_cleanup_json json_t *answer =
        owned != NULL
            ? json_pack("{s:b, s:o, s:o, s:O}", "is_error", json_is_true(json_object_get(owned, "isError")), "text",
                        joined_text(content), "result",
                        structured != NULL ? json_incref((json_t *)structured) : json_null(), "content", content)
            : NULL;
    reply_made(request, 200, answer);
}

static void reply_unknown(struct gateway *gateway, struct http_request *request, const char *name)
{
    const char *names[NAMES];
    size_t count = 0, index;
    json_t *tool;
    char detail[256];
    json_array_foreach((json_t *)tools_list(gateway->tools), index, tool)
    {
        if (count < NAMES)
            names[count++] = json_string_value(json_object_get(tool, "name"));
    }
    const char *nearest = hc_suggest(name, names, count);
    snprintf(detail, sizeof detail, "there is no tool \"%.60s\"%s%s%s", name, nearest != NULL ? "; did you mean " : "",
             nearest != NULL ? nearest : "; GET /v1/tools lists them", nearest != NULL ? "?" : "");
    reply_problem(request, 404, "not_found", detail);
}

void handle_tool_call(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *name = route_value(match, "name");
    const json_t *definition = tools_find(gateway->tools, name);
    struct hc_err err = {0};
    hc_cleanup_json json_t *arguments = NULL;
    if (definition == NULL) {
        reply_unknown(gateway, request, name);
        return;
    }
    if (!content_is_json(request)) { /* a page of another origin can send any other kind without asking first */
        reply_problem(request, 415, "invalid_request", "send Content-Type: application/json");
        return;
    }
    if (hc_json_read(request->body, request->body_length, ARGUMENTS_DEPTH, &arguments, &err) < 0) {
        reply_error(request, &err);
        return;
    }
    struct waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) {
        reply_made(request, 503, NULL);
        return;
    }
    waiter->request = request;
    request->data = waiter;
    request->on_gone = on_gone;
    struct tool_events events = {.data = waiter, .done = on_done};
    if (tool_call_start(gateway, request, definition, arguments, &events, &waiter->call) < 0) {
        request->on_gone = NULL;
        free(waiter);
        reply_made(request, 503, NULL);
    }
}
