/*
 * The HTTP parser: what it takes, what it refuses and with which status, and that the cut of the input changes nothing.
 * Every input goes through it whole, byte by byte, and in two pieces at every place.
 */
#include "gateway/http_parse.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct http_limits LIMITS = {.header_bytes = 1024, .header_count = 8, .body_bytes = 64};

struct outcome {
    enum http_parse_event last; /* MORE, END or ERROR */
    bool head;
    size_t used; /* of the input, when it ended */
    struct hc_buf body;
    struct http_parser parser;
    struct http_request request;
};

static void release(struct outcome *outcome)
{
    hc_buf_release(&outcome->body);
    http_parser_release(&outcome->parser);
}

/* One piece, all of it or until the parser has ended. The piece is in a block of its size, so that ASan sees overruns.
 */
static void feed(struct outcome *outcome, const char *data, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    assert_non_null(copy);
    memcpy(copy, data, length);
    size_t at = 0;
    for (;;) {
        const char *piece;
        size_t used, piece_length;
        outcome->last = http_parse(&outcome->parser, copy + at, length - at, &used, &piece, &piece_length);
        at += used;
        if (outcome->last == HTTP_PARSE_BODY) {
            assert_true(piece_length > 0);
            hc_buf_add(&outcome->body, piece, piece_length);
        } else if (outcome->last == HTTP_PARSE_HEAD) {
            assert_false(outcome->head);
            outcome->head = true;
            http_parse_request(&outcome->parser, &outcome->request);
        } else {
            break;
        }
    }
    assert_true(outcome->last != HTTP_PARSE_MORE || at == length);
    outcome->used += at;
    free(copy);
}

/* In pieces: the first of `first` bytes, the others of `step`. */
static void parse(struct outcome *outcome, const char *data, size_t length, size_t first, size_t step)
{
    *outcome = (struct outcome){.body = HC_BUF_INIT(SIZE_MAX)};
    http_parser_init(&outcome->parser, &LIMITS);
    size_t at = first < length ? first : length;
    feed(outcome, data, at);
    while (at < length && outcome->last == HTTP_PARSE_MORE) {
        size_t next = step < length - at ? step : length - at;
        feed(outcome, data + at, next);
        at += next;
    }
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    assert_int_equal(a->last, b->last);
    assert_int_equal(a->used, b->used);
    assert_int_equal(a->head, b->head);
    assert_int_equal(a->parser.status, b->parser.status);
    assert_ptr_equal(a->parser.why, b->parser.why);
    assert_int_equal(a->body.length, b->body.length);
    if (a->body.length > 0)
        assert_memory_equal(a->body.data, b->body.data, a->body.length);
    if (!a->head)
        return;
    assert_string_equal(a->request.target, b->request.target);
    assert_string_equal(a->request.path, b->request.path);
    assert_int_equal(a->request.header_count, b->request.header_count);
    for (size_t i = 0; i < a->request.header_count; i++) {
        assert_string_equal(a->request.headers[i].name, b->request.headers[i].name);
        assert_string_equal(a->request.headers[i].value, b->request.headers[i].value);
    }
}

/* The outcome of the whole, after all other cuts were seen to have the same one. */
static struct outcome parse_all_ways(const char *data, size_t length)
{
    struct outcome whole, other;
    parse(&whole, data, length, length, length);
    parse(&other, data, length, 1, 1);
    assert_same(&whole, &other);
    release(&other);
    for (size_t first = 0; first < length; first++) {
        parse(&other, data, length, first, length);
        assert_same(&whole, &other);
        release(&other);
    }
    return whole;
}

static void assert_refused(const char *data, size_t length, int status)
{
    struct outcome outcome = parse_all_ways(data, length);
    if (outcome.last != HTTP_PARSE_ERROR || outcome.parser.status != status)
        fail_msg("expected %d, got event %d status %d (%s) for: %.*s", status, outcome.last, outcome.parser.status,
                 outcome.parser.why != NULL ? outcome.parser.why : "", (int)length, data);
    assert_null(strpbrk(outcome.parser.why, "\"\\\n")); /* it goes into JSON as it is */
    release(&outcome);
}

static struct outcome assert_taken(const char *data)
{
    struct outcome outcome = parse_all_ways(data, strlen(data));
    if (outcome.last != HTTP_PARSE_END)
        fail_msg("expected the end, got event %d status %d (%s) for: %s", outcome.last, outcome.parser.status,
                 outcome.parser.why != NULL ? outcome.parser.why : "", data);
    return outcome;
}

static void refuse(const char *text, int status)
{
    assert_refused(text, strlen(text), status);
}

static void refuse_target(const char *target, int status)
{
    char text[1024];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", target);
    refuse(text, status);
}

static void refuse_header(const char *line, int status)
{
    char text[1024];
    snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", line);
    refuse(text, status);
}

static void refuse_chunks(const char *body, int status)
{
    char text[2048];
    snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s", body);
    refuse(text, status);
}

static void assert_path(const char *target, const char *path, const char *query)
{
    char text[1024];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", target);
    struct outcome outcome = assert_taken(text);
    assert_string_equal(outcome.request.target, target);
    assert_string_equal(outcome.request.path, path);
    assert_string_equal(outcome.request.query, query);
    release(&outcome);
}

/* ---- what is taken ---- */

static void test_a_request_is_taken_apart(void **state)
{
    (void)state;
    struct outcome outcome = assert_taken("POST /v1/runs?wait=3 HTTP/1.1\r\nHOST:localhost:7600\r\n"
                                          "X-Empty:\r\nX-Spaces: \t a b \t \r\nContent-Length: 5\r\n\r\nhello");
    struct http_request *request = &outcome.request;
    assert_int_equal(request->method, HTTP_POST);
    assert_string_equal(request->method_name, "POST");
    assert_string_equal(request->path, "/v1/runs");
    assert_string_equal(request->query, "wait=3");
    assert_int_equal(request->header_count, 4);
    assert_string_equal(http_header(request, "host"), "localhost:7600");
    assert_string_equal(http_header(request, "x-empty"), "");
    assert_string_equal(http_header(request, "x-spaces"), "a b");
    assert_null(http_header(request, "x-other"));
    assert_string_equal(outcome.body.data, "hello");
    assert_true(outcome.parser.keep_alive);
    release(&outcome);
}

static void test_what_follows_a_request_is_left_alone(void **state)
{
    (void)state;
    const char *first = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";
    char text[256];
    snprintf(text, sizeof text, "%sGET /b HTTP/1.1\r\n", first);
    struct outcome outcome = assert_taken(text);
    assert_int_equal(outcome.used, strlen(first));
    release(&outcome);
    first = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    snprintf(text, sizeof text, "%sGET /b HTTP/1.1\r\n", first);
    outcome = assert_taken(text);
    assert_int_equal(outcome.used, strlen(first));
    release(&outcome);
}

static void test_chunks_are_put_together(void **state)
{
    (void)state;
    struct outcome outcome = assert_taken("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
                                          "5\r\nhello\r\n00A;name=\"value\"\r\n, world\r\n\t\r\n0;last\r\n\r\n");
    assert_string_equal(outcome.body.data, "hello, world\r\n\t");
    assert_true(outcome.parser.chunked);
    release(&outcome);
    outcome = assert_taken("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_int_equal(outcome.body.length, 0);
    release(&outcome);
}

static void test_keep_alive_follows_version_and_connection_header(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool keep;
    } CASES[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: te ,\tCLOSE \r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", true},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct outcome outcome = assert_taken(CASES[i].text);
        assert_int_equal(outcome.parser.keep_alive, CASES[i].keep);
        release(&outcome);
    }
}

static void test_methods_are_known_by_name_and_case(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum http_method method;
    } CASES[] = {
        {"GET", HTTP_GET},         {"HEAD", HTTP_HEAD},   {"PUT", HTTP_PUT},   {"DELETE", HTTP_DELETE},
        {"OPTIONS", HTTP_OPTIONS}, {"PATCH", HTTP_OTHER}, {"get", HTTP_OTHER}, {"QWERTYUIOPASDFG", HTTP_OTHER}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s / HTTP/1.1\r\nHost: a\r\n\r\n", CASES[i].name);
        struct outcome outcome = assert_taken(text);
        assert_int_equal(outcome.request.method, CASES[i].method);
        assert_string_equal(outcome.request.method_name, CASES[i].name);
        release(&outcome);
    }
}

static void test_paths_are_decoded_once(void **state)
{
    (void)state;
    assert_path("/", "/", "");
    assert_path("/?", "/", "");
    assert_path("/v1/runs/", "/v1/runs/", "");
    assert_path("/a%20b?c=%2F..%2F&d", "/a b", "c=%2F..%2F&d");
    assert_path("/gr%C3%BC%c3%9fe",
                "/gr\xC3\xBC\xC3\x9F"
                "e",
                "");
    assert_path("/100%25", "/100%", "");
    assert_path("/a/...", "/a/...", "");
    assert_path("/a/.b", "/a/.b", "");
    assert_path("/~x/@y:z;a=b,c!$&'()*+", "/~x/@y:z;a=b,c!$&'()*+", "");
    assert_path("/?a=//../?", "/", "a=//../?");
}

/* ---- what is refused ---- */

static void test_paths_that_mean_another_path_are_refused(void **state)
{
    (void)state;
    static const char *const TARGETS[] = {
        "/..",       "/.",      "/a/../b",   "/a/./b",      "/a/..",         "/%2e%2e",
        "/%2E%2e/a", "/.%2e",   "/%2e",      "/a/%2e%2e",   "/%2e%2e%2fetc", "/a%2fb",
        "/a%2Fb",    "/a%5cb",  "/a\\b",     "//",          "/a//b",         "//a",
        "/a//",      "/%00",    "/a%00.txt", "/a%0d%0a",    "/%7f",          "/%",
        "/%2",       "/%zz",    "/a%2",      "/%252e%252e", "/%25%32e",      "/%2525",
        "/a%252fb",  "/%c0%ae", "/%ff",      "/%ed%a0%80",  "/%f4%90%80%80", "/a#b",
        "/a?b#c",    "/a|b",    "/a\"b",     "/<a>",        "/a\x80",        "/a?b\x80",
        "a",         "*",       "a:80",      "?a",          "http://a/",     "https://a/v1",
        "HTTP://a/",
    };
    for (size_t i = 0; i < sizeof TARGETS / sizeof TARGETS[0]; i++)
        refuse_target(TARGETS[i], 400);
}

static void test_request_lines_are_exact(void **state)
{
    (void)state;
    refuse("GET / HTTP/1.1\nHost: a\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\rHost: a\r\n\r\n", 400);
    refuse("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refuse(" GET / HTTP/1.1\r\n", 400);
    refuse("GET  / HTTP/1.1\r\n", 400);
    refuse("GET /  HTTP/1.1\r\n", 400);
    refuse("GET / HTTP/1.1 \r\n", 400);
    refuse("GET\t/ HTTP/1.1\r\n", 400);
    refuse("GET /\tHTTP/1.1\r\n", 400);
    refuse("GET /\r\n", 400);
    refuse("GET / a HTTP/1.1\r\n", 400);
    refuse("G(T / HTTP/1.1\r\n", 400);
    refuse("GET / http/1.1\r\n", 400);
    refuse("GET / HTTP/1.1x\r\n", 400);
    refuse("GET / HTTP/11\r\n", 400);
    refuse("GET / HTTP/1,1\r\n", 400);
    refuse("CONNECT a:80 HTTP/1.1\r\n", 400);
    assert_refused("GET /\0 HTTP/1.1\r\n", 17, 400);
    assert_refused("\x16\x03\x01\x02", 4, 400); /* a TLS client at a plain port */
}

static void test_other_versions_are_505_and_long_methods_501(void **state)
{
    (void)state;
    refuse("GET / HTTP/2.0\r\n", 505);
    refuse("PRI * HTTP/2.0\r\n", 505);
    refuse("GET / HTTP/1.2\r\n", 505);
    refuse("GET / HTTP/0.9\r\n", 505);
    refuse("QWERTYUIOPASDFGH / HTTP/1.1\r\n", 501);
}

static void test_host_must_be_there_once(void **state)
{
    (void)state;
    refuse("GET / HTTP/1.1\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", 400);
    refuse("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400);
}

static void test_header_lines_are_exact(void **state)
{
    (void)state;
    refuse_header("Name : value", 400);
    refuse_header("Name\t: value", 400);
    refuse_header(" Name: value", 400);
    refuse_header("A: b\r\n folded", 400);
    refuse_header("A: b\r\n\tfolded", 400);
    refuse_header("A: b\nC: d", 400);
    refuse_header("A: b\rC: d", 400);
    refuse_header("A: b\x01", 400);
    refuse_header("A: b\x7F", 400);
    refuse_header("no colon", 400);
    refuse_header(": nameless", 400);
    refuse_header("N@me: value", 400);
    refuse_header("N\xC3\xA4me: value", 400);
    static const char NUL[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
    assert_refused(NUL, sizeof NUL - 1, 400);
    refuse("GET / HTTP/1.1\r\nHost: a\r\n\n", 400);
}

static void test_two_ways_to_say_the_length_are_refused(void **state)
{
    (void)state;
    refuse_header("Content-Length: 5\r\nTransfer-Encoding: chunked", 400);
    refuse_header("Transfer-Encoding: chunked\r\nContent-Length: 0", 400);
    refuse_header("Content-Length: 5\r\nContent-Length: 5", 400);
    refuse_header("Content-Length: 5\r\ncontent-length: 6", 400);
    refuse_header("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400);
    refuse_header("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", 400);
    refuse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
}

static void test_lengths_are_plain_numbers(void **state)
{
    (void)state;
    static const char *const VALUES[] = {"",   "+5", "-1",  "5 5", "5, 5",  "0x5",  "5a",
                                         "05", "00", "5.0", "5;",  "\"5\"", "5\t6", "five"};
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "Content-Length: %s", VALUES[i]);
        refuse_header(line, 400);
    }
}

static void test_transfer_codings_besides_chunked_are_refused(void **state)
{
    (void)state;
    static const char *const VALUES[] = {
        "",           "identity",         "gzip",        "gzip, chunked", "chunked, gzip",
        "xchunked",   "chunked, chunked", "\"chunked\"", "chunked;q=1",   ",chunked",
        "chun\xE9ked"};
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "Transfer-Encoding: %s", VALUES[i]);
        refuse_header(line, 400);
    }
}

static void test_headers_that_count_once_are_refused_twice(void **state)
{
    (void)state;
    refuse_header("Authorization: Bearer a\r\nAuthorization: Bearer b", 400);
    refuse_header("X-API-Key: a\r\nX-API-Key: b", 400);
    refuse_header("Origin: a\r\nOrigin: b", 400);
    refuse_header("Content-Type: a\r\nContent-Type: b", 400);
}

static void test_chunks_are_exact(void **state)
{
    (void)state;
    refuse_chunks("5\nhello\r\n", 400);
    refuse_chunks("5\r\nhello\n", 400);
    refuse_chunks("5\r\nhelloo\r\n", 400);
    refuse_chunks("5\r\nhello0\r\n\r\n", 400);
    refuse_chunks("\r\n", 400);
    refuse_chunks(";a\r\n", 400);
    refuse_chunks("-1\r\n", 400);
    refuse_chunks("+1\r\n", 400);
    refuse_chunks("0x5\r\nhello\r\n", 400);
    refuse_chunks(" 5\r\nhello\r\n", 400);
    refuse_chunks("5 \r\nhello\r\n", 400);
    refuse_chunks("5 ;a\r\nhello\r\n", 400);
    refuse_chunks("g\r\n", 400);
    refuse_chunks("5;a\nhello\r\n", 400);
    refuse_chunks("5;a\rb\r\nhello\r\n", 400);
    refuse_chunks("5;a\x01\r\nhello\r\n", 400);
    refuse_chunks("5\r\r\nhello\r\n", 400);
    refuse_chunks("0\r\nTrailer: a\r\n\r\n", 400);
    refuse_chunks("0\r\n\n", 400);
    refuse_chunks("10000000000000005\r\nhello\r\n", 400); /* 5, in 64 bits */
    refuse_chunks("00000000000000005\r\nhello\r\n", 400); /* 17 digits */
    refuse_chunks("ffffffffffffffff\r\nhello\r\n", 413);  /* -1, for those who have a sign */
    refuse_chunks("8000000000000000\r\nhello\r\n", 413);
}

static void test_chunk_extensions_are_few(void **state)
{
    (void)state;
    char text[HTTP_CHUNK_EXTENSIONS + 64];
    snprintf(text, sizeof text, "1;%0*d\r\na\r\n0\r\n\r\n", HTTP_CHUNK_EXTENSIONS + 1, 0);
    refuse_chunks(text, 400);
    char many[1024] = "";
    for (int i = 0; i < 10; i++) {
        char chunk[64];
        snprintf(chunk, sizeof chunk, "1;%030d\r\na\r\n", 0);
        strcat(many, chunk);
    }
    refuse_chunks(many, 400);
}

static void test_bodies_over_the_limit_are_413_before_they_are_read(void **state)
{
    (void)state;
    refuse_header("Content-Length: 65", 413);
    refuse_header("Content-Length: 10737418240", 413);
    refuse_header("Content-Length: 18446744073709551621", 413); /* 5, in 64 bits */
    refuse_header("Content-Length: 99999999999999999999999999999999999999", 413);
    refuse_chunks("41\r\n", 413);
    refuse_chunks("40\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n1\r\n", 413);
}

static void test_a_body_of_exactly_the_limit_is_taken(void **state)
{
    (void)state;
    struct outcome outcome =
        assert_taken("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "40\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n0\r\n\r\n");
    assert_int_equal(outcome.body.length, 64);
    release(&outcome);
    outcome = assert_taken("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 64\r\n\r\n"
                           "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    assert_int_equal(outcome.body.length, 64);
    release(&outcome);
}

static void test_heads_over_the_limits_are_431(void **state)
{
    (void)state;
    char text[4096];
    snprintf(text, sizeof text, "GET /%02000d HTTP/1.1\r\n", 0);
    refuse(text, 431);
    snprintf(text, sizeof text, "GET / HTTP/1.1\r\nA: %02000d\r\n", 0);
    refuse(text, 431);
    strcpy(text, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 8; i++)
        strcat(text, "A: b\r\n");
    refuse(text, 431);
    /* A head that ends on its last allowed byte, and one that ends past it. */
    int room = 1024 - (int)strlen("GET / HTTP/1.1\r\nHost: \r\n\r\n");
    snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %0*d\r\n\r\n", room, 0);
    struct outcome outcome = assert_taken(text);
    assert_int_equal(outcome.used, 1024);
    release(&outcome);
    snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %0*d\r\n\r\n", room + 1, 0);
    refuse(text, 431);
}

static void test_a_head_of_any_length_keeps_little_memory(void **state)
{
    (void)state;
    struct outcome outcome = {.body = HC_BUF_INIT(SIZE_MAX)};
    http_parser_init(&outcome.parser, &LIMITS);
    char block[4096];
    memset(block, 'a', sizeof block);
    feed(&outcome, "GET /", 5);
    for (int i = 0; i < 1000; i++)
        feed(&outcome, block, sizeof block);
    assert_int_equal(outcome.last, HTTP_PARSE_ERROR);
    assert_int_equal(outcome.parser.status, 431);
    assert_true(outcome.parser.head.capacity <= LIMITS.header_bytes + 1);
    release(&outcome);
}

static void test_expectations_other_than_continue_are_417(void **state)
{
    (void)state;
    refuse_header("Expect: a-pony", 417);
    struct outcome outcome = assert_taken("GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n");
    assert_true(outcome.parser.expects_continue);
    release(&outcome);
    outcome = assert_taken("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
    assert_false(outcome.parser.expects_continue);
    release(&outcome);
}

static void test_an_unfinished_request_waits(void **state)
{
    (void)state;
    const char *text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell";
    for (size_t length = 0; length <= strlen(text); length++) {
        struct outcome outcome = parse_all_ways(text, length);
        assert_int_equal(outcome.last, HTTP_PARSE_MORE);
        release(&outcome);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_is_taken_apart),
        cmocka_unit_test(test_what_follows_a_request_is_left_alone),
        cmocka_unit_test(test_chunks_are_put_together),
        cmocka_unit_test(test_keep_alive_follows_version_and_connection_header),
        cmocka_unit_test(test_methods_are_known_by_name_and_case),
        cmocka_unit_test(test_paths_are_decoded_once),
        cmocka_unit_test(test_paths_that_mean_another_path_are_refused),
        cmocka_unit_test(test_request_lines_are_exact),
        cmocka_unit_test(test_other_versions_are_505_and_long_methods_501),
        cmocka_unit_test(test_host_must_be_there_once),
        cmocka_unit_test(test_header_lines_are_exact),
        cmocka_unit_test(test_two_ways_to_say_the_length_are_refused),
        cmocka_unit_test(test_lengths_are_plain_numbers),
        cmocka_unit_test(test_transfer_codings_besides_chunked_are_refused),
        cmocka_unit_test(test_headers_that_count_once_are_refused_twice),
        cmocka_unit_test(test_chunks_are_exact),
        cmocka_unit_test(test_chunk_extensions_are_few),
        cmocka_unit_test(test_bodies_over_the_limit_are_413_before_they_are_read),
        cmocka_unit_test(test_a_body_of_exactly_the_limit_is_taken),
        cmocka_unit_test(test_heads_over_the_limits_are_431),
        cmocka_unit_test(test_a_head_of_any_length_keeps_little_memory),
        cmocka_unit_test(test_expectations_other_than_continue_are_417),
        cmocka_unit_test(test_an_unfinished_request_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
