/*
 * The heads that a proxy writes: the request's for the server inside, the answer's for the client. Pure: no I/O, so
 * that a fuzzer can drive it.
 */
#ifndef HC_GATEWAY_PROXY_HEAD_H
#define HC_GATEWAY_PROXY_HEAD_H

#include "gateway/proxy.h"
#include "text/http_reader.h"

/* The request's head, all of it. `upgrade`: it asks for a WebSocket. -EINVAL: target or host cannot be sent. */
int proxy_write_request(struct hc_buf *out, const struct http_request *request, const struct proxy_options *options,
                        bool upgrade);

/* What is kept of the options for the answer. */
struct proxy_answer {
    const char *prefix;
    const char *host;
    bool own_origin;
    bool upgrade;
};
/* Hands each header that may pass to `pass`, with the value that it has for the client, after a head was read. 0, or
 * what `pass` said. */
int proxy_pass_headers(const struct http_reader *reader, const struct proxy_answer *answer,
                       int (*pass)(void *data, const char *name, const char *value), void *data);
/* Whether a header that is a list of words, there any number of times, has this one. */
bool proxy_answer_has(const struct http_reader *reader, const char *name, const char *word);

#endif
