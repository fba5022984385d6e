/* The proxy of previews over time: deadlines, slow sides, sides that go, and tunnels. */
#include "proxy_fixture.h"
#include <malloc.h>

/* ---- time and pace ---- */

static void test_no_answer_in_time_is_a_504(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    own.options.answer_time = own.options.idle_time = MS(150);
    fixture->own = &own;
    hc_cleanup_client struct client silent = connect_client(fixture), dripping = connect_client(fixture),
                                    stalled = connect_client(fixture);
    size_t at = 0;
    say(&silent, GET);
    expect_reply(&silent, &at, 504, NULL);
    /* Drop by drop is not in time. */
    ask(&dripping, &own, GET);
    for (int i = 0; i < 100 && dripping.got.length == 0; i++) {
        answer(&dripping, &own, i == 0 ? "HTTP/1.1 200 OK\r\nA: " : "x");
        pump_for(&dripping, MS(10));
    }
    at = 0;
    expect_reply(&dripping, &at, 504, NULL);
    ask(&stalled, &own, GET);
    answer(&stalled, &own, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    until(&stalled, stalled.closed);
    assert_int_equal(own.ended, 3);
}

static void test_a_large_body_waits_for_a_slow_server(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n");
    until(&client, own.proxy != NULL);
    size_t before = mallinfo2().uordblks, sent = 0;
    for (uint64_t end = hc_now() + MS(300); hc_now() < end && sent < BIG;) {
        ssize_t count = send(client.fd, fixture->big + sent, BIG - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        pump(&client);
    }
    assert_true(mallinfo2().uordblks < before + 400000);
    while (sent < BIG) {
        ssize_t count = send(client.fd, fixture->big + sent, BIG - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        turn(&client, &own);
    }
    turn_until(&client, &own, own.got.length > BIG && memcmp(own.got.data + own.got.length - 4, "xxxx", 4) == 0);
    /* An answer before the end of a body closes the client's connection; one after it does not. */
    size_t at = 0;
    answer(&client, &own, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    expect_reply(&client, &at, 200, "");
    ask(&client, &own, "PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
    answer(&client, &own, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
    expect_reply(&client, &at, 403, "");
    until(&client, client.closed);
}

static void test_a_large_answer_goes_at_the_pace_of_the_client(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    ask(&client, &own, GET);
    answer(&client, &own, "HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n");
    client.paused = true;
    size_t before = mallinfo2().uordblks, sent = 0;
    for (uint64_t end = hc_now() + MS(300); hc_now() < end;) {
        ssize_t count = send(own.inside, fixture->big + sent, BIG - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        turn(&client, &own);
    }
    assert_true(mallinfo2().uordblks < before + 300000);
    client.paused = false;
    while (sent < BIG) {
        ssize_t count = send(own.inside, fixture->big + sent, BIG - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        turn(&client, &own);
    }
    size_t at = 0;
    struct reply reply;
    until(&client, next_reply(&client, &at, &reply));
    assert_int_equal(reply.length, BIG);
    until(&client, own.ended == 1);
}

static void test_either_side_may_go(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture), other = connect_client(fixture);
    ask(&client, &own, GET);
    client.fd = hc_close(client.fd);
    until(&client, own.ended == 1);
    turn_until(&client, &own, own.inside_closed);
    ask(&other, &own, GET);
    proxy_stop(own.proxy);
    size_t at = 0;
    expect_reply(&other, &at, 502, NULL);
    assert_int_equal(own.ended, 2);
}

/* ---- WebSocket ---- */

#define UPGRADE                                                                                                        \
    "GET /p HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n"  \
    "Sec-WebSocket-Version: 13\r\n\r\n"
#define AGREED "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\n"

static void test_a_websocket_is_a_tunnel_after_101(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    ask(&client, &own, UPGRADE "early");
    assert_true(has(&own.got, "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    assert_true(has(&own.got, "sec-websocket-key: k\r\n"));
    pump_for(&client, MS(30));
    assert_false(has(&own.got, "early"));
    answer(&client, &own, AGREED "first words");
    turn_until(&client, &own,
               has(&client.got, "Sec-WebSocket-Accept: a\r\n") && has(&client.got, "\r\n\r\nfirst words"));
    turn_until(&client, &own, has(&own.got, "early"));
    for (int i = 0; i < 50; i++) {
        say(&client, "up");
        answer(&client, &own, "down");
    }
    turn_until(&client, &own, has(&own.got, "upupupupupupupupup") && has(&client.got, "downdowndowndown"));
    /* Both ways at once, more than anything on the way holds. */
    size_t up = own.got.length, down = client.got.length, sent = 0, answered = 0;
    for (uint64_t end = hc_now() + MS(5000);
         hc_now() < end && (own.got.length < up + BIG || client.got.length < down + BIG);) {
        ssize_t count = send(client.fd, fixture->big + sent, BIG - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += count > 0 ? (size_t)count : 0;
        count = send(own.inside, fixture->big + answered, BIG - answered, MSG_NOSIGNAL | MSG_DONTWAIT);
        answered += count > 0 ? (size_t)count : 0;
        turn(&client, &own);
    }
    assert_true(own.got.length >= up + BIG && client.got.length >= down + BIG);
    hang_up(&own);
    until(&client, client.closed);
    assert_int_equal(own.ended, 1);
}

static void test_what_does_not_agree_to_a_websocket_is_a_502(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    static const char *const cases[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Yes\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_cleanup_client struct client client;
        exchange(fixture, &own, &client, UPGRADE, cases[i]);
        size_t at = 0;
        expect_reply(&client, &at, 502, NULL);
    }
    assert_int_equal(own.answered, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_large_body_waits_for_a_slow_server),
        TEST(test_no_answer_in_time_is_a_504),
        TEST(test_a_large_answer_goes_at_the_pace_of_the_client),
        TEST(test_either_side_may_go),
        TEST(test_a_websocket_is_a_tunnel_after_101),
        TEST(test_what_does_not_agree_to_a_websocket_is_a_502),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
