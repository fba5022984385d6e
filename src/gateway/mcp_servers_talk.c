/* What is said to attached servers and by them: we are their client. See mcp_servers.h. */
#include "base/fd.h"
#include "gateway/mcp_message.h"
#include "gateway/mcp_servers_internal.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- to it ---- */

static void on_room(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    attached_pump(data);
}

void attached_pump(struct attached *server)
{
    struct hc_buf *out = &server->out;
    while (server->out_sent < out->length) {
        ssize_t count = write(server->input[1], out->data + server->out_sent, out->length - server->out_sent);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno != EAGAIN) {
            attached_fail(server, "it cannot be written to");
            return;
        }
        if (count < 0)
            break;
        server->out_sent += (size_t)count;
    }
    bool waits = server->out_sent < out->length;
    if (!waits) {
        hc_buf_reset(out);
        server->out_sent = 0;
    }
    if (server->watch == NULL && waits)
        server->watch = hc_loop_watch(server->servers->gateway->loop, server->input[1], EPOLLOUT, on_room, server);
    else if (server->watch != NULL)
        hc_watch_set(server->watch, waits ? EPOLLOUT : 0);
}

/* Takes the message. */
static void say(struct attached *server, json_t *message)
{
    hc_cleanup_json json_t *owned = message;
    hc_cleanup_free char *text = owned != NULL ? hc_json_write(owned, false) : NULL;
    if (text == NULL || server->input[1] < 0)
        return;
    hc_buf_add_str(&server->out, text);
    hc_buf_add_str(&server->out, "\n");
    if (hc_buf_status(&server->out) != 0)
        attached_fail(server, "it does not read what it is told");
    else
        attached_pump(server);
}

static json_t *request_of(json_int_t id, const char *method, json_t *params)
{
    return json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", id, "method", method, "params", params);
}

/* A request of our own. */
static void ask(struct attached *server, const char *method, json_t *params)
{
    server->awaited = ++server->next_id;
    say(server, request_of(server->awaited, method, params));
}

void attached_greet(struct attached *server)
{
    server->state = SERVER_GREETING;
    ask(server, "initialize",
        json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", "2025-06-18", "capabilities", "clientInfo", "name",
                  "hotcell", "version", HC_VERSION));
}

static void list_tools(struct attached *server, const char *cursor)
{
    json_t *params = json_object();
    if (cursor != NULL)
        json_object_set_new(params, "cursor", json_string(cursor));
    if (cursor == NULL) {
        json_decref(server->listing);
        server->listing = json_array();
        server->pages = 0;
    }
    ask(server, "tools/list", params);
}

/* ---- which tools it has ---- */

static bool is_allowed(const struct attached *server, const char *name)
{
    const struct words *tools = &server->config->tools;
    for (size_t i = 0; i < tools->count && server->config->restricted; i++)
        if (strcmp(tools->item[i], name) == 0)
            return true;
    return !server->config->restricted;
}

static bool is_tool_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= 64 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == length;
}

/* Under our name for it, with the parts that a client may be shown. */
static void add_tool(struct attached *server, const json_t *tool)
{
    static const char *const parts[] = {"title", "description", "inputSchema", "outputSchema", "annotations"};
    const char *name = json_string_value(json_object_get(tool, "name"));
    char full[128];
    if (name == NULL || !is_tool_name(name) || !is_allowed(server, name) ||
        !json_is_object(json_object_get(tool, "inputSchema")) || json_array_size(server->listing) >= SERVER_TOOLS_MOST)
        return;
    snprintf(full, sizeof full, "%s__%s", server->name, name);
    json_t *own = json_pack("{s:s}", "name", full);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (json_object_get(tool, parts[i]) != NULL)
            json_object_set(own, parts[i], json_object_get(tool, parts[i]));
    json_array_append_new(server->listing, own);
}

static void take_tools(struct attached *server, const json_t *result)
{
    const json_t *tools = json_object_get(result, "tools");
    const char *next = json_string_value(json_object_get(result, "nextCursor"));
    size_t index;
    json_t *tool;
    if (!json_is_array(tools)) {
        attached_fail(server, "its answer to tools/list has no tools");
        return;
    }
    json_array_foreach((json_t *)tools, index, tool) add_tool(server, tool);
    if (next != NULL && ++server->pages < SERVER_PAGES_MOST) {
        list_tools(server, next);
        return;
    }
    server->state = SERVER_READY;
    attached_offer(server, HC_TAKE_PTR(server->listing));
}

static void take_own(struct attached *server, const json_t *message)
{
    const json_t *result = json_object_get(message, "result");
    const char *why = json_string_value(json_object_get(json_object_get(message, "error"), "message"));
    server->awaited = 0;
    if (!json_is_object(result)) {
        attached_fail(server, "it refused: %.150s", why != NULL ? why : "without a reason");
        return;
    }
    if (server->state == SERVER_GREETING) {
        server->state = SERVER_LISTING;
        say(server, mcp_notification("notifications/initialized", json_object()));
        list_tools(server, NULL);
    } else {
        take_tools(server, result);
    }
}

/* ---- calls ---- */

void attached_call(struct attached *server, struct mcp_forward *forward, const char *tool, const json_t *arguments)
{
    forward->server = server;
    forward->id = ++server->next_id;
    forward->next = server->forwards;
    server->forwards = forward;
    json_t *params = json_pack("{s:s, s:o}", "name", tool, "arguments",
                               arguments != NULL ? json_incref((json_t *)arguments) : json_object());
    if (forward->events.progress != NULL)
        json_object_set_new(params, "_meta", json_pack("{s:I}", "progressToken", forward->id));
    say(server, request_of(forward->id, "tools/call", params));
}

void attached_cancel(struct attached *server, const struct mcp_forward *forward)
{
    say(server, mcp_notification("notifications/cancelled", json_pack("{s:I, s:s}", "requestId", forward->id, "reason",
                                                                      "it is not wanted any more")));
}

static struct mcp_forward *find_forward(const struct attached *server, const json_t *id)
{
    struct mcp_forward *forward = json_is_integer(id) ? server->forwards : NULL;
    while (forward != NULL && forward->id != json_integer_value(id))
        forward = forward->next;
    return forward;
}

/* The parts of a result that there are; all else is left out. */
static json_t *result_of(const json_t *message)
{
    const json_t *result = json_object_get(message, "result"), *content = json_object_get(result, "content");
    const char *why = json_string_value(json_object_get(json_object_get(message, "error"), "message"));
    if (!json_is_array(content))
        return tool_text_result(why != NULL ? why : "the MCP server's answer is not one", true);
    json_t *own = json_pack("{s:O}", "content", content);
    if (json_is_object(json_object_get(result, "structuredContent")))
        json_object_set(own, "structuredContent", json_object_get(result, "structuredContent"));
    if (json_is_true(json_object_get(result, "isError")))
        json_object_set_new(own, "isError", json_true());
    return own;
}

static void take_answer(struct attached *server, struct mcp_forward *forward, const json_t *message)
{
    struct tool_events events = forward->events;
    for (struct mcp_forward **at = &server->forwards; *at != NULL; at = &(*at)->next) {
        if (*at == forward) {
            *at = forward->next;
            break;
        }
    }
    hc_timer_remove(forward->timer);
    free(forward);
    events.done(events.data, result_of(message));
}

static void take_progress(struct attached *server, const json_t *params)
{
    struct mcp_forward *forward = find_forward(server, json_object_get(params, "progressToken"));
    const json_t *text = json_object_get(params, "message");
    double progress = json_number_value(json_object_get(params, "progress"));
    if (forward == NULL || forward->events.progress == NULL || !(progress > (double)forward->told) || progress > 1e15)
        return;
    forward->told = (uint64_t)progress;
    forward->events.progress(forward->events.data, json_is_string(text) ? json_string_value(text) : "",
                             json_string_length(text), forward->told);
}

/* ---- from it ---- */

static void take_message(struct attached *server, const json_t *value)
{
    struct mcp_message message;
    mcp_message_read(value, &message);
    struct mcp_forward *forward = message.kind == MCP_RESPONSE ? find_forward(server, message.id) : NULL;
    if (message.kind == MCP_INVALID)
        attached_fail(server, "it speaks no JSON-RPC: %s", message.why);
    else if (forward != NULL)
        take_answer(server, forward, value);
    else if (message.kind == MCP_RESPONSE && server->awaited != 0 && json_is_integer(message.id) &&
             json_integer_value(message.id) == server->awaited)
        take_own(server, value);
    else if (message.kind == MCP_REQUEST && strcmp(message.method, "ping") == 0)
        say(server, mcp_result(message.id, json_object()));
    else if (message.kind == MCP_REQUEST)
        say(server, mcp_error(message.id, MCP_NO_METHOD, "this client has nothing to offer", NULL));
    else if (strcmp(message.method, "notifications/progress") == 0)
        take_progress(server, message.params);
    else if (strcmp(message.method, "notifications/tools/list_changed") == 0 && server->state == SERVER_READY &&
             server->awaited == 0)
        list_tools(server, NULL);
}

static void take_line(struct attached *server, const char *line, size_t length)
{
    hc_cleanup_json json_t *value = NULL;
    if (length == 0 || (length == 1 && line[0] == '\r'))
        return;
    if (hc_json_read(line, length, SERVER_DEPTH, &value, NULL) < 0)
        attached_fail(server, "it wrote what is no JSON: %.80s", line);
    else
        take_message(server, value);
}

void attached_heard(struct attached *server, const char *bytes, size_t length)
{
    while (length > 0 && server->why[0] == '\0') {
        const char *newline = memchr(bytes, '\n', length);
        size_t piece = newline != NULL ? (size_t)(newline - bytes) : length;
        hc_buf_add(&server->line, bytes, piece);
        if (hc_buf_status(&server->line) != 0) {
            attached_fail(server, "it wrote a message of more than %d MiB", SERVER_LINE_LIMIT >> 20);
            return;
        }
        bytes += piece + (newline != NULL);
        length -= piece + (newline != NULL);
        if (newline == NULL)
            break;
        size_t taken;
        hc_cleanup_free char *line = hc_buf_take(&server->line, &taken);
        server->line = HC_BUF_INIT(SERVER_LINE_LIMIT);
        if (line != NULL)
            take_line(server, line, taken);
    }
}
