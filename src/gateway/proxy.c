/*
 * See proxy.h.
 *
 * Theory of operation. Two streams share one socket. Up: the request's head and then its body, piece by piece, in `up`
 * until the socket takes them; while some of it waits there the client's body is paused. Down: what the socket gives is
 * read into `piece`, taken apart by http_reader, and the body's bytes in it are written to the client at once; while
 * some of that waits for the client nothing more is read. So at most a piece is held each way. After a 101 the same two
 * streams carry plain bytes.
 *
 * What always holds: the socket is watched only for what is wanted of it, and not at all when that is nothing (epoll
 * tells of a hang-up whether it was asked or not); `ended` is called exactly once.
 */
#include "gateway/proxy.h"
#include "base/fd.h"
#include "gateway/proxy_head.h"
#include "gateway/websocket.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    UP_MAX = HTTP_HEAD_MAX * 2 + HTTP_PIECE, /* a head with what is added to it, or a piece with its chunk's frame */
    INTERIM_MAX = 8,                         /* answers below 200 before the real one */
};

struct proxy {
    struct hc_loop *loop;
    struct http_request *request;
    struct proxy_handlers handlers;
    char *prefix, *host;
    struct hc_buf headers; /* "name\0value\0...": to be added */
    bool own_origin, upgrade;
    uint64_t answer_time, idle_time;

    int fd;
    struct hc_watch *watch;
    struct hc_timer *timer;
    uint64_t moved_at; /* the last progress that counts */
    struct hc_buf up;
    size_t up_sent;
    bool up_chunked, body_ended;
    bool up_broken; /* the server inside takes no more, but may still answer */
    struct http_reader reader;
    unsigned interim;
    bool begun;  /* something has been passed on */
    bool tunnel; /* after a 101 */
    bool held;   /* the client has not taken all that it was sent */
    char piece[HTTP_PIECE];
};

static void on_socket(struct hc_loop *loop, int fd, uint32_t events, void *data);

/* ---- its end ---- */

static void release(struct proxy *proxy)
{
    struct proxy_handlers handlers = proxy->handlers;
    hc_watch_remove(proxy->watch);
    hc_timer_remove(proxy->timer);
    hc_close(proxy->fd);
    hc_buf_release(&proxy->up);
    hc_buf_release(&proxy->headers);
    http_reader_release(&proxy->reader);
    free(proxy->prefix);
    free(proxy->host);
    free(proxy);
    handlers.ended(handlers.data);
}

static void let_go(struct http_request *request)
{
    request->on_gone = NULL;
    request->on_drained = NULL;
    request->on_body = NULL;
    request->on_body_end = NULL;
    request->data = NULL;
}

static void on_gone(struct http_request *request)
{
    release(request->data);
}

/* All of the answer was passed on. */
static void complete(struct proxy *proxy)
{
    struct http_request *request = proxy->request;
    let_go(request);
    http_stream_end(request);
    release(proxy);
}

static void give_up(struct proxy *proxy, int status, const char *why)
{
    struct http_request *request = proxy->request;
    let_go(request);
    if (proxy->begun) {
        http_stream_abort(request);
    } else {
        http_headers_ours(request);
        proxy->handlers.failed(proxy->handlers.data, request, status, why);
    }
    release(proxy);
}

void proxy_stop(struct proxy *proxy)
{
    give_up(proxy, 502, "the sandbox has ended");
}

/* ---- waiting ---- */

static void on_timer(struct hc_loop *loop, void *data)
{
    struct proxy *proxy = data;
    uint64_t limit = proxy->begun ? proxy->idle_time : proxy->answer_time;
    uint64_t when = proxy->moved_at + limit;
    proxy->timer = NULL;
    if (limit == 0)
        return;
    /* A client that is slow, in taking the answer or in sending its body, has the HTTP layer's own deadlines. */
    bool body_awaited = !proxy->begun && !proxy->body_ended && proxy->up.length == 0 && !proxy->up_broken;
    if (proxy->held || body_awaited)
        when = hc_now() + limit;
    if (when <= hc_now())
        give_up(proxy, 504, "what listens on this port does not answer");
    else
        proxy->timer = hc_loop_timer(loop, when, on_timer, proxy);
}

/* After a change of what is wanted. 0 or -errno. */
static int rewatch(struct proxy *proxy)
{
    uint32_t events = (proxy->held ? 0 : EPOLLIN) | (proxy->up.length > proxy->up_sent ? EPOLLOUT : 0);
    if (events == 0) {
        hc_watch_remove(HC_TAKE_PTR(proxy->watch));
        return 0;
    }
    if (proxy->watch != NULL)
        return hc_watch_set(proxy->watch, events);
    proxy->watch = hc_loop_watch(proxy->loop, proxy->fd, events, on_socket, proxy);
    return proxy->watch != NULL ? 0 : -errno;
}

/* ---- up ---- */

/* Sends what waits, as far as it goes. */
static void send_up(struct proxy *proxy)
{
    struct hc_buf *up = &proxy->up;
    while (proxy->up_sent < up->length) {
        ssize_t count =
            send(proxy->fd, up->data + proxy->up_sent, up->length - proxy->up_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return;
        if (count < 0) { /* it may have answered without reading on; nothing else of the request is wanted */
            proxy->up_broken = true;
            break;
        }
        proxy->up_sent += (size_t)count;
        proxy->moved_at = hc_now();
    }
    hc_buf_reset(up);
    proxy->up_sent = 0;
}

static void add_up(struct proxy *proxy, const char *data, size_t length)
{
    if (proxy->up_broken)
        return;
    if (proxy->up_chunked && !proxy->tunnel)
        hc_buf_printf(&proxy->up, "%zx\r\n", length);
    hc_buf_add(&proxy->up, data, length);
    if (proxy->up_chunked && !proxy->tunnel)
        hc_buf_add_str(&proxy->up, "\r\n");
}

/* The client's next piece is wanted when the one before it is with the server inside. Whether the proxy is still there.
 */
static bool go_on_up(struct proxy *proxy)
{
    if (hc_buf_status(&proxy->up) != 0) {
        give_up(proxy, 503, "there is no memory to hand the request on");
        return false;
    }
    send_up(proxy);
    if (proxy->up.length > 0 || proxy->up_broken)
        http_body_pause(proxy->request);
    else
        http_body_resume(proxy->request);
    if (rewatch(proxy) == 0)
        return true;
    give_up(proxy, 503, "the connection cannot be watched");
    return false;
}

static void on_body(struct http_request *request, const char *data, size_t length)
{
    struct proxy *proxy = request->data;
    add_up(proxy, data, length);
    go_on_up(proxy);
}

static void on_body_end(struct http_request *request)
{
    struct proxy *proxy = request->data;
    proxy->body_ended = true;
    proxy->moved_at = hc_now();
    if (proxy->up_chunked && !proxy->up_broken)
        hc_buf_add_str(&proxy->up, "0\r\n\r\n");
    go_on_up(proxy);
}

/* ---- down: the head ---- */

static int pass_header(void *data, const char *name, const char *value)
{
    return http_pass_header(data, name, value);
}

static int pass_line(void *data, const char *name, const char *value)
{
    return hc_buf_printf(data, "%s: %s\r\n", name, value);
}

static struct proxy_answer answer_of(const struct proxy *proxy)
{
    return (struct proxy_answer){
        .prefix = proxy->prefix, .host = proxy->host, .own_origin = proxy->own_origin, .upgrade = proxy->upgrade};
}

/* 100 is the HTTP layer's own affair; the others are for the client (RFC 9110, 15.2). */
static int take_interim(struct proxy *proxy)
{
    struct proxy_answer answer = answer_of(proxy);
    if (++proxy->interim > INTERIM_MAX)
        return -EPROTO;
    if (proxy->reader.status == 100)
        return 0;
    struct hc_buf lines = HC_BUF_INIT(HTTP_PASSED_HEADERS);
    int status = proxy_pass_headers(&proxy->reader, &answer, pass_line, &lines);
    if (status == 0 && hc_buf_status(&lines) == 0)
        http_interim(proxy->request, proxy->reader.status, lines.data != NULL ? lines.data : "");
    hc_buf_release(&lines);
    return status;
}

static int add_headers(struct proxy *proxy)
{
    struct proxy_answer answer = answer_of(proxy);
    http_headers_bare(proxy->request, proxy->own_origin);
    int status = proxy_pass_headers(&proxy->reader, &answer, pass_header, proxy->request);
    for (size_t at = 0; status == 0 && at < proxy->headers.length;) {
        const char *name = proxy->headers.data + at, *value = name + strlen(name) + 1;
        status = http_pass_header(proxy->request, name, value);
        at += strlen(name) + strlen(value) + 2;
    }
    return status;
}

static bool agrees(const struct http_reader *reader)
{
    return proxy_answer_has(reader, "upgrade", "websocket") && proxy_answer_has(reader, "connection", "upgrade");
}

static int begin_tunnel(struct proxy *proxy)
{
    int status = http_upgrade(proxy->request, "websocket");
    if (status < 0)
        return status;
    proxy->tunnel = true;
    http_body_resume(proxy->request);
    return 0;
}

/* 0, or -errno for an answer that cannot be passed on; nothing has been then. */
static int take_head(struct proxy *proxy)
{
    const struct http_reader *reader = &proxy->reader;
    if (reader->status < 200 && reader->status != 101)
        return take_interim(proxy);
    if (proxy->upgrade != (reader->status == 101) || (proxy->upgrade && !agrees(reader)))
        return -EPROTO;
    int status = add_headers(proxy);
    if (status < 0)
        return status;
    proxy->moved_at = hc_now();
    if (reader->status == 101)
        status = begin_tunnel(proxy);
    else if (reader->has_length || reader->status == 204 || reader->status == 304)
        http_stream_begin_sized(proxy->request, reader->status, NULL, reader->length);
    else
        http_stream_begin(proxy->request, reader->status, NULL);
    proxy->begun = status == 0;
    if (proxy->begun && proxy->handlers.answered != NULL)
        proxy->handlers.answered(proxy->handlers.data, proxy->request, reader->status);
    if (proxy->begun && proxy->timer == NULL && proxy->idle_time > 0)
        proxy->timer = hc_loop_timer(proxy->loop, proxy->moved_at + proxy->idle_time, on_timer, proxy);
    return status;
}

/* ---- down: bytes ---- */

enum progress { GOES_ON, IS_COMPLETE, IS_NONSENSE };

/* The body's bytes of what was read are moved to the front of it; *length becomes their number. */
static enum progress take_apart(struct proxy *proxy, size_t *length)
{
    size_t at = 0, body = 0, all = *length;
    *length = 0;
    while (at < all && !proxy->tunnel) {
        const char *piece;
        size_t used, piece_length;
        int event = http_reader_take(&proxy->reader, proxy->piece + at, all - at, &used, &piece, &piece_length);
        at += used;
        if (event < 0 || (event == HTTP_READER_EVENT_HEAD && take_head(proxy) < 0))
            return IS_NONSENSE;
        if (event == HTTP_READER_EVENT_PIECE)
            memmove(proxy->piece + body, piece, piece_length);
        body += piece_length;
        *length = body;
        if (proxy->reader.state == HTTP_READER_DONE && !proxy->tunnel)
            return IS_COMPLETE; /* what follows is nobody's */
    }
    if (proxy->tunnel && at < all) {
        memmove(proxy->piece + body, proxy->piece + at, all - at);
        *length = body + all - at;
    }
    return GOES_ON;
}

static void take_bytes(struct proxy *proxy, size_t length)
{
    enum progress progress = take_apart(proxy, &length);
    if (progress == IS_NONSENSE) {
        give_up(proxy, 502,
                proxy->upgrade ? "what listens on this port did not agree to a WebSocket"
                               : "what listens on this port does not answer in HTTP/1.1 as it should");
        return;
    }
    if (proxy->begun)
        proxy->moved_at = hc_now(); /* a head that comes drop by drop is no progress */
    if (length > 0 && http_stream_write(proxy->request, proxy->piece, length) < 0) {
        proxy->held = true; /* on_gone comes */
    } else if (progress == IS_COMPLETE) {
        complete(proxy);
        return;
    } else {
        proxy->held = proxy->begun && http_stream_pending(proxy->request) > 0;
    }
    if (rewatch(proxy) < 0)
        give_up(proxy, 503, "the connection cannot be watched");
}

static void read_down(struct proxy *proxy)
{
    ssize_t count = recv(proxy->fd, proxy->piece, sizeof proxy->piece, MSG_DONTWAIT);
    if (count > 0) {
        take_bytes(proxy, (size_t)count);
    } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    } else if (proxy->tunnel || (count == 0 && proxy->begun && http_reader_end(&proxy->reader) == 0)) {
        complete(proxy);
    } else {
        give_up(proxy, 502, "what listens on this port hung up before it had answered");
    }
}

static void on_socket(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    (void)fd;
    struct proxy *proxy = data;
    const uint32_t over = EPOLLHUP | EPOLLERR;
    bool waits = proxy->up.length > proxy->up_sent;
    if (waits && (events & (EPOLLOUT | over)) != 0 && !go_on_up(proxy))
        return;
    if (!proxy->held && (events & (EPOLLIN | over)) != 0)
        read_down(proxy);
}

static void on_drained(struct http_request *request)
{
    struct proxy *proxy = request->data;
    if (!proxy->held)
        return;
    proxy->held = false;
    proxy->moved_at = hc_now();
    if (rewatch(proxy) < 0)
        give_up(proxy, 503, "the connection cannot be watched");
}

/* ---- its beginning ---- */

static int keep_options(struct proxy *proxy, const struct proxy_options *options)
{
    proxy->prefix = strdup(options->prefix);
    proxy->host = strdup(options->host);
    proxy->own_origin = options->own_origin;
    proxy->answer_time = options->answer_time;
    proxy->idle_time = options->idle_time;
    proxy->headers = HC_BUF_INIT(HTTP_PIECE);
    for (const char *const *text = options->headers; text != NULL && *text != NULL; text++)
        hc_buf_add(&proxy->headers, *text, strlen(*text) + 1);
    return proxy->prefix != NULL && proxy->host != NULL ? hc_buf_status(&proxy->headers) : -ENOMEM;
}

static void no_end(void *data)
{
    (void)data;
}

int proxy_start(struct hc_loop *loop, struct http_request *request, int fd, const struct proxy_options *options,
                const struct proxy_handlers *handlers, struct proxy **out)
{
    bool connect = strcmp(request->method_name, "CONNECT") == 0; /* its answer has rules of its own */
    struct proxy *proxy = connect ? NULL : calloc(1, sizeof *proxy);
    if (proxy == NULL) {
        hc_close(fd);
        return connect ? -EINVAL : -ENOMEM;
    }
    proxy->loop = loop;
    proxy->request = request;
    proxy->fd = fd;
    proxy->handlers.ended = no_end;
    proxy->up = HC_BUF_INIT(UP_MAX);
    http_reader_start(&proxy->reader);
    proxy->upgrade = request->method == HTTP_GET && request->body_expected == 0 && websocket_wanted(request);
    proxy->reader.upgrades = proxy->upgrade;
    proxy->reader.bodiless = request->method == HTTP_HEAD;
    proxy->up_chunked = request->body_expected == HTTP_LENGTH_UNKNOWN;
    proxy->moved_at = hc_now();
    int status = keep_options(proxy, options);
    if (status == 0)
        status = proxy_write_request(&proxy->up, request, options, proxy->upgrade);
    if (status == 0)
        status = rewatch(proxy);
    if (status < 0) {
        release(proxy);
        return status;
    }
    if (proxy->answer_time > 0)
        proxy->timer = hc_loop_timer(loop, proxy->moved_at + proxy->answer_time, on_timer, proxy);
    proxy->handlers = *handlers;
    request->data = proxy;
    request->on_gone = on_gone;
    request->on_drained = on_drained;
    request->on_body = on_body;
    request->on_body_end = on_body_end;
    *out = proxy;
    return 0;
}
