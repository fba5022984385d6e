/*
 * HTTP/1.1, served: listeners, connections, requests, replies. Strict on purpose: what two parsers could read in two
 * ways (both a length and chunks, two lengths, a bare line feed, a space before a colon, an encoded slash or NUL) is a
 * 400 and the end of the connection.
 *
 * What always holds: memory is bounded by the limits below, whatever clients do; every connection has a deadline for
 * what it is doing; a reply is sent whole or the connection is closed. One thread, on the caller's loop.
 *
 * A request's body is read whole before it is handled, unless `admit` asks for a stream: then `handle` is called after
 * the headers, and the body comes in pieces when the handler wants them. A handler may also take the connection over
 * (http_upgrade). Either way a connection holds no more than HTTP_PIECE bytes that nobody has taken yet.
 */
#ifndef HC_GATEWAY_HTTP_H
#define HC_GATEWAY_HTTP_H

#include "base/buf.h"
#include "base/err.h"
#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server;
struct budget;
struct http_tls; /* certificate and key, loaded */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OPTIONS, HTTP_OTHER, HTTP_ANY };

enum http_listener_kind {
    HTTP_LISTEN_TCP,  /* a loopback or other address */
    HTTP_LISTEN_UNIX, /* the unix socket: whoever may open it is the operator */
};

struct http_limits {        /* in force from the next request on; http_server_set_limits */
    size_t header_bytes;    /* request line and headers: 431 past it */
    size_t header_count;    /* 431 */
    size_t body_bytes;      /* of one request: 413 */
    size_t body_total;      /* of all requests that are being read or handled: 503 with Retry-After */
    size_t connections;     /* past it, the longest idle one is closed, else the new one gets a 503 */
    uint64_t header_time;   /* µs from the first byte (or accept) to the end of the headers: 408 */
    uint64_t body_time;     /* µs for the body: 408. Of a streamed one: without progress while more of it is wanted */
    uint64_t idle_time;     /* µs between requests on a kept connection */
    uint64_t write_time;    /* µs without progress while a reply waits for the client */
    struct budget *replies; /* from which large replies are held until they are sent: 503 past it. NULL: any */
    size_t write_backlog;   /* a stream's client is dropped when it is written to while more than this waits for it */
};

enum { HTTP_PIECE = 65536 }; /* bytes: the most that on_body gets at once */
#define HTTP_LENGTH_UNKNOWN UINT64_MAX

enum { HTTP_ADDRESS_SIZE = 64 };

struct http_header {
    char *name; /* lower case */
    char *value;
};

struct http_request {
    enum http_method method;
    char method_name[16];
    char *target; /* as it was sent */
    /* Percent-decoded UTF-8 that begins with '/'; no ".", ".." or empty components (but one '/' may end it), no control
     * characters, and nothing that a second decoding would change. */
    char *path;
    char *query; /* raw, without '?', "" when there is none; http_query_value decodes one */
    struct http_header *headers;
    size_t header_count;
    char *body; /* NUL-terminated; "" when there is none */
    size_t body_length;
    uint64_t body_expected; /* Content-Length, 0 when there is no body, HTTP_LENGTH_UNKNOWN for chunks */
    enum http_listener_kind listener;
    bool tls;
    char peer[HTTP_ADDRESS_SIZE];  /* "127.0.0.1:52114" or "unix" */
    char local[HTTP_ADDRESS_SIZE]; /* the address it was sent to */
    uint64_t received_at;          /* CLOCK_MONOTONIC µs of its first byte */
    void *context;                 /* `admit`'s: who asks. Freed by context_free, if set, with the request */
    void (*context_free)(void *context);
    void *data; /* the handler's own, while it has the request */
    /* Called once if the client hangs up, is too slow, or the server closes, before the reply has ended. After it the
     * request is gone: reply functions must not be called. Set by the handler when it keeps the request for later. A
     * client that ends its sending (half-close) has hung up: on the wire it looks like a close. */
    void (*on_gone)(struct http_request *request);
    /* Called from the loop each time that all of a stream's bytes so far have been handed to the kernel. A writer that
     * has much to say writes some, and more from here: it is never too far behind. May be NULL. */
    void (*on_drained)(struct http_request *request);
    /* Of a streamed body, or of a connection that was taken over: a piece, which the handler must take whole; and the
     * end, once. Called from the loop and only between http_body_resume and http_body_pause. May be NULL, and may
     * reply. A connection that was taken over has no end: its client is gone (on_gone). */
    void (*on_body)(struct http_request *request, const char *data, size_t length);
    void (*on_body_end)(struct http_request *request);
    void *body_data, *drained_data;     /* of whoever set on_body and on_drained in the handler's stead: carry.h */
    struct http_connection *connection; /* http_*.c's own */
    struct http_inside *inside;         /* no client sent it: http_inside.h; there is no connection then */
};

struct http_handlers {
    void *data;
    /* After the headers, before the body is read. 0: go on; anything else: it has replied (a body that follows is not
     * read: the connection closes after the reply). */
    int (*admit)(void *data, struct http_request *request);
    /* The whole request, or what comes before its body where that is streamed. It must reply now, or keep the request
     * and reply later. */
    void (*handle)(void *data, struct http_request *request);
    /* Tells of a reply that http_*.c made itself (400, 408, 413, 431, 503, ...), as problem+json. May be NULL. */
    void (*refused)(void *data, const char *peer, int status, const char *why);
};

/* ---- the server ---- */
int http_server_new(struct hc_loop *loop, const struct http_limits *limits, const struct http_handlers *handlers,
                    struct http_server **out, struct hc_err *err);
/* Takes a listening socket (non-blocking is set here). `tls`: NULL for plain; stays the caller's. */
int http_server_listen(struct http_server *server, int fd, enum http_listener_kind kind, struct http_tls *tls,
                       struct hc_err *err);
void http_server_set_limits(struct http_server *server, const struct http_limits *limits);
void http_server_stop_accepting(struct http_server *server); /* drain: idle connections are closed, replies say close */
void http_server_free(struct http_server *server);           /* on_gone is called for what is under way */
struct http_counts {
    uint64_t connections, requests_active;
    uint64_t accepted, refused, requests; /* since the start */
    size_t body_bytes;                    /* held now */
};
void http_server_counts(const struct http_server *server, struct http_counts *counts);

/* PEM files already read (the gateway has no file system). NULL certificate: err. */
int http_tls_new(const char *certificate, size_t certificate_length, const char *key, size_t key_length,
                 struct http_tls **out, struct hc_err *err);
void http_tls_free(struct http_tls *tls);

/* ---- looking at a request ---- */
const char *http_header(const struct http_request *request, const char *name); /* NULL: absent. Name in lower case */
/* One value of the query, decoded into `text`: 1, 0 when absent, -EINVAL when it is malformed, too long, or there
 * twice.
 */
int http_query_value(const struct http_request *request, const char *name, char *text, size_t size);
/* The name of the first query parameter that is not in `known` (NULL-terminated), or NULL. */
const char *http_query_unknown(const struct http_request *request, const char *const *known, char *text, size_t size);
/* Whether Accept prefers `type` ("text/event-stream") to application/json. */
bool http_accepts(const struct http_request *request, const char *type);
/* Whether a header that is a list of words, there any number of times, has this one in any case. */
bool http_header_has(const struct http_request *request, const char *name, const char *word);

/* ---- a streamed body ---- */
/* In `admit`: this request's body is not collected. Nothing of it is read before the handler asks for it. */
void http_body_stream(struct http_request *request);
/* Before the first http_body_resume: 413 past so many bytes, also in the middle. There is no limit otherwise. */
void http_body_limit(struct http_request *request, uint64_t most);
/* More, please; a client that waits for `100 Continue` gets it now. on_body is never called from inside this. */
void http_body_resume(struct http_request *request);
void http_body_pause(struct http_request *request); /* no more for now */

/* ---- replying: exactly one of http_reply, http_stream_begin, http_stream_begin_sized and http_upgrade for each
 * request
 * ----
 *
 * Whoever replies before a streamed body has ended gets no more of it, and the connection closes after the reply. */
/* Before the reply: one more header. Values with control characters are refused (-EINVAL). */
int http_add_header(struct http_request *request, const char *name, const char *value);
/* The body is copied. The request is gone after it. A HEAD gets the headers alone. */
void http_reply(struct http_request *request, int status, const char *content_type, const char *body, size_t length);
/* Chunked, or until close for HTTP/1.0. */
void http_stream_begin(struct http_request *request, int status, const char *content_type);
/* A stream of exactly `length` bytes. One that writes more, or ends before, loses its connection. */
void http_stream_begin_sized(struct http_request *request, int status, const char *content_type, uint64_t length);
/* Takes the connection over: a 101 with `Upgrade: protocol` and the added headers, and from then on bytes are bytes.
 * They come by on_body (after http_body_resume) and go by http_stream_write; http_stream_end closes the connection. 0;
 * -EINVAL, and nothing has been sent, for a request that did not ask for it (Connection: upgrade in HTTP/1.1) or that
 * has a body. */
int http_upgrade(struct http_request *request, const char *protocol);
/* 0, or -EPIPE when the client is gone or too far behind: on_gone has been or will be called from the loop, never from
 * inside this call. */
int http_stream_write(struct http_request *request, const char *data, size_t length);
/* on_drained will be called even if nothing is written before: for a writer that begins there. */
void http_stream_kick(struct http_request *request);
/* Bytes of the stream that wait for the client. */
size_t http_stream_pending(const struct http_request *request);
void http_stream_end(struct http_request *request); /* the request is gone after it */
/* The same, but what was sent must not look whole: the connection is cut. */
void http_stream_abort(struct http_request *request);

/* ---- an answer that is somebody else's: proxy.h ---- */
/* Before the reply: none of the headers that replies of ours have is added to it, and `forget` takes those back that
 * http_add_header has added so far. */
void http_headers_bare(struct http_request *request, bool forget);
void http_headers_ours(
    struct http_request *request); /* undoes that, and what was passed: the reply is ours after all */
/* http_add_header for such a reply: any header but those that frame it, up to HTTP_PASSED_HEADERS bytes in all. */
enum { HTTP_PASSED_HEADERS = 80 * 1024 };
int http_pass_header(struct http_request *request, const char *name, const char *value);
/* A reply below 200 before the real one, with nothing but these lines ("Name: value\r\n...", or ""); none where the
 * client speaks HTTP/1.0. */
void http_interim(struct http_request *request, int status, const char *lines);

const char *http_status_text(int status);

#endif
