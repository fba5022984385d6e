/* JSON as we read and write it, and base64. */
#include "text/base64.h"
#include "text/json_out.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void expect_written(const char *text, bool pretty, const char *expected)
{
    json_t *value = NULL;
    struct hc_err err = {0};
    if (hc_json_read(text, strlen(text), 8, &value, &err) != 0)
        fail_msg("%s: %s", text, err.message);
    char *written = hc_json_write(value, pretty);
    assert_string_equal(written, expected);
    free(written);
    json_decref(value);
}

static void test_numbers_are_written_in_as_few_digits_as_read_back(void **state)
{
    (void)state;
    expect_written("[3.1,0.1,2.5,1e300,123456789.12345679,0.30000000000000004]", false,
                   "[3.1,0.1,2.5,1e300,123456789.12345679,0.30000000000000004]");
    expect_written("[1,-1,9223372036854775807,1.0,0.0,-0.0]", false, "[1,-1,9223372036854775807,1.0,0.0,-0.0]");
    expect_written("[0.001,0.0011,12.340,999999999.999,1000000000.5,-1.25,1e-9]", false,
                   "[0.001,0.0011,12.34,999999999.999,1000000000.5,-1.25,1e-9]");
}

/* The short way to write a number of milliseconds gives the text that the long way would. */
static void test_thousandths_are_written_as_the_shortest_digits_would_be(void **state)
{
    (void)state;
    for (int64_t thousandths = 1; thousandths < INT64_C(999999999999); thousandths += thousandths / 3 + 1) {
        char expected[64];
        double number = (double)thousandths / 1000;
        json_t *value = json_real(number);
        char *written = hc_json_write(value, false);
        snprintf(expected, sizeof expected, "%.15g", number);
        if (!strchr(expected, '.'))
            strcat(expected, ".0");
        assert_string_equal(written, expected);
        assert_true(strtod(written, NULL) == number);
        free(written);
        json_decref(value);
    }
}

static void test_order_and_strings_survive(void **state)
{
    (void)state;
    expect_written("{\"z\":1,\"a\":\"\\u0000\\u001b\\\"\\\\/\xe2\x82\xac\",\"m\":[]}", false,
                   "{\"z\":1,\"a\":\"\\u0000\\u001B\\\"\\\\/\xe2\x82\xac\",\"m\":[]}");
    expect_written("\"\\b\\t\\n\\f\\r\\u007f\\u0001\"", false, "\"\\b\\t\\n\\f\\r\x7f\\u0001\"");
    expect_written("\"alone\"", false, "\"alone\"");
    expect_written("null", true, "null");
}

static void test_indented_text_has_a_line_for_each_item(void **state)
{
    (void)state;
    expect_written("{\"a\":[1,{\"b\":true}],\"c\":{},\"d\":[]}", true,
                   "{\n  \"a\": [\n    1,\n    {\n      \"b\": true\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}");
}

static void test_what_is_not_strict_json_is_refused_with_its_place(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\":1,\"a\":2}",
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "1e999",
        "\"\xff\"",
        "'a'",
        "{a:1}",
        "[1] [2]",
        "\"\\ud800\"",
        "\"\n\"",
        "nul",
        "// c\n1",
        "+1",
        "1.",
        "\"\\x\"",
        "\xef\xbb\xbf{}",
        "9223372036854775808",
        "{\"\\u0000\":1}",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        json_t *value = NULL;
        struct hc_err err = {0};
        if (hc_json_read(texts[i], strlen(texts[i]), 8, &value, &err) != -EINVAL)
            fail_msg("accepted: %s", texts[i]);
        assert_null(value);
        assert_int_equal(err.class, HC_CLASS_REQUEST);
        assert_non_null(strstr(err.message, "line"));
    }
}

static void test_depth_is_counted_exactly(void **state)
{
    (void)state;
    json_t *value = NULL;
    assert_int_equal(hc_json_read("[[{}]]", 6, 3, &value, NULL), 0);
    json_decref(value);
    value = NULL;
    assert_int_equal(hc_json_read("[[{}]]", 6, 2, &value, NULL), -EINVAL);
    assert_null(value);
    assert_int_equal(hc_json_read("1", 1, 0, &value, NULL), 0);
    json_decref(value);
}

static void test_text_that_is_not_utf8_is_none_or_marked(void **state)
{
    (void)state;
    assert_null(hc_json_text("\xff", 1));
    json_t *text = hc_json_text("a\0b", 3);
    assert_int_equal(json_string_length(text), 3);
    json_decref(text);
    text = hc_json_text_lossy("a\xff\xe2\x82\xac\xe2\x82");
    assert_string_equal(json_string_value(text), "a?\xe2\x82\xac??");
    json_decref(text);
}

/* Every kind of value, with names that a value by value writer could get wrong. */
static char *written_by_value(bool pretty)
{
    struct hc_json_out out = HC_JSON_OUT(pretty);
    hc_json_put_open(&out, NULL, '{');
    hc_json_put_text(&out, "text", "a\0b\"\xe2\x82\xac", 7);
    hc_json_put_lossy(&out, "lossy", "a\xff");
    hc_json_put_integer(&out, "least", INT64_MIN);
    hc_json_put_integer(&out, "most", INT64_MAX);
    hc_json_put_real(&out, "real", -0.25);
    hc_json_put_thousandths(&out, "ms", 1500);
    hc_json_put_null(&out, "a name that is longer than what is written in one piece, \t and has a tab in it");
    hc_json_put_open(&out, "\"quoted\"", '[');
    hc_json_put_open(&out, NULL, '{');
    hc_json_put_close(&out, '}');
    hc_json_put_open(&out, NULL, '[');
    hc_json_put_close(&out, ']');
    hc_json_put_bool(&out, NULL, true);
    hc_json_put_bool(&out, NULL, false);
    hc_buf_add_str(hc_json_put_raw(&out, NULL), "\"raw\"");
    hc_json_put_close(&out, ']');
    hc_json_put_word(&out, "", "last");
    hc_json_put_close(&out, '}');
    return hc_json_out_take(&out);
}

static void test_value_by_value_is_written_as_the_whole_would_be(void **state)
{
    (void)state;
    for (int pretty = 0; pretty < 2; pretty++) {
        struct hc_err err = {0};
        json_t *value = NULL;
        char *text = written_by_value(pretty);
        assert_non_null(text);
        if (hc_json_read(text, strlen(text), 8, &value, &err) != 0)
            fail_msg("%s: %s", text, err.message);
        char *whole = hc_json_write(value, pretty);
        assert_string_equal(text, whole);
        assert_int_equal(json_object_size(value), 9);
        assert_true(json_integer_value(json_object_get(value, "least")) == INT64_MIN);
        assert_string_equal(json_string_value(json_object_get(value, "lossy")), "a?");
        json_decref(value);
        free(whole);
        free(text);
    }
}

static void test_thousandths_read_back_as_what_they_were(void **state)
{
    (void)state;
    for (int64_t number = 0; number < INT64_C(40000000000000); number = number * 5 / 4 + 1) {
        struct hc_json_out one = HC_JSON_OUT(false), other = HC_JSON_OUT(false);
        hc_json_put_thousandths(&one, NULL, number);
        hc_json_put_real(&other, NULL, (double)number / 1000);
        char *text = hc_json_out_take(&one), *same = hc_json_out_take(&other);
        assert_string_equal(text, same);
        assert_true(strtod(text, NULL) == (double)number / 1000);
        free(text);
        free(same);
    }
}

static void test_a_value_that_could_not_be_made_is_a_failure(void **state)
{
    (void)state;
    struct hc_json_out out = HC_JSON_OUT(false);
    hc_json_put_open(&out, NULL, '{');
    hc_json_put_value(&out, "lost", NULL);
    hc_json_put_close(&out, '}');
    assert_null(hc_json_out_take(&out));
}

static void test_base64_goes_both_ways(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        size_t length = 77;
        char *text = hc_base64_encode(pairs[i][0], strlen(pairs[i][0]), &length);
        assert_string_equal(text, pairs[i][1]);
        assert_int_equal(length, strlen(pairs[i][1]));
        char *data = NULL;
        assert_int_equal(hc_base64_decode(text, length, &data, &length), 0);
        assert_string_equal(data, pairs[i][0]);
        free(data);
        free(text);
    }
    unsigned char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    size_t length;
    char *text = hc_base64_encode(all, sizeof(all), &length), *data = NULL;
    assert_int_equal(hc_base64_decode(text, length, &data, &length), 0);
    assert_int_equal(length, 256);
    assert_memory_equal(data, all, 256);
    free(text);
    free(data);
}

static void test_base64_has_one_encoding_for_each_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"Z",    "Zg",     "Zg=",  "Zg===", "====",     "=",    "Zh==", "Zm9=",
                                        "Z g=", "Zm9v\n", "Zm9-", "Zm9_",  "Zg==Zg==", "Z===", "=g==", "Zm=v"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char *data = NULL;
        size_t length = 0;
        if (hc_base64_decode(texts[i], strlen(texts[i]), &data, &length) != -EINVAL)
            fail_msg("accepted: %s", texts[i]);
        assert_null(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_written_in_as_few_digits_as_read_back),
        cmocka_unit_test(test_thousandths_are_written_as_the_shortest_digits_would_be),
        cmocka_unit_test(test_order_and_strings_survive),
        cmocka_unit_test(test_indented_text_has_a_line_for_each_item),
        cmocka_unit_test(test_what_is_not_strict_json_is_refused_with_its_place),
        cmocka_unit_test(test_depth_is_counted_exactly),
        cmocka_unit_test(test_text_that_is_not_utf8_is_none_or_marked),
        cmocka_unit_test(test_value_by_value_is_written_as_the_whole_would_be),
        cmocka_unit_test(test_thousandths_read_back_as_what_they_were),
        cmocka_unit_test(test_a_value_that_could_not_be_made_is_a_failure),
        cmocka_unit_test(test_base64_goes_both_ways),
        cmocka_unit_test(test_base64_has_one_encoding_for_each_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
