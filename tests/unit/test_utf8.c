/* Bytes that must become text: what is UTF-8 stays, what is not becomes U+FFFD, part by part. */
#include "text/utf8.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define BAD "\xef\xbf\xbd"

static void check(const char *bytes, size_t length, const char *text, size_t text_length)
{
    struct hc_buf buf = HC_BUF_INIT(4096);

    assert_int_equal(hc_utf8_replace(&buf, bytes, length), 0);
    if (buf.length != text_length || (text_length > 0 && memcmp(buf.data, text, text_length) != 0))
        fail_msg("<<%s>> became <<%s>>, not <<%s>>", bytes, buf.length > 0 ? buf.data : "", text);
    assert_int_equal(hc_utf8_valid(bytes, length),
                     length == text_length && (length == 0 || memcmp(bytes, text, length) == 0));
    hc_buf_release(&buf);
}

static void test_text_stays_as_it_is(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "plain\n", "\u00e9\u20ac\U0001F600",
                                        "\xc2\x80\u07ff\u0800\uffff\U00010000\U0010ffff", "\ud7ff\ue000"};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        check(texts[i], strlen(texts[i]), texts[i], strlen(texts[i]));
    check("a\0b", 3, "a\0b", 3);
}

/* Each is what Python's bytes.decode(errors="replace") gives. */
static void test_each_part_that_is_no_utf8_is_replaced_once(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"a\xff\xfe"
         "b",
         "a" BAD BAD "b"},
        {"\x80", BAD},
        {"\xc0\xaf", BAD BAD},
        {"\xc3", BAD},
        {"\xc3(", BAD "("},
        {"\xe2\x82", BAD},
        {"\xe2\x82(", BAD "("},
        {"\xe0\x80\x80", BAD BAD BAD},
        {"\xed\xa0\x80", BAD BAD BAD},
        {"\xf0\x9f\x98", BAD},
        {"\xf0\x80\x80\x80", BAD BAD BAD BAD},
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD},
        {"\xf5\x80", BAD BAD},
        {"\xf0\x9f\xf0\x9f\x98\x80", BAD "\U0001F600"},
        {"\u00e9\xe9\u00e9", "\u00e9" BAD "\u00e9"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check(cases[i].bytes, strlen(cases[i].bytes), cases[i].text, strlen(cases[i].text));
}

static void test_the_ceiling_of_the_buffer_holds(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(5);

    assert_int_equal(hc_utf8_replace(&buf, "\xff\xff", 2), -EFBIG);
    hc_buf_release(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_stays_as_it_is),
        cmocka_unit_test(test_each_part_that_is_no_utf8_is_replaced_once),
        cmocka_unit_test(test_the_ceiling_of_the_buffer_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
