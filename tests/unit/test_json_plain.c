/* JSON without Jansson: what is written is what Jansson reads, and nothing that somebody sends leads astray. */
#include "text/json_plain.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hc_peek peek(const char *text)
{
    return hc_peek_text(text, strlen(text));
}

static void test_every_byte_that_is_written_is_read_back(void **state)
{
    struct hc_buf buf = HC_BUF_INIT(4096);
    char bytes[128 + 4], *read = NULL;
    size_t length = 0;

    (void)state;
    for (int i = 0; i < 128; i++)
        bytes[i] = (char)i;
    memcpy(bytes + 128, "\xf0\x9f\x98\x80", 4);
    assert_int_equal(hc_json_add_string(&buf, bytes, sizeof bytes), 0);
    json_t *value = json_loadb(buf.data, buf.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(value);
    assert_int_equal(json_string_length(value), sizeof bytes);
    assert_memory_equal(json_string_value(value), bytes, sizeof bytes);
    assert_int_equal(hc_peek_string(hc_peek_text(buf.data, buf.length), &read, &length), 0);
    assert_int_equal(length, sizeof bytes);
    assert_memory_equal(read, bytes, sizeof bytes);
    free(read);
    json_decref(value);
    hc_buf_release(&buf);
}

static void test_members_are_found_behind_any_others(void **state)
{
    const struct hc_peek object =
        peek(" {\"a\" : {\"b\":\"}\"} , \"list\":[1, [2,\"]\"],{} ],\"n\":-12,\"f\":1.5e3,\"t\":true,\"z\":null} ");
    struct hc_peek item = {0};
    int64_t number = 0;

    (void)state;
    assert_true(hc_peek_is_object(object));
    assert_true(hc_peek_is(hc_peek_member(hc_peek_member(object, "a"), "b"), "}"));
    assert_int_equal(hc_peek_count(hc_peek_member(object, "list")), 3);
    assert_true(hc_peek_next(hc_peek_member(object, "list"), &item));
    assert_int_equal(hc_peek_integer(item, &number), 0);
    assert_int_equal(number, 1);
    assert_int_equal(hc_peek_integer(hc_peek_member(object, "n"), &number), 0);
    assert_int_equal(number, -12);
    assert_int_equal(hc_peek_integer(hc_peek_member(object, "f"), &number), -EPROTO);
    assert_true(hc_peek_number(hc_peek_member(object, "f")) == 1500);
    assert_true(hc_peek_is_true(hc_peek_member(object, "t")));
    assert_false(hc_peek_is_true(hc_peek_member(object, "z")));
    assert_null(hc_peek_member(object, "b").at);
    assert_int_equal(hc_peek_count(peek("[]")), 0);
    assert_int_equal(hc_peek_count(peek("[ ]")), 0);
}

static void test_strings_are_decoded_strictly(void **state)
{
    static const struct {
        const char *text, *meant;
    } right[] = {{"\"\"", ""},
                 {"\"\\u00e4\\ud83d\\ude00\"", "\xc3\xa4\xf0\x9f\x98\x80"},
                 {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"}};
    static const char *const wrong[] = {"1",           "\"\\x\"",        "\"\\u12\"",   "\"\\ud83d\"",
                                        "\"\\ude00\"", "\"\\ud83d\\n\"", "\"\\u12g4\"", "\"\\ud83d\\u0041\""};
    size_t length = 0;

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        char *text = NULL;
        assert_int_equal(hc_peek_string(peek(right[i].text), &text, &length), 0);
        assert_string_equal(text, right[i].meant);
        assert_int_equal(length, strlen(right[i].meant));
        free(text);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = NULL;
        assert_int_equal(hc_peek_string(peek(wrong[i]), &text, &length), -EPROTO);
        assert_null(text);
    }
}

/* Under ASan each copy has exactly its bytes: a read past them is a fault. */
static void test_no_part_of_a_text_leads_past_its_end(void **state)
{
    static const char whole[] = "{\"a\":[1,{\"b\":\"x\\u0041\\\\\"}],\"c\":\"\\ud83d\\ude00\",\"d\":-1.5}";
    char text[64];

    (void)state;
    for (size_t length = 0; length < sizeof whole; length++) {
        char *copy = malloc(length ? length : 1);
        assert_non_null(copy);
        memcpy(copy, whole, length);
        struct hc_peek value = hc_peek_text(copy, length), item = {0};
        hc_peek_copy(hc_peek_member(value, "c"), text, sizeof text);
        hc_peek_copy(value, text, sizeof text);
        while (hc_peek_next(hc_peek_member(value, "a"), &item))
            hc_peek_copy(hc_peek_member(item, "b"), text, sizeof text);
        assert_int_equal(hc_peek_is_object(value), length == sizeof whole - 1);
        free(copy);
    }
}

static void test_what_is_no_json_is_not_there(void **state)
{
    static const char *const wrong[] = {"", " ", "{", "[1", "\"", "\"\\", "{} {}", "{}x", ",", "]", "[1]]"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_null(peek(wrong[i]).at);
    assert_null(hc_peek_member(peek("{\"a\" 1}"), "a").at);
    assert_null(hc_peek_member(peek("{1:2,\"a\":1}"), "a").at);
    assert_null(hc_peek_member(peek("[\"a\"]"), "a").at);
    assert_int_equal(hc_peek_count(peek("[1 2]")), 1);
}

static void test_text_that_is_too_long_is_cut(void **state)
{
    char text[4];

    (void)state;
    assert_string_equal(hc_peek_copy(peek("\"abcdef\""), text, sizeof text), "abc");
    assert_string_equal(hc_peek_copy(peek("7"), text, sizeof text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_that_is_written_is_read_back),
        cmocka_unit_test(test_members_are_found_behind_any_others),
        cmocka_unit_test(test_strings_are_decoded_strictly),
        cmocka_unit_test(test_no_part_of_a_text_leads_past_its_end),
        cmocka_unit_test(test_what_is_no_json_is_not_there),
        cmocka_unit_test(test_text_that_is_too_long_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
