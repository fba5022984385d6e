/*
 * Requests that take their time: tools. What their programs write is told as progress to clients that gave a token for
 * it, at most ten times a second; a client that cancels ends them.
 */
#include "base/fd.h"
#include "gateway/mcp.h"
#include "text/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRESS_EVERY = 100000 }; /* µs */

/* ---- their life ---- */

struct mcp_call *mcp_call_new(struct mcp_exchange *exchange, const json_t *id)
{
    struct mcp_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->exchange = exchange;
    call->id = json_incref((json_t *)id);
    call->body = HC_BUF_INIT(MCP_BODY_LIMIT);
    call->next = exchange->calls;
    exchange->calls = call;
    exchange->pending++;
    if (exchange->session != NULL) {
        call->session_next = exchange->session->calls;
        exchange->session->calls = call;
    }
    return call;
}

static void leave(struct mcp_call *call)
{
    for (struct mcp_call **at = &call->exchange->calls; *at != NULL; at = &(*at)->next) {
        if (*at == call) {
            *at = call->next;
            break;
        }
    }
    if (call->exchange->session == NULL)
        return;
    for (struct mcp_call **at = &call->exchange->session->calls; *at != NULL; at = &(*at)->session_next) {
        if (*at == call) {
            *at = call->session_next;
            break;
        }
    }
}

void mcp_call_free(struct mcp_call *call)
{
    leave(call);
    hc_timer_remove(call->timer);
    tool_call_drop(call->tool);
    http_inside_drop(call->inside);
    json_decref(call->id);
    json_decref(call->token);
    json_decref(call->kept);
    hc_buf_release(&call->body);
    free(call);
}

void mcp_call_answer(struct mcp_call *call, json_t *answer)
{
    struct mcp_exchange *exchange = call->exchange;
    mcp_call_free(call);
    exchange->pending--;
    mcp_answer(exchange, answer);
}

/* ---- progress ---- */

static void tell(struct mcp_call *call)
{
    json_t *params = json_pack("{s:O, s:I}", "progressToken", call->token, "progress", (json_int_t)call->total);
    json_t *text = json_stringn(call->recent, call->recent_length);
    if (params != NULL && text != NULL)
        json_object_set_new(params, "message", text);
    call->told = call->total;
    call->recent_length = 0;
    mcp_notify(call->exchange, mcp_notification("notifications/progress", params));
}

static void on_time(struct hc_loop *loop, void *data)
{
    struct mcp_call *call = data;
    call->timer = NULL;
    if (call->told == call->total)
        return;
    tell(call);
    call->timer = hc_loop_timer(loop, hc_now() + PROGRESS_EVERY, on_time, call);
}

/* Keeps the end of the output, from the beginning of a character on. */
static void remember(struct mcp_call *call, const char *text, size_t length)
{
    if (length > MCP_RECENT) {
        text += length - MCP_RECENT;
        length = MCP_RECENT;
    }
    size_t drop = call->recent_length + length > MCP_RECENT ? call->recent_length + length - MCP_RECENT : 0;
    memmove(call->recent, call->recent + drop, call->recent_length - drop);
    call->recent_length -= drop;
    memcpy(call->recent + call->recent_length, text, length);
    call->recent_length += length;
    size_t skip = 0;
    while (skip < call->recent_length && ((unsigned char)call->recent[skip] & 0xC0) == 0x80)
        skip++;
    memmove(call->recent, call->recent + skip, call->recent_length - skip);
    call->recent_length -= skip;
}

static void on_progress(void *data, const char *text, size_t length, uint64_t total)
{
    struct mcp_call *call = data;
    remember(call, text, length);
    call->total = total;
    if (call->timer == NULL) /* the first at once, what comes soon after it together */
        call->timer = hc_loop_timer(call->exchange->gateway->loop, hc_now(), on_time, call);
}

/* ---- tools/call ---- */

static void on_done(void *data, json_t *result)
{
    struct mcp_call *call = data;
    call->tool = NULL;
    if (call->token != NULL && call->told != call->total)
        tell(call);
    mcp_call_answer(call, result != NULL ? mcp_finished(call->exchange, call->id, result, -1) : NULL);
}

void mcp_call_tool(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    const char *name = json_string_value(mcp_param(message, "name"));
    const json_t *arguments = mcp_param(message, "arguments"), *token = mcp_meta(message, "progressToken");
    const json_t *definition = name != NULL ? tools_find(exchange->gateway->tools, name) : NULL;
    if (definition == NULL) {
        char text[160];
        snprintf(text, sizeof text, name != NULL ? "there is no tool \"%.80s\"" : "params.name must be a string", name);
        mcp_answer_error(exchange, message->id, MCP_INVALID_PARAMS, text);
        return;
    }
    if (arguments != NULL && !json_is_object(arguments)) {
        mcp_answer_error(exchange, message->id, MCP_INVALID_PARAMS, "params.arguments must be an object");
        return;
    }
    struct mcp_call *call = mcp_call_new(exchange, message->id);
    if (call == NULL) {
        mcp_answer(exchange, NULL);
        return;
    }
    bool wanted = exchange->streams && (json_is_string(token) || json_is_integer(token));
    call->token = wanted ? json_incref((json_t *)token) : NULL;
    struct tool_events events = {.data = call, .progress = wanted ? on_progress : NULL, .done = on_done};
    if (tool_call_start(exchange->gateway, exchange->request, definition, arguments, &events, &call->tool) < 0)
        mcp_call_answer(call, NULL);
}

/* ---- notifications/cancelled ---- */

/* There is no answer to what was cancelled. An exchange that has nothing else to say ends without a word. */
void mcp_cancel(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    const json_t *id = mcp_param(message, "requestId");
    struct mcp_call *call = exchange->session != NULL && id != NULL ? exchange->session->calls : NULL;
    while (call != NULL && !json_equal(call->id, id))
        call = call->session_next;
    if (call == NULL || call->exchange == exchange)
        return;
    struct mcp_exchange *other = call->exchange;
    mcp_call_free(call);
    other->pending--;
    mcp_settle(other);
}
