/* Bodies that go into a pipe, and pipes that become replies. */
#include "gateway/carry.h"
#include "http_fixture.h"
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

struct own {
    struct http_request *request;
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

static void note_gone(struct http_request *request)
{
    struct fixture *fixture = request->data;
    struct own *own = fixture->own;
    fixture->gone++;
    own->request = NULL;
    carry_in_free(HC_TAKE_PTR(own->in));
    carry_out_free(HC_TAKE_PTR(own->out));
}

static void release_own(struct own *own)
{
    carry_in_free(own->in);
    carry_out_free(own->out);
    hc_close(own->pipe[0]);
    hc_close(own->pipe[1]);
}
#define hc_cleanup_own HC_CLEANUP(release_own)

static struct own new_own(void)
{
    return (struct own){.pipe = {-1, -1}};
}

/* ---- in ---- */

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
    fixture->own = &own;
    fixture->streams = streams;
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
    fixture->own = &own;
    fixture->streams = streams;
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

/* ---- out ---- */

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
    fixture->own = &own;
    fixture->streams = streams;
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
    fixture->own = &own;
    fixture->streams = streams;
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_body_goes_into_a_pipe_and_memory_stays_flat),
        TEST(test_a_pipe_that_nobody_reads_stalls_and_one_without_reader_breaks),
        TEST(test_an_fd_becomes_a_reply_as_fast_as_the_client_reads),
        TEST(test_a_client_that_hangs_up_takes_its_carrier_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
