/* Errors: what is filled, what is kept, what is cut, and what each class means outside. */
#include "base/err.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_fail_fills_every_part_and_returns_minus_code(void **state)
{
    (void)state;
    struct hc_err err = {0};
    assert_int_equal(hc_fail(&err, HC_CLASS_REQUEST, ENOENT, "no file \"%s\"", "a.py"), -ENOENT);
    assert_int_equal(err.code, ENOENT);
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    assert_string_equal(err.message, "no file \"a.py\"");
    assert_string_equal(err.field, "");
    assert_string_equal(err.remedy, "");
}

static void test_fail_errno_adds_the_kernels_words(void **state)
{
    (void)state;
    struct hc_err err = {0};
    assert_int_equal(hc_fail_errno(&err, HC_CLASS_HOST, EACCES, "open %s", "/dev/kvm"), -EACCES);
    assert_string_equal(err.message, "open /dev/kvm: Permission denied");
}

static void test_unknown_errno_still_says_something(void **state)
{
    (void)state;
    struct hc_err err = {0};
    assert_int_equal(hc_fail_errno(&err, HC_CLASS_OURS, 99999, "step"), -99999);
    assert_string_equal(err.message, "step: unknown error");
}

static void test_a_negated_or_zero_code_is_never_success(void **state)
{
    (void)state;
    struct hc_err err = {0};
    assert_int_equal(hc_fail(&err, HC_CLASS_OURS, -EPERM, "x"), -EPERM);
    assert_int_equal(err.code, EPERM);
    hc_err_clear(&err);
    assert_true(hc_fail(&err, HC_CLASS_OURS, 0, "x") < 0);
    assert_true(err.code > 0);
}

static void test_first_error_wins_until_cleared(void **state)
{
    (void)state;
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "first");
    hc_err_field(&err, "limits.memory");
    assert_int_equal(hc_fail(&err, HC_CLASS_OURS, EIO, "second"), -EIO);
    assert_int_equal(hc_fail_errno(&err, HC_CLASS_OURS, EIO, "third"), -EIO);
    assert_string_equal(err.message, "first");
    assert_int_equal(err.code, EINVAL);
    assert_string_equal(err.field, "limits.memory");
    hc_err_clear(&err);
    assert_int_equal(err.code, 0);
    hc_fail(&err, HC_CLASS_OURS, EIO, "second");
    assert_string_equal(err.message, "second");
    assert_string_equal(err.field, "");
}

static void test_field_and_remedy_return_the_code(void **state)
{
    (void)state;
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_REQUEST, ERANGE, "too large");
    assert_int_equal(hc_err_field(&err, "files[%d].path", 3), -ERANGE);
    assert_int_equal(hc_err_remedy(&err, "raise %s", "--memory"), -ERANGE);
    assert_string_equal(err.field, "files[3].path");
    assert_string_equal(err.remedy, "raise --memory");
}

static void test_context_goes_before_the_message(void **state)
{
    (void)state;
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_HOST, ENOSPC, "disk full");
    assert_int_equal(hc_err_context(&err, "cell %d", 7), -ENOSPC);
    assert_int_equal(hc_err_context(&err, "run"), -ENOSPC);
    assert_string_equal(err.message, "run: cell 7: disk full");
}

static void test_null_is_accepted_everywhere(void **state)
{
    (void)state;
    assert_int_equal(hc_fail(NULL, HC_CLASS_OURS, EIO, "x"), -EIO);
    assert_int_equal(hc_fail_errno(NULL, HC_CLASS_OURS, EIO, "x"), -EIO);
    assert_true(hc_err_field(NULL, "x") < 0);
    assert_true(hc_err_remedy(NULL, "x") < 0);
    assert_true(hc_err_context(NULL, "x") < 0);
    hc_err_clear(NULL);
}

static void test_long_texts_are_cut_and_terminated(void **state)
{
    (void)state;
    char long_text[2000];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    struct hc_err err = {0};
    hc_fail_errno(&err, HC_CLASS_OURS, EIO, "%s", long_text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    hc_err_field(&err, "%s", long_text);
    assert_int_equal(strlen(err.field), sizeof err.field - 1);
    hc_err_remedy(&err, "%s", long_text);
    assert_int_equal(strlen(err.remedy), sizeof err.remedy - 1);
    hc_err_context(&err, "%s", long_text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

static void test_context_on_a_full_message_keeps_its_beginning(void **state)
{
    (void)state;
    char long_text[447];
    memset(long_text, 'b', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_OURS, EIO, "%s", long_text);
    hc_err_context(&err, "mount /proc");
    assert_memory_equal(err.message, "mount /proc: bbb", 16);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

/* Every length of prefix puts the cut at another byte of the three- and four-byte characters. */
static void test_a_cut_never_splits_a_character(void **state)
{
    (void)state;
    for (int prefix = 0; prefix < 12; prefix++) {
        char text[1024];
        int used = snprintf(text, sizeof text, "%.*s", prefix, "xxxxxxxxxxxx");
        while (used < 900)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s", prefix % 2 ? "€" : "😀");
        struct hc_err err = {0};
        hc_fail(&err, HC_CLASS_OURS, EIO, "%s", text);
        size_t size = prefix % 2 ? 3 : 4;
        size_t length = strlen(err.message);
        assert_int_equal((length - (size_t)prefix) % size, 0);
        assert_true(length > sizeof err.message - 1 - size);
    }
}

static void test_errno_is_left_alone(void **state)
{
    (void)state;
    struct hc_err err = {0};
    errno = ENOTTY;
    hc_fail_errno(&err, HC_CLASS_OURS, EIO, "x %s", "y");
    hc_err_context(&err, "z");
    assert_int_equal(errno, ENOTTY);
}

static void test_class_table_says_what_each_class_means(void **state)
{
    (void)state;
    static const struct hc_class_info wanted[] = {
        {HC_CLASS_OURS, "ours", 125, 500, -32603},
        {HC_CLASS_HOST, "host", 125, 503, -32000},
        {HC_CLASS_REQUEST, "request", 2, 400, -32602},
        {HC_CLASS_PROGRAM, "program", 1, 200, -32001},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const struct hc_class_info *info = hc_class_info(wanted[i].class);
        assert_int_equal(info->class, wanted[i].class);
        assert_string_equal(info->word, wanted[i].word);
        assert_int_equal(info->exit_code, wanted[i].exit_code);
        assert_int_equal(info->http_status, wanted[i].http_status);
        assert_int_equal(info->jsonrpc_code, wanted[i].jsonrpc_code);
    }
}

static void test_a_class_from_outside_the_table_is_ours(void **state)
{
    (void)state;
    assert_int_equal(hc_class_info((enum hc_class)77)->class, HC_CLASS_OURS);
    assert_int_equal(hc_class_info((enum hc_class) - 1)->class, HC_CLASS_OURS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_fills_every_part_and_returns_minus_code),
        cmocka_unit_test(test_fail_errno_adds_the_kernels_words),
        cmocka_unit_test(test_unknown_errno_still_says_something),
        cmocka_unit_test(test_a_negated_or_zero_code_is_never_success),
        cmocka_unit_test(test_first_error_wins_until_cleared),
        cmocka_unit_test(test_field_and_remedy_return_the_code),
        cmocka_unit_test(test_context_goes_before_the_message),
        cmocka_unit_test(test_null_is_accepted_everywhere),
        cmocka_unit_test(test_long_texts_are_cut_and_terminated),
        cmocka_unit_test(test_context_on_a_full_message_keeps_its_beginning),
        cmocka_unit_test(test_a_cut_never_splits_a_character),
        cmocka_unit_test(test_errno_is_left_alone),
        cmocka_unit_test(test_class_table_says_what_each_class_means),
        cmocka_unit_test(test_a_class_from_outside_the_table_is_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
