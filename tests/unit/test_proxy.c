/* What the proxy of previews hands on, and what it does not: heads, bodies, nonsense. */
#include "proxy_fixture.h"

/* ---- the request ---- */

static void test_the_request_is_handed_on_without_what_is_not_its(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    ask(&client, &own,
        "PROPFIND /p HTTP/1.1\r\nHost: hotcell.example:7600\r\nAuthorization: Bearer secret\r\nX-API-Key: secret\r\n"
        "Cookie: own=1\r\nAccept: text/html\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n"
        "X-Real-IP: 1.2.3.4\r\nConnection: keep-alive, x-private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
        "Upgrade: h2c\r\nProxy-Authorization: Basic x\r\nHotcell-Expect: x\r\nX-Other: kept\r\n\r\n");
    assert_string_equal(own.got.data, "PROPFIND /path?q=1 HTTP/1.1\r\nHost: localhost:8000\r\nConnection: close\r\n"
                                      "cookie: own=1\r\naccept: text/html\r\nx-other: kept\r\n"
                                      "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n"
                                      "X-Forwarded-Host: hotcell.example:7600\r\n"
                                      "X-Forwarded-Prefix: /v1/s/ports/8000\r\n\r\n");
    answer(&client, &own, "HTTP/1.1 207 Multi\r\nContent-Length: 2\r\n\r\nok");
    size_t at = 0;
    expect_reply(&client, &at, 207, "ok");
    until(&client, own.ended == 1);
    turn_until(&client, &own, own.inside_closed);
    /* A key that is the guest's own passes. */
    own.options.own_authorization = true;
    ask(&client, &own, "GET /p HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer guest\r\n\r\n");
    assert_true(has(&own.got, "authorization: Bearer guest\r\n"));
    answer(&client, &own, "HTTP/1.1 204 No Content\r\n\r\n");
    until(&client, own.ended == 2);
}

static void test_bodies_go_up_as_they_come(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    ask(&client, &own, "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
    assert_true(has(&own.got, "Content-Length: 10\r\n\r\n"));
    assert_false(has(&own.got, "xpect"));
    turn_until(&client, &own, has(&client.got, "HTTP/1.1 100 Continue\r\n\r\n"));
    at = client.got.length;
    say(&client, "01234");
    turn_until(&client, &own, has(&own.got, "\r\n\r\n01234"));
    say(&client, "56789");
    turn_until(&client, &own, has(&own.got, "\r\n\r\n0123456789"));
    answer(&client, &own, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    expect_reply(&client, &at, 201, "");
    say(&client, "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    turn_until(&client, &own, has(&own.got, "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
    answer(&client, &own, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    expect_reply(&client, &at, 200, "");
    assert_int_equal(own.ended, 2);
    assert_int_equal(own.answered, 2);
}

/* ---- the answer ---- */

static void test_answers_of_each_framing_pass(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    static const struct {
        const char *ask, *answer, *ends_with;
    } cases[] = {
        {GET, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "Content-Length: 5\r\n\r\nhello"},
        {GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n",
         "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"},
        {GET, "HTTP/1.0 200 OK\r\n\r\nuntil the end",
         "Transfer-Encoding: chunked\r\n\r\nd\r\nuntil the end\r\n0\r\n\r\n"},
        {GET, "HTTP/1.1 204 No Content\r\n\r\n", "\r\nContent-Security-Policy: sandbox\r\n\r\n"},
        {GET, "HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", "\r\nContent-Security-Policy: sandbox\r\n\r\n"},
        {"HEAD /p HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
         "Content-Length: 5\r\n\r\n"},
        {"HEAD /p HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
         "Transfer-Encoding: chunked\r\n\r\n"},
        {"GET /p HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
         "\r\n\r\nabc"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_cleanup_client struct client client;
        exchange(fixture, &own, &client, cases[i].ask, cases[i].answer);
        size_t length = strlen(cases[i].ends_with);
        assert_true(client.got.length > length);
        assert_string_equal(client.got.data + client.got.length - length, cases[i].ends_with);
        assert_int_equal(client.closed, strstr(cases[i].ask, "HTTP/1.0") != NULL);
    }
    assert_int_equal(own.failed, 0);
    assert_int_equal(own.ended, 8);
}

static void test_headers_that_are_not_the_guests_to_say_are_left_out(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    static const char ANSWER[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=5\r\nETag: \"x\"\r\n"
        "Set-Cookie: a=b; Path=/; Domain=example; HttpOnly\r\nLocation: /next?x\r\n"
        "Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nTrailer: T\r\n"
        "Proxy-Authenticate: Basic\r\nStrict-Transport-Security: max-age=9\r\nClear-Site-Data: \"*\"\r\n"
        "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nService-Worker-Allowed: /\r\n"
        "WWW-Authenticate: Basic\r\nHotcell-Recovered: true\r\nAlt-Svc: h3\r\nContent-Security-Policy: default-src "
        "*\r\n"
        "Content-Length: 0\r\n\r\n";
    hc_cleanup_client struct client client;
    exchange(fixture, &own, &client, GET, ANSWER);
    assert_string_equal(client.got.data,
                        "HTTP/1.1 200 OK\r\nVary: Origin\r\nContent-Type: text/html\r\n"
                        "Cache-Control: max-age=5\r\nETag: \"x\"\r\n"
                        "Set-Cookie: a=b; HttpOnly; Path=/v1/s/ports/8000/\r\n"
                        "Location: /v1/s/ports/8000/next?x\r\n"
                        "Content-Security-Policy: default-src *\r\nContent-Security-Policy: sandbox\r\n"
                        "Content-Length: 0\r\n\r\n");
    /* With an origin of its own it may say what is about that. */
    own.options.own_origin = true;
    own.options.headers = NULL;
    hc_cleanup_client struct client alone;
    exchange(fixture, &own, &alone, GET, ANSWER);
    assert_true(has(&alone.got, "Access-Control-Allow-Origin: *\r\n"));
    assert_true(has(&alone.got, "Set-Cookie: a=b; Path=/; Domain=example; HttpOnly\r\n"));
    assert_true(has(&alone.got, "Location: /next?x\r\n"));
    assert_false(has(&alone.got, "sandbox"));
    assert_false(has(&alone.got, "Vary"));
    assert_false(has(&alone.got, "Hotcell-"));
    assert_false(has(&alone.got, "X-Hop"));
    assert_false(has(&alone.got, "Keep-Alive"));
}

static void test_redirects_lead_below_the_prefix(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    static const char *const cases[][2] = {
        {"/", "/v1/s/ports/8000/"},
        {"/a/b?c#d", "/v1/s/ports/8000/a/b?c#d"},
        {"http://localhost:8000/a", "/v1/s/ports/8000/a"},
        {"http://localhost:8000", "/v1/s/ports/8000/"},
        {"http://localhost:80001/a", "http://localhost:80001/a"},
        {"https://example/a", "https://example/a"},
        {"//example/a", "//example/a"},
        {"next", "next"},
        {"/v1/s/ports/8000/a", "/v1/s/ports/8000/a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", cases[i][0]);
        hc_cleanup_client struct client client;
        exchange(fixture, &own, &client, GET, text);
        snprintf(text, sizeof text, "\r\nLocation: %s\r\n", cases[i][1]);
        if (!has(&client.got, text))
            fail_msg("expected %s in %s", text, client.got.data);
    }
}

static void test_nonsense_is_a_502_without_a_word_of_it(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    static const char *const cases[] = {
        "",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\nX-Bad: 1\n\n",
        "HTTP/1.1 200 OK\r\nX-Bad: a\rb\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Bad : 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\n X-Bad: folded\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\nX-Bad: 1\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 1\r\nX-Bad: 1\r\n\r\n",
        "HTTP/2 200 OK\r\nX-Bad: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Bad: 1\r\n", /* and hangs up */
        "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\n"
        "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_cleanup_client struct client client;
        exchange(fixture, &own, &client, GET, cases[i]);
        size_t at = 0;
        expect_reply(&client, &at, 502, NULL);
        assert_false(has(&client.got, "X-Bad"));
        assert_true(has(&client.got, "X-Content-Type-Options: nosniff\r\n")); /* a reply of ours */
        assert_int_equal(at, client.got.length);
        assert_false(client.closed);
    }
    assert_int_equal(own.answered, 0);
    assert_int_equal(own.ended, sizeof cases / sizeof cases[0]);
}

static void test_a_head_that_is_too_much_is_a_502(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    struct hc_buf text = HC_BUF_INIT(1 << 20);
    hc_buf_add_str(&text, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 200; i++)
        hc_buf_printf(&text, "X-Bad-%d: x\r\n", i);
    hc_buf_add_str(&text, "Content-Length: 0\r\n\r\n");
    hc_cleanup_client struct client many, long_one, fits;
    exchange(fixture, &own, &many, GET, text.data);
    size_t at = 0;
    expect_reply(&many, &at, 502, NULL);
    assert_false(has(&many.got, "X-Bad"));
    hc_buf_reset(&text);
    hc_buf_add_str(&text, "HTTP/1.1 200 OK\r\nX-Bad: ");
    for (int i = 0; i < 70000; i++)
        hc_buf_add_str(&text, "x");
    hc_buf_add_str(&text, "\r\n\r\n");
    exchange(fixture, &own, &long_one, GET, text.data);
    at = 0;
    expect_reply(&long_one, &at, 502, NULL);
    /* Much more than a reply of ours has is no fault. */
    hc_buf_reset(&text);
    hc_buf_add_str(&text, "HTTP/1.1 200 OK\r\nX-Long: ");
    for (int i = 0; i < 50000; i++)
        hc_buf_add_str(&text, "x");
    hc_buf_add_str(&text, "\r\nContent-Length: 2\r\n\r\nok");
    exchange(fixture, &own, &fits, GET, text.data);
    at = 0;
    expect_reply(&fits, &at, 200, "ok");
    hc_buf_release(&text);
}

static void test_a_second_answer_is_nobodys(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    static const char *const cases[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nX-Bad: 1\r\nContent-Length: 3\r\n\r\nbad",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nX-Bad: 1\r\n\r\n",
        "HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\nX-Bad: 1\r\nContent-Length: 3\r\n\r\nbad",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_cleanup_client struct client client;
        exchange(fixture, &own, &client, GET, cases[i]);
        assert_false(has(&client.got, "X-Bad"));
        assert_false(client.closed);
        size_t length = client.got.length; /* the connection is good for another request */
        own.inside_closed = false;
        ask(&client, &own, GET);
        answer(&client, &own, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext");
        turn_until(&client, &own, client.got.length > length && has(&client.got, "\r\n\r\nnext"));
    }
}

static void test_an_answer_that_is_cut_off_does_not_look_whole(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    static const char *const cases[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nnonsense\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_cleanup_client struct client client;
        exchange(fixture, &own, &client, GET, cases[i]);
        until(&client, client.closed);
        assert_false(has(&client.got, "\r\n0\r\n\r\n"));
        assert_false(has(&client.got, "502"));
    }
    assert_int_equal(own.failed, 0);
}

static void test_early_hints_pass_and_continues_do_not(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_own struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client, old;
    static const char ANSWER[] =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n"
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    exchange(fixture, &own, &client, GET, ANSWER);
    static const char HINTS[] = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert_memory_equal(client.got.data, HINTS, sizeof HINTS - 1);
    exchange(fixture, &own, &old, "GET /p HTTP/1.0\r\n\r\n", ANSWER);
    assert_memory_equal(old.got.data, "HTTP/1.1 200 OK\r\n", 17);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_request_is_handed_on_without_what_is_not_its),
        TEST(test_bodies_go_up_as_they_come),
        TEST(test_answers_of_each_framing_pass),
        TEST(test_headers_that_are_not_the_guests_to_say_are_left_out),
        TEST(test_redirects_lead_below_the_prefix),
        TEST(test_nonsense_is_a_502_without_a_word_of_it),
        TEST(test_a_head_that_is_too_much_is_a_502),
        TEST(test_a_second_answer_is_nobodys),
        TEST(test_an_answer_that_is_cut_off_does_not_look_whole),
        TEST(test_early_hints_pass_and_continues_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
