/*
 * The client's side of HTTP/1.1: one connection for each request, so that nothing of one can reach into another. The
 * answer is read whole (http_fetch) or as it comes (http_open, http_read).
 */
#ifndef HC_CLI_HTTP_CLIENT_H
#define HC_CLI_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/err.h"
#include "cli/connection.h"
#include "cli/http_response.h"
#include "cli/url.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whom to ask, and as whom. Strings are borrowed. */
struct http_server_address {
    struct url url;
    const char *key; /* the token, or NULL */
    struct connection_terms terms;
};

struct http_ask {
    const char *method, *target;
    const char *accept;        /* NULL: application/json */
    const char *last_event_id; /* NULL: none */
    const char *headers;       /* more of them, each with its line end; NULL: none */
    const char *expect;        /* Hotcell-Expect: what must hold of the server, else it answers 412; NULL: nothing */
    const char *type;          /* of the body; NULL: application/json */
    const char *body;          /* or NULL */
    size_t length;
    bool chunked;           /* the body follows by http_push; `body` is NULL */
    uint64_t patience;      /* µs that the answer may be silent; 0: as long as it takes */
    uint64_t head_patience; /* the same until its head is there; 0: patience */
};

struct http_exchange;

/* Sends it and waits for the head of the answer. Failures are HC_CLASS_HOST: the network, or what is no HTTP. */
int http_open(const struct http_server_address *address, const struct http_ask *ask, struct http_exchange **out,
              struct hc_err *err);
/* The same in two steps, for who waits for something else meanwhile: the head of the answer is read by http_receive,
 * which need not wait once http_fd is readable. */
int http_send(const struct http_server_address *address, const struct http_ask *ask, struct http_exchange **out,
              struct hc_err *err);
int http_fd(const struct http_exchange *exchange);
/* A body of a length that nobody knows yet, piece by piece, after http_send with `chunked`. 0; 1: the server has begun
 * to answer and reads no more of it; -errno. */
int http_push(struct http_exchange *exchange, const void *data, size_t length, struct hc_err *err);
/* The end of that body. Whoever leaves it out and closes has broken off: the server takes the body for incomplete. */
int http_push_end(struct http_exchange *exchange, struct hc_err *err);
int http_receive(struct http_exchange *exchange, struct hc_err *err);
/* Never changes once http_open has returned; `state` does. */
const struct http_response *http_response_of(const struct http_exchange *exchange);
/* What has come of the body is appended. 1: more may come; 0: that was all; -errno. */
int http_read(struct http_exchange *exchange, struct hc_buf *body, struct hc_err *err);
void http_close(struct http_exchange *exchange); /* NULL is fine */

struct http_answer {
    int status;
    char content_type[64];
    unsigned retry_after;
    char *body; /* malloc'ed, NUL-terminated */
    size_t length;
};
/* *answer is written on success alone; free(answer->body). */
int http_fetch(const struct http_server_address *address, const struct http_ask *ask, struct http_answer *answer,
               struct hc_err *err);

/* Appends text as one component of a path or one value of a query: everything else than letters, digits and "-._~" is
 * percent-encoded. */
void http_add_encoded(struct hc_buf *buf, const char *text);

#endif
