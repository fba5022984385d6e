/*
 * An HTTP/1.1 response, read piece by piece. Strict: what two parsers could read in two ways is an error. It knows
 * nothing of sockets, so a fuzzer can drive it.
 */
#ifndef HC_CLI_HTTP_RESPONSE_H
#define HC_CLI_HTTP_RESPONSE_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEAD_MAX = 64 * 1024 };

enum http_response_state {
    RESPONSE_HEAD,        /* status line and headers */
    RESPONSE_LENGTH,      /* a body of known length */
    RESPONSE_UNTIL_CLOSE, /* a body that ends with the connection */
    RESPONSE_CHUNK_SIZE,
    RESPONSE_CHUNK_DATA,
    RESPONSE_CHUNK_END, /* the line end after a chunk */
    RESPONSE_TRAILERS,
    RESPONSE_DONE,
};

struct http_response {
    enum http_response_state state;
    int status;            /* 0 until the head is complete */
    char content_type[64]; /* in lower case, without parameters; "" when there is none */
    unsigned retry_after;  /* seconds; 0: none */
    char session[128];     /* Mcp-Session-Id; "" when there is none, or one that is too long */
    bool has_length, chunked;
    uint64_t left;      /* of the body or the chunk */
    struct hc_buf line; /* what has come of the head, or of the line of a chunk */
    size_t trailers;    /* bytes of them so far */
};

void http_response_start(struct http_response *response);
void http_response_release(struct http_response *response);
/* All of `data`; what belongs to the body is appended to it. 0 or -errno: -EPROTO for anything malformed, also for
 * bytes after the end; -EFBIG or -ENOMEM from `body`. */
int http_response_feed(struct http_response *response, const char *data, size_t length, struct hc_buf *body);
/* The connection was closed by the server: 0 when the response was complete, else -ECONNRESET. */
int http_response_end(struct http_response *response);

#endif
