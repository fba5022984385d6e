/* The growing buffer: its ceiling, its sticking failure, and who owns the bytes. */
#include "base/buf.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_adds_are_joined_and_terminated(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(1000);
    assert_int_equal(hc_buf_add_str(&buf, "one "), 0);
    assert_int_equal(hc_buf_add(&buf, "two\0x", 4), 0);
    assert_int_equal(hc_buf_printf(&buf, "%d", 3), 0);
    assert_int_equal(buf.length, 9);
    assert_memory_equal(buf.data, "one two\0003\0", 10);
    hc_buf_release(&buf);
    assert_null(buf.data);
}

static void test_growth_keeps_every_byte(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(100000);
    for (unsigned i = 0; i < 100000; i++) {
        char byte = (char)(i * 31);
        assert_int_equal(hc_buf_add(&buf, &byte, 1), 0);
    }
    assert_int_equal(buf.length, 100000);
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(buf.data[i], (char)(i * 31));
    assert_int_equal(buf.data[100000], '\0');
    hc_buf_release(&buf);
}

static void test_ceiling_is_reached_but_not_passed(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(10);
    assert_int_equal(hc_buf_add_str(&buf, "0123456789"), 0);
    assert_int_equal(hc_buf_status(&buf), 0);
    assert_int_equal(hc_buf_add(&buf, "", 0), 0);
    assert_int_equal(hc_buf_add_str(&buf, "x"), -EFBIG);
    assert_int_equal(buf.length, 10);
    assert_string_equal(buf.data, "0123456789");
    assert_true(buf.capacity <= 11);
    hc_buf_release(&buf);
}

static void test_failure_sticks_and_later_adds_do_nothing(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(4);
    assert_int_equal(hc_buf_add_str(&buf, "abc"), 0);
    assert_int_equal(hc_buf_add_str(&buf, "de"), -EFBIG);
    assert_int_equal(hc_buf_add_str(&buf, "d"), -EFBIG);
    assert_int_equal(hc_buf_printf(&buf, "%s", "d"), -EFBIG);
    assert_string_equal(buf.data, "abc");
    assert_int_equal(hc_buf_status(&buf), -EFBIG);
    hc_buf_release(&buf);
}

static void test_printf_past_the_ceiling_adds_nothing(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(5);
    assert_int_equal(hc_buf_printf(&buf, "%d", 123456), -EFBIG);
    assert_int_equal(buf.length, 0);
    hc_buf_release(&buf);
}

static void test_a_length_that_would_overflow_is_too_big(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(SIZE_MAX);
    assert_int_equal(hc_buf_add_str(&buf, "x"), 0);
    assert_int_equal(hc_buf_add(&buf, "y", SIZE_MAX), -EFBIG);
    hc_buf_reset(&buf);
    assert_int_equal(hc_buf_add(&buf, "y", SIZE_MAX), -EFBIG);
    hc_buf_release(&buf);
}

static void test_reset_clears_content_and_failure_but_keeps_the_memory(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(4);
    hc_buf_add_str(&buf, "abcd");
    hc_buf_add_str(&buf, "e");
    char *before = buf.data;
    hc_buf_reset(&buf);
    assert_int_equal(hc_buf_status(&buf), 0);
    assert_int_equal(buf.length, 0);
    assert_string_equal(buf.data, "");
    assert_ptr_equal(buf.data, before);
    assert_int_equal(hc_buf_add_str(&buf, "wxyz"), 0);
    assert_string_equal(buf.data, "wxyz");
    hc_buf_release(&buf);
}

static void test_take_gives_the_bytes_away(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(100);
    hc_buf_add(&buf, "a\0b", 3);
    size_t length = 0;
    char *bytes = hc_buf_take(&buf, &length);
    assert_int_equal(length, 3);
    assert_memory_equal(bytes, "a\0b\0", 4);
    assert_null(buf.data);
    assert_int_equal(buf.ceiling, 100);
    free(bytes);
    assert_int_equal(hc_buf_add_str(&buf, "again"), 0);
    bytes = hc_buf_take(&buf, NULL);
    assert_string_equal(bytes, "again");
    free(bytes);
}

static void test_take_of_an_empty_buffer_is_an_empty_string(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(0);
    size_t length = 7;
    char *bytes = hc_buf_take(&buf, &length);
    assert_non_null(bytes);
    assert_string_equal(bytes, "");
    assert_int_equal(length, 0);
    free(bytes);
}

static void test_take_of_a_failed_buffer_is_null_and_releases_it(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(3);
    hc_buf_add_str(&buf, "abc");
    hc_buf_add_str(&buf, "d");
    size_t length = 7;
    assert_null(hc_buf_take(&buf, &length));
    assert_int_equal(length, 7);
    assert_null(buf.data);
    assert_int_equal(hc_buf_status(&buf), 0);
}

static void test_release_twice_is_fine(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(3);
    hc_buf_add_str(&buf, "a");
    hc_buf_release(&buf);
    hc_buf_release(&buf);
    assert_int_equal(buf.ceiling, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adds_are_joined_and_terminated),
        cmocka_unit_test(test_growth_keeps_every_byte),
        cmocka_unit_test(test_ceiling_is_reached_but_not_passed),
        cmocka_unit_test(test_failure_sticks_and_later_adds_do_nothing),
        cmocka_unit_test(test_printf_past_the_ceiling_adds_nothing),
        cmocka_unit_test(test_a_length_that_would_overflow_is_too_big),
        cmocka_unit_test(test_reset_clears_content_and_failure_but_keeps_the_memory),
        cmocka_unit_test(test_take_gives_the_bytes_away),
        cmocka_unit_test(test_take_of_an_empty_buffer_is_an_empty_string),
        cmocka_unit_test(test_take_of_a_failed_buffer_is_null_and_releases_it),
        cmocka_unit_test(test_release_twice_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
