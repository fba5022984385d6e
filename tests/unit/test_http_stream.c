/*
 * Bodies that are handed on as they come, replies with a length that are written piece by piece, and connections that
 * are taken over.
 */
#include "gateway/carry.h"
#include "http_fixture.h"
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

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
    struct carry_in *in;
    struct carry_out *out;
    int pipe[2];
    int done, status;
    uint64_t bytes;
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
    carry_in_free(HC_TAKE_PTR(own->in));
    carry_out_free(HC_TAKE_PTR(own->out));
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
    carry_in_free(own->in);
    carry_out_free(own->out);
    hc_close(own->pipe[0]);
    hc_close(own->pipe[1]);
}
#define hc_cleanup_own HC_CLEANUP(release_own)

static struct own new_own(void)
{
    return (struct own){.body = HC_BUF_INIT(SIZE_MAX), .pipe = {-1, -1}};
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

/* ---- carriers ---- */

static void carried(void *data, int status, uint64_t bytes)
{
    struct own *own = data;
    own->done++;
    own->status = status;
    own->bytes = bytes;
    carry_in_free(HC_TAKE_PTR(own->in));
    char text[64];
    int length = snprintf(text, sizeof text, "%d %llu", status, (unsigned long long)bytes);
    http_reply(HC_TAKE_PTR(own->request), 200, "text/plain", text, (size_t)length);
}

static bool carry_body(struct fixture *fixture, struct http_request *request)
{
    struct own *own = fixture->own;
    own->request = request;
    request->data = fixture;
    request->on_gone = note_gone;
    own->in = carry_in_new(&(struct carry){.loop = fixture->loop,
                                           .request = request,
                                           .fd = own->pipe[1],
                                           .stall_time = MS(300),
                                           .done = carried,
                                           .data = own});
    assert_non_null(own->in);
    return true;
}

/* What the pipe has, thrown away; how much. */
static size_t empty_pipe(int fd)
{
    static char data[65536];
    size_t all = 0;
    for (ssize_t count; (count = read(fd, data, sizeof data)) > 0;)
        all += (size_t)count;
    return all;
}

static void carry_through(struct fixture *fixture, struct own *own, const char *framing, const char *before,
                          const char *after, int times)
{
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "PUT /put HTTP/1.1\r\nHost: a\r\n");
    say(&client, framing);
    size_t through = 0, want = (size_t)times * BIG;
    for (int i = 0; i < times; i++) {
        say(&client, before);
        for (size_t sent = 0; sent < BIG;) {
            ssize_t count = send(client.fd, fixture->big + sent, BIG - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            sent += count > 0 ? (size_t)count : 0;
            pump(&client);
            through += empty_pipe(own->pipe[0]);
        }
        say(&client, after);
    }
    say(&client, before[0] != '\0' ? "0\r\n\r\n" : "");
    uint64_t end = hc_now() + MS(5000);
    while (own->done == 0 && hc_now() < end) {
        pump(&client);
        through += empty_pipe(own->pipe[0]);
    }
    assert_int_equal(own->done, 1);
    assert_int_equal(own->status, 0);
    assert_int_equal(through + empty_pipe(own->pipe[0]), want);
    size_t at = 0;
    char text[64];
    snprintf(text, sizeof text, "0 %zu", want);
    expect_reply(&client, &at, 200, text);
    own->done = 0;
}

static void test_a_body_goes_into_a_pipe_and_memory_stays_flat(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = carry_body;
    assert_int_equal(pipe2(own.pipe, O_NONBLOCK | O_CLOEXEC), 0);
    carry_through(fixture, &own, "Content-Length: 8388608\r\n\r\n", "", "", 1); /* warm */
    size_t before = mallinfo2().uordblks;
    carry_through(fixture, &own, "Content-Length: 1073741824\r\n\r\n", "", "", 128);
    carry_through(fixture, &own, "Transfer-Encoding: chunked\r\n\r\n", "800000\r\n", "\r\n", 8);
    assert_true(mallinfo2().uordblks < before + 200000);
    struct http_counts counts;
    http_server_counts(fixture->server, &counts);
    assert_int_equal(counts.body_bytes, 0);
}

static void test_a_pipe_that_nobody_reads_stalls_and_one_without_reader_breaks(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = carry_body;
    assert_int_equal(pipe2(own.pipe, O_NONBLOCK | O_CLOEXEC), 0);
    hc_cleanup_client struct client stalled = connect_client(fixture), broken = connect_client(fixture);
    size_t at = 0;
    say(&stalled, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n");
    send_bytes(&stalled, fixture->big, 1 << 20);
    until(&stalled, own.done == 1);
    assert_int_equal(own.status, -ETIMEDOUT);
    expect_reply(&stalled, &at, 200, NULL);
    signal(SIGPIPE, SIG_IGN); /* as in the gateway */
    own.pipe[0] = hc_close(own.pipe[0]);
    say(&broken, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    until(&broken, own.done == 2);
    assert_int_equal(own.status, -EPIPE);
}

static void carried_out(void *data, int status, uint64_t bytes)
{
    struct own *own = data;
    own->done++;
    own->status = status;
    own->bytes = bytes;
    carry_out_free(HC_TAKE_PTR(own->out));
    http_stream_end(HC_TAKE_PTR(own->request));
}

static bool carry_reply(struct fixture *fixture, struct http_request *request)
{
    struct own *own = fixture->own;
    uint64_t length = strncmp(request->path, "/sized", 6) == 0 ? (uint64_t)3 * BIG : HTTP_LENGTH_UNKNOWN;
    own->request = request;
    request->data = fixture;
    request->on_gone = note_gone;
    if (length == HTTP_LENGTH_UNKNOWN)
        http_stream_begin(request, 200, "text/plain");
    else
        http_stream_begin_sized(request, 200, "text/plain", length);
    own->out = carry_out_new(&(struct carry){.loop = fixture->loop,
                                             .request = request,
                                             .fd = own->pipe[0],
                                             .stall_time = MS(2000),
                                             .done = carried_out,
                                             .data = own},
                             length);
    assert_non_null(own->out);
    return true;
}

/* Writes into the pipe for as long as the other side takes it. */
static size_t fill_pipe(const struct fixture *fixture, const struct own *own, size_t most)
{
    size_t all = 0;
    while (all < most) {
        size_t length = most - all < 65536 ? most - all : 65536;
        ssize_t count = write(own->pipe[1], fixture->big, length);
        if (count <= 0)
            break;
        all += (size_t)count;
    }
    return all;
}

static void test_an_fd_becomes_a_reply_as_fast_as_the_client_reads(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = carry_reply;
    assert_int_equal(pipe2(own.pipe, O_NONBLOCK | O_CLOEXEC), 0);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /sized HTTP/1.1\r\nHost: a\r\n\r\n");
    client.paused = true;
    size_t before = mallinfo2().uordblks, written = 0, want = (size_t)3 * BIG;
    for (uint64_t end = hc_now() + MS(500); hc_now() < end;) {
        pump(&client);
        written += fill_pipe(fixture, &own, want - written);
    }
    assert_true(written < want); /* it waits for the client, and what was read is bounded */
    assert_true(mallinfo2().uordblks < before + 400000);
    client.paused = false;
    uint64_t end = hc_now() + MS(5000);
    while (own.done == 0 && hc_now() < end) {
        pump(&client);
        written += fill_pipe(fixture, &own, want - written);
    }
    size_t at = 0;
    assert_int_equal(own.status, 0);
    struct reply reply;
    until(&client, next_reply(&client, &at, &reply));
    assert_int_equal(reply.length, want);
    assert_false(client.closed);
    /* Until the end of the fd, in chunks; then the connection goes on. */
    say(&client, "GET /all HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(write(own.pipe[1], "hello", 5), 5);
    own.pipe[1] = hc_close(own.pipe[1]);
    until(&client, strstr(client.got.data + at, "\r\n\r\n5\r\nhello\r\n0\r\n\r\n") != NULL);
    assert_int_equal(own.done, 2);
    assert_int_equal(own.bytes, 5);
    /* Less than was promised must not look whole. A HEAD reads nothing. */
    say(&client, "HEAD /sized HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, own.done == 3);
    assert_int_equal(own.status, 0);
    say(&client, "GET /sized HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, client.closed);
    assert_int_equal(own.status, -EIO);
}

static void test_a_client_that_hangs_up_takes_its_carrier_along(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = carry_reply;
    assert_int_equal(pipe2(own.pipe, O_NONBLOCK | O_CLOEXEC), 0);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /all HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, own.out != NULL);
    fill_pipe(fixture, &own, BIG);
    client.fd = hc_close(client.fd);
    until(&client, fixture->gone == 1);
    assert_null(own.out);
    assert_int_equal(own.done, 0);
}

/* ---- connections that are taken over ---- */

static void echo_piece(struct http_request *request, const char *data, size_t length)
{
    struct own *own = own_of(request);
    own->pieces++;
    hc_buf_add(&own->body, data, length);
    http_stream_write(request, data, length);
    if (memchr(data, 'q', length) != NULL) {
        own->request = NULL;
        http_stream_end(request);
    } else if (http_stream_pending(request) > 0) {
        http_body_pause(request);
    }
}

static void echo_drained(struct http_request *request)
{
    http_body_resume(request);
}

static bool take_over(struct fixture *fixture, struct http_request *request)
{
    struct own *own = fixture->own;
    own->request = request;
    request->data = fixture;
    request->on_gone = note_gone;
    request->on_body = echo_piece;
    request->on_drained = echo_drained;
    http_add_header(request, "Sec-Test", "yes");
    own->status = http_upgrade(request, "echo");
    if (own->status < 0)
        http_reply(request, 400, "text/plain", "no", 2);
    else
        http_body_resume(request);
    return true;
}

#define UPGRADE "GET /up HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\n"

static void test_a_connection_that_is_taken_over_is_bytes(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = take_over;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, UPGRADE "early");
    static const char HEAD[] =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\nSec-Test: yes\r\n\r\n";
    until(&client, client.got.length == sizeof HEAD - 1 + 5);
    assert_memory_equal(client.got.data, HEAD, sizeof HEAD - 1);
    say(&client, "GET / HTTP/1.1\r\n\r\n"); /* is no request any more */
    until(&client, client.got.length == sizeof HEAD - 1 + 5 + 18);
    assert_int_equal(fixture->handled, 1);
    /* Both ways at once, with a client that reads late. */
    client.paused = true;
    size_t sent = 0;
    for (uint64_t end = hc_now() + MS(300); hc_now() < end && sent < BIG;) {
        ssize_t count = send(client.fd, fixture->big + sent, BIG - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        pump(&client);
    }
    client.paused = false;
    send_bytes(&client, fixture->big, BIG - sent);
    until(&client, client.got.length == sizeof HEAD - 1 + 23 + BIG);
    say(&client, "q");
    until(&client, client.closed);
    assert_int_equal(client.got.length, sizeof HEAD - 1 + 24 + BIG);
    assert_int_equal(fixture->gone, 0);
}

static void test_only_who_asks_is_upgraded(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = take_over;
    static const char *const texts[] = {
        "GET /up HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\n\r\n",
        "GET /up HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
        "POST /up HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\nContent-Length: 1\r\n\r\nx",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        hc_cleanup_client struct client client = connect_client(fixture);
        size_t at = 0;
        say(&client, texts[i]);
        expect_reply(&client, &at, 400, "no");
        assert_int_equal(own.status, -EINVAL);
    }
}

static void test_all_that_came_before_a_hang_up_is_handed_on(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own();
    use(fixture, &own);
    fixture->own_handle = take_over;
    fixture->limits.body_time = fixture->limits.idle_time = MS(50); /* not theirs */
    set(fixture);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, UPGRADE);
    until(&client, own.request != NULL);
    pump_for(&client, MS(200));
    http_body_pause(own.request);
    say(&client, "last words");
    shutdown(client.fd, SHUT_WR);
    pump_for(&client, MS(50));
    assert_int_equal(fixture->gone, 0);
    http_body_resume(own.request);
    until(&client, fixture->gone == 1);
    assert_string_equal(own.body.data, "last words");
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
        TEST(test_a_body_goes_into_a_pipe_and_memory_stays_flat),
        TEST(test_a_pipe_that_nobody_reads_stalls_and_one_without_reader_breaks),
        TEST(test_an_fd_becomes_a_reply_as_fast_as_the_client_reads),
        TEST(test_a_client_that_hangs_up_takes_its_carrier_along),
        TEST(test_a_connection_that_is_taken_over_is_bytes),
        TEST(test_only_who_asks_is_upgraded),
        TEST(test_all_that_came_before_a_hang_up_is_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
