/*
 * Requests that no client sent: one part of the gateway asks another through the same routes, as the caller that it
 * works for. Handlers cannot tell the difference, so what a tool does and what the HTTP interface does is one thing.
 *
 * What always holds: such a request belongs to whoever asked, who gets its end (`end`) exactly once or has dropped it.
 */
#ifndef HC_GATEWAY_HTTP_INSIDE_H
#define HC_GATEWAY_HTTP_INSIDE_H

#include "gateway/http.h"

struct http_inside;

struct http_inside_ask {
    enum http_method method;
    const char *target; /* as it would be sent: percent-encoded, with its query */
    const char *accept; /* NULL: application/json */
    const char *type;   /* of the body; NULL: application/json */
    const char *body;   /* NULL: none */
    size_t length;
};

/* What comes of it. All of it may be called before http_inside_new's caller goes on; http_inside_drop must not be
 * called from here. */
struct http_inside_events {
    void *data;
    void (*head)(void *data, int status, const char *content_type);
    void (*piece)(void *data, const char *bytes, size_t length);
    void (*end)(void *data); /* the request is gone after it */
};

/* Everything is copied; `from` is whose address and listener it has. -EINVAL: the target is none. */
int http_inside_new(struct hc_loop *loop, const struct http_request *from, const struct http_inside_ask *ask,
                    const struct http_inside_events *events, struct http_inside **out, struct hc_err *err);
struct http_request *http_inside_request(struct http_inside *inside);
/* As if the client had hung up: on_gone, and no more events. NULL is fine. */
void http_inside_drop(struct http_inside *inside);

/* ---- for http_send.c and http_stream.c: what the reply functions do for such a request ---- */
void http_inside_reply(struct http_inside *inside, int status, const char *content_type, const char *body,
                       size_t length);
void http_inside_begin(struct http_inside *inside, int status, const char *content_type);
int http_inside_write(struct http_inside *inside, const char *data, size_t length);
void http_inside_end(struct http_inside *inside);
enum http_inside_step { HTTP_INSIDE_STREAM, HTTP_INSIDE_LIMIT, HTTP_INSIDE_RESUME, HTTP_INSIDE_PAUSE };
/* http_body_stream and its like. */
void http_inside_body(struct http_inside *inside, enum http_inside_step step, uint64_t most);

#endif
