/*
 * The HTTP server over real sockets: requests and replies, connections that are kept, streams, clients that hang up.
 * Limits and deadlines are in test_http_limits.c, TLS in test_http_tls.c.
 */
#include "http_fixture.h"
#include <sys/un.h>

static const char GET[] = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/* ---- replies ---- */

static void test_a_reply_has_its_length_and_the_safe_headers(void **state)
{
    hc_cleanup_client struct client client = connect_client(*state);
    say(&client, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    size_t at = 0;
    expect_reply(&client, &at, 200, "hello");
    assert_non_null(strstr(client.got.data, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(client.got.data, "Content-Type: text/plain\r\n"));
    assert_non_null(strstr(client.got.data, "X-Content-Type-Options: nosniff\r\n"));
    assert_non_null(strstr(client.got.data, "Cache-Control: no-store\r\n"));
    assert_null(strstr(client.got.data, "Connection:"));
}

static void test_connections_are_kept_between_requests(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    for (int i = 0; i < 5; i++) {
        say(&client, GET);
        expect_reply(&client, &at, 200, "");
    }
    struct http_counts counts;
    http_server_counts(fixture->server, &counts);
    assert_int_equal(counts.accepted, 1);
    assert_int_equal(counts.requests, 5);
    assert_int_equal(counts.requests_active, 0);
    assert_int_equal(counts.connections, 1);
    say(&client, "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    expect_reply(&client, &at, 200, "");
    until(&client, client.closed);
    assert_non_null(strstr(client.got.data, "Connection: close\r\n"));
}

static void test_http_1_0_is_closed_unless_it_asks(void **state)
{
    hc_cleanup_client struct client client = connect_client(*state);
    size_t at = 0;
    say(&client, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect_reply(&client, &at, 200, "");
    assert_non_null(strstr(client.got.data, "Connection: keep-alive\r\n"));
    say(&client, "GET /a HTTP/1.0\r\n\r\n");
    expect_reply(&client, &at, 200, "");
    until(&client, client.closed);
}

static void test_bytes_one_by_one_get_the_same_reply(void **state)
{
    struct fixture *fixture = *state;
    static const char TEXT[] = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "5\r\nhello\r\n7;x\r\n, world\r\n0\r\n\r\n";
    hc_cleanup_client struct client whole = connect_client(fixture), single = connect_client(fixture);
    size_t at = 0;
    say(&whole, TEXT);
    expect_reply(&whole, &at, 200, "hello, world");
    for (size_t i = 0; i < sizeof TEXT - 1; i++) {
        send_bytes(&single, &TEXT[i], 1);
        hc_loop_turn(fixture->loop, 5);
    }
    at = 0;
    expect_reply(&single, &at, 200, "hello, world");
    assert_string_equal(whole.got.data, single.got.data);
}

static void test_head_gets_the_headers_alone(void **state)
{
    hc_cleanup_client struct client client = connect_client(*state);
    say(&client, "HEAD /big HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, client.got.data != NULL && strstr(client.got.data, "\r\n\r\n") != NULL);
    assert_non_null(strstr(client.got.data, "Content-Length: 8388608\r\n"));
    size_t at = client.got.length;
    say(&client, GET); /* what follows is the next reply, not a body */
    expect_reply(&client, &at, 200, "");
}

static void test_no_content_has_no_length(void **state)
{
    hc_cleanup_client struct client client = connect_client(*state);
    size_t at = 0;
    say(&client, "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_reply(&client, &at, 204, "");
    assert_null(strstr(client.got.data, "Content-Length"));
    say(&client, GET);
    expect_reply(&client, &at, 200, "");
}

static void test_added_headers_are_sent_and_checked(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->kept != NULL);
    assert_int_equal(http_add_header(fixture->kept, "Location", "/v1/runs/a"), 0);
    assert_int_equal(http_add_header(fixture->kept, "X-Bad", "a\r\nSet-Cookie: b"), -EINVAL);
    assert_int_equal(http_add_header(fixture->kept, "X-Bad", "\x7F"), -EINVAL);
    assert_int_equal(http_add_header(fixture->kept, "X Bad", "a"), -EINVAL);
    assert_int_equal(http_add_header(fixture->kept, "", "a"), -EINVAL);
    assert_int_equal(http_add_header(fixture->kept, "content-LENGTH", "5"), -EINVAL);
    char *long_value = strndup(fixture->big, 9000);
    assert_int_equal(http_add_header(fixture->kept, "X-Long", long_value), -EFBIG);
    free(long_value);
    assert_int_equal(http_add_header(fixture->kept, "Retry-After", "3"), 0);
    http_reply(HC_TAKE_PTR(fixture->kept), 202, "application/json", "{}", 2);
    size_t at = 0;
    expect_reply(&client, &at, 202, "{}");
    assert_non_null(strstr(client.got.data, "\r\nLocation: /v1/runs/a\r\nRetry-After: 3\r\n"));
    assert_null(strstr(client.got.data, "X-Bad"));
}

static void test_a_large_reply_arrives_whole_at_a_slow_client(void **state)
{
    hc_cleanup_client struct client client = connect_client(*state);
    client.paused = true;
    say(&client, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    pump_for(&client, MS(50));
    client.paused = false;
    size_t at = 0;
    struct reply reply;
    until(&client, next_reply(&client, &at, &reply));
    assert_int_equal(reply.length, BIG);
    assert_memory_equal(reply.body, client.fixture->big, BIG);
    say(&client, GET);
    expect_reply(&client, &at, 200, "");
}

/* ---- admission ---- */

static void test_a_body_is_not_read_for_one_that_is_not_admitted(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client, "GET /forbidden HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_reply(&client, &at, 403, "no");
    say(&client, "POST /forbidden HTTP/1.1\r\nHost: a\r\nContent-Length: 29\r\n\r\n");
    expect_reply(&client, &at, 403, "no");
    say(&client, GET); /* this is body, not a request */
    until(&client, client.closed);
    assert_int_equal(at, client.got.length);
    assert_int_equal(fixture->handled, 0);
}

static void test_continue_is_said_when_the_body_is_wanted(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    until(&client, client.got.length > 0);
    assert_string_equal(client.got.data, "HTTP/1.1 100 Continue\r\n\r\n");
    size_t at = client.got.length;
    say(&client, "hello");
    expect_reply(&client, &at, 200, "hello");

    hc_cleanup_client struct client other = connect_client(fixture);
    at = 0;
    say(&other, "POST /forbidden HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    expect_reply(&other, &at, 403, "no");
    until(&other, other.closed);
}

/* ---- pipelining ---- */

static void test_requests_sent_ahead_are_answered_in_their_order(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    char text[4096] = "";
    for (int i = 0; i < 20; i++) {
        char one[128];
        snprintf(one, sizeof one, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n%02d", i);
        strcat(text, one);
    }
    say(&client, text);
    size_t at = 0;
    for (int i = 0; i < 20; i++) {
        char body[8];
        snprintf(body, sizeof body, "%02d", i);
        expect_reply(&client, &at, 200, body);
    }
}

static void test_a_request_sent_ahead_waits_for_the_reply_before_it(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /later HTTP/1.1\r\nHost: a\r\n\r\nGET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->kept != NULL);
    say(&client, GET); /* not even read: it stays in the kernel, and does not keep the loop awake */
    int turns = 0;
    for (uint64_t end = hc_now() + MS(60); hc_now() < end; turns++)
        hc_loop_turn(fixture->loop, 20);
    assert_true(turns < 10);
    assert_int_equal(fixture->handled, 1);
    struct http_request *first = HC_TAKE_PTR(fixture->kept);
    http_reply(first, 200, "text/plain", "first", 5);
    assert_int_equal(fixture->handled, 1); /* not from inside http_reply */
    until(&client, fixture->kept != NULL);
    assert_int_equal(fixture->handled, 2);
    http_reply(HC_TAKE_PTR(fixture->kept), 200, "text/plain", "second", 6);
    size_t at = 0;
    expect_reply(&client, &at, 200, "first");
    expect_reply(&client, &at, 200, "second");
    expect_reply(&client, &at, 200, "");
    assert_int_equal(fixture->gone, 0);
}

static void test_nothing_behind_a_refused_request_is_looked_at(void **state)
{
    struct fixture *fixture = *state;
    static const char *const REQUESTS[] = {
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff0\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%2e%2e%2f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%252e%252e HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET //a HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof REQUESTS / sizeof REQUESTS[0]; i++) {
        hc_cleanup_client struct client client = connect_client(fixture);
        say(&client, REQUESTS[i]);
        say(&client, GET);
        expect_refusal(&client, 400, "invalid_request");
    }
    assert_int_equal(fixture->handled, 0);
    assert_int_equal(fixture->refused, sizeof REQUESTS / sizeof REQUESTS[0]);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET / HTTP/3.0\r\n");
    expect_refusal(&client, 505, "invalid_request");
    hc_cleanup_client struct client other = connect_client(fixture);
    say(&other, "ABCDEFGHIJKLMNOPQRSTUVW / HTTP/1.1\r\n");
    expect_refusal(&other, 501, "invalid_request");
}

/* ---- streams ---- */

static void test_a_stream_is_sent_in_chunks_as_it_is_written(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, client.got.data != NULL && strstr(client.got.data, "\r\n\r\n") != NULL);
    assert_non_null(strstr(client.got.data, "Transfer-Encoding: chunked\r\n"));
    assert_null(strstr(client.got.data, "Content-Length"));
    assert_int_equal(http_stream_write(fixture->kept, "hello", 5), 0);
    until(&client, strstr(client.got.data, "\r\n\r\n5\r\nhello\r\n") != NULL);
    assert_int_equal(http_stream_write(fixture->kept, "", 0), 0); /* does not end it */
    assert_int_equal(http_stream_write(fixture->kept, "0123456789abcdef", 16), 0);
    assert_int_equal(http_stream_pending(fixture->kept), 0);
    http_stream_end(HC_TAKE_PTR(fixture->kept));
    until(&client, strstr(client.got.data, "10\r\n0123456789abcdef\r\n0\r\n\r\n") != NULL);
    size_t at = client.got.length;
    say(&client, GET);
    expect_reply(&client, &at, 200, "");
    assert_int_equal(fixture->gone, 0);
}

static void test_a_stream_to_http_1_0_ends_with_the_connection(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    until(&client, fixture->kept != NULL);
    http_stream_write(fixture->kept, "hello", 5);
    http_stream_end(HC_TAKE_PTR(fixture->kept));
    until(&client, client.closed);
    assert_non_null(strstr(client.got.data, "\r\n\r\nhello"));
    assert_null(strstr(client.got.data, "chunked"));
    assert_non_null(strstr(client.got.data, "Connection: close\r\n"));
}

static void test_a_writer_that_waits_until_its_stream_has_drained_is_never_behind(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    client.paused = true;
    fixture->writes_left = 16;
    say(&client, "GET /drain HTTP/1.1\r\nHost: a\r\n\r\n");
    pump_for(&client, MS(50));
    assert_true(fixture->drained > 0 && fixture->drained < 16);
    client.paused = false;
    until(&client,
          client.got.length > 2 * BIG && memcmp(client.got.data + client.got.length - 7, "\r\n0\r\n\r\n", 7) == 0);
    assert_int_equal(fixture->drained, 17);
    assert_int_equal(fixture->gone, 0);
    /* A HEAD has nothing to wait for, and must not wait for ever. */
    fixture->writes_left = 2;
    say(&client, "HEAD /drain HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->drained == 20);
    size_t at = client.got.length;
    say(&client, GET);
    until(&client, strstr(client.got.data + at, "Content-Length: 0") != NULL);
}

/* ---- hanging up ---- */

static void test_a_client_that_hangs_up_is_noticed_once(void **state)
{
    struct fixture *fixture = *state;
    static const char *const PATHS[] = {"/later", "/stream"};
    for (int i = 0; i < 2; i++) {
        hc_cleanup_client struct client client = connect_client(fixture);
        char text[128];
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", PATHS[i]);
        say(&client, text);
        until(&client, fixture->kept != NULL);
        client.fd = hc_close(client.fd);
        until(&client, fixture->gone == i + 1);
        pump_for(&client, MS(20));
        assert_int_equal(fixture->gone, i + 1);
    }
    struct http_counts counts;
    http_server_counts(fixture->server, &counts);
    assert_int_equal(counts.connections, 0);
    assert_int_equal(counts.requests_active, 0);
}

static void test_a_reset_and_a_hang_up_behind_requests_sent_ahead_are_noticed(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->kept != NULL);
    setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    client.fd = hc_close(client.fd);
    until(&client, fixture->gone == 1);

    hc_cleanup_client struct client other = connect_client(fixture);
    say(&other, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&other, fixture->kept != NULL);
    say(&other, GET);
    pump_for(&other, MS(20));
    other.fd = hc_close(other.fd);
    until(&other, fixture->gone == 2);
    assert_int_equal(fixture->handled, 2);
}

static void test_a_half_close_is_a_hang_up_only_for_a_request_that_is_kept(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /big HTTP/1.0\r\n\r\n");
    shutdown(client.fd, SHUT_WR);
    size_t at = 0;
    struct reply reply;
    until(&client, next_reply(&client, &at, &reply));
    assert_int_equal(reply.length, BIG);
    until(&client, client.closed);

    hc_cleanup_client struct client other = connect_client(fixture);
    say(&other, "GET /later HTTP/1.0\r\n\r\n");
    shutdown(other.fd, SHUT_WR);
    until(&other, fixture->gone == 1);
    until(&other, other.closed);
}

static void test_an_unfinished_request_of_one_that_left_is_forgotten(void **state)
{
    struct fixture *fixture = *state;
    static const char *const TEXTS[] = {"", "GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"};
    for (int i = 0; i < 3; i++) {
        hc_cleanup_client struct client client = connect_client(fixture);
        say(&client, TEXTS[i]);
        pump_for(&client, MS(20));
        shutdown(client.fd, SHUT_WR);
        until(&client, client.closed);
        assert_int_equal(client.got.length, 0);
    }
    struct http_counts counts;
    http_server_counts(fixture->server, &counts);
    assert_int_equal(counts.connections, 0);
    assert_int_equal(counts.body_bytes, 0);
    assert_int_equal(counts.refused, 0);
}

/* ---- the end of the server ---- */

static void test_draining_closes_idle_connections_and_ends_the_others_after_their_reply(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client idle = connect_client(fixture), working = connect_client(fixture);
    size_t at = 0, working_at = 0;
    say(&idle, GET);
    expect_reply(&idle, &at, 200, "");
    say(&working, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&working, fixture->kept != NULL);
    http_server_stop_accepting(fixture->server);
    until(&idle, idle.closed);
    http_reply(HC_TAKE_PTR(fixture->kept), 200, "text/plain", "done", 4);
    expect_reply(&working, &working_at, 200, "done");
    assert_non_null(strstr(working.got.data, "Connection: close\r\n"));
    until(&working, working.closed);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(fixture->port)};
    hc_cleanup_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), -1);
}

static void test_freeing_the_server_tells_those_who_wait(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client later = connect_client(fixture), stream = connect_client(fixture);
    say(&later, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    say(&stream, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&later, fixture->handled == 2);
    http_server_free(HC_TAKE_PTR(fixture->server));
    assert_int_equal(fixture->gone, 2);
    assert_int_equal(fixture->contexts_freed, 2);
}

static void test_a_unix_socket_is_served_too(void **state)
{
    struct fixture *fixture = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof address;
    assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof(sa_family_t)), 0); /* a name of its own */
    assert_int_equal(listen(listening, 8), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(http_server_listen(fixture->server, listening, HTTP_LISTEN_UNIX, NULL, NULL), 0);
    hc_cleanup_client struct client client = {.fixture = fixture, .got = HC_BUF_INIT(SIZE_MAX)};
    client.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client.fd, (struct sockaddr *)&address, size), 0);
    size_t at = 0;
    say(&client, GET);
    expect_reply(&client, &at, 200, "");
    assert_string_equal(fixture->last_peer, "unix");
    say(&client, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->kept != NULL);
    client.fd = hc_close(client.fd);
    until(&client, fixture->gone == 1);
}

static void test_the_peer_has_address_and_port(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    assert_int_equal(getsockname(client.fd, (struct sockaddr *)&address, &size), 0);
    char expected[64];
    snprintf(expected, sizeof expected, "127.0.0.1:%u", ntohs(address.sin_port));
    size_t at = 0;
    say(&client, GET);
    expect_reply(&client, &at, 200, "");
    assert_string_equal(fixture->last_peer, expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_reply_has_its_length_and_the_safe_headers),
        TEST(test_connections_are_kept_between_requests),
        TEST(test_http_1_0_is_closed_unless_it_asks),
        TEST(test_bytes_one_by_one_get_the_same_reply),
        TEST(test_head_gets_the_headers_alone),
        TEST(test_no_content_has_no_length),
        TEST(test_added_headers_are_sent_and_checked),
        TEST(test_a_large_reply_arrives_whole_at_a_slow_client),
        TEST(test_a_body_is_not_read_for_one_that_is_not_admitted),
        TEST(test_continue_is_said_when_the_body_is_wanted),
        TEST(test_requests_sent_ahead_are_answered_in_their_order),
        TEST(test_a_request_sent_ahead_waits_for_the_reply_before_it),
        TEST(test_nothing_behind_a_refused_request_is_looked_at),
        TEST(test_a_stream_is_sent_in_chunks_as_it_is_written),
        TEST(test_a_stream_to_http_1_0_ends_with_the_connection),
        TEST(test_a_writer_that_waits_until_its_stream_has_drained_is_never_behind),
        TEST(test_a_client_that_hangs_up_is_noticed_once),
        TEST(test_a_reset_and_a_hang_up_behind_requests_sent_ahead_are_noticed),
        TEST(test_a_half_close_is_a_hang_up_only_for_a_request_that_is_kept),
        TEST(test_an_unfinished_request_of_one_that_left_is_forgotten),
        TEST(test_draining_closes_idle_connections_and_ends_the_others_after_their_reply),
        TEST(test_freeing_the_server_tells_those_who_wait),
        TEST(test_a_unix_socket_is_served_too),
        TEST(test_the_peer_has_address_and_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
