/*
 * Feeds bytes to the HTTP parser, three times: whole, byte by byte, and in pieces whose lengths the input decides. The
 * outcome must be the same. Besides, it checks what the headers promise of whatever was taken: a path that is plain, a
 * length that is one, bodies and heads within their limits.
 */
#include "gateway/http_parse.h"
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 512, HEADER_COUNT = 12, BODY_BYTES = 300 };

static void check(int holds)
{
    if (!holds)
        abort();
}

struct outcome {
    enum http_parse_event last;
    size_t used;
    bool head;
    struct hc_buf body;
    struct http_parser parser;
    struct http_request request;
};

static size_t count(const struct http_request *request, const char *name)
{
    size_t found = 0;
    for (size_t i = 0; i < request->header_count; i++)
        found += strcmp(request->headers[i].name, name) == 0;
    return found;
}

static void check_path(const char *path)
{
    check(path[0] == '/');
    check(strstr(path, "//") == NULL && strstr(path, "/../") == NULL && strstr(path, "/./") == NULL);
    check(strchr(path, '\\') == NULL);
    for (const char *c = path; *c != '\0'; c++) {
        check((unsigned char)*c >= 0x20 && *c != 0x7F);
        check(*c != '%' || !isxdigit((unsigned char)c[1]) || !isxdigit((unsigned char)c[2]));
    }
    const char *last = strrchr(path, '/');
    check(strcmp(last, "/.") != 0 && strcmp(last, "/..") != 0);
}

static void check_head(const struct http_parser *parser, const struct http_request *request)
{
    check_path(request->path);
    check(request->header_count <= HEADER_COUNT && parser->head_seen <= HEADER_BYTES);
    size_t lengths = count(request, "content-length"), codings = count(request, "transfer-encoding");
    check(lengths + codings <= 1 && count(request, "host") <= 1);
    check(parser->minor == 0 || count(request, "host") == 1);
    check(codings == (parser->chunked ? 1 : 0));
    for (size_t i = 0; i < request->header_count; i++) {
        check(http_is_token(request->headers[i].name, strlen(request->headers[i].name)));
        check(strpbrk(request->headers[i].value, "\r\n") == NULL);
    }
}

static void feed(struct outcome *outcome, const char *data, size_t length)
{
    size_t at = 0;
    for (;;) {
        const char *piece;
        size_t used, piece_length;
        outcome->last = http_parse(&outcome->parser, data + at, length - at, &used, &piece, &piece_length);
        check(used <= length - at);
        at += used;
        if (outcome->last == HTTP_PARSE_BODY) {
            check(piece_length > 0 && piece >= data && piece + piece_length <= data + length);
            check(hc_buf_add(&outcome->body, piece, piece_length) == 0); /* its ceiling is the limit */
        } else if (outcome->last == HTTP_PARSE_HEAD) {
            check(!outcome->head);
            outcome->head = true;
            http_parse_request(&outcome->parser, &outcome->request);
            check_head(&outcome->parser, &outcome->request);
        } else {
            break;
        }
    }
    check(outcome->last != HTTP_PARSE_MORE || at == length);
    outcome->used += at;
}

/* `cuts`: the lengths of the pieces, over and over; NULL: one piece. */
static void parse(struct outcome *outcome, const char *data, size_t size, const uint8_t *cuts, size_t cut_count)
{
    static const struct http_limits LIMITS = {
        .header_bytes = HEADER_BYTES, .header_count = HEADER_COUNT, .body_bytes = BODY_BYTES};
    *outcome = (struct outcome){.body = HC_BUF_INIT(BODY_BYTES)};
    http_parser_init(&outcome->parser, &LIMITS);
    size_t at = 0;
    for (size_t i = 0; outcome->last == HTTP_PARSE_MORE && (at < size || i == 0); i++) {
        size_t length = cuts != NULL ? cuts[i % cut_count] : size;
        length = length > 0 ? length : 1;
        length = length < size - at ? length : size - at;
        feed(outcome, data + at, length);
        at += length;
    }
}

static void release(struct outcome *outcome)
{
    hc_buf_release(&outcome->body);
    http_parser_release(&outcome->parser);
}

static void check_same(const struct outcome *a, const struct outcome *b)
{
    check(a->last == b->last && a->used == b->used && a->head == b->head);
    check(a->parser.status == b->parser.status && a->parser.why == b->parser.why);
    check(a->body.length == b->body.length);
    check(a->body.length == 0 || memcmp(a->body.data, b->body.data, a->body.length) == 0);
    if (!a->head)
        return;
    check(strcmp(a->request.target, b->request.target) == 0 && strcmp(a->request.path, b->request.path) == 0);
    check(a->request.header_count == b->request.header_count);
    for (size_t i = 0; i < a->request.header_count; i++)
        check(strcmp(a->request.headers[i].name, b->request.headers[i].name) == 0 &&
              strcmp(a->request.headers[i].value, b->request.headers[i].value) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t SINGLE[] = {1};
    struct outcome whole, single, cut;
    parse(&whole, (const char *)data, size, NULL, 0);
    parse(&single, (const char *)data, size, SINGLE, sizeof SINGLE);
    parse(&cut, (const char *)data, size, size > 0 ? data : SINGLE, size > 0 ? size : 1);
    check_same(&whole, &single);
    check_same(&whole, &cut);
    if (whole.last == HTTP_PARSE_ERROR)
        check(whole.parser.status >= 400 && whole.parser.why != NULL);
    release(&whole);
    release(&single);
    release(&cut);
    return 0;
}
