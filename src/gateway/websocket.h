/*
 * WebSocket (RFC 6455), the server's side, on a request that asks for it: handshake, messages, pings that notice a
 * client that is no longer there, the closing handshake. No extensions. Origin and key were looked at by whoever
 * admitted the request.
 *
 * The life of one: websocket_accept; messages both ways; `closed`, once, after which it is gone. It comes whatever
 * happens: the client closes, speaks nonsense, does not answer, or the server ends.
 */
#ifndef HC_GATEWAY_WEBSOCKET_H
#define HC_GATEWAY_WEBSOCKET_H

#include "base/loop.h"
#include "gateway/http.h"
#include "text/ws_frames.h"

struct websocket;

struct websocket_options {
    size_t message_max;   /* of one that comes: 1009 past it */
    uint64_t ping_time;   /* µs between pings; a client that was not heard for two of them is dropped. 0: none */
    uint64_t close_time;  /* µs for the client's part of a close */
    const char *protocol; /* named in the answer to a client that offers it; NULL: none */
};

struct websocket_handlers {
    void *data;
    /* Text is UTF-8. It may send, pause and close. */
    void (*message)(void *data, struct websocket *socket, bool text, const char *bytes, size_t length);
    /* All that was sent is with the kernel: for a sender that has much to say. May be NULL. */
    void (*drained)(void *data, struct websocket *socket);
    /* The end, from the loop, never from inside a call of the owner's. `code` is the client's, WS_NO_STATUS,
     * WS_ABNORMAL, or ours. */
    void (*closed)(void *data, struct websocket *socket, unsigned code);
};

/* Whether the request asks for a WebSocket at all. */
bool websocket_wanted(const struct http_request *request);
/* 0, and the request is the socket's from here on; its handlers are first called from the loop. Else -errno, and *why
 * (a constant sentence) and *status (400, or 426, for which the headers are added) are what to answer: the request
 * stays the caller's. */
int websocket_accept(struct hc_loop *loop, struct http_request *request, const struct websocket_options *options,
                     const struct websocket_handlers *handlers, struct websocket **out, int *status, const char **why);
/* 0, or -EPIPE when it is closing or the client is too far behind (limits.write_backlog): `closed` comes. */
int websocket_send(struct websocket *socket, bool text, const char *bytes, size_t length);
size_t websocket_pending(const struct websocket *socket); /* bytes that wait for the client */
void websocket_pause(struct websocket *socket);           /* no messages for now */
void websocket_resume(struct websocket *socket);
/* Says goodbye; `reason` is UTF-8 and cut to what fits. Nothing is sent or heard after it. */
void websocket_close(struct websocket *socket, unsigned code, const char *reason);

#endif
