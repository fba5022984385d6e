/* The client's parser of HTTP: bodies of each kind, in pieces of any size, and what it refuses. */
#include "cli/http_response.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct outcome {
    struct http_response response;
    struct hc_buf body;
    int status;
};

static void read_in_pieces(struct outcome *outcome, const char *text, size_t length, size_t piece)
{
    http_response_start(&outcome->response);
    outcome->body = HC_BUF_INIT(1 << 20);
    outcome->status = 0;
    for (size_t at = 0; outcome->status == 0 && at < length; at += piece) {
        size_t count = length - at < piece ? length - at : piece;
        outcome->status = http_response_feed(&outcome->response, text + at, count, &outcome->body);
    }
}

static void release(struct outcome *outcome)
{
    http_response_release(&outcome->response);
    hc_buf_release(&outcome->body);
}

static void expect(const char *text, int status, const char *body)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct outcome outcome;
        read_in_pieces(&outcome, text, strlen(text), piece);
        assert_int_equal(outcome.status, 0);
        assert_int_equal(http_response_end(&outcome.response), 0);
        assert_int_equal(outcome.response.status, status);
        assert_string_equal(outcome.body.data ? outcome.body.data : "", body);
        release(&outcome);
    }
}

static void refuse(const char *text)
{
    for (size_t piece = 1; piece <= strlen(text); piece += 3) {
        struct outcome outcome;
        read_in_pieces(&outcome, text, strlen(text), piece);
        if (outcome.status != -EPROTO)
            fail_msg("%d for pieces of %zu: %s", outcome.status, piece, text);
        release(&outcome);
    }
}

static void test_bodies_of_each_kind(void **state)
{
    (void)state;
    expect("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    expect("HTTP/1.1 404 \r\ncontent-length:0\r\n\r\n", 404, "");
    expect("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00A;x=y\r\n0123456789\r\n0\r\n\r\n", 200,
           "abc0123456789");
    expect("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n", 200, "");
    expect("HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, "until the end");
    expect("HTTP/1.1 204 No Content\r\n\r\n", 204, "");
    expect("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x");
}

static void test_headers_that_matter(void **state)
{
    static const char text[] = "HTTP/1.1 503 Busy\r\nContent-Type: Application/Problem+JSON; charset=utf-8\r\n"
                               "Retry-After: 7\r\nX: \t y \r\nContent-Length: 0\r\n\r\n";
    struct outcome outcome;

    (void)state;
    read_in_pieces(&outcome, text, strlen(text), 7);
    assert_string_equal(outcome.response.content_type, "application/problem+json");
    assert_int_equal(outcome.response.retry_after, 7);
    release(&outcome);
}

static void test_what_two_parsers_could_read_in_two_ways_is_refused(void **state)
{
    (void)state;
    refuse("HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n");
    refuse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx");
    refuse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    refuse("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n");
    refuse("HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx");
    refuse("HTTP/1.1 200 OK\r\n folded\r\n\r\n");
    refuse("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx");
    refuse("HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\nx");
    refuse("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nx");
    refuse("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n");
    refuse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy");
    refuse("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n");
}

static void test_what_is_no_http_is_refused(void **state)
{
    (void)state;
    refuse("SSH-2.0-OpenSSH\r\n\r\n");
    refuse("HTTP/2 200 OK\r\n\r\n");
    refuse("HTTP/1.1 20 OK\r\n\r\n");
    refuse("HTTP/1.1 600 OK\r\n\r\n");
    refuse("HTTP/1.1 2000 OK\r\n\r\n");
    refuse("\r\n\r\n");
    refuse("HTTP/1.1 101 Switching Protocols\r\n\r\n");
}

static void test_broken_chunks_are_refused(void **state)
{
    (void)state;
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    refuse(CHUNKED "x\r\n");
    refuse(CHUNKED "\r\n");
    refuse(CHUNKED "-1\r\n");
    refuse(CHUNKED "1\nx");
    refuse(CHUNKED "1\r\nxy\r\n");
    refuse(CHUNKED "1\rx");
    refuse(CHUNKED "11111111111111111\r\n");
    refuse(CHUNKED "0\r\n\r\nmore");
}

static void test_a_nul_in_the_head_is_refused(void **state)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n";
    struct outcome outcome;

    (void)state;
    read_in_pieces(&outcome, text, sizeof text - 1, 100);
    assert_int_equal(outcome.status, -EPROTO);
    release(&outcome);
}

static void test_a_head_without_end_is_refused(void **state)
{
    struct outcome outcome;
    char line[1024];

    (void)state;
    memset(line, 'a', sizeof line);
    http_response_start(&outcome.response);
    outcome.body = HC_BUF_INIT(10);
    for (int i = 0; i < 64; i++)
        assert_int_equal(http_response_feed(&outcome.response, line, sizeof line, &outcome.body), 0);
    assert_int_equal(http_response_feed(&outcome.response, line, 1, &outcome.body), -EPROTO);
    release(&outcome);
}

static void test_a_body_that_is_cut_off_is_noticed(void **state)
{
    static const char *const cut[] = {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                                      CHUNKED "3\r\nabc\r\n", CHUNKED "3\r\nabc\r\n0\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        struct outcome outcome;
        read_in_pieces(&outcome, cut[i], strlen(cut[i]), 100);
        assert_int_equal(outcome.status, 0);
        assert_int_equal(http_response_end(&outcome.response), -ECONNRESET);
        release(&outcome);
    }
}

static void test_a_body_over_the_ceiling_is_an_error(void **state)
{
    static const char text[] = "HTTP/1.1 200 OK\r\n\r\n0123456789";
    struct outcome outcome;

    (void)state;
    http_response_start(&outcome.response);
    outcome.body = HC_BUF_INIT(9);
    assert_int_equal(http_response_feed(&outcome.response, text, strlen(text), &outcome.body), -EFBIG);
    release(&outcome);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_of_each_kind),
        cmocka_unit_test(test_headers_that_matter),
        cmocka_unit_test(test_what_two_parsers_could_read_in_two_ways_is_refused),
        cmocka_unit_test(test_what_is_no_http_is_refused),
        cmocka_unit_test(test_broken_chunks_are_refused),
        cmocka_unit_test(test_a_nul_in_the_head_is_refused),
        cmocka_unit_test(test_a_head_without_end_is_refused),
        cmocka_unit_test(test_a_body_that_is_cut_off_is_noticed),
        cmocka_unit_test(test_a_body_over_the_ceiling_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
