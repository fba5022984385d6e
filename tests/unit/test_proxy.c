/* The proxy of previews: a client, the proxy, and a server inside that the test plays, word by word. */
#include "gateway/proxy.h"
#include "http_fixture.h"
#include <malloc.h>
#include <strings.h>

struct own {
    struct proxy *proxy;
    struct proxy_options options;
    int inside; /* the server's end of the connection */
    int failed, answered, ended;
    int last_status;
    struct hc_buf got; /* by the server inside */
    bool inside_closed;
};

static void on_failed(void *data, struct http_request *request, int status, const char *why)
{
    struct own *own = data;
    own->failed++;
    own->last_status = status;
    http_reply(request, status, "text/plain", why, strlen(why));
}

static void on_answered(void *data, const struct http_request *request, int status)
{
    struct own *own = data;
    assert_non_null(request);
    own->answered++;
    own->last_status = status;
}

static void on_ended(void *data)
{
    struct own *own = data;
    own->ended++;
    own->proxy = NULL;
}

static bool hand_on(struct fixture *fixture, struct http_request *request)
{
    struct own *own = fixture->own;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    hc_close(own->inside);
    own->inside = ends[1];
    own->inside_closed = false;
    hc_buf_reset(&own->got);
    const struct proxy_handlers handlers = {
        .data = own, .failed = on_failed, .answered = on_answered, .ended = on_ended};
    http_add_header(request, "Vary", "Origin"); /* as admission does */
    assert_int_equal(proxy_start(fixture->loop, request, ends[0], &own->options, &handlers, &own->proxy), 0);
    return true;
}

static bool streams(const struct http_request *request)
{
    return request != NULL;
}

static void release_own(struct own *own)
{
    hc_close(own->inside);
    hc_buf_release(&own->got);
}
#define hc_cleanup_own HC_CLEANUP(release_own)

static struct own new_own(struct fixture *fixture)
{
    static const char *const headers[] = {"Content-Security-Policy", "sandbox", NULL};
    fixture->own_handle = hand_on;
    fixture->streams = streams;
    return (struct own){.inside = -1,
                        .got = HC_BUF_INIT(SIZE_MAX),
                        .options = {.target = "/path?q=1",
                                    .host = "localhost:8000",
                                    .prefix = "/v1/s/ports/8000",
                                    .headers = headers,
                                    .answer_time = MS(3000),
                                    .idle_time = MS(3000)}};
}

/* One turn, and what the server inside was sent. */
static void turn(struct client *client, struct own *own)
{
    static char data[65536];
    pump(client);
    ssize_t count = 0;
    while (own->inside >= 0 && (count = recv(own->inside, data, sizeof data, MSG_DONTWAIT)) > 0)
        hc_buf_add(&own->got, data, (size_t)count);
    if (own->inside >= 0 && count == 0)
        own->inside_closed = true;
}

#define turn_until(client, own, condition)                                                                             \
    do {                                                                                                               \
        uint64_t turn_end = hc_now() + MS(5000);                                                                       \
        while (!(condition)) {                                                                                         \
            if (hc_now() > turn_end)                                                                                   \
                fail_msg("line %d: it did not come to %s; the client has: %.300s; the server: %.300s", __LINE__,       \
                         #condition, (client)->got.data != NULL ? (client)->got.data : "",                             \
                         (own)->got.data != NULL ? (own)->got.data : "");                                              \
            turn(client, own);                                                                                         \
        }                                                                                                              \
    } while (0)

static bool has(const struct hc_buf *buf, const char *text)
{
    return buf->data != NULL && memmem(buf->data, buf->length, text, strlen(text)) != NULL;
}

/* Sends a request, and waits until the server inside has its head. */
static void ask(struct client *client, struct own *own, const char *text)
{
    hc_buf_reset(&own->got);
    say(client, text);
    turn_until(client, own, has(&own->got, "\r\n\r\n"));
}

static void answer(struct client *client, struct own *own, const char *text)
{
    size_t length = strlen(text);
    for (size_t at = 0; at < length && own->inside >= 0;) {
        ssize_t count = send(own->inside, text + at, length - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        at += count > 0 ? (size_t)count : 0;
        if (count < 0 && errno != EAGAIN)
            return;
        turn(client, own);
    }
}

static void hang_up(struct own *own)
{
    own->inside = hc_close(own->inside);
}

/* Asks, answers, and gives what the client got, up to the end of its reply or of the connection. */
static void exchange(struct fixture *fixture, struct own *own, struct client *client, const char *request,
                     const char *text)
{
    int ended = own->ended;
    *client = connect_client(fixture);
    ask(client, own, request);
    answer(client, own, text);
    hang_up(own);
    until(client, own->ended > ended);
    pump_for(client, MS(30));
}

#define GET "GET /p HTTP/1.1\r\nHost: hotcell.example:7600\r\n\r\n"

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
        TEST(test_the_request_is_handed_on_without_what_is_not_its),
        TEST(test_bodies_go_up_as_they_come),
        TEST(test_a_large_body_waits_for_a_slow_server),
        TEST(test_answers_of_each_framing_pass),
        TEST(test_headers_that_are_not_the_guests_to_say_are_left_out),
        TEST(test_redirects_lead_below_the_prefix),
        TEST(test_nonsense_is_a_502_without_a_word_of_it),
        TEST(test_a_head_that_is_too_much_is_a_502),
        TEST(test_a_second_answer_is_nobodys),
        TEST(test_an_answer_that_is_cut_off_does_not_look_whole),
        TEST(test_early_hints_pass_and_continues_do_not),
        TEST(test_no_answer_in_time_is_a_504),
        TEST(test_a_large_answer_goes_at_the_pace_of_the_client),
        TEST(test_either_side_may_go),
        TEST(test_a_websocket_is_a_tunnel_after_101),
        TEST(test_what_does_not_agree_to_a_websocket_is_a_502),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
