/* Streamable HTTP: how messages of the Model Context Protocol come in and answers go out. See mcp.h. */
#include "base/fd.h"
#include "gateway/mcp.h"
#include "text/base64.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SILENCE = 15 * 1000000, BEHIND = 1 << 20 };
static const char VERSION_KEY[] = "io.modelcontextprotocol/protocolVersion";
static const char CLIENT_KEY[] = "io.modelcontextprotocol/clientCapabilities";

/* ---- the exchange ---- */

static void exchange_free(struct mcp_exchange *exchange)
{
    while (exchange->calls != NULL)
        mcp_call_free(exchange->calls);
    hc_timer_remove(exchange->timer);
    json_decref(exchange->answers);
    free(exchange);
}

static void on_gone(struct http_request *request)
{
    exchange_free(request->data);
}

static void write_event(struct mcp_exchange *exchange, const json_t *message)
{
    hc_cleanup_free char *text = hc_json_write(message, false);
    struct hc_buf event = HC_BUF_INIT(SIZE_MAX / 2);
    hc_buf_printf(&event, "event: message\ndata: %s\n\n", text != NULL ? text : "");
    if (text != NULL && hc_buf_status(&event) == 0)
        http_stream_write(exchange->request, event.data, event.length);
    hc_buf_release(&event);
}

/* From here on what there is to say is said as it comes. */
static void begin_stream(struct mcp_exchange *exchange)
{
    size_t index;
    json_t *answer;
    exchange->streaming = true;
    http_add_header(exchange->request, "X-Accel-Buffering", "no");
    reply_stream(exchange->request, 200, "text/event-stream");
    json_array_foreach(exchange->answers, index, answer) write_event(exchange, answer);
    json_array_clear(exchange->answers);
}

static void on_silence(struct hc_loop *loop, void *data)
{
    struct mcp_exchange *exchange = data;
    exchange->timer = hc_loop_timer(loop, hc_now() + SILENCE, on_silence, exchange);
    if (!exchange->streaming)
        begin_stream(exchange);
    http_stream_write(exchange->request, ": still here\n\n", 14);
}

void mcp_notify(struct mcp_exchange *exchange, json_t *notification)
{
    hc_cleanup_json json_t *owned = notification;
    if (owned == NULL || !exchange->streams)
        return;
    if (!exchange->streaming)
        begin_stream(exchange);
    if (http_stream_pending(exchange->request) < BEHIND) /* who is too slow for all of it hears the next one */
        write_event(exchange, owned);
}

/* The answers as one reply. */
static void reply_answers(struct mcp_exchange *exchange)
{
    struct http_request *request = exchange->request;
    size_t count = json_array_size(exchange->answers);
    const json_t *body = exchange->batch ? exchange->answers : json_array_get(exchange->answers, 0);
    hc_cleanup_free char *text = count > 0 ? hc_json_write(body, false) : NULL;
    int status = exchange->status;
    exchange_free(exchange);
    if (count == 0)
        reply_text(request, 202, NULL, "", 0);
    else if (text == NULL)
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
    else
        reply_json(request, status, text);
}

void mcp_settle(struct mcp_exchange *exchange)
{
    struct http_request *request = exchange->request;
    if (exchange->pending > 0)
        return;
    request->on_gone = NULL;
    if (!exchange->streaming) {
        reply_answers(exchange);
        return;
    }
    exchange_free(exchange);
    http_stream_end(request);
}

void mcp_answer(struct mcp_exchange *exchange, json_t *answer)
{
    hc_cleanup_json json_t *owned =
        answer != NULL ? answer : mcp_error(NULL, MCP_INTERNAL, "the server is out of memory", NULL);
    if (exchange->streaming)
        write_event(exchange, owned);
    else
        json_array_append(exchange->answers, owned);
    mcp_settle(exchange);
}

/* Since 2026-07-28 the HTTP status says what kind of fault it is; before, an answer is a 200. */
static int status_of(const struct mcp_exchange *exchange, enum mcp_code code)
{
    if (!exchange->version->modern || exchange->batch)
        return code == MCP_INVALID_REQUEST && !exchange->batch ? 400 : 200;
    return code == MCP_NO_METHOD ? 404 : code == MCP_INTERNAL ? 200 : 400;
}

void mcp_answer_error(struct mcp_exchange *exchange, const json_t *id, enum mcp_code code, const char *text)
{
    exchange->status = status_of(exchange, code);
    mcp_answer(exchange, mcp_error(id, code, text, NULL));
}

/* ---- refusals before there is an exchange ---- */

static void refuse(struct http_request *request, int status, const json_t *id, enum mcp_code code, const char *why,
                   json_t *data)
{
    hc_cleanup_json json_t *error = mcp_error(id, code, why, data);
    hc_cleanup_free char *text = error != NULL ? hc_json_write(error, false) : NULL;
    if (text != NULL)
        reply_json(request, status, text);
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}

static bool lists(const struct http_request *request, const char *type)
{
    const char *accept = http_header(request, "accept");
    return accept == NULL || strstr(accept, "*/*") != NULL || strcasestr(accept, type) != NULL;
}

/* ---- versions ---- */

/* A header that repeats what is in the message, for those on the way who do not read messages. */
static bool repeats(const struct http_request *request, const char *name, const char *value)
{
    static const char before[] = "=?base64?", after[] = "?=";
    const char *given = http_header(request, name);
    if (given == NULL)
        return false;
    size_t length = strlen(given), rest = sizeof before - 1 + sizeof after - 1;
    if (length < rest || strncmp(given, before, sizeof before - 1) != 0 || strcmp(given + length - 2, after) != 0)
        return strcmp(given, value) == 0;
    hc_cleanup_free char *decoded = NULL;
    size_t size;
    return hc_base64_decode(given + sizeof before - 1, length - rest, &decoded, &size) == 0 && size == strlen(value) &&
           memcmp(decoded, value, size) == 0;
}

/* 0, or it has replied. */
static int check_modern(struct http_request *request, const struct mcp_message *message)
{
    const char *version = json_string_value(mcp_meta(message, VERSION_KEY));
    const char *name = json_string_value(mcp_param(message, "name"));
    if (name == NULL)
        name = json_string_value(mcp_param(message, "uri"));
    bool named = strcmp(message->method, "tools/call") == 0 || strcmp(message->method, "resources/read") == 0;
    const char *why = NULL;
    if (message->kind != MCP_REQUEST)
        return 0;
    if (!json_is_object(mcp_meta(message, CLIENT_KEY))) {
        refuse(request, 400, message->id, MCP_INVALID_PARAMS,
               "params._meta must have io.modelcontextprotocol/clientCapabilities", NULL);
        return -EINVAL;
    }
    if (!repeats(request, "mcp-protocol-version", version))
        why = "the header MCP-Protocol-Version must be there and be the version of the message";
    else if (!repeats(request, "mcp-method", message->method))
        why = "the header Mcp-Method must be there and be the method of the message";
    else if (named && name != NULL && !repeats(request, "mcp-name", name))
        why = "the header Mcp-Name must be there and be the name (or uri) of the message";
    if (why == NULL)
        return 0;
    refuse(request, 400, message->id, MCP_HEADER_MISMATCH, why, NULL);
    return -EINVAL;
}

static int refuse_version(struct http_request *request, const struct mcp_message *message, const char *asked)
{
    json_t *data = json_pack("{s:o, s:o}", "supported", mcp_version_names(), "requested", hc_json_text_lossy(asked));
    refuse(request, 400, message->id, MCP_UNSUPPORTED_VERSION, "this protocol version is not spoken here", data);
    return -EPROTONOSUPPORT;
}

/* Which version a message is of, and whether it says so as that version wants it. 0, or it has replied. */
static int find_version(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    struct http_request *request = exchange->request;
    const char *header = http_header(request, "mcp-protocol-version");
    const json_t *own = mcp_meta(message, VERSION_KEY);
    const char *asked = own != NULL ? json_string_value(own) : header;
    if (own != NULL && asked == NULL) {
        refuse(request, 400, message->id, MCP_INVALID_PARAMS, "the protocol version must be a string", NULL);
        return -EINVAL;
    }
    exchange->version = asked != NULL               ? mcp_version_find(asked)
                        : exchange->session != NULL ? exchange->session->version
                                                    : mcp_version_find("2025-03-26"); /* as its transport says */
    if (exchange->version == NULL || (own != NULL && !exchange->version->modern))
        return refuse_version(request, message, asked);
    if (!exchange->version->modern)
        return 0;
    if (own == NULL && message->kind == MCP_REQUEST) {
        refuse(request, 400, message->id, MCP_INVALID_PARAMS,
               "params._meta must have io.modelcontextprotocol/protocolVersion", NULL);
        return -EINVAL;
    }
    return check_modern(request, message);
}

/* A session that was named must be one of this caller's. 0, or it has replied. */
static int find_session(struct gateway *gateway, struct http_request *request, struct mcp_session **session)
{
    const struct caller *caller = request->context;
    const char *id = http_header(request, "mcp-session-id");
    *session = id != NULL ? mcp_session_find(gateway->mcp, caller->tenant, id) : NULL;
    if (id == NULL || *session != NULL)
        return 0;
    refuse(request, 404, NULL, MCP_INVALID_REQUEST, "there is no such session; begin one with initialize", NULL);
    return -ENOENT;
}

/* ---- POST /mcp ---- */

static void handle_messages(struct mcp_exchange *exchange, const json_t *body)
{
    size_t index;
    json_t *item;
    struct mcp_message message;
    exchange->pending = 1; /* so that none of them ends it before all were read */
    if (exchange->batch) {
        json_array_foreach((json_t *)body, index, item)
        {
            mcp_message_read(item, &message);
            mcp_handle(exchange, &message);
        }
    } else {
        mcp_message_read(body, &message);
        mcp_handle(exchange, &message);
    }
    exchange->pending--;
    mcp_settle(exchange);
}

static const char *batch_fault(const struct mcp_exchange *exchange, const json_t *body)
{
    if (!exchange->version->batches)
        return "this protocol version has no batches; send each message by itself";
    if (json_array_size(body) == 0)
        return "the batch is empty";
    return json_array_size(body) > MCP_BATCH_LIMIT ? "a batch may have at most 100 messages" : NULL;
}

/* 0, or it has replied. */
static int prepare(struct mcp_exchange *exchange, const json_t *body)
{
    struct mcp_message message;
    mcp_message_read(json_is_array(body) ? json_array_get(body, 0) : body, &message);
    exchange->batch = json_is_array(body);
    exchange->status = 200;
    int status = find_session(exchange->gateway, exchange->request, &exchange->session);
    if (status == 0)
        status = find_version(exchange, &message);
    if (status < 0)
        return status;
    if (exchange->version->modern)
        exchange->session = NULL;
    const char *why = exchange->batch ? batch_fault(exchange, body) : NULL;
    if (why == NULL)
        return 0;
    refuse(exchange->request, 400, NULL, MCP_INVALID_REQUEST, why, NULL);
    return -EINVAL;
}

static void begin(struct gateway *gateway, struct http_request *request, const json_t *body)
{
    struct mcp_exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL || (exchange->answers = json_array()) == NULL) {
        free(exchange);
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    exchange->gateway = gateway;
    exchange->request = request;
    exchange->streams = lists(request, "text/event-stream");
    if (prepare(exchange, body) < 0) {
        exchange_free(exchange);
        return;
    }
    request->data = exchange;
    request->on_gone = on_gone;
    if (exchange->streams)
        exchange->timer = hc_loop_timer(gateway->loop, hc_now() + SILENCE, on_silence, exchange);
    handle_messages(exchange, body);
}

void handle_mcp(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    struct hc_err err = {0};
    hc_cleanup_json json_t *body = NULL;
    if (!content_is_json(request)) { /* a page of another origin can send any other kind without asking first */
        reply_problem(request, 415, "invalid_request", "send Content-Type: application/json");
    } else if (!lists(request, "application/json") && !lists(request, "text/event-stream")) {
        reply_problem(request, 406, "invalid_request", "send Accept: application/json, text/event-stream");
    } else if (hc_json_read(request->body, request->body_length, MCP_DEPTH, &body, &err) < 0) {
        refuse(request, 400, NULL, MCP_PARSE_ERROR, err.message, NULL);
    } else {
        begin(gateway, request, body);
    }
}

/* ---- DELETE /mcp ---- */

void handle_mcp_end(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    struct mcp_session *session;
    if (find_session(gateway, request, &session) < 0)
        return;
    if (session == NULL) {
        refuse(request, 400, NULL, MCP_INVALID_REQUEST, "the header Mcp-Session-Id must say which session", NULL);
        return;
    }
    mcp_session_end(gateway->mcp, session);
    reply_text(request, 204, NULL, "", 0);
}
