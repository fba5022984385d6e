/* See http_client.h. */
#include "cli/http_client.h"

#include "base/fd.h"
#include "base/loop.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_TIME = 10 * 1000 * 1000, SEND_TIME = 120 * 1000 * 1000 }; /* µs */
enum { ASK_HEAD_MAX = 32 * 1024, PIECE = 64 * 1024, ANSWER_MAX = 512 * 1024 * 1024 };
enum { CHUNK_HEAD = 16, CHUNK_ROOM = CHUNK_HEAD + PIECE + 2 };

struct http_exchange {
    struct connection *connection;
    struct http_response response;
    struct hc_buf early; /* body bytes that came with the head */
    uint64_t patience, head_patience;
    const char *where; /* for messages; the address's */
    char *chunk;       /* of a body that is pushed: room for its size, PIECE bytes, the line end */
    size_t chunk_length;
    bool answered; /* the server reads no more of it */
};

static uint64_t deadline_in(uint64_t microseconds)
{
    return microseconds ? hc_now() + microseconds : 0;
}

static int broken(const struct http_exchange *exchange, int status, struct hc_err *err)
{
    if (status == -EINTR)
        return hc_fail(err, HC_CLASS_HOST, EINTR, "interrupted");
    if (status == -EPROTO || status == -EFBIG) {
        hc_fail(err, HC_CLASS_HOST, -status, "what answers at %s is no hotcell server, or one of another version",
                exchange->where);
        return status;
    }
    return hc_fail_errno(err, HC_CLASS_HOST, -status, "the connection to %s was lost", exchange->where);
}

static int write_head(const struct http_server_address *address, const struct http_ask *ask, struct hc_buf *head)
{
    hc_buf_printf(head, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: hotcell/" HC_VERSION "\r\nConnection: close\r\n",
                  ask->method, ask->target, address->url.authority);
    hc_buf_printf(head, "Accept: %s\r\n", ask->accept ? ask->accept : "application/json");
    if (address->key)
        hc_buf_printf(head, "Authorization: Bearer %s\r\n", address->key);
    if (ask->last_event_id)
        hc_buf_printf(head, "Last-Event-ID: %s\r\n", ask->last_event_id);
    if (ask->expect)
        hc_buf_printf(head, "Hotcell-Expect: %s\r\n", ask->expect);
    if (ask->headers)
        hc_buf_add_str(head, ask->headers);
    if (ask->body)
        hc_buf_printf(head, "Content-Type: %s\r\nContent-Length: %zu\r\n", ask->type ? ask->type : "application/json",
                      ask->length);
    if (ask->chunked)
        hc_buf_printf(head, "Content-Type: %s\r\nTransfer-Encoding: chunked\r\n",
                      ask->type ? ask->type : "application/octet-stream");
    hc_buf_add_str(head, "\r\n");
    return hc_buf_status(head);
}

/* A server that refuses a body before it has read all of it says why and closes: that answer is what counts. */
static bool has_answered(int status)
{
    return status == -EALREADY || status == -EPIPE || status == -ECONNRESET;
}

static int send_ask(struct http_exchange *exchange, const struct http_server_address *address,
                    const struct http_ask *ask)
{
    struct hc_buf head = HC_BUF_INIT(ASK_HEAD_MAX);
    uint64_t deadline = deadline_in(SEND_TIME);
    int status = write_head(address, ask, &head);
    bool together = ask->length > 0 && ask->length <= ASK_HEAD_MAX - head.length; /* the server wakes up once */

    if (status == 0 && together)
        status = hc_buf_add(&head, ask->body, ask->length);
    if (status == 0)
        status = connection_write(exchange->connection, head.data, head.length, deadline);
    hc_buf_release(&head);
    if (status == 0 && ask->length > 0 && !together)
        status = connection_write(exchange->connection, ask->body, ask->length, deadline);
    return has_answered(status) ? 0 : status;
}

/* One piece from the connection. 1: more may come; 0: the answer is complete; -errno. */
static int read_piece(struct http_exchange *exchange, struct hc_buf *body)
{
    hc_cleanup_free char *piece = malloc(PIECE);

    if (!piece)
        return -ENOMEM;
    bool head = exchange->response.status == 0;
    uint64_t patience = head ? exchange->head_patience : exchange->patience;
    ssize_t count = connection_read(exchange->connection, piece, PIECE, deadline_in(patience));
    if (count < 0)
        return (int)count;
    int status = count == 0 ? http_response_end(&exchange->response)
                            : http_response_feed(&exchange->response, piece, (size_t)count, body);
    if (status < 0)
        return status;
    return !http_response_done(&exchange->response);
}

static int read_head(struct http_exchange *exchange)
{
    int more = 1;

    while (more > 0 && exchange->response.status == 0)
        more = read_piece(exchange, &exchange->early);
    return more < 0 ? more : 0;
}

int http_send(const struct http_server_address *address, const struct http_ask *ask, struct http_exchange **out,
              struct hc_err *err)
{
    struct http_exchange *exchange = calloc(1, sizeof *exchange);

    if (!exchange)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    exchange->patience = ask->patience;
    exchange->head_patience = ask->head_patience ? ask->head_patience : ask->patience;
    exchange->where = address->url.scheme == URL_UNIX ? address->url.path : address->url.authority;
    exchange->early = HC_BUF_INIT(PIECE);
    http_response_start(&exchange->response);
    int status = connection_open(&address->url, &address->terms, deadline_in(CONNECT_TIME), &exchange->connection, err);
    if (status == 0) {
        status = send_ask(exchange, address, ask);
        if (status < 0)
            broken(exchange, status, err);
    }
    if (status < 0) {
        http_close(exchange);
        return status;
    }
    *out = exchange;
    return 0;
}

int http_fd(const struct http_exchange *exchange)
{
    return connection_fd(exchange->connection);
}

/* What has been gathered, as one chunk, in one write. */
static int send_chunk(struct http_exchange *exchange)
{
    char head[CHUNK_HEAD + 1];

    if (exchange->chunk_length == 0 || exchange->answered)
        return 0;
    int length = snprintf(head, sizeof head, "%zx\r\n", exchange->chunk_length);
    char *start = exchange->chunk + CHUNK_HEAD - length;
    memcpy(start, head, (size_t)length);
    memcpy(exchange->chunk + CHUNK_HEAD + exchange->chunk_length, "\r\n", 2);
    int status = connection_write(exchange->connection, start, (size_t)length + exchange->chunk_length + 2,
                                  deadline_in(SEND_TIME));
    exchange->chunk_length = 0;
    exchange->answered = has_answered(status);
    return exchange->answered ? 0 : status;
}

int http_push(struct http_exchange *exchange, const void *data, size_t length, struct hc_err *err)
{
    const char *at = data;

    if (!exchange->chunk && !(exchange->chunk = malloc(CHUNK_ROOM)))
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    while (length > 0 && !exchange->answered) {
        size_t room = PIECE - exchange->chunk_length, part = length < room ? length : room;
        memcpy(exchange->chunk + CHUNK_HEAD + exchange->chunk_length, at, part);
        exchange->chunk_length += part;
        at += part;
        length -= part;
        int status = exchange->chunk_length == PIECE ? send_chunk(exchange) : 0;
        if (status < 0)
            return broken(exchange, status, err);
    }
    return exchange->answered;
}

int http_push_end(struct http_exchange *exchange, struct hc_err *err)
{
    static const char end[] = "0\r\n\r\n";
    int status = send_chunk(exchange);

    if (status == 0 && !exchange->answered)
        status = connection_write(exchange->connection, end, sizeof end - 1, deadline_in(SEND_TIME));
    return status == 0 || has_answered(status) ? 0 : broken(exchange, status, err);
}

int http_receive(struct http_exchange *exchange, struct hc_err *err)
{
    int status = read_head(exchange);

    return status < 0 ? broken(exchange, status, err) : 0;
}

int http_open(const struct http_server_address *address, const struct http_ask *ask, struct http_exchange **out,
              struct hc_err *err)
{
    struct http_exchange *exchange = NULL;

    int status = http_send(address, ask, &exchange, err);
    if (status < 0)
        return status;
    status = http_receive(exchange, err);
    if (status < 0) {
        http_close(exchange);
        return status;
    }
    *out = exchange;
    return 0;
}

const struct http_response *http_response_of(const struct http_exchange *exchange)
{
    return &exchange->response;
}

int http_read(struct http_exchange *exchange, struct hc_buf *body, struct hc_err *err)
{
    int more;

    if (exchange->early.length > 0) {
        more = hc_buf_add(body, exchange->early.data, exchange->early.length);
        hc_buf_reset(&exchange->early);
        if (more == 0)
            more = !http_response_done(&exchange->response);
    } else {
        more = http_response_done(&exchange->response) ? 0 : read_piece(exchange, body);
    }
    return more < 0 ? broken(exchange, more, err) : more;
}

void http_close(struct http_exchange *exchange)
{
    if (!exchange)
        return;
    connection_close(exchange->connection);
    http_response_release(&exchange->response);
    hc_buf_release(&exchange->early);
    free(exchange->chunk);
    free(exchange);
}

int http_fetch(const struct http_server_address *address, const struct http_ask *ask, struct http_answer *answer,
               struct hc_err *err)
{
    struct http_exchange *exchange = NULL;
    struct hc_buf body = HC_BUF_INIT(ANSWER_MAX);

    int more = http_open(address, ask, &exchange, err);
    if (more < 0)
        return more;
    do
        more = http_read(exchange, &body, err);
    while (more > 0);
    if (more == 0) {
        struct http_answer found = {.status = exchange->response.status, .retry_after = exchange->response.retry_after};
        snprintf(found.content_type, sizeof found.content_type, "%s", exchange->response.content_type);
        found.body = hc_buf_take(&body, &found.length);
        if (found.body)
            *answer = found;
        else
            more = hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    hc_buf_release(&body);
    http_close(exchange);
    return more;
}

void http_add_encoded(struct hc_buf *buf, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

    for (; *text; text++) {
        if (strchr(plain, *text))
            hc_buf_add(buf, text, 1);
        else
            hc_buf_printf(buf, "%%%02X", (unsigned char)*text);
    }
}
