/*
 * One connection, from accept to close.
 *
 * Theory of operation. Bytes are read into a buffer that all connections share, and consumed at once: the parser takes
 * the head, the body is collected, the handler is called. A connection reads no further than the request it is at, so
 * requests that a client sends ahead wait in the kernel (and at most HTTP_READ_SIZE of them here) until the reply
 * before them is sent: they are answered one after the other.
 *
 * Where the body is streamed the handler is called after the head, and the same bytes are taken by the same parser for
 * as long as the handler wants them; what was read and not wanted waits in `ahead`. A connection that was taken over is
 * the same without the parser.
 *
 * A client that hangs up while its request is handled is noticed by EPOLLRDHUP. An ordinary close() and a half-close
 * (shutdown of writing by a client that still reads) look the same from here; both count as hanging up once the handler
 * keeps a request for later, and neither does while a reply that is already whole is being sent.
 */
#include "gateway/http_conn.h"
#include "base/fd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static void on_event(struct hc_loop *loop, int fd, uint32_t events, void *data);

/* ---- its beginning and end ---- */

static int set_up(struct http_connection *connection, const struct http_listener *listener)
{
    if (listener->kind == HTTP_LISTEN_TCP) {
        socklen_t size = sizeof connection->peer;
        getpeername(connection->fd, &connection->peer.any, &size);
        size = sizeof connection->local;
        getsockname(connection->fd, &connection->local.any, &size);
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    }
    if (listener->tls != NULL) {
        connection->ssl = http_tls_open(listener->tls, connection->fd);
        connection->state = HTTP_HANDSHAKE;
        if (connection->ssl == NULL)
            return -ENOMEM;
    }
    connection->interest = connection->state == HTTP_HANDSHAKE ? EPOLLIN : EPOLLIN | EPOLLRDHUP;
    connection->watch =
        hc_loop_watch(connection->server->loop, connection->fd, connection->interest, on_event, connection);
    return connection->watch != NULL ? 0 : -errno;
}

struct http_connection *http_connection_new(struct http_server *server, const struct http_listener *listener, int fd)
{
    struct http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        hc_close(fd);
        return NULL;
    }
    connection->server = server;
    connection->fd = fd;
    connection->kind = (uint8_t)listener->kind;
    connection->state = HTTP_READING;
    connection->read_wants = EPOLLIN;
    connection->out = HC_BUF_INIT(SIZE_MAX); /* bounded by what handlers reply, and by write_backlog */
    server->counts.connections++;
    http_wait_join(connection, HTTP_WAIT_FIRST);
    if (set_up(connection, listener) < 0) {
        http_connection_close(connection);
        return NULL;
    }
    return connection;
}

void http_connection_close(struct http_connection *connection)
{
    connection->state = HTTP_BROKEN;
    http_exchange_end(connection, true);
    http_wait_leave(connection);
    hc_watch_remove(connection->watch);
    http_tls_close(connection->ssl);
    hc_close(connection->fd);
    http_release_out(connection);
    free(connection->ahead);
    connection->server->counts.connections--;
    free(connection);
}

static char *put_number(char *at, unsigned number)
{
    char digits[10];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

/* By hand: two for each request. */
static void put_v4(const struct sockaddr_in *address, char *at)
{
    const unsigned char *part = (const unsigned char *)&address->sin_addr;
    for (int i = 0; i < 4; i++) {
        at = put_number(at, part[i]);
        *at++ = i < 3 ? '.' : ':';
    }
    *put_number(at, ntohs(address->sin_port)) = '\0';
}

void http_connection_address(const struct http_connection *connection, const union http_address *address,
                             char text[HTTP_ADDRESS_SIZE])
{
    char host[INET6_ADDRSTRLEN] = "";
    if (connection->kind == HTTP_LISTEN_UNIX) {
        memcpy(text, "unix", sizeof "unix");
    } else if (address->any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof host);
        snprintf(text, HTTP_ADDRESS_SIZE, "[%s]:%u", host, ntohs(address->v6.sin6_port));
    } else {
        put_v4(&address->v4, text);
    }
}

/* ---- a request comes in ---- */

static int begin_exchange(struct http_connection *connection)
{
    struct http_exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL)
        return -ENOMEM;
    http_parser_init(&exchange->parser, &connection->server->limits);
    exchange->added = HC_BUF_INIT(HTTP_ADDED_HEADERS);
    exchange->request.connection = connection;
    exchange->request.listener = (enum http_listener_kind)connection->kind;
    exchange->request.tls = connection->ssl != NULL;
    exchange->request.body = exchange->nothing;
    exchange->request.received_at = hc_now();
    connection->exchange = exchange;
    http_wait_for(connection, HTTP_WAIT_HEAD);
    http_wait_again(connection); /* it may have been there for the request before */
    return 0;
}

static size_t body_room(const struct http_server *server)
{
    size_t held = server->counts.body_bytes, total = server->limits.body_total;
    return held < total ? total - held : 0;
}

static void hand_over(struct http_connection *connection)
{
    struct http_server *server = connection->server;
    connection->state = HTTP_HANDLING;
    http_wait_for(connection, HTTP_WAIT_HANDLER);
    server->handlers.handle(server->handlers.data, &connection->exchange->request);
}

/* What comes after a head that was admitted. `left`: bytes of the input that follow it. */
static void begin_body(struct http_connection *connection, size_t left)
{
    struct http_exchange *exchange = connection->exchange;
    const struct http_parser *parser = &exchange->parser;
    if (!parser->chunked && parser->remaining > parser->body_bytes)
        return; /* the parser's next word is that it is too large */
    exchange->owes_continue = parser->has_body && parser->expects_continue && left == 0;
    if (exchange->streamed) {
        hand_over(connection);
    } else if (!parser->chunked && parser->remaining > body_room(connection->server)) {
        http_refuse(connection, 503, "too much is being uploaded at this moment");
    } else if (parser->has_body) {
        http_wait_for(connection, HTTP_WAIT_BODY);
        if (exchange->owes_continue)
            http_send_continue(connection);
    }
}

static void on_head(struct http_connection *connection, size_t left)
{
    struct http_server *server = connection->server;
    struct http_exchange *exchange = connection->exchange;
    struct http_request *request = &exchange->request;
    const struct http_parser *parser = &exchange->parser;
    http_parse_request(parser, request);
    http_connection_address(connection, &connection->peer, request->peer);
    http_connection_address(connection, &connection->local, request->local);
    exchange->counted = true;
    exchange->complete = !parser->has_body;
    server->counts.requests++;
    server->counts.requests_active++;
    int refused = server->handlers.admit != NULL ? server->handlers.admit(server->handlers.data, request) : 0;
    if (connection->exchange == NULL || connection->state != HTTP_READING)
        return;
    if (refused != 0)
        http_refuse(connection, 500, "the request was turned away without an answer");
    else
        begin_body(connection, left);
}

/* Makes room for `extra` more bytes of body and the NUL. The capacity is what counts against body_total. */
static int grow_body(struct http_connection *connection, size_t extra)
{
    struct http_exchange *exchange = connection->exchange;
    size_t needed = exchange->request.body_length + extra + 1;
    if (needed <= exchange->body_capacity)
        return 0;
    size_t most = exchange->body_capacity + body_room(connection->server);
    const struct http_parser *parser = &exchange->parser;
    size_t end = parser->chunked ? parser->body_bytes + 1 : needed + (size_t)parser->remaining;
    size_t capacity = exchange->body_capacity * 2 > needed ? exchange->body_capacity * 2 : needed;
    capacity = capacity < end ? capacity : end;
    capacity = capacity < most ? capacity : most;
    if (capacity < needed)
        return -EDQUOT;
    char *body = realloc(exchange->body_capacity > 0 ? exchange->request.body : NULL, capacity);
    if (body == NULL)
        return -ENOMEM;
    connection->server->counts.body_bytes += capacity - exchange->body_capacity;
    exchange->body_capacity = capacity;
    exchange->request.body = body;
    return 0;
}

/* A piece for the handler who has the request. */
static void hand_on(struct http_connection *connection, const char *piece, size_t length)
{
    struct http_request *request = &connection->exchange->request;
    if (connection->wait == HTTP_WAIT_BODY)
        http_wait_again(connection);
    if (request->on_body != NULL)
        request->on_body(request, piece, length);
}

static void on_body(struct http_connection *connection, const char *piece, size_t length)
{
    struct http_exchange *exchange = connection->exchange;
    exchange->complete = !exchange->parser.chunked && exchange->parser.remaining == 0;
    if (exchange->streamed) {
        hand_on(connection, piece, length);
        return;
    }
    if (grow_body(connection, length) < 0) {
        http_refuse(connection, 503, "too much is being uploaded at this moment");
        return;
    }
    struct http_request *request = &exchange->request;
    memcpy(request->body + request->body_length, piece, length);
    request->body_length += length;
    request->body[request->body_length] = '\0';
}

static void on_end(struct http_connection *connection)
{
    struct http_exchange *exchange = connection->exchange;
    exchange->complete = true;
    if (!exchange->streamed) {
        hand_over(connection);
        return;
    }
    exchange->ended = true;
    if (exchange->request.on_body_end != NULL)
        exchange->request.on_body_end(&exchange->request);
}

/* With the limit that was passed, and the setting that has it: who runs the server can raise it. A body may have a
 * limit of its own (a file of a sandbox). */
static const char *why_too_large(const struct http_connection *connection, char *text, size_t size)
{
    const struct http_parser *parser = &connection->exchange->parser;
    const struct http_limits *limits = &connection->server->limits;
    if (parser->status == 413 && parser->body_bytes < SIZE_MAX)
        snprintf(text, size, "%s: it takes %zu bytes%s", parser->why, parser->body_bytes,
                 parser->body_bytes == limits->body_bytes ? " (server.body_bytes)" : " here");
    else if (parser->status == 431 && parser->names >= parser->header_count)
        snprintf(text, size, "%s: this server takes %zu (server.header_count)", parser->why, parser->header_count);
    else if (parser->status == 431)
        snprintf(text, size, "%s: this server takes %zu bytes (server.header_bytes)", parser->why,
                 parser->header_bytes);
    else
        return parser->why;
    return text;
}

/* A body that cannot be read. Half a reply cannot be taken back: then the connection is all there is to end. */
static void on_nonsense(struct http_connection *connection)
{
    char why[160];
    if (connection->state == HTTP_STREAMING)
        connection->state = HTTP_BROKEN;
    else
        http_refuse(connection, connection->exchange->parser.status, why_too_large(connection, why, sizeof why));
}

static void keep_ahead(struct http_connection *connection, const char *data, size_t length)
{
    if (length == 0 || connection->state == HTTP_LINGERING || connection->state == HTTP_BROKEN ||
        (connection->state == HTTP_SENDING && connection->close_after))
        return;
    connection->ahead = malloc(length);
    if (connection->ahead == NULL) {
        connection->state = HTTP_BROKEN;
        return;
    }
    memcpy(connection->ahead, data, length);
    connection->ahead_length = length;
}

/* Takes requests out of the bytes for as long as each is answered at once, and bodies for as long as they are wanted;
 * keeps the rest for later. */
static void consume(struct http_connection *connection, const char *data, size_t length)
{
    connection->busy = true;
    while (http_wants_input(connection) && (connection->exchange != NULL || length > 0)) {
        if (connection->exchange == NULL && begin_exchange(connection) < 0) {
            connection->state = HTTP_BROKEN;
            break;
        }
        if (connection->exchange->raw) {
            if (length > 0)
                hand_on(connection, data, length);
            length = 0;
            break;
        }
        struct http_parser *parser = &connection->exchange->parser;
        const char *piece;
        size_t used, piece_length;
        enum http_parse_event event = http_parse(parser, data, length, &used, &piece, &piece_length);
        data += used;
        length -= used;
        if (event == HTTP_PARSE_MORE)
            break;
        if (event == HTTP_PARSE_HEAD)
            on_head(connection, length);
        else if (event == HTTP_PARSE_BODY)
            on_body(connection, piece, piece_length);
        else if (event == HTTP_PARSE_END)
            on_end(connection);
        else
            on_nonsense(connection);
    }
    connection->busy = false;
    keep_ahead(connection, data, length);
    http_connection_settle(connection);
}

static void consume_ahead(struct http_connection *connection)
{
    size_t length = connection->ahead_length;
    hc_cleanup_free char *data = HC_TAKE_PTR(connection->ahead);
    connection->ahead_length = 0;
    consume(connection, data, length);
}

static size_t read_size(const struct http_connection *connection)
{
    const struct http_exchange *exchange = connection->exchange;
    if (connection->ssl != NULL || exchange == NULL || !exchange->counted || exchange->parser.chunked)
        return HTTP_READ_SIZE;
    if (exchange->raw)
        return HTTP_BODY_READ_SIZE;
    return exchange->parser.remaining < HTTP_BODY_READ_SIZE ? (size_t)exchange->parser.remaining : HTTP_BODY_READ_SIZE;
}

static void read_some(struct http_connection *connection)
{
    char *data = connection->server->scratch;
    ssize_t count;
    if (connection->ssl != NULL) {
        connection->read_wants = EPOLLIN;
        count = http_tls_read(connection->ssl, data, read_size(connection), &connection->read_wants);
    } else {
        count = recv(connection->fd, data, read_size(connection), MSG_DONTWAIT);
        count = count >= 0 ? count : -errno;
    }
    if (count > 0)
        consume(connection, data, (size_t)count);
    else if (count == -EAGAIN || count == -EINTR)
        http_connection_settle(connection);
    else
        http_connection_close(connection);
}

/* ---- events ---- */

static void shake_hands(struct http_connection *connection)
{
    int status = http_tls_handshake(connection->ssl, &connection->read_wants);
    if (status == 0) {
        connection->state = HTTP_READING;
        connection->read_wants = EPOLLIN;
        http_connection_settle(connection);
        read_some(connection); /* the request may have come with the end of the handshake */
    } else if (status == -EAGAIN) {
        http_connection_settle(connection);
    } else {
        http_connection_close(connection);
    }
}

static void tell_drained(struct http_connection *connection)
{
    struct http_request *request = &connection->exchange->request;
    connection->drained = false;
    connection->busy = true;
    if (request->on_drained != NULL)
        request->on_drained(request);
    connection->busy = false;
    http_connection_settle(connection);
}

static void flush_stream(struct http_connection *connection)
{
    if (http_unsent(connection) == 0 || connection->state == HTTP_BROKEN)
        return;
    if (http_flush(connection) < 0)
        connection->state = HTTP_BROKEN;
    else if (connection->state == HTTP_STREAMING && http_unsent(connection) == 0)
        connection->drained = true;
}

/* The next step of a connection that was left for this turn, or that can write again. */
static void go_on(struct http_connection *connection)
{
    connection->busy = true;
    if (connection->state == HTTP_SENDING)
        http_sent(connection);
    else
        flush_stream(connection);
    connection->busy = false;
    if (connection->state == HTTP_BROKEN)
        http_connection_close(connection);
    else if (http_input_ready(connection))
        consume_ahead(connection);
    else if (connection->state == HTTP_STREAMING && http_unsent(connection) == 0 && connection->drained)
        tell_drained(connection);
    else
        http_connection_settle(connection);
}

static void throw_away(struct http_connection *connection)
{
    ssize_t count = recv(connection->fd, connection->server->scratch, sizeof connection->server->scratch, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    connection->lingered += count > 0 ? (size_t)count : 0;
    if (count <= 0 || connection->lingered > HTTP_LINGER_BYTES)
        http_connection_close(connection);
}

/* While a handler has the request, or the connection. */
static void on_handled_event(struct http_connection *connection, uint32_t events)
{
    if ((events & EPOLLRDHUP) != 0) {
        http_connection_close(connection);
        return;
    }
    bool readable = (events & connection->read_wants) != 0;
    if (readable && http_wants_input(connection) && !http_input_ready(connection)) {
        flush_stream(connection);
        if (connection->state == HTTP_BROKEN)
            http_connection_close(connection);
        else
            read_some(connection);
    } else {
        connection->deaf = connection->deaf || (events & EPOLLIN) != 0;
        go_on(connection);
    }
}

static void on_event(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    (void)fd;
    struct http_connection *connection = data;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0 && connection->state != HTTP_LINGERING) {
        http_connection_close(connection);
        return;
    }
    switch ((enum http_state)connection->state) {
    case HTTP_HANDSHAKE:
        shake_hands(connection);
        break;
    case HTTP_READING:
        if (connection->ahead != NULL)
            go_on(connection);
        else if (http_flush(connection) < 0) /* a 100 Continue may still be there */
            http_connection_close(connection);
        else
            read_some(connection);
        break;
    case HTTP_HANDLING:
    case HTTP_STREAMING:
        on_handled_event(connection, events);
        break;
    case HTTP_SENDING:
        go_on(connection);
        break;
    case HTTP_LINGERING:
        throw_away(connection);
        break;
    case HTTP_BROKEN:
        break; /* closed by the timer */
    }
}

void http_connection_expired(struct http_connection *connection)
{
    switch ((enum http_wait)connection->wait) {
    case HTTP_WAIT_NEXT_TURN:
        http_wait_for(connection, HTTP_WAIT_HANDLER); /* so that it comes to the end of the list, if it comes again */
        go_on(connection);
        break;
    case HTTP_WAIT_HEAD:
        http_refuse(connection, 408, "the request line and headers took too long to arrive");
        break;
    case HTTP_WAIT_BODY:
        if (connection->state == HTTP_STREAMING)
            http_connection_close(connection);
        else
            http_refuse(connection, 408, "the body took too long to arrive");
        break;
    default:
        http_connection_close(connection);
        break;
    }
}
