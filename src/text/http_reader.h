/*
 * An HTTP/1.1 response, read piece by piece: bytes in, events out. Strict: what two parsers could read in two ways is
 * an error. It knows nothing of sockets, so a fuzzer can drive it. The client reads a server's answers with it, the
 * gateway those of programs in cells, which are hostile.
 *
 * What always holds: no more than HTTP_HEAD_MAX bytes are kept, and how the bytes were cut into pieces changes nothing
 * of what is read. Values of headers have no control characters but tabs.
 */
#ifndef HC_TEXT_HTTP_READER_H
#define HC_TEXT_HTTP_READER_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEAD_MAX = 64 * 1024 };

enum http_reader_state {
    HTTP_READER_HEAD,        /* status line and headers */
    HTTP_READER_BODY,        /* of known length */
    HTTP_READER_UNTIL_CLOSE, /* a body that ends with the connection */
    HTTP_READER_CHUNK_SIZE,
    HTTP_READER_CHUNK_DATA,
    HTTP_READER_CHUNK_END, /* the line end after a chunk */
    HTTP_READER_TRAILERS,
    HTTP_READER_DONE,
};

enum http_reader_event {
    HTTP_READER_EVENT_MORE,  /* all was used; it needs more */
    HTTP_READER_EVENT_HEAD,  /* one is complete. With a status below 200, other than a 101, another one follows */
    HTTP_READER_EVENT_PIECE, /* of the body */
    HTTP_READER_EVENT_END,   /* the response is complete. After a 101 what follows is not HTTP */
};

struct http_reader {
    /* The caller's, before the head. */
    bool bodiless; /* it answers a HEAD */
    bool upgrades; /* a 101 is expected; else it is an error */

    enum http_reader_state state;
    int status;         /* 0 until a head is complete */
    unsigned minor;     /* of HTTP/1.x */
    bool has_length;    /* `length` was given */
    bool chunked;       /* else, without a length, the body ends with the connection */
    uint64_t length;    /* Content-Length */
    uint64_t left;      /* of the body or the chunk */
    bool head_told;     /* its strings are to be dropped */
    struct hc_buf line; /* what has come of the head or of the line of a chunk; after a head "name\0value\0..." */
    size_t trailers;    /* bytes of them so far, which are thrown away */
};

void http_reader_start(struct http_reader *reader);
void http_reader_release(struct http_reader *reader);
/* An event, with what was used of `data` in *used and, for a piece, where it lies in it; or -errno: -EPROTO for
 * anything malformed, also for bytes after the end, in the call after it; -ENOMEM. */
int http_reader_take(struct http_reader *reader, const char *data, size_t length, size_t *used, const char **piece,
                     size_t *piece_length);
/* After HTTP_READER_EVENT_HEAD, until the next call: the headers one by one. *at is 0 at first. */
bool http_reader_header(const struct http_reader *reader, size_t *at, const char **name, const char **value);
/* The connection was closed by the other side: 0 when the response was complete, else -ECONNRESET. */
int http_reader_end(struct http_reader *reader);

/* Digits alone, no more than fit. 0 or -EPROTO. */
int http_read_number(const char *text, unsigned base, uint64_t *value);

#endif
