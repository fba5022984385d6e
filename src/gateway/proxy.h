/*
 * A request handed on to an HTTP server inside a cell, and its answer handed back: previews. The server inside is
 * hostile. What it says is taken apart by a strict parser and put together anew, so that it can neither end its answer
 * where the client does not, nor begin a second one, nor say what is not its to say.
 *
 * Bodies are streamed both ways with back-pressure. An answer that is nonsense is a 502, none in time a 504, as long as
 * nothing of it has been passed on; after that the connection is cut, and never looks as if it were whole.
 */
#ifndef HC_GATEWAY_PROXY_H
#define HC_GATEWAY_PROXY_H

#include "base/loop.h"
#include "gateway/http.h"

struct proxy;

struct proxy_options {
    const char *target; /* what is asked for: "/path?query", as it was sent */
    const char *host;   /* the Host that the server inside sees: "localhost:8000" */
    /* Where its "/" is for the client, without a slash at its end: "/v1/sandboxes/sbx_1/ports/8000"; "" where it is
     * "/". Redirects and cookies are put below it. */
    const char *prefix;
    const char *const *headers; /* added to the answer: name, value, name, value, NULL. May be NULL */
    /* The origin is the server inside's own. Otherwise it is shared with hotcell, and headers that speak for a whole
     * origin (CORS, HSTS, Clear-Site-Data, ...) are left out. */
    bool own_origin;
    bool own_authorization; /* Authorization and X-API-Key are not hotcell's, and are handed on */
    uint64_t answer_time;   /* µs for the head of the answer, from the last of the request that was taken: 504 */
    uint64_t idle_time;     /* µs without a byte either way after it. 0: any */
};

struct proxy_handlers {
    void *data;
    /* Nothing has been passed on: the reply is the caller's, now. `why` is a constant sentence. */
    void (*failed)(void *data, struct http_request *request, int status, const char *why);
    /* The answer has begun: to count it. May be NULL. */
    void (*answered)(void *data, const struct http_request *request, int status);
    /* The end, once and last, whatever came before it; the request may be gone already. From the loop or proxy_stop. */
    void (*ended)(void *data);
};

/* Takes `fd`, a connected stream socket that does not block, also on failure; and the request, whose body must be
 * streamed. The options are not kept. 0; -ENOMEM, -EINVAL (a CONNECT; a target or host that cannot be sent): the
 * request stays the caller's, and no handler is called. */
int proxy_start(struct hc_loop *loop, struct http_request *request, int fd, const struct proxy_options *options,
                const struct proxy_handlers *handlers, struct proxy **out);
/* Cuts it off: 502 if nothing has been passed on. `ended` is called. Not from inside a handler. */
void proxy_stop(struct proxy *proxy);

#endif
