/* Sizes, durations and numbers as people write them, and as we print them. */
#include "base/size.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void test_sizes_are_read_in_every_unit_and_case(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"1048576", 1048576},
        {"100b", 100},
        {"100 bytes", 100},
        {"1 byte", 1},
        {"1k", 1024},
        {"1K", 1024},
        {"1kb", 1024},
        {"1KiB", 1024},
        {"512m", 512u << 20},
        {"512MB", 512u << 20},
        {"512 MiB", 512u << 20},
        {"1.5GiB", 3ull << 29},
        {"1.5g", 3ull << 29},
        {"2t", 2ull << 40},
        {"2TiB", 2ull << 40},
        {" 64m ", 64u << 20},
        {".5k", 512},
        {"0.0001k", 0},
        {"0.1k", 102},
        {"0.30000000000000000000000000001g", 322122547},
        {"18446744073709551615", UINT64_MAX},
        {"16777215.99999t", 18446744073698556499ull},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t bytes = 77;
        struct hc_err err = {0};
        if (hc_parse_size(cases[i].text, &bytes, &err) != 0 || bytes != cases[i].bytes)
            fail_msg("\"%s\" gave %llu (%s)", cases[i].text, (unsigned long long)bytes, err.message);
    }
}

static void test_what_is_no_size_is_refused_and_named(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",     " ",     "m",   "-1",  "-5m", "+5",  "nan",  "NaN",   "inf",  "infinity", "0x10", "1e3",
        "1..5", "1.5.5", "1.",  ".",   "5 5", "5mm", "5mbb", "5kibi", "1,5g", "five",     "5m x", "٣",
        "5%",   "1_000", "--5", "5m-", "5\n", "5p",  "1e",   "0b1",   "∞",    "5 k b",
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t bytes = 77;
        struct hc_err err = {0};
        int status = hc_parse_size(cases[i], &bytes, &err);
        if (status != -EINVAL || bytes != 77 || err.class != HC_CLASS_REQUEST)
            fail_msg("\"%s\" gave %d", cases[i], status);
        if (cases[i][strspn(cases[i], " ")] != '\0')
            assert_non_null(strstr(err.message, cases[i]));
        assert_non_null(strstr(err.remedy, "512m"));
    }
}

static void test_sizes_that_overflow_are_too_large(void **state)
{
    (void)state;
    static const char *const cases[] = {"18446744073709551616", "99999999999999999999999", "16777216t", "17179869184g",
                                        "18014398509481984k"};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t bytes = 77;
        struct hc_err err = {0};
        assert_int_equal(hc_parse_size(cases[i], &bytes, &err), -ERANGE);
        assert_int_equal(bytes, 77);
        assert_non_null(strstr(err.message, "too large"));
    }
}

static void test_a_very_long_text_is_refused_with_a_short_message(void **state)
{
    (void)state;
    char text[5000];
    memset(text, '9', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    uint64_t bytes;
    struct hc_err err = {0};
    assert_int_equal(hc_parse_size(text, &bytes, &err), -ERANGE);
    assert_true(strlen(err.message) < 200);
}

static void test_parsers_accept_a_null_error(void **state)
{
    (void)state;
    uint64_t value;
    double decimal;
    assert_int_equal(hc_parse_size("x", &value, NULL), -EINVAL);
    assert_int_equal(hc_parse_duration("x", &value, NULL), -EINVAL);
    assert_int_equal(hc_parse_count("x", 0, 1, &value, NULL), -EINVAL);
    assert_int_equal(hc_parse_decimal("x", 0, 1, &decimal, NULL), -EINVAL);
}

static void test_durations_are_read_in_every_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t microseconds;
    } cases[] = {
        {"30", 30000000},   {"1.5s", 1500000},
        {"500ms", 500000},  {"250us", 250},
        {"2m", 120000000},  {"2 min", 120000000},
        {"1h", 3600000000}, {"0", 0},
        {"0.0000001", 0},   {"1.5H", 5400000000},
        {"0.1", 100000},    {"0.000001s", 1},
        {"2 S", 2000000},   {"5124095576h", 18446744073600000000ull},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t microseconds = 77;
        struct hc_err err = {0};
        if (hc_parse_duration(cases[i].text, &microseconds, &err) != 0 || microseconds != cases[i].microseconds)
            fail_msg("\"%s\" gave %llu (%s)", cases[i].text, (unsigned long long)microseconds, err.message);
    }
}

static void test_what_is_no_duration_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {"", "-1", "-0", "nan", "inf", "1d", "1 s s", "1e3", "soon", "1:30", "ms"};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t microseconds = 77;
        struct hc_err err = {0};
        assert_int_equal(hc_parse_duration(cases[i], &microseconds, &err), -EINVAL);
        assert_int_equal(microseconds, 77);
        assert_int_equal(err.class, HC_CLASS_REQUEST);
    }
    uint64_t microseconds = 77;
    assert_int_equal(hc_parse_duration("99999999999999h", &microseconds, NULL), -ERANGE);
}

static void test_negative_is_said_to_be_negative(void **state)
{
    (void)state;
    uint64_t value;
    struct hc_err err = {0};
    hc_parse_duration("-3s", &value, &err);
    assert_non_null(strstr(err.message, "\"-3s\" is negative"));
}

static void test_counts_are_whole_and_within_bounds(void **state)
{
    (void)state;
    uint64_t value = 77;
    assert_int_equal(hc_parse_count("20", 1, 100, &value, NULL), 0);
    assert_int_equal(value, 20);
    assert_int_equal(hc_parse_count("1", 1, 100, &value, NULL), 0);
    assert_int_equal(hc_parse_count("100", 1, 100, &value, NULL), 0);
    assert_int_equal(hc_parse_count("18446744073709551615", 0, UINT64_MAX, &value, NULL), 0);
    assert_true(value == UINT64_MAX);
    value = 77;
    assert_int_equal(hc_parse_count("0", 1, 100, &value, NULL), -ERANGE);
    assert_int_equal(hc_parse_count("101", 1, 100, &value, NULL), -ERANGE);
    assert_int_equal(hc_parse_count("18446744073709551616", 0, UINT64_MAX, &value, NULL), -ERANGE);
    static const char *const rubbish[] = {"", "1.5", "1.0", "-1", "+1", " 1", "1 ", "1k", "0x1", "nan", "1\n"};
    for (size_t i = 0; i < COUNT_OF(rubbish); i++) {
        struct hc_err err = {0};
        assert_int_equal(hc_parse_count(rubbish[i], 0, 100, &value, &err), -EINVAL);
        assert_non_null(strstr(err.message, "from 0 to 100"));
    }
    assert_int_equal(value, 77);
}

static void test_decimals_are_exact_and_within_bounds(void **state)
{
    (void)state;
    double value = 77;
    assert_int_equal(hc_parse_decimal("0.5", 0, 64, &value, NULL), 0);
    assert_true(value == 0.5);
    assert_int_equal(hc_parse_decimal("0.1", 0, 64, &value, NULL), 0);
    assert_true(value == 0.1);
    assert_int_equal(hc_parse_decimal("-1.25", -2, 2, &value, NULL), 0);
    assert_true(value == -1.25);
    assert_int_equal(hc_parse_decimal("64", 0, 64, &value, NULL), 0);
    assert_true(value == 64);
    value = 77;
    assert_int_equal(hc_parse_decimal("64.001", 0, 64, &value, NULL), -ERANGE);
    assert_int_equal(hc_parse_decimal("-0.1", 0, 64, &value, NULL), -ERANGE);
    assert_int_equal(hc_parse_decimal("99999999999999999999999999", 0, 64, &value, NULL), -ERANGE);
    static const char *const rubbish[] = {"",    "-",     ".",   "nan",  "-nan", "inf",
                                          "1e1", "0x1p3", "1,5", "1.5x", "--1",  "1 "};
    for (size_t i = 0; i < COUNT_OF(rubbish); i++)
        assert_int_equal(hc_parse_decimal(rubbish[i], -1000, 1000, &value, NULL), -EINVAL);
    assert_true(value == 77);
}

static void test_sizes_are_printed_for_people(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 bytes"},           {1, "1 byte"},
        {100, "100 bytes"},       {1023, "1023 bytes"},
        {1024, "1 KiB"},          {1536, "1.5 KiB"},
        {64u << 20, "64 MiB"},    {3ull << 29, "1.5 GiB"},
        {1048575, "1 MiB"},       {1047552, "1023 KiB"},
        {100000, "97.7 KiB"},     {1ull << 40, "1 TiB"},
        {1ull << 50, "1024 TiB"}, {UINT64_MAX, "16777216 TiB"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[32];
        assert_string_equal(hc_format_size(cases[i].bytes, text, sizeof text), cases[i].text);
    }
}

static void test_durations_are_printed_for_people(void **state)
{
    (void)state;
    static const struct {
        uint64_t microseconds;
        const char *text;
    } cases[] = {
        {0, "0 us"},
        {999, "999 us"},
        {1000, "1 ms"},
        {1500, "1.5 ms"},
        {350000, "350 ms"},
        {999499, "999 ms"},
        {999500, "1 s"},
        {1000000, "1 s"},
        {1500000, "1.5 s"},
        {1234567, "1.23 s"},
        {1050000, "1.05 s"},
        {2000000, "2 s"},
        {30000000, "30 s"},
        {90000000, "90 s"},
        {120000000, "2 min"},
        {150000000, "2.5 min"},
        {3600000000, "60 min"},
        {7200000000, "2 h"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[32];
        assert_string_equal(hc_format_duration(cases[i].microseconds, text, sizeof text), cases[i].text);
    }
    char text[32];
    assert_true(strlen(hc_format_duration(UINT64_MAX, text, sizeof text)) < sizeof text);
}

static void test_what_is_printed_can_be_read_back(void **state)
{
    (void)state;
    static const uint64_t values[] = {0, 1, 512, 1024, 1536, 64u << 20, 3ull << 29, 1ull << 40};
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        char text[32];
        uint64_t back = 0;
        assert_int_equal(hc_parse_size(hc_format_size(values[i], text, sizeof text), &back, NULL), 0);
        assert_int_equal(back, values[i]);
        assert_int_equal(hc_parse_duration(hc_format_duration(values[i] * 1000000, text, sizeof text), &back, NULL), 0);
    }
}

static void test_a_small_text_buffer_is_not_overrun(void **state)
{
    (void)state;
    char text[8] = "zzzzzzz";
    hc_format_size(UINT64_MAX, text, 4);
    assert_int_equal(strlen(text), 3);
    assert_int_equal(text[4], 'z');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_read_in_every_unit_and_case),
        cmocka_unit_test(test_what_is_no_size_is_refused_and_named),
        cmocka_unit_test(test_sizes_that_overflow_are_too_large),
        cmocka_unit_test(test_a_very_long_text_is_refused_with_a_short_message),
        cmocka_unit_test(test_parsers_accept_a_null_error),
        cmocka_unit_test(test_durations_are_read_in_every_unit),
        cmocka_unit_test(test_what_is_no_duration_is_refused),
        cmocka_unit_test(test_negative_is_said_to_be_negative),
        cmocka_unit_test(test_counts_are_whole_and_within_bounds),
        cmocka_unit_test(test_decimals_are_exact_and_within_bounds),
        cmocka_unit_test(test_sizes_are_printed_for_people),
        cmocka_unit_test(test_durations_are_printed_for_people),
        cmocka_unit_test(test_what_is_printed_can_be_read_back),
        cmocka_unit_test(test_a_small_text_buffer_is_not_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
