/* The HTTP client against a server that answers what a test tells it to, over a real socket. */
#include "cli/http_client.h"

#include "base/fd.h"
#include "base/loop.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fake {
    pid_t pid;
    struct http_server_address address;
};

/* Reads until the end of the head, or of a body of `body` bytes after it; what came is put into `log`. */
static void serve_one(int listener, const char *answer, size_t body, bool hold, int log)
{
    char text[65536];
    size_t length = 0;
    int client = accept(listener, NULL, NULL);
    const char *end = NULL;

    while (length + 1 < sizeof text && (!end || length - (size_t)(end + 4 - text) < body)) {
        ssize_t count = read(client, text + length, sizeof text - 1 - length);
        if (count <= 0)
            break;
        length += (size_t)count;
        text[length] = '\0';
        end = strstr(text, "\r\n\r\n");
    }
    if (hc_write_all(log, text, length) < 0 || hc_write_all(client, answer, strlen(answer)) < 0)
        _exit(1);
    if (hold)
        pause();
    close(client);
}

static struct fake start(const char *answer, size_t body, bool hold, int *log)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct fake fake = {.address.terms = {.wake = -1, .net = &connection_net}};
    int listener = socket(AF_INET, SOCK_STREAM, 0), ends[2];
    char url[64];

    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(pipe(ends), 0);
    fake.pid = fork();
    assert_true(fake.pid >= 0);
    if (fake.pid == 0) {
        alarm(30);
        serve_one(listener, answer, body, hold, ends[1]);
        _exit(0);
    }
    close(listener);
    close(ends[1]);
    *log = ends[0];
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(url_parse(url, &fake.address.url, NULL), 0);
    return fake;
}

static char *stop(struct fake *fake, int log)
{
    char *text = NULL;
    size_t length = 0;

    kill(fake->pid, SIGKILL);
    waitpid(fake->pid, NULL, 0);
    assert_int_equal(hc_read_all(log, 1 << 20, &text, &length), 0);
    close(log);
    return text;
}

static void test_a_request_has_what_it_must_and_its_answer_is_read_whole(void **state)
{
    struct http_answer answer;
    struct hc_err err = {0};
    int log;

    (void)state;
    struct fake fake = start("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                             "2\r\n{}\r\n0\r\n\r\n",
                             4, false, &log);
    fake.address.key = "hc_secret";
    struct http_ask ask = {.method = "POST", .target = "/v1/runs", .body = "[12]", .length = 4, .patience = 5000000};
    assert_int_equal(http_fetch(&fake.address, &ask, &answer, &err), 0);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body, "{}");
    assert_string_equal(answer.content_type, "application/json");
    free(answer.body);
    char *sent = stop(&fake, log);
    assert_true(strncmp(sent, "POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:", 40) == 0);
    assert_non_null(strstr(sent, "\r\nAuthorization: Bearer hc_secret\r\n"));
    assert_non_null(strstr(sent, "\r\nContent-Length: 4\r\n"));
    assert_non_null(strstr(sent, "\r\n\r\n[12]"));
    free(sent);
}

static void test_an_answer_to_half_a_body_is_read(void **state)
{
    enum { LARGE = 32 * 1024 * 1024 };
    struct http_answer answer;
    struct hc_err err = {0};
    char *body = calloc(1, LARGE);
    int log;

    (void)state;
    struct fake fake =
        start("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig", 0, true /* or a reset takes it away */, &log);
    struct http_ask ask = {.method = "POST", .target = "/", .body = body, .length = LARGE, .patience = 5000000};
    assert_int_equal(http_fetch(&fake.address, &ask, &answer, &err), 0);
    assert_int_equal(answer.status, 413);
    assert_string_equal(answer.body, "big");
    free(answer.body);
    free(body);
    free(stop(&fake, log));
}

static void test_silence_ends_when_patience_does(void **state)
{
    struct http_answer answer;
    struct hc_err err = {0};
    int log;

    (void)state;
    struct fake fake = start("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 0, true, &log);
    struct http_ask ask = {.method = "GET", .target = "/", .patience = 100000};
    uint64_t before = hc_now();
    assert_int_equal(http_fetch(&fake.address, &ask, &answer, &err), -ETIMEDOUT);
    assert_true(hc_now() - before >= 100000);
    assert_int_equal(err.class, HC_CLASS_HOST);
    free(stop(&fake, log));
}

static void test_a_wake_ends_the_waiting_at_once(void **state)
{
    struct http_answer answer;
    struct hc_err err = {0};
    int log;

    (void)state;
    struct fake fake = start("", 0, true, &log);
    fake.address.terms.wake = eventfd(1, EFD_CLOEXEC);
    struct http_ask ask = {.method = "GET", .target = "/"};
    assert_int_equal(http_fetch(&fake.address, &ask, &answer, &err), -EINTR);
    close(fake.address.terms.wake);
    free(stop(&fake, log));
}

static void test_a_connection_that_ends_early_is_an_error(void **state)
{
    static const char *const answers[] = {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"};

    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct http_answer answer;
        struct hc_err err = {0};
        int log;
        struct fake fake = start(answers[i], 0, false, &log);
        struct http_ask ask = {.method = "GET", .target = "/", .patience = 5000000};
        assert_int_equal(http_fetch(&fake.address, &ask, &answer, &err), -ECONNRESET);
        free(stop(&fake, log));
    }
}

static void test_what_is_no_http_is_said_so(void **state)
{
    struct http_answer answer;
    struct hc_err err = {0};
    int log;

    (void)state;
    struct fake fake = start("SSH-2.0-OpenSSH_9.2\r\n\r\n", 0, false, &log);
    struct http_ask ask = {.method = "GET", .target = "/", .patience = 5000000};
    assert_int_equal(http_fetch(&fake.address, &ask, &answer, &err), -EPROTO);
    assert_non_null(strstr(err.message, "no hotcell server"));
    free(stop(&fake, log));
}

static void test_nobody_there(void **state)
{
    struct http_server_address address = {.terms = {.wake = -1, .net = &connection_net}};
    struct http_ask ask = {.method = "GET", .target = "/"};
    struct http_answer answer;
    struct hc_err err = {0};

    (void)state;
    assert_int_equal(url_parse("unix:/nonexistent/hotcell.sock", &address.url, NULL), 0);
    assert_int_equal(http_fetch(&address, &ask, &answer, &err), -ENOENT);
    assert_non_null(strstr(err.remedy, "hotcell serve"));
    hc_err_clear(&err);
    assert_int_equal(url_parse("http://no.such.host.invalid:1", &address.url, NULL), 0);
    assert_int_equal(http_fetch(&address, &ask, &answer, &err), -EHOSTUNREACH);
}

static void test_a_value_of_a_path_is_encoded(void **state)
{
    struct hc_buf buf = HC_BUF_INIT(100);

    (void)state;
    http_add_encoded(&buf, "run_1/..?a b&\xc3\xa4%");
    assert_string_equal(buf.data, "run_1%2F..%3Fa%20b%26%C3%A4%25");
    hc_buf_release(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_has_what_it_must_and_its_answer_is_read_whole),
        cmocka_unit_test(test_an_answer_to_half_a_body_is_read),
        cmocka_unit_test(test_silence_ends_when_patience_does),
        cmocka_unit_test(test_a_wake_ends_the_waiting_at_once),
        cmocka_unit_test(test_a_connection_that_ends_early_is_an_error),
        cmocka_unit_test(test_what_is_no_http_is_said_so),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_a_value_of_a_path_is_encoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
