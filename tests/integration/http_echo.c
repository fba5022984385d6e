/*
 * The gateway's HTTP layer by itself, for tests with clients that others wrote (tests/integration/test_streams.py): a
 * server on a port of its choosing, which it prints. It ends with its standard input.
 *
 *     GET /ws             a WebSocket that sends back what it is sent; "close CODE" closes, "flood N" sends N MiB
 *     PUT /count          how many bytes the body had, and their sum modulo 2^32, as "LENGTH SUM"
 *     PUT /pipe           the same, but the body goes through a pipe (carry.h)
 *     GET /bytes/N        N bytes, from a pipe, with a length; /chunks/N without
 *     ANY /proxy/PORT/... handed on to that port of this machine, as a preview is
 */
#include "base/fd.h"
#include "gateway/carry.h"
#include "gateway/http.h"
#include "gateway/proxy.h"
#include "gateway/websocket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct server {
    struct hc_loop *loop;
    struct http_server *http;
    bool over;
};

/* What one request has under way. */
struct visit {
    struct server *server;
    struct http_request *request;
    struct websocket *socket;
    struct carry_in *in;
    struct carry_out *out;
    struct hc_watch *watch; /* of the pipe's other end */
    int pipe[2];
    uint64_t length, left, flood;
    uint32_t sum;
    bool carried;
};

static void free_visit(void *data)
{
    struct visit *visit = data;
    carry_in_free(visit->in);
    carry_out_free(visit->out);
    hc_watch_remove(visit->watch);
    hc_close(visit->pipe[0]);
    hc_close(visit->pipe[1]);
    free(visit);
}

static int admit(void *data, struct http_request *request)
{
    struct visit *visit = calloc(1, sizeof *visit);
    if (visit == NULL)
        abort();
    *visit = (struct visit){.server = data, .request = request, .pipe = {-1, -1}};
    request->context = visit;
    request->context_free = free_visit;
    http_body_stream(request);
    return 0;
}

/* ---- bodies ---- */

static void add(struct visit *visit, const char *data, size_t length)
{
    visit->length += length;
    for (size_t i = 0; i < length; i++)
        visit->sum += (unsigned char)data[i];
}

static void reply_sum(struct visit *visit)
{
    char text[64];
    int length = snprintf(text, sizeof text, "%llu %u", (unsigned long long)visit->length, visit->sum);
    http_reply(visit->request, 200, "text/plain", text, (size_t)length);
}

static void count_piece(struct http_request *request, const char *data, size_t length)
{
    add(request->context, data, length);
}

static void count_end(struct http_request *request)
{
    reply_sum(request->context);
}

static void on_pipe_readable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    (void)events;
    struct visit *visit = data;
    static char piece[65536];
    ssize_t count = read(fd, piece, sizeof piece);
    if (count > 0)
        add(visit, piece, (size_t)count);
    else if (count == 0)
        reply_sum(visit);
}

static void on_carried_in(void *data, int status, uint64_t bytes)
{
    struct visit *visit = data;
    (void)bytes;
    carry_in_free(HC_TAKE_PTR(visit->in));
    visit->pipe[1] = hc_close(visit->pipe[1]);
    if (status < 0)
        abort();
}

static void open_pipe(struct visit *visit)
{
    if (pipe2(visit->pipe, O_NONBLOCK | O_CLOEXEC) < 0)
        abort();
}

static struct carry carrier(struct visit *visit, int fd, carry_done done)
{
    return (struct carry){.loop = visit->server->loop,
                          .request = visit->request,
                          .fd = fd,
                          .stall_time = 10000000,
                          .done = done,
                          .data = visit};
}

static void carry_body(struct visit *visit)
{
    open_pipe(visit);
    visit->watch = hc_loop_watch(visit->server->loop, visit->pipe[0], EPOLLIN, on_pipe_readable, visit);
    struct carry carry = carrier(visit, visit->pipe[1], on_carried_in);
    visit->in = carry_in_new(&carry);
}

/* ---- replies ---- */

static void on_pipe_writable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    (void)events;
    struct visit *visit = data;
    static char piece[65536];
    memset(piece, 'b', sizeof piece);
    size_t length = visit->left < sizeof piece ? (size_t)visit->left : sizeof piece;
    ssize_t count = write(fd, piece, length);
    visit->left -= count > 0 ? (uint64_t)count : 0;
    if (visit->left > 0)
        return;
    hc_watch_remove(HC_TAKE_PTR(visit->watch));
    visit->pipe[1] = hc_close(visit->pipe[1]);
}

static void on_carried_out(void *data, int status, uint64_t bytes)
{
    struct visit *visit = data;
    (void)status;
    (void)bytes;
    http_stream_end(visit->request);
}

static void carry_reply(struct visit *visit, const char *number, bool sized)
{
    visit->left = strtoull(number, NULL, 10);
    uint64_t length = sized ? visit->left : HTTP_LENGTH_UNKNOWN;
    open_pipe(visit);
    visit->watch = hc_loop_watch(visit->server->loop, visit->pipe[1], EPOLLOUT, on_pipe_writable, visit);
    if (sized)
        http_stream_begin_sized(visit->request, 200, "application/octet-stream", length);
    else
        http_stream_begin(visit->request, 200, "application/octet-stream");
    struct carry carry = carrier(visit, visit->pipe[0], on_carried_out);
    visit->out = carry_out_new(&carry, length);
}

/* ---- WebSocket ---- */

static void flood(void *data, struct websocket *socket)
{
    struct visit *visit = data;
    static char piece[65536];
    for (; visit->flood > 0 && websocket_pending(socket) == 0; visit->flood--)
        websocket_send(socket, false, piece, sizeof piece);
}

static void on_message(void *data, struct websocket *socket, bool text, const char *bytes, size_t length)
{
    struct visit *visit = data;
    if (text && strncmp(bytes, "close ", 6) == 0) {
        websocket_close(socket, (unsigned)strtoul(bytes + 6, NULL, 10), "as you wish");
    } else if (text && strncmp(bytes, "flood ", 6) == 0) {
        visit->flood = strtoull(bytes + 6, NULL, 10) * 16;
        flood(visit, socket);
    } else {
        websocket_send(socket, text, bytes, length);
    }
}

static void on_closed(void *data, struct websocket *socket, unsigned code)
{
    (void)data;
    (void)socket;
    printf("closed %u\n", code);
    fflush(stdout);
}

static void accept_socket(struct visit *visit)
{
    static const struct websocket_options options = {
        .message_max = 1 << 20, .ping_time = 200000, .close_time = 1000000, .protocol = "echo"};
    const struct websocket_handlers handlers = {
        .data = visit, .message = on_message, .drained = flood, .closed = on_closed};
    int status;
    const char *why;
    if (websocket_accept(visit->server->loop, visit->request, &options, &handlers, &visit->socket, &status, &why) < 0)
        http_reply(visit->request, status, "text/plain", why, strlen(why));
}

/* ---- previews ---- */

static void on_failed(void *data, struct http_request *request, int status, const char *why)
{
    (void)data;
    http_reply(request, status, "text/plain", why, strlen(why));
}

static void on_ended(void *data)
{
    (void)data;
    printf("proxied\n");
    fflush(stdout);
}

static int connect_to(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && hc_set_nonblock(fd, true) == 0)
        return fd;
    return hc_close(fd);
}

static void hand_on(struct visit *visit)
{
    static const char *const headers[] = {"Content-Security-Policy", "sandbox allow-scripts", NULL};
    const char *port = visit->request->target + strlen("/proxy/"), *rest = strchr(port, '/');
    char host[32], prefix[32];
    int fd = rest != NULL ? connect_to(port) : -1;
    if (fd < 0) {
        on_failed(NULL, visit->request, 502, "nothing listens there");
        return;
    }
    snprintf(host, sizeof host, "localhost:%.*s", (int)(rest - port), port);
    snprintf(prefix, sizeof prefix, "/proxy/%.*s", (int)(rest - port), port);
    const struct proxy_options options = {.target = rest,
                                          .host = host,
                                          .prefix = prefix,
                                          .headers = headers,
                                          .answer_time = 2000000,
                                          .idle_time = 5000000};
    const struct proxy_handlers handlers = {.failed = on_failed, .ended = on_ended};
    struct proxy *proxy;
    if (proxy_start(visit->server->loop, visit->request, fd, &options, &handlers, &proxy) < 0)
        http_reply(visit->request, 400, "text/plain", "no", 2);
}

/* ---- the server ---- */

static void handle(void *data, struct http_request *request)
{
    (void)data;
    struct visit *visit = request->context;
    if (strcmp(request->path, "/ws") == 0) {
        accept_socket(visit);
    } else if (strncmp(request->path, "/proxy/", 7) == 0) {
        hand_on(visit);
    } else if (strcmp(request->path, "/count") == 0) {
        request->on_body = count_piece;
        request->on_body_end = count_end;
        http_body_resume(request);
    } else if (strcmp(request->path, "/pipe") == 0) {
        carry_body(visit);
    } else if (strncmp(request->path, "/bytes/", 7) == 0) {
        carry_reply(visit, request->path + 7, true);
    } else if (strncmp(request->path, "/chunks/", 8) == 0) {
        carry_reply(visit, request->path + 8, false);
    } else {
        http_reply(request, 404, "text/plain", "no", 2);
    }
}

static void on_input(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    (void)events;
    struct server *server = data;
    char byte;
    server->over = read(fd, &byte, 1) <= 0;
}

static int listen_on_loopback(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 100) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        abort();
    printf("%u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(void)
{
    static const struct http_limits limits = {
        .header_bytes = 65536,
        .header_count = 100,
        .body_bytes = 1 << 20,
        .body_total = 16 << 20,
        .connections = 100,
        .header_time = 10000000,
        .body_time = 10000000,
        .idle_time = 10000000,
        .write_time = 10000000,
        .write_backlog = 1 << 20,
    };
    struct server server = {.loop = hc_loop_new()};
    const struct http_handlers handlers = {.data = &server, .admit = admit, .handle = handle};
    struct hc_err err = {0};
    signal(SIGPIPE, SIG_IGN);
    if (server.loop == NULL || http_server_new(server.loop, &limits, &handlers, &server.http, &err) < 0 ||
        http_server_listen(server.http, listen_on_loopback(), HTTP_LISTEN_TCP, NULL, &err) < 0 ||
        hc_loop_watch(server.loop, STDIN_FILENO, EPOLLIN, on_input, &server) == NULL)
        abort();
    while (!server.over && hc_loop_turn(server.loop, -1) == 0)
        ;
    http_server_free(server.http);
    hc_loop_free(server.loop);
    return 0;
}
