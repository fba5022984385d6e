/*
 * What takes its time: replies that are written piece by piece, request bodies that are handed on piece by piece, and
 * connections that were taken over, which are both. What always holds: nothing here closes a connection or calls a
 * handler, so these functions may be called from anywhere; what they leave is for the next turn.
 */
#include "gateway/http_conn.h"
#include "gateway/http_inside.h"
#include <errno.h>
#include <string.h>

/* ---- the reply ---- */

/* After something was put into the buffer of a stream. */
static int push(struct http_connection *connection)
{
    if (connection->state == HTTP_BROKEN || http_flush(connection) < 0)
        connection->state = HTTP_BROKEN;
    else if (http_unsent(connection) == 0 && connection->exchange->request.on_drained != NULL)
        connection->drained = true;
    if (!connection->busy)
        http_connection_settle(connection);
    return connection->state == HTTP_BROKEN ? -EPIPE : 0;
}

void http_stream_begin(struct http_request *request, int status, const char *content_type)
{
    if (request->inside != NULL) {
        http_inside_begin(request->inside, status, content_type);
        return;
    }
    struct http_connection *connection = request->connection;
    struct http_exchange *exchange = connection->exchange;
    if (connection->state == HTTP_BROKEN)
        return;
    exchange->chunked = exchange->parser.minor == 1;
    if (!exchange->chunked)
        exchange->parser.keep_alive = false; /* its end is the end of the body */
    http_begin_head(connection, status, content_type);
    hc_buf_add_str(&connection->out, exchange->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    connection->state = HTTP_STREAMING;
    push(connection);
}

void http_stream_begin_sized(struct http_request *request, int status, const char *content_type, uint64_t length)
{
    if (request->inside != NULL) {
        http_inside_begin(request->inside, status, content_type);
        return;
    }
    struct http_connection *connection = request->connection;
    struct http_exchange *exchange = connection->exchange;
    if (connection->state == HTTP_BROKEN)
        return;
    bool bodiless = http_has_no_body(status);
    exchange->sized = true;
    exchange->left = bodiless ? 0 : length;
    http_begin_head(connection, status, content_type);
    if (!bodiless)
        hc_buf_printf(&connection->out, "Content-Length: %llu\r\n", (unsigned long long)length);
    hc_buf_add_str(&connection->out, "\r\n");
    connection->state = HTTP_STREAMING;
    push(connection);
}

int http_upgrade(struct http_request *request, const char *protocol)
{
    if (request->inside != NULL)
        return -EINVAL; /* there is no connection to take over */
    struct http_connection *connection = request->connection;
    struct http_exchange *exchange = connection->exchange;
    const struct http_parser *parser = &exchange->parser;
    if (parser->minor == 0 || parser->has_body || !http_header_has(request, "connection", "upgrade"))
        return -EINVAL;
    if (connection->state == HTTP_BROKEN)
        return 0;
    struct hc_buf *out = &connection->out;
    hc_buf_printf(out, "HTTP/1.1 101 %s\r\nUpgrade: %s\r\nConnection: Upgrade\r\n", http_status_text(101), protocol);
    hc_buf_add(out, exchange->added.data, exchange->added.length);
    hc_buf_add_str(out, "\r\n");
    exchange->raw = exchange->streamed = exchange->paused = true;
    exchange->ended = false;
    connection->close_after = true;
    connection->state = HTTP_STREAMING;
    push(connection);
    return 0;
}

/* Sent bytes are dropped before they make the buffer larger than what waits. */
static void compact(struct http_connection *connection)
{
    struct hc_buf *out = &connection->out;
    if (connection->out_sent < out->length / 2)
        return;
    memmove(out->data, out->data + connection->out_sent, http_unsent(connection));
    out->length = http_unsent(connection);
    out->data[out->length] = '\0';
    connection->out_sent = 0;
}

static void add_piece(struct http_connection *connection, const char *data, size_t length)
{
    if (connection->out_sent > 0)
        compact(connection);
    if (connection->exchange->chunked)
        hc_buf_printf(&connection->out, "%zx\r\n", length);
    hc_buf_add(&connection->out, data, length);
    if (connection->exchange->chunked)
        hc_buf_add_str(&connection->out, "\r\n");
    if (connection->exchange->sized)
        connection->exchange->left -= length;
}

int http_stream_write(struct http_request *request, const char *data, size_t length)
{
    if (request->inside != NULL)
        return http_inside_write(request->inside, data, length);
    struct http_connection *connection = request->connection;
    if (connection->state != HTTP_STREAMING)
        return -EPIPE;
    if (length == 0)
        return 0; /* a chunk of no bytes would end the stream */
    bool too_much = connection->exchange->sized && length > connection->exchange->left;
    if (request->method == HTTP_HEAD)
        return push(connection);
    if (too_much || http_unsent(connection) > connection->server->limits.write_backlog)
        connection->state = HTTP_BROKEN;
    else
        add_piece(connection, data, length);
    return push(connection);
}

void http_stream_kick(struct http_request *request)
{
    if (request->inside != NULL)
        http_inside_write(request->inside, "", 0);
    else
        push(request->connection);
}

size_t http_stream_pending(const struct http_request *request)
{
    return request->inside != NULL ? 0 : http_unsent(request->connection);
}

void http_stream_end(struct http_request *request)
{
    if (request->inside != NULL) {
        http_inside_end(request->inside);
        return;
    }
    struct http_connection *connection = request->connection;
    const struct http_exchange *exchange = connection->exchange;
    bool body = connection->state == HTTP_STREAMING && request->method != HTTP_HEAD;
    if (body && exchange->chunked)
        hc_buf_add_str(&connection->out, "0\r\n\r\n");
    if (body && exchange->sized && exchange->left > 0)
        connection->state = HTTP_BROKEN; /* it must not look whole */
    connection->drained = false;
    http_exchange_end(connection, false);
    http_sent(connection);
}

void http_stream_abort(struct http_request *request)
{
    request->connection->state = HTTP_BROKEN;
    http_stream_end(request);
}

void http_interim(struct http_request *request, int status, const char *lines)
{
    struct http_connection *connection = request->connection;
    if (connection->state != HTTP_HANDLING || connection->exchange->parser.minor == 0)
        return;
    hc_buf_printf(&connection->out, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    hc_buf_add_str(&connection->out, lines);
    hc_buf_add_str(&connection->out, "\r\n");
    if (http_flush(connection) < 0)
        connection->state = HTTP_BROKEN;
    if (!connection->busy)
        http_connection_settle(connection);
}

/* ---- the body of the request ---- */

void http_body_stream(struct http_request *request)
{
    if (request->inside != NULL) {
        http_inside_body(request->inside, HTTP_INSIDE_STREAM, 0);
        return;
    }
    struct http_exchange *exchange = request->connection->exchange;
    exchange->streamed = exchange->paused = true;
    exchange->parser.body_bytes = SIZE_MAX;
}

void http_body_limit(struct http_request *request, uint64_t most)
{
    if (request->inside != NULL) {
        http_inside_body(request->inside, HTTP_INSIDE_LIMIT, most);
        return;
    }
    request->connection->exchange->parser.body_bytes = most;
}

void http_body_resume(struct http_request *request)
{
    if (request->inside != NULL) {
        http_inside_body(request->inside, HTTP_INSIDE_RESUME, 0);
        return;
    }
    struct http_connection *connection = request->connection;
    struct http_exchange *exchange = connection->exchange;
    exchange->paused = false;
    const struct http_parser *parser = &exchange->parser;
    bool too_large = !parser->chunked && parser->remaining > parser->body_bytes; /* the parser says so next */
    if (exchange->owes_continue && connection->state == HTTP_HANDLING && !too_large)
        http_send_continue(connection);
    exchange->owes_continue = false;
    if (!connection->busy)
        http_connection_settle(connection);
}

void http_body_pause(struct http_request *request)
{
    if (request->inside != NULL) {
        http_inside_body(request->inside, HTTP_INSIDE_PAUSE, 0);
        return;
    }
    struct http_connection *connection = request->connection;
    connection->exchange->paused = true;
    if (!connection->busy)
        http_connection_settle(connection);
}

bool http_wants_input(const struct http_connection *connection)
{
    const struct http_exchange *exchange = connection->exchange;
    if (connection->state == HTTP_READING)
        return true;
    if (connection->state != HTTP_HANDLING && connection->state != HTTP_STREAMING)
        return false;
    return exchange->streamed && !exchange->paused && !exchange->ended;
}

bool http_input_ready(const struct http_connection *connection)
{
    if (!http_wants_input(connection))
        return false;
    if (connection->ahead != NULL)
        return true;
    const struct http_exchange *exchange = connection->exchange;
    if (connection->state == HTTP_READING || exchange->raw)
        return false;
    const struct http_parser *parser = &exchange->parser;
    /* Its end, or that it is too large, is known without another byte. */
    return exchange->complete || (!parser->chunked && parser->remaining > parser->body_bytes);
}
