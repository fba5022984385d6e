/* The proxy of previews, between a client and a server inside that the test plays, word by word. */
#ifndef HC_TESTS_PROXY_FIXTURE_H
#define HC_TESTS_PROXY_FIXTURE_H

#include "gateway/proxy.h"
#include "http_fixture.h"

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
static void __attribute__((unused))
exchange(struct fixture *fixture, struct own *own, struct client *client, const char *request, const char *text)
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

#endif
