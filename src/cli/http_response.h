/*
 * An HTTP/1.1 response of a hotcell server, read piece by piece: text/http_reader.h, and the headers that matter to a
 * client.
 */
#ifndef HC_CLI_HTTP_RESPONSE_H
#define HC_CLI_HTTP_RESPONSE_H

#include "text/http_reader.h"

struct http_response {
    struct http_reader reader;
    int status;            /* 0 until the head is complete; never one below 200 */
    char content_type[64]; /* in lower case, without parameters; "" when there is none */
    unsigned retry_after;  /* seconds; 0: none */
    uint64_t skipped;      /* Hotcell-Skipped: what an archive leaves out */
    char session[128];     /* Mcp-Session-Id; "" when there is none, or one that is too long */
};

void http_response_start(struct http_response *response);
void http_response_release(struct http_response *response);
/* All of `data`; what belongs to the body is appended to it. 0 or -errno: -EPROTO for anything malformed, also for
 * bytes after the end; -EFBIG or -ENOMEM from `body`. */
int http_response_feed(struct http_response *response, const char *data, size_t length, struct hc_buf *body);
/* The connection was closed by the server: 0 when the response was complete, else -ECONNRESET. */
int http_response_end(struct http_response *response);
bool http_response_done(const struct http_response *response);

#endif
