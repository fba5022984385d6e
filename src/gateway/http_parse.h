/*
 * The parser of HTTP/1.1 requests: bytes in, events out. It does no I/O, knows no time, and copies nothing but the
 * head, so its memory is at most twice the limit of the head. How the bytes are cut into pieces makes no difference to
 * what it answers.
 *
 * It accepts less than RFC 9112 does, because what two parsers read in two ways is how requests are smuggled: no bare
 * line feeds, no folded lines, no spaces around names, one length or one `chunked` but not both, no transfer coding
 * besides, no trailers, no empty lines before a request, targets in origin-form only.
 */
#ifndef HC_GATEWAY_HTTP_PARSE_H
#define HC_GATEWAY_HTTP_PARSE_H

#include "base/buf.h"
#include "gateway/http.h"

enum {
    HTTP_CHUNK_EXTENSIONS = 256, /* bytes of them in one body: nobody uses them, and they cost the sender nothing */
    HTTP_CHUNK_DIGITS = 16,
};

enum http_parse_event {
    HTTP_PARSE_MORE,  /* all was used; it needs more */
    HTTP_PARSE_HEAD,  /* the head is complete: http_parse_request. Call again, for the body */
    HTTP_PARSE_BODY,  /* a piece of the body. Call again */
    HTTP_PARSE_END,   /* the request is complete; what follows is the next one's. For ever */
    HTTP_PARSE_ERROR, /* status and why. For ever */
};

struct http_parser {
    size_t header_bytes, header_count; /* 431 past them */
    size_t body_bytes;                 /* 413 past it. May be changed after HTTP_PARSE_HEAD, before the next call */

    int status;      /* after HTTP_PARSE_ERROR: what to answer */
    const char *why; /* a constant sentence without quotes */

    /* After HTTP_PARSE_HEAD. */
    bool keep_alive, expects_continue;
    bool has_body;      /* a length above 0, or chunks */
    bool chunked;       /* else `remaining` is the whole length */
    uint64_t remaining; /* of the body, or of the chunk */
    unsigned minor;     /* of HTTP/1.x */

    /* Its own. */
    unsigned state;
    size_t head_seen;   /* bytes of the head so far */
    size_t line;        /* where the line that is being read begins in `head` */
    size_t names;       /* headers so far */
    size_t body_seen;   /* bytes of a chunked body */
    size_t extensions;  /* bytes of chunk extensions */
    unsigned digits;    /* of the chunk size */
    struct hc_buf head; /* "target\0name\0value\0name\0value\0", and after it the line that is being read */
    enum http_method method;
    char method_name[16];
    char *path;
    struct http_header *headers; /* they point into `head` */
};

void http_parser_init(struct http_parser *parser, const struct http_limits *limits);
void http_parser_release(struct http_parser *parser);

/* Takes some of `data` and says how much in *used. A piece of the body is *piece, inside `data`. */
enum http_parse_event http_parse(struct http_parser *parser, const char *data, size_t length, size_t *used,
                                 const char **piece, size_t *piece_length);
/* After HTTP_PARSE_HEAD: fills method, target, path, query and headers. They stay the parser's. */
void http_parse_request(const struct http_parser *parser, struct http_request *request);

/* Whether a comma-separated list has the word, in any case. */
bool http_list_has(const char *list, const char *word);
/* tchar of RFC 9110: what names of methods and headers are made of. */
bool http_is_token(const char *text, size_t length);

#endif
