/*
 * What goes out: replies, and the answers that this layer makes itself (streams: http_stream.c). What always holds: a
 * reply is in the buffer whole before the exchange ends, and is sent whole or the connection is closed; nothing here
 * closes a connection or calls a handler, so these functions may be called from anywhere.
 */
#include "base/fd.h"
#include "gateway/budget.h"
#include "gateway/http_conn.h"
#include "gateway/http_inside.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static const struct {
    int status;
    const char *text;
} STATUSES[] = {
    {101, "Switching Protocols"},
    {102, "Processing"},
    {103, "Early Hints"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Method Not Supported"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

/* What http_reply says itself. */
static const char *const RESERVED[] = {
    "cache-control", "connection",        "content-length",         "content-type", "keep-alive",
    "trailer",       "transfer-encoding", "x-content-type-options", NULL,
};
/* Of these, what is about the connection and the length of the reply, which is never anybody else's to say. */
static const char *const FRAMING[] = {
    "connection", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade", NULL,
};

const char *http_status_text(int status)
{
    for (size_t i = 0; i < sizeof STATUSES / sizeof STATUSES[0]; i++)
        if (STATUSES[i].status == status)
            return STATUSES[i].text;
    return "Unknown";
}

/* ---- bytes ---- */

size_t http_unsent(const struct http_connection *connection)
{
    return connection->out.length - connection->out_sent;
}

static ssize_t transport_write(struct http_connection *connection, const char *data, size_t length)
{
    if (connection->ssl != NULL)
        return http_tls_write(connection->ssl, data, length, &connection->write_wants);
    connection->write_wants = EPOLLOUT;
    ssize_t count = send(connection->fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    return count >= 0 ? count : -errno;
}

void http_release_out(struct http_connection *connection)
{
    struct budget *budget = connection->server->limits.replies;
    hc_buf_release(&connection->out);
    connection->out_sent = 0;
    if (budget != NULL)
        budget_hold(budget, &connection->out_held, 0);
}

/* Whether there is memory for a reply that its client may be slow to take. */
static bool can_hold(struct http_connection *connection, size_t length)
{
    struct budget *budget = connection->server->limits.replies;
    return budget == NULL || budget_hold(budget, &connection->out_held, connection->out_held + length);
}

int http_flush(struct http_connection *connection)
{
    struct hc_buf *out = &connection->out;
    if (hc_buf_status(out) != 0)
        return -EPIPE; /* a part of the reply is missing */
    while (connection->out_sent < out->length) {
        ssize_t count = transport_write(connection, out->data + connection->out_sent, http_unsent(connection));
        if (count == -EINTR)
            continue;
        if (count == -EAGAIN)
            return 0;
        if (count < 0)
            return -EPIPE;
        connection->out_sent += (size_t)count;
        if (connection->wait == HTTP_WAIT_WRITE)
            http_wait_again(connection);
    }
    http_release_out(connection);
    return 0;
}

static void linger(struct http_connection *connection)
{
    if (connection->ssl != NULL)
        http_tls_shutdown(connection->ssl);
    shutdown(connection->fd, SHUT_WR);
    free(HC_TAKE_PTR(connection->ahead));
    connection->ahead_length = 0;
    connection->state = HTTP_LINGERING;
}

void http_sent(struct http_connection *connection)
{
    if (connection->state != HTTP_BROKEN) {
        if (http_flush(connection) < 0)
            connection->state = HTTP_BROKEN;
        else if (http_unsent(connection) > 0)
            connection->state = HTTP_SENDING;
        else if (connection->close_after)
            linger(connection);
        else
            connection->state = HTTP_READING;
    }
    if (!connection->busy)
        http_connection_settle(connection);
}

void http_send_continue(struct http_connection *connection)
{
    hc_buf_add_str(&connection->out, "HTTP/1.1 100 Continue\r\n\r\n");
    if (http_flush(connection) < 0)
        connection->state = HTTP_BROKEN;
}

/* ---- the exchange ---- */

void http_exchange_end(struct http_connection *connection, bool gone)
{
    struct http_exchange *exchange = HC_TAKE_PTR(connection->exchange);
    if (exchange == NULL)
        return;
    struct http_request *request = &exchange->request;
    if (gone && request->on_gone != NULL)
        request->on_gone(request);
    if (request->context_free != NULL)
        request->context_free(request->context);
    struct http_counts *counts = &connection->server->counts;
    if (exchange->counted)
        counts->requests_active--;
    if (exchange->body_capacity > 0) {
        counts->body_bytes -= exchange->body_capacity;
        free(request->body);
    }
    http_parser_release(&exchange->parser);
    hc_buf_release(&exchange->added);
    free(exchange);
}

/* ---- replies ---- */

static int add_header(struct http_request *request, const char *const *reserved, const char *name, const char *value)
{
    if (request->inside != NULL)
        return 0; /* headers are for clients */
    struct http_exchange *exchange = request->connection->exchange;
    if (exchange == NULL || !http_is_token(name, strlen(name)))
        return -EINVAL;
    for (; *reserved != NULL; reserved++)
        if (strcasecmp(name, *reserved) == 0)
            return -EINVAL;
    for (const char *c = value; *c != '\0'; c++)
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7F)
            return -EINVAL;
    if (strlen(name) + strlen(value) + 4 > exchange->added.ceiling - exchange->added.length)
        return -EFBIG; /* checked before, since a failure in the buffer would stick */
    return hc_buf_printf(&exchange->added, "%s: %s\r\n", name, value);
}

int http_add_header(struct http_request *request, const char *name, const char *value)
{
    return add_header(request, RESERVED, name, value);
}

int http_pass_header(struct http_request *request, const char *name, const char *value)
{
    return add_header(request, FRAMING, name, value);
}

void http_headers_bare(struct http_request *request, bool forget)
{
    struct http_exchange *exchange = request->connection->exchange;
    if (forget)
        hc_buf_reset(&exchange->added);
    exchange->added.ceiling = HTTP_PASSED_HEADERS;
    exchange->passed = exchange->added.length;
    exchange->bare = true;
}

void http_headers_ours(struct http_request *request)
{
    struct http_exchange *exchange = request->connection->exchange;
    if (!exchange->bare)
        return;
    exchange->added.length = exchange->passed;
    exchange->added.ceiling = HTTP_ADDED_HEADERS;
    exchange->bare = false;
}

bool http_has_no_body(int status)
{
    return status == 204 || status == 304 || (status >= 100 && status < 200);
}

void http_begin_head(struct http_connection *connection, int status, const char *content_type)
{
    const struct http_exchange *exchange = connection->exchange;
    struct hc_buf *out = &connection->out;
    bool keep = exchange != NULL && exchange->complete && exchange->parser.keep_alive && !connection->server->draining;
    connection->close_after = !keep;
    hc_buf_printf(out, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    if (content_type != NULL)
        hc_buf_printf(out, "Content-Type: %s\r\n", content_type);
    if (status == 426) /* its Upgrade, which says what would be spoken here, is for this connection */
        hc_buf_printf(out, "Connection: %supgrade\r\n", keep ? "" : "close, ");
    else if (!keep)
        hc_buf_add_str(out, "Connection: close\r\n");
    else if (exchange->parser.minor == 0)
        hc_buf_add_str(out, "Connection: keep-alive\r\n");
    if (exchange == NULL || !exchange->bare)
        hc_buf_add_str(out, "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n");
    if (exchange != NULL)
        hc_buf_add(out, exchange->added.data, exchange->added.length);
}

void http_reply(struct http_request *request, int status, const char *content_type, const char *body, size_t length)
{
    if (request->inside != NULL) {
        http_inside_reply(request->inside, status, content_type, body, length);
        return;
    }
    struct http_connection *connection = request->connection;
    if (connection->state != HTTP_STREAMING && connection->state != HTTP_BROKEN && !can_hold(connection, length)) {
        request->on_gone = NULL; /* whoever replies has let go of it */
        http_refuse(connection, 503, "the memory that this server has for results is used up");
        return;
    }
    if (connection->state == HTTP_STREAMING) { /* half a reply cannot be taken back, and must not look whole */
        connection->state = HTTP_BROKEN;
    } else if (connection->state != HTTP_BROKEN) {
        http_begin_head(connection, status, content_type);
        if (!http_has_no_body(status))
            hc_buf_printf(&connection->out, "Content-Length: %zu\r\n", length);
        hc_buf_add_str(&connection->out, "\r\n");
        if (!http_has_no_body(status) && request->method != HTTP_HEAD)
            hc_buf_add(&connection->out, body, length);
    }
    http_exchange_end(connection, false);
    http_sent(connection);
}

/* ---- answers of our own ---- */

static const char *code_of(int status)
{
    switch (status) {
    case 413:
    case 431:
        return "too_large";
    case 500:
        return "internal";
    case 503:
        return "overloaded";
    default:
        return "invalid_request";
    }
}

void http_refuse(struct http_connection *connection, int status, const char *why)
{
    struct http_server *server = connection->server;
    char peer[HTTP_ADDRESS_SIZE];
    http_connection_address(connection, &connection->peer, peer);
    server->counts.refused++;
    if (server->handlers.refused != NULL)
        server->handlers.refused(server->handlers.data, peer, status, why);
    bool head_only = connection->exchange != NULL && connection->exchange->request.method == HTTP_HEAD;
    http_exchange_end(connection, true);
    struct hc_buf body = HC_BUF_INIT(1024);
    hc_buf_printf(&body, "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,\"detail\":\"%s\",\"code\":\"%s\"}",
                  http_status_text(status), status, why, code_of(status));
    http_begin_head(connection, status, "application/problem+json");
    hc_buf_printf(&connection->out, "%sContent-Length: %zu\r\n\r\n", status == 503 ? "Retry-After: 1\r\n" : "",
                  body.length);
    if (!head_only)
        hc_buf_add(&connection->out, body.data, body.length);
    hc_buf_release(&body);
    http_sent(connection);
}
