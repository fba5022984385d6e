/*
 * See websocket.h. The connection is the HTTP layer's, taken over (http_upgrade): this file turns its bytes into frames
 * and back.
 *
 * What always holds: `closed` is called exactly once, and last; after a close was sent nothing else is; what the owner
 * has paused is at most one piece of input and the message that is being read.
 */
#define OPENSSL_SUPPRESS_DEPRECATED /* as in store/sha256.c */
#include "gateway/websocket.h"
#include "base/fd.h"
#include "text/base64.h"
#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 16, SMALL_FRAME = 4096 };

struct websocket {
    struct hc_loop *loop;
    struct http_request *request;
    struct websocket_options options;
    struct websocket_handlers handlers;
    struct ws_frames frames;
    struct hc_buf held;     /* what came and was not wanted yet */
    struct hc_timer *alarm; /* of the next ping; of the client's close, once ours is sent */
    struct hc_timer *again; /* `held` is due */
    uint64_t heard_at;
    unsigned code;   /* that we closed with */
    bool close_sent; /* nothing more is sent, and only a close is heard */
    bool paused;     /* by the owner */
    bool waited;     /* there was no room for a ping */
};

/* ---- the end ---- */

static void release(struct websocket *socket, unsigned code)
{
    struct websocket_handlers handlers = socket->handlers;
    hc_timer_remove(socket->alarm);
    hc_timer_remove(socket->again);
    handlers.closed(handlers.data, socket, code);
    ws_frames_release(&socket->frames);
    hc_buf_release(&socket->held);
    free(socket);
}

/* From the loop only. */
static void finish(struct websocket *socket, unsigned code)
{
    http_stream_end(socket->request);
    release(socket, code);
}

static void on_gone(struct http_request *request)
{
    struct websocket *socket = request->data;
    release(socket, socket->close_sent ? socket->code : WS_ABNORMAL);
}

/* ---- what goes out ---- */

static int send_frame(struct websocket *socket, enum ws_opcode opcode, const char *bytes, size_t length)
{
    char small[WS_HEADER_MAX + SMALL_FRAME];
    size_t header = ws_frame_header((unsigned char *)small, opcode, length);
    if (length > SMALL_FRAME) {
        int status = http_stream_write(socket->request, small, header);
        return status < 0 ? status : http_stream_write(socket->request, bytes, length);
    }
    if (length > 0)
        memcpy(small + header, bytes, length); /* so that it is one packet */
    return http_stream_write(socket->request, small, header + length);
}

static void on_close_late(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct websocket *socket = data;
    socket->alarm = NULL;
    finish(socket, socket->code);
}

static void send_close(struct websocket *socket, unsigned code, const char *reason)
{
    char payload[WS_CONTROL_MAX];
    size_t length = strlen(reason);
    if (length > sizeof payload - 2) {
        length = sizeof payload - 2;
        while (length > 0 && ((unsigned char)reason[length] & 0xC0) == 0x80)
            length--;
    }
    payload[0] = (char)(code >> 8);
    payload[1] = (char)code;
    for (size_t i = 0; i < length; i++)
        payload[2 + i] = reason[i];
    send_frame(socket, WS_CLOSE, payload, code == WS_NO_STATUS ? 0 : length + 2);
    socket->close_sent = true;
    socket->code = code;
}

void websocket_close(struct websocket *socket, unsigned code, const char *reason)
{
    if (socket->close_sent)
        return;
    send_close(socket, code, reason);
    hc_timer_remove(socket->alarm);
    socket->alarm = hc_loop_timer(socket->loop, hc_now() + socket->options.close_time, on_close_late, socket);
    websocket_resume(socket); /* for the client's close */
}

int websocket_send(struct websocket *socket, bool text, const char *bytes, size_t length)
{
    return socket->close_sent ? -EPIPE : send_frame(socket, text ? WS_TEXT : WS_BINARY, bytes, length);
}

size_t websocket_pending(const struct websocket *socket)
{
    return http_stream_pending(socket->request);
}

static void on_drained(struct http_request *request)
{
    struct websocket *socket = request->data;
    if (socket->waited)
        socket->heard_at = hc_now(); /* one that takes what it is sent is there */
    socket->waited = false;
    if (socket->handlers.drained != NULL && !socket->close_sent)
        socket->handlers.drained(socket->handlers.data, socket);
}

static void on_ping_due(struct hc_loop *loop, void *data)
{
    struct websocket *socket = data;
    uint64_t now = hc_now();
    /* A ping would come after what waits for the client, and limits.write_time is the judge of that. */
    bool waits = http_stream_pending(socket->request) > 0;
    socket->waited = waits;
    socket->alarm = NULL;
    if (!socket->paused && !waits && now - socket->heard_at >= 2 * socket->options.ping_time) {
        finish(socket, WS_ABNORMAL);
        return;
    }
    socket->alarm = hc_loop_timer(loop, now + socket->options.ping_time, on_ping_due, socket);
    if (!waits)
        send_frame(socket, WS_PING, "", 0);
}

/* ---- what comes in ---- */

/* Whether the socket is still there. */
static bool take_event(struct websocket *socket, enum ws_event event)
{
    const struct ws_frames *frames = &socket->frames;
    switch (event) {
    case WS_EVENT_MESSAGE:
        if (!socket->close_sent)
            socket->handlers.message(socket->handlers.data, socket, frames->opcode == WS_TEXT, frames->data,
                                     frames->length);
        return true;
    case WS_EVENT_PING:
        if (!socket->close_sent)
            send_frame(socket, WS_PONG, frames->data, frames->length);
        return true;
    case WS_EVENT_CLOSE:
        if (!socket->close_sent)
            send_close(socket, frames->code, "");
        finish(socket, frames->code);
        return false;
    case WS_EVENT_ERROR:
        if (!socket->close_sent)
            send_close(socket, frames->code, frames->why);
        finish(socket, socket->code);
        return false;
    case WS_EVENT_PONG:
    case WS_EVENT_MORE:
        break;
    }
    return true;
}

/* As long as they are wanted; how much was used, or -EPIPE when the socket is gone. */
static ssize_t take_bytes(struct websocket *socket, const char *data, size_t length)
{
    size_t at = 0;
    while (!socket->paused) {
        size_t used;
        enum ws_event event = ws_frames_take(&socket->frames, data + at, length - at, &used);
        at += used;
        if (event == WS_EVENT_MORE)
            break;
        if (!take_event(socket, event))
            return -EPIPE;
    }
    return (ssize_t)at;
}

static void on_bytes(struct http_request *request, const char *data, size_t length)
{
    struct websocket *socket = request->data;
    socket->heard_at = hc_now();
    ssize_t used = take_bytes(socket, data, length);
    if (used < 0 || (size_t)used == length)
        return;
    if (hc_buf_add(&socket->held, data + used, length - (size_t)used) != 0) {
        send_close(socket, WS_INTERNAL, "there is no memory for what was sent");
        finish(socket, WS_INTERNAL);
    }
}

static void on_held_due(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct websocket *socket = data;
    socket->again = NULL;
    struct hc_buf *held = &socket->held;
    ssize_t used = take_bytes(socket, held->data, held->length);
    if (used < 0)
        return;
    held->length -= (size_t)used;
    if (held->length > 0)
        memmove(held->data, held->data + used, held->length);
    else
        hc_buf_release(held);
    if (!socket->paused)
        http_body_resume(socket->request);
}

void websocket_pause(struct websocket *socket)
{
    if (socket->close_sent)
        return;
    socket->paused = true;
    http_body_pause(socket->request);
}

void websocket_resume(struct websocket *socket)
{
    if (!socket->paused)
        return;
    socket->paused = false;
    socket->heard_at = hc_now();
    if (socket->held.length == 0)
        http_body_resume(socket->request);
    else if (socket->again == NULL)
        socket->again = hc_loop_timer(socket->loop, hc_now(), on_held_due, socket);
}

/* ---- the handshake ---- */

/* NULL: it is not there, or there twice. */
static const char *only(const struct http_request *request, const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcmp(request->headers[i].name, name) != 0)
            continue;
        if (found != NULL)
            return NULL;
        found = request->headers[i].value;
    }
    return found;
}

static bool key_valid(const char *key)
{
    hc_cleanup_free char *bytes = NULL;
    size_t length = 0;
    return key != NULL && strlen(key) == 24 && hc_base64_decode(key, 24, &bytes, &length) == 0 && length == KEY_BYTES;
}

/* Proof that the request was understood as what it is (RFC 6455, 4.2.2). malloc'ed. */
static char *accept_of(const char *key)
{
    char text[64];
    unsigned char digest[SHA_DIGEST_LENGTH];
    int length = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    SHA_CTX context;
    if (SHA1_Init(&context) != 1 || SHA1_Update(&context, text, (size_t)length) != 1 ||
        SHA1_Final(digest, &context) != 1)
        return NULL;
    size_t encoded;
    return hc_base64_encode(digest, sizeof digest, &encoded);
}

bool websocket_wanted(const struct http_request *request)
{
    return http_header_has(request, "upgrade", "websocket") && http_header_has(request, "connection", "upgrade");
}

static int check_handshake(struct http_request *request, int *status, const char **why)
{
    const char *version = only(request, "sec-websocket-version");
    *status = 426;
    *why = "this is a WebSocket: send Connection: Upgrade, Upgrade: websocket and Sec-WebSocket-Version: 13";
    if (!websocket_wanted(request) || version == NULL || strcmp(version, "13") != 0) {
        http_add_header(request, "Upgrade", "websocket");
        http_add_header(request, "Sec-WebSocket-Version", "13");
        return -EPROTO;
    }
    *status = 400;
    *why = "a WebSocket begins with a GET";
    if (request->method != HTTP_GET || request->body_expected != 0)
        return -EINVAL;
    *why = "Sec-WebSocket-Key is not 16 bytes in base64";
    return key_valid(only(request, "sec-websocket-key")) ? 0 : -EINVAL;
}

static struct websocket *new_socket(struct hc_loop *loop, struct http_request *request,
                                    const struct websocket_options *options, const struct websocket_handlers *handlers)
{
    struct websocket *socket = calloc(1, sizeof *socket);
    if (socket == NULL)
        return NULL;
    socket->loop = loop;
    socket->request = request;
    socket->options = *options;
    socket->handlers = *handlers;
    socket->held = HC_BUF_INIT(HTTP_PIECE);
    socket->heard_at = hc_now();
    ws_frames_init(&socket->frames, options->message_max);
    if (options->ping_time > 0)
        socket->alarm = hc_loop_timer(loop, hc_now() + options->ping_time, on_ping_due, socket);
    return socket;
}

int websocket_accept(struct hc_loop *loop, struct http_request *request, const struct websocket_options *options,
                     const struct websocket_handlers *handlers, struct websocket **out, int *status, const char **why)
{
    int result = check_handshake(request, status, why);
    if (result < 0)
        return result;
    *status = 503;
    *why = "there is no memory for another WebSocket";
    hc_cleanup_free char *accept = accept_of(only(request, "sec-websocket-key"));
    struct websocket *socket = accept != NULL ? new_socket(loop, request, options, handlers) : NULL;
    if (socket == NULL)
        return -ENOMEM;
    http_add_header(request, "Sec-WebSocket-Accept", accept);
    if (options->protocol != NULL && http_header_has(request, "sec-websocket-protocol", options->protocol))
        http_add_header(request, "Sec-WebSocket-Protocol", options->protocol);
    request->data = socket;
    request->on_gone = on_gone;
    request->on_body = on_bytes;
    request->on_drained = on_drained;
    if (http_upgrade(request, "websocket") < 0) { /* HTTP/1.0 */
        request->on_gone = NULL;
        hc_timer_remove(socket->alarm);
        free(socket);
        *status = 400;
        *why = "a WebSocket begins with HTTP/1.1";
        return -EINVAL;
    }
    http_body_resume(request);
    *out = socket;
    return 0;
}
