/* Looking at a request: the values of its query, and what its Accept prefers. */
#include "gateway/http.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_query_values_are_decoded_and_single(void **state)
{
    (void)state;
    struct http_request request = {.query = "a=1&b=x+y%2Fz&c&d=%zz&e=%00&a%62=q&f=1&f=1&g=%ff&&h=="};
    char text[8];
    assert_int_equal(http_query_value(&request, "a", text, sizeof text), 1);
    assert_string_equal(text, "1");
    assert_int_equal(http_query_value(&request, "b", text, sizeof text), 1);
    assert_string_equal(text, "x y/z");
    assert_int_equal(http_query_value(&request, "b", text, 5), -EINVAL);
    assert_int_equal(http_query_value(&request, "c", text, sizeof text), 1);
    assert_string_equal(text, "");
    assert_int_equal(http_query_value(&request, "ab", text, sizeof text), 1);
    assert_int_equal(http_query_value(&request, "h", text, sizeof text), 1);
    assert_string_equal(text, "=");
    assert_int_equal(http_query_value(&request, "d", text, sizeof text), -EINVAL);
    assert_int_equal(http_query_value(&request, "e", text, sizeof text), -EINVAL);
    assert_int_equal(http_query_value(&request, "f", text, sizeof text), -EINVAL);
    assert_int_equal(http_query_value(&request, "g", text, sizeof text), -EINVAL);
    assert_int_equal(http_query_value(&request, "absent", text, sizeof text), 0);
    request.query = "";
    assert_int_equal(http_query_value(&request, "a", text, sizeof text), 0);
}

static void test_unknown_query_names_are_named(void **state)
{
    (void)state;
    static const char *const KNOWN[] = {"limit", "before", NULL};
    char text[8];
    struct http_request request = {.query = "limit=1&before=2"};
    assert_null(http_query_unknown(&request, KNOWN, text, sizeof text));
    request.query = "limit=1&bef%6Frf=2";
    assert_string_equal(http_query_unknown(&request, KNOWN, text, sizeof text), "beforf");
    request.query = "%zz=1";
    assert_string_equal(http_query_unknown(&request, KNOWN, text, sizeof text), "%zz");
    request.query = "averylongname=1";
    assert_string_equal(http_query_unknown(&request, KNOWN, text, sizeof text), "averylo");
    request.query = "=1";
    assert_string_equal(http_query_unknown(&request, KNOWN, text, sizeof text), "");
}

static bool accepts_events(const char *value)
{
    struct http_header header = {.name = "accept", .value = (char *)value};
    struct http_request request = {.headers = &header, .header_count = value != NULL};
    return http_accepts(&request, "text/event-stream");
}

static void test_accept_prefers_what_it_names(void **state)
{
    (void)state;
    assert_true(accepts_events("text/event-stream"));
    assert_true(accepts_events("Text/Event-Stream; charset=utf-8"));
    assert_true(accepts_events("text/event-stream, */*"));
    assert_true(accepts_events("text/*"));
    assert_true(accepts_events("application/json;q=0.5, text/event-stream"));
    assert_true(accepts_events("application/json;q=0.19 , text/event-stream;q=0.2"));
    assert_true(accepts_events("*/*;q=0.1, text/event-stream;q=0.2"));
    assert_false(accepts_events(NULL));
    assert_false(accepts_events(""));
    assert_false(accepts_events("*/*"));
    assert_false(accepts_events("application/json"));
    assert_false(accepts_events("application/json, text/event-stream"));
    assert_false(accepts_events("text/event-stream;q=0, */*"));
    assert_false(accepts_events("text/event-stream;q=0.5, */*"));
    assert_false(accepts_events("text/event-stream;q=x, application/json;q=0.1"));
    assert_false(accepts_events("text/event-streams"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query_values_are_decoded_and_single),
        cmocka_unit_test(test_unknown_query_names_are_named),
        cmocka_unit_test(test_accept_prefers_what_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
