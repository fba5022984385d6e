/*
 * Bodies that are handed on as they come, replies with a length that are written piece by piece, and connections that
 * are taken over.
 */
#include "http_fixture.h"

/* What the handler of this test does with a body, and what it saw of it. */
struct own {
    struct hc_buf body;
    struct http_request *request;
    int ends, pieces;
    size_t largest;
    uint64_t expected;
    bool start_paused; /* the test resumes */
    bool reply_early;  /* to the first piece */
    bool stream_reply; /* before the body */
    bool pause_each;   /* piece */
    uint64_t limit;    /* 0: none */
};

static bool streams(const struct http_request *request)
{
    return strncmp(request->path, "/put", 4) == 0;
}

static struct own *own_of(const struct http_request *request)
{
    return ((struct fixture *)request->data)->own;
}

static void note_piece(struct http_request *request, const char *data, size_t length)
{
    struct own *own = own_of(request);
    assert_true(length > 0 && length <= HTTP_PIECE);
    hc_buf_add(&own->body, data, length);
    own->pieces++;
    own->largest = length > own->largest ? length : own->largest;
    if (own->pause_each)
        http_body_pause(request);
    if (own->reply_early)
        http_reply(request, 409, "text/plain", "enough", 6);
}

static void note_end(struct http_request *request)
{
    struct own *own = own_of(request);
    own->ends++;
    own->request = NULL;
    char text[64];
    int length = snprintf(text, sizeof text, "%zu", own->body.length);
    if (own->stream_reply) {
        http_stream_write(request, text, (size_t)length);
        http_stream_end(request);
    } else {
        http_reply(request, 200, "text/plain", text, (size_t)length);
    }
}

static void note_gone(struct http_request *request)
{
    struct fixture *fixture = request->data;
    struct own *own = fixture->own;
    fixture->gone++;
    own->request = NULL;
}

static bool take_body(struct fixture *fixture, struct http_request *request)
{
    struct own *own = fixture->own;
    if (strncmp(request->path, "/put", 4) != 0)
        return false;
    assert_int_equal(request->body_length, 0);
    own->expected = request->body_expected;
    own->request = request;
    request->data = fixture;
    request->on_gone = note_gone;
    request->on_body = note_piece;
    request->on_body_end = note_end;
    if (own->limit > 0)
        http_body_limit(request, own->limit);
    if (own->stream_reply)
        http_stream_begin(request, 200, "text/plain");
    if (!own->start_paused)
        http_body_resume(request);
    return true;
}

static void release_own(struct own *own)
{
    hc_buf_release(&own->body);
}
#define hc_cleanup_own HC_CLEANUP(release_own)

static struct own new_own(void)
{
    return (struct own){.body = HC_BUF_INIT(SIZE_MAX)};
}

static void use(struct fixture *fixture, struct own *own)
{
    fixture->own = own;
    fixture->streams = streams;
    fixture->own_handle = take_body;
}

static void set(struct fixture *fixture)
{
    http_server_set_limits(fixture->server, &fixture->limits);
}

/* ---- bodies ---- */

static void test_the_handler_is_called_before_the_body(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    until(&client, fixture->handled == 1);
    assert_int_equal(own.expected, 10);
    say(&client, "01234");
    until(&client, own.body.length == 5);
    assert_int_equal(own.ends, 0);
    say(&client, "56789GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_reply(&client, &at, 200, "10");
    expect_reply(&client, &at, 200, ""); /* the connection is kept */
    assert_int_equal(own.ends, 1);
    assert_int_equal(fixture->gone, 0);
}

static void test_chunks_are_handed_on(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
                 "PUT /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_reply(&client, &at, 200, "7");
    expect_reply(&client, &at, 200, "7");
    assert_int_equal(own.expected, HTTP_LENGTH_UNKNOWN);
    assert_string_equal(own.body.data, "abcdefg");
    assert_int_equal(own.ends, 2);
}

static void test_no_body_has_an_end_too(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client, "GET /put HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_reply(&client, &at, 200, "0");
    own.start_paused = true;
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    until(&client, own.request != NULL);
    pump_for(&client, MS(20));
    assert_int_equal(own.ends, 1);
    http_body_resume(own.request);
    assert_int_equal(own.ends, 1); /* from the loop alone */
    expect_reply(&client, &at, 200, "0");
}

static void test_a_paused_body_waits_in_the_kernel(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    own.start_paused = own.pause_each = true;
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client,
        "PUT /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n0\r\n\r\n");
    until(&client, own.request != NULL);
    pump_for(&client, MS(30));
    assert_int_equal(own.pieces, 0);
    for (int i = 1; i <= 3; i++) {
        http_body_resume(own.request);
        until(&client, own.pieces == i);
        pump_for(&client, MS(10));
        assert_int_equal(own.pieces, i);
        assert_int_equal(own.ends, 0);
    }
    http_body_resume(own.request);
    expect_reply(&client, &at, 200, "6");
}

static void test_a_pause_at_the_last_piece_does_not_lose_the_end(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    own.pause_each = true;
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, own.pieces == 1);
    pump_for(&client, MS(20));
    assert_int_equal(own.ends, 0);
    http_body_resume(own.request);
    expect_reply(&client, &at, 200, "3");
    expect_reply(&client, &at, 200, "");
}

static void test_a_client_that_waits_for_100_gets_it_when_the_body_is_wanted(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    own.start_paused = true;
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    until(&client, own.request != NULL);
    pump_for(&client, MS(20));
    assert_int_equal(client.got.length, 0);
    http_body_resume(own.request);
    static const char CONTINUE[] = "HTTP/1.1 100 Continue\r\n\r\n";
    until(&client, client.got.length == sizeof CONTINUE - 1);
    assert_string_equal(client.got.data, CONTINUE);
    size_t at = client.got.length;
    say(&client, "abc");
    expect_reply(&client, &at, 200, "3");
    /* One whose handler has heard enough is not asked for its body. */
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    until(&client, own.request != NULL);
    http_reply(HC_TAKE_PTR(own.request), 404, "text/plain", "no", 2);
    expect_reply(&client, &at, 404, "no");
    until(&client, client.closed);
}

static void test_a_reply_before_the_end_of_the_body_closes(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    own.reply_early = true;
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n");
    send_bytes(&client, fixture->big, BIG);
    expect_reply(&client, &at, 409, "enough");
    assert_non_null(strstr(client.got.data, "Connection: close\r\n"));
    until(&client, client.closed);
    assert_int_equal(own.pieces, 1);
    assert_int_equal(own.ends, 0);
    assert_int_equal(fixture->gone, 0); /* it was answered */
}

static void test_a_reply_may_begin_before_the_body(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    own.stream_reply = true;
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    until(&client, client.got.length > 0);
    say(&client, "abc");
    until(&client, client.closed);
    assert_non_null(strstr(client.got.data, "Connection: close\r\n"));
    assert_non_null(strstr(client.got.data, "\r\n\r\n1\r\n3\r\n0\r\n\r\n"));
}

static void test_a_body_past_its_limit_is_413(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    own.limit = 4;
    use(fixture, &own);
    hc_cleanup_client struct client sized = connect_client(fixture);
    say(&sized, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    expect_refusal(&sized, 413, "too_large");
    assert_int_equal(own.pieces, 0);
    hc_cleanup_client struct client chunks = connect_client(fixture);
    say(&chunks, "PUT /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\n");
    expect_refusal(&chunks, 413, "too_large");
    assert_int_equal(fixture->gone, 2);
    /* More than a whole body may have, and more than all of them together. */
    own.limit = 0;
    hc_cleanup_client struct client large = connect_client(fixture);
    size_t at = 0;
    say(&large, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 25165824\r\n\r\n");
    hc_buf_release(&own.body);
    own.body = HC_BUF_INIT(SIZE_MAX);
    for (int i = 0; i < 3; i++)
        send_bytes(&large, fixture->big, BIG);
    expect_reply(&large, &at, 200, "25165824");
    assert_true(own.largest > 16384);
}

static void test_nonsense_in_a_streamed_body_is_the_end(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n");
    expect_refusal(&client, 400, "invalid_request");
    assert_int_equal(fixture->gone, 1);
    own.stream_reply = true; /* half a reply cannot be taken back */
    hc_cleanup_client struct client late = connect_client(fixture);
    say(&late, "PUT /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n");
    until(&late, late.closed);
    assert_null(strstr(late.got.data, "HTTP/1.1 400"));
    assert_null(strstr(late.got.data, "0\r\n\r\n"));
    assert_int_equal(fixture->gone, 2);
}

static void test_a_streamed_body_must_go_on_but_may_take_long(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    fixture->limits.body_time = MS(300);
    set(fixture);
    use(fixture, &own);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    for (int i = 0; i < 8; i++) { /* longer than body_time in all */
        say(&client, "x");
        pump_for(&client, MS(80));
    }
    assert_int_equal(client.got.length, 0);
    expect_refusal(&client, 408, "invalid_request");
    assert_int_equal(fixture->gone, 1);
    /* A pause is not the client's fault. */
    own.start_paused = true;
    hc_cleanup_client struct client paused = connect_client(fixture);
    size_t at = 0;
    own.body.length = 0;
    say(&paused, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    pump_for(&paused, MS(500));
    assert_int_equal(paused.got.length, 0);
    http_body_resume(own.request);
    expect_reply(&paused, &at, 200, "3");
}

static void test_a_client_that_hangs_up_in_its_body_is_gone(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    for (int paused = 0; paused < 2; paused++) {
        own.start_paused = paused == 1;
        hc_cleanup_client struct client client = connect_client(fixture);
        say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
        until(&client, own.request != NULL);
        client.fd = hc_close(client.fd);
        until(&client, fixture->gone == paused + 1);
    }
    assert_int_equal(own.ends, 0);
}

/* ---- replies of a known length ---- */

static bool reply_sized(struct fixture *fixture, struct http_request *request)
{
    if (strncmp(request->path, "/sized", 6) != 0)
        return false;
    request->data = fixture;
    request->on_gone = note_gone;
    http_stream_begin_sized(request, 206, "text/plain", 6);
    if (strcmp(request->path, "/sized/more") == 0) {
        http_stream_write(request, "abcdefg", 7);
        return true;
    }
    http_stream_write(request, "abc", 3);
    if (strcmp(request->path, "/sized/less") != 0)
        http_stream_write(request, "def", 3);
    http_stream_end(request);
    return true;
}

static void test_a_sized_stream_is_as_long_as_it_said(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = reply_sized;
    hc_cleanup_client struct client client = connect_client(fixture), less = connect_client(fixture),
                                    more = connect_client(fixture);
    size_t at = 0;
    say(&client, "GET /sized HTTP/1.1\r\nHost: a\r\n\r\nHEAD /sized HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_reply(&client, &at, 206, "abcdef");
    until(&client, client.got.length > at && strstr(client.got.data + at, "\r\n\r\n") != NULL);
    assert_non_null(strstr(client.got.data + at, "Content-Length: 6\r\n\r\n"));
    assert_string_equal(strstr(client.got.data + at, "\r\n\r\n"), "\r\n\r\n");
    at = client.got.length;
    say(&client, "GET /sized HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect_reply(&client, &at, 206, "abcdef"); /* a length makes the connection worth keeping for HTTP/1.0 as well */
    assert_false(client.closed);
    say(&less, "GET /sized/less HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&less, less.closed);
    say(&more, "GET /sized/more HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&more, more.closed);
    assert_null(strstr(more.got.data, "abcdefg"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_handler_is_called_before_the_body),
        TEST(test_chunks_are_handed_on),
        TEST(test_no_body_has_an_end_too),
        TEST(test_a_paused_body_waits_in_the_kernel),
        TEST(test_a_pause_at_the_last_piece_does_not_lose_the_end),
        TEST(test_a_client_that_waits_for_100_gets_it_when_the_body_is_wanted),
        TEST(test_a_reply_before_the_end_of_the_body_closes),
        TEST(test_a_reply_may_begin_before_the_body),
        TEST(test_a_body_past_its_limit_is_413),
        TEST(test_nonsense_in_a_streamed_body_is_the_end),
        TEST(test_a_streamed_body_must_go_on_but_may_take_long),
        TEST(test_a_client_that_hangs_up_in_its_body_is_gone),
        TEST(test_a_sized_stream_is_as_long_as_it_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
