/*
 * A real HTTP server on a loopback port, and clients that are plain sockets. All in one thread: a client that waits for
 * something turns the server's loop meanwhile.
 */
#ifndef HC_TESTS_HTTP_FIXTURE_H
#define HC_TESTS_HTTP_FIXTURE_H

#include "base/buf.h"
#include "base/fd.h"
#include "base/loop.h"
#include "gateway/http.h"
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define MS(n) ((uint64_t)(n)*1000)
enum { BIG = 8 << 20 }; /* more than the kernel takes from a client that does not read */

struct fixture {
    struct hc_loop *loop;
    struct http_server *server;
    struct http_limits limits;
    uint16_t port;
    /* What the handlers saw. */
    int admitted, handled, gone, drained, refused, contexts_freed;
    int last_refusal;
    char last_path[64];
    char last_peer[64];
    struct http_request *kept; /* /later and /stream */
    int stream_status;         /* of the last http_stream_write */
    int writes_left;           /* of /drain */
    /* A test's own: whether the body is streamed, and what is done with the request. May be NULL. */
    bool (*streams)(const struct http_request *request);
    bool (*own_handle)(struct fixture *fixture, struct http_request *request); /* false: not its */
    void *own;
    char *big;
};

/* ---- handlers ---- */

static void on_gone(struct http_request *request)
{
    struct fixture *fixture = request->data;
    fixture->gone++;
    if (fixture->kept == request)
        fixture->kept = NULL;
}

static void on_drained(struct http_request *request)
{
    struct fixture *fixture = request->data;
    fixture->drained++;
    if (fixture->writes_left-- > 0)
        http_stream_write(request, fixture->big, BIG / 8);
    else
        http_stream_end(request);
}

static void free_context(void *context)
{
    ((struct fixture *)context)->contexts_freed++;
}

static int admit(void *data, struct http_request *request)
{
    struct fixture *fixture = data;
    fixture->admitted++;
    request->context = fixture;
    request->context_free = free_context;
    if (fixture->streams != NULL && fixture->streams(request))
        http_body_stream(request);
    if (strcmp(request->path, "/forbidden") != 0)
        return 0;
    http_reply(request, 403, "text/plain", "no", 2);
    return 1;
}

static void handle(void *data, struct http_request *request)
{
    struct fixture *fixture = data;
    fixture->handled++;
    snprintf(fixture->last_path, sizeof fixture->last_path, "%s", request->path);
    snprintf(fixture->last_peer, sizeof fixture->last_peer, "%s", request->peer);
    assert_int_equal(request->body[request->body_length], '\0');
    if (fixture->own_handle != NULL && fixture->own_handle(fixture, request))
        return;
    if (strcmp(request->path, "/later") == 0 || strcmp(request->path, "/stream") == 0) {
        request->data = fixture;
        request->on_gone = on_gone;
        fixture->kept = request;
        if (strcmp(request->path, "/stream") == 0)
            http_stream_begin(request, 200, "text/event-stream");
    } else if (strcmp(request->path, "/drain") == 0) {
        request->data = fixture;
        request->on_gone = on_gone;
        request->on_drained = on_drained;
        http_stream_begin(request, 200, "text/plain");
    } else if (strcmp(request->path, "/big") == 0) {
        http_reply(request, 200, "application/octet-stream", fixture->big, BIG);
    } else if (strcmp(request->path, "/nothing") == 0) {
        http_reply(request, 204, NULL, NULL, 0);
    } else {
        http_reply(request, 200, "text/plain", request->body, request->body_length);
    }
}

static void refused(void *data, const char *peer, int status, const char *why)
{
    struct fixture *fixture = data;
    assert_non_null(why);
    assert_true(strlen(peer) > 0);
    fixture->refused++;
    fixture->last_refusal = status;
}

/* ---- set-up ---- */

static int __attribute__((unused)) listen_on_loopback(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1024), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static int make_fixture(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    *state = fixture;
    fixture->limits = (struct http_limits){
        .header_bytes = 8192,
        .header_count = 32,
        .body_bytes = 4 << 20,
        .body_total = 16 << 20,
        .connections = 1000,
        .header_time = MS(5000),
        .body_time = MS(5000),
        .idle_time = MS(5000),
        .write_time = MS(5000),
        .write_backlog = 1 << 20,
    };
    fixture->big = malloc(BIG);
    assert_non_null(fixture->big);
    memset(fixture->big, 'x', BIG);
    fixture->loop = hc_loop_new();
    assert_non_null(fixture->loop);
    const struct http_handlers handlers = {.data = fixture, .admit = admit, .handle = handle, .refused = refused};
    struct hc_err err = {0};
    assert_int_equal(http_server_new(fixture->loop, &fixture->limits, &handlers, &fixture->server, &err), 0);
    int fd = listen_on_loopback(&fixture->port);
    assert_int_equal(http_server_listen(fixture->server, fd, HTTP_LISTEN_TCP, NULL, &err), 0);
    return 0;
}

static int free_fixture(void **state)
{
    struct fixture *fixture = *state;
    http_server_free(fixture->server);
    hc_loop_free(fixture->loop);
    assert_int_equal(fixture->contexts_freed, fixture->admitted);
    free(fixture->big);
    free(fixture);
    return 0;
}

/* ---- clients ---- */

struct client {
    struct fixture *fixture;
    int fd;
    struct hc_buf got;
    bool closed;
    bool paused;  /* does not read */
    bool cut_off; /* while it was sending */
};

static struct client connect_client(struct fixture *fixture)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(fixture->port)};
    struct client client = {.fixture = fixture, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    client.got = HC_BUF_INIT(SIZE_MAX);
    assert_true(client.fd >= 0);
    assert_int_equal(connect(client.fd, (struct sockaddr *)&address, sizeof address), 0);
    return client;
}

static void release_client(struct client *client)
{
    client->fd = hc_close(client->fd);
    hc_buf_release(&client->got);
}
#define hc_cleanup_client HC_CLEANUP(release_client)

/* One turn of the server, and what it sent. */
static void pump(struct client *client)
{
    assert_int_equal(hc_loop_turn(client->fixture->loop, 5), 0);
    static char data[65536];
    ssize_t count = 0;
    while (!client->paused && client->fd >= 0 && (count = recv(client->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
        assert_int_equal(hc_buf_add(&client->got, data, (size_t)count), 0);
    if (!client->paused && client->fd >= 0 && (count == 0 || (count < 0 && errno != EAGAIN)))
        client->closed = true;
}

static void send_bytes(struct client *client, const char *data, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        ssize_t count = send(client->fd, data + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EAGAIN) {
            client->cut_off = true;
            return; /* what the server said is looked at next */
        }
        sent += count > 0 ? (size_t)count : 0;
        if (sent < length)
            pump(client);
    }
}

static void __attribute__((unused)) say(struct client *client, const char *text)
{
    send_bytes(client, text, strlen(text));
}

/* Turns until it holds; fails after five seconds. */
#define until(client, condition)                                                                                       \
    do {                                                                                                               \
        uint64_t until_end = hc_now() + MS(5000);                                                                      \
        while (!(condition)) {                                                                                         \
            if (hc_now() > until_end)                                                                                  \
                fail_msg("line %d: it did not come to %s; the client has: %.300s", __LINE__, #condition,               \
                         (client)->got.data != NULL ? (client)->got.data : "");                                        \
            pump(client);                                                                                              \
        }                                                                                                              \
    } while (0)

static void __attribute__((unused)) pump_for(struct client *client, uint64_t time)
{
    for (uint64_t end = hc_now() + time; hc_now() < end;)
        pump(client);
}

/* A reply that has come whole; the next one is searched behind it. */
struct reply {
    int status;
    const char *head; /* inside the client's buffer */
    const char *body;
    size_t length;
};

/* The first reply in `got` from *at on, of which the body has a length. */
static bool next_reply(const struct client *client, size_t *at, struct reply *reply)
{
    if (client->got.data == NULL)
        return false;
    const char *head = client->got.data + *at;
    const char *end = strstr(head, "\r\n\r\n");
    if (end == NULL || sscanf(head, "HTTP/1.1 %d ", &reply->status) != 1)
        return false;
    const char *length = strstr(head, "Content-Length: ");
    reply->head = head;
    reply->body = end + 4;
    reply->length = length != NULL && length < end ? strtoul(length + 16, NULL, 10) : 0;
    size_t next = (size_t)(reply->body - client->got.data) + reply->length;
    if (next > client->got.length)
        return false;
    *at = next;
    return true;
}

static void __attribute__((unused)) expect_reply(struct client *client, size_t *at, int status, const char *body)
{
    struct reply reply;
    until(client, next_reply(client, at, &reply));
    if (reply.status != status)
        fail_msg("expected %d, got: %.400s", status, reply.head);
    if (body != NULL) {
        assert_int_equal(reply.length, strlen(body));
        assert_memory_equal(reply.body, body, reply.length);
    }
}

/* The server's own refusal, with its problem, and the end of the connection. */
static void __attribute__((unused)) expect_refusal(struct client *client, int status, const char *code)
{
    size_t at = 0;
    struct reply reply;
    until(client, next_reply(client, &at, &reply));
    if (reply.status != status)
        fail_msg("expected %d, got: %.400s", status, reply.head);
    char text[64];
    snprintf(text, sizeof text, "\"code\":\"%s\"}", code);
    assert_non_null(strstr(reply.body, text));
    snprintf(text, sizeof text, "\"status\":%d", status);
    assert_non_null(strstr(reply.body, text));
    assert_non_null(strstr(reply.head, "Content-Type: application/problem+json\r\n"));
    assert_non_null(strstr(reply.head, "Connection: close\r\n"));
    until(client, client->closed);
    assert_int_equal(at, client->got.length);
    assert_int_equal(client->fixture->last_refusal, status);
}

#endif
