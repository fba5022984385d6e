/* Which Host and Origin are heard, and what counts as JSON. */
#include "gateway/gateway.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

struct example {
    struct http_header headers[3];
    struct http_request request;
    char text[3][128];
};

static struct http_request *ask(struct example *example, const char *host, const char *origin)
{
    static char names[2][8] = {"host", "origin"};
    const char *values[2] = {host, origin};
    example->request = (struct http_request){.headers = example->headers, .listener = HTTP_LISTEN_TCP};
    snprintf(example->request.local, sizeof example->request.local, "192.0.2.7:7600");
    for (size_t i = 0; i < 2; i++) {
        if (values[i] == NULL)
            continue;
        snprintf(example->text[i], sizeof example->text[i], "%s", values[i]);
        example->headers[example->request.header_count++] = (struct http_header){names[i], example->text[i]};
    }
    return &example->request;
}

static bool heard(const struct config *config, const char *host, const char *origin)
{
    struct example example;
    char why[256];
    return access_refusal(config, ask(&example, host, origin), false, why, sizeof why) == NULL;
}

static void test_loopback_names_and_the_own_address_are_heard(void **state)
{
    (void)state;
    struct config config = {0};
    static const char *const good[] = {"localhost",      "localhost:7600", "LocalHost:1", "127.0.0.1",
                                       "127.0.0.1:6000", "127.255.0.9:80", "[::1]",       "[::1]:7600",
                                       "192.0.2.7",      "192.0.2.7:7600", "192.0.2.7:80"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!heard(&config, good[i], NULL))
            fail_msg("%s was refused", good[i]);
    assert_true(heard(&config, NULL, NULL));
}

static void test_other_names_are_refused(void **state)
{
    (void)state;
    struct config config = {0};
    static const char *const bad[] = {"evil.example",
                                      "evil.example:7600",
                                      "localhost.evil.example",
                                      "127.0.0.1.evil.example",
                                      "127.1",
                                      "0.0.0.0",
                                      "2130706433",
                                      "0177.0.0.1",
                                      "127.0.0.256",
                                      "192.0.2.8",
                                      "localhost:",
                                      "localhost:x",
                                      "localhost:123456",
                                      "",
                                      ":7600",
                                      "[::1",
                                      "[::1]x",
                                      "[]",
                                      "localhost@evil.example",
                                      "127.0.0.1:80:80",
                                      "[::ffff:7f00:1]:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (heard(&config, bad[i], NULL))
            fail_msg("\"%s\" was heard", bad[i]);
}

static void test_configured_hosts_are_heard_with_any_port_or_their_own(void **state)
{
    (void)state;
    char any[] = "box.example", one[] = "other.example:8443";
    char *list[] = {any, one, NULL};
    struct config config = {.server.hosts = {list, 2}};
    assert_true(heard(&config, "box.example", NULL));
    assert_true(heard(&config, "BOX.example:99", NULL));
    assert_true(heard(&config, "other.example:8443", NULL));
    assert_false(heard(&config, "other.example", NULL));
    assert_false(heard(&config, "other.example:80", NULL));
}

static void test_an_origin_must_be_the_same_or_configured(void **state)
{
    (void)state;
    char listed[] = "https://app.example/";
    char *list[] = {listed, NULL};
    struct config config = {.server.origins = {list, 1}};
    assert_true(heard(&config, "localhost:7600", "http://localhost:7600"));
    assert_true(heard(&config, "localhost", "http://localhost:80"));
    assert_true(heard(&config, "localhost:7600", "https://app.example"));
    static const char *const bad[] = {"http://evil.example",     "null",
                                      "http://localhost:7601",   "https://localhost:7600",
                                      "http://localhost:7600.x", "https://app.example.evil.example",
                                      "http://app.example",      "",
                                      "localhost:7600",          "http://localhost:7600/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (heard(&config, "localhost:7600", bad[i]))
            fail_msg("\"%s\" was heard", bad[i]);
    assert_false(heard(&config, NULL, "http://localhost:7600"));
}

static void test_the_unix_socket_may_be_called_by_any_name_but_not_from_any_page(void **state)
{
    (void)state;
    struct config config = {0};
    struct example example;
    char why[256];
    ask(&example, "anything", NULL)->listener = HTTP_LISTEN_UNIX;
    assert_null(access_refusal(&config, &example.request, false, why, sizeof why));
    ask(&example, "anything", "http://evil.example")->listener = HTTP_LISTEN_UNIX;
    assert_non_null(access_refusal(&config, &example.request, false, why, sizeof why));
    assert_null(access_refusal(&config, &example.request, true, why, sizeof why));
}

static void test_loopback_addresses(void **state)
{
    (void)state;
    assert_true(access_loopback("127.0.0.1:52114"));
    assert_true(access_loopback("[::1]:80"));
    assert_false(access_loopback("10.0.0.1:80"));
    assert_false(access_loopback("unix"));
    assert_false(access_loopback(""));
}

static bool is_json(const char *type)
{
    char name[] = "content-type", value[128];
    struct http_header header = {name, value};
    struct http_request request = {.headers = &header, .header_count = type != NULL};
    snprintf(value, sizeof value, "%s", type != NULL ? type : "");
    return content_is_json(&request);
}

static void test_only_json_is_json(void **state)
{
    (void)state;
    static const char *const good[] = {"application/json",   "Application/JSON",     "application/json; charset=utf-8",
                                       "application/json;x", "application/json ; x", "application/vnd.api+json"};
    static const char *const bad[] = {"text/plain",
                                      "text/plain; application/json",
                                      "application/x-www-form-urlencoded",
                                      "multipart/form-data; boundary=x",
                                      "application/jsonx",
                                      "application/+json",
                                      "application/json x",
                                      "",
                                      "text/json",
                                      "application/json,text/plain"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!is_json(good[i]))
            fail_msg("%s is JSON", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (is_json(bad[i]))
            fail_msg("\"%s\" is not JSON", bad[i]);
    assert_false(is_json(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback_names_and_the_own_address_are_heard),
        cmocka_unit_test(test_other_names_are_refused),
        cmocka_unit_test(test_configured_hosts_are_heard_with_any_port_or_their_own),
        cmocka_unit_test(test_an_origin_must_be_the_same_or_configured),
        cmocka_unit_test(test_the_unix_socket_may_be_called_by_any_name_but_not_from_any_page),
        cmocka_unit_test(test_loopback_addresses),
        cmocka_unit_test(test_only_json_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
