/* Connections that are taken over: bytes, both ways. */
#include "http_fixture.h"

struct own {
    struct hc_buf body;
    struct http_request *request;
    int pieces, status;
};

static void note_gone(struct http_request *request)
{
    struct fixture *fixture = request->data;
    fixture->gone++;
    ((struct own *)fixture->own)->request = NULL;
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

static void echo_piece(struct http_request *request, const char *data, size_t length)
{
    struct own *own = ((struct fixture *)request->data)->own;
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
    fixture->own = &own;
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
    fixture->own = &own;
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
    fixture->own = &own;
    fixture->own_handle = take_over;
    fixture->limits.body_time = fixture->limits.idle_time = MS(50); /* not theirs */
    http_server_set_limits(fixture->server, &fixture->limits);
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
        TEST(test_a_connection_that_is_taken_over_is_bytes),
        TEST(test_only_who_asks_is_upgraded),
        TEST(test_all_that_came_before_a_hang_up_is_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
