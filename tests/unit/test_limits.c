/* Limits: what is accepted, what is refused, and which of asked, default and ceiling is in force. */
#include "run/limits.h"
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIB ((uint64_t)1 << 20)

static void test_defaults_are_those_that_are_promised(void **state)
{
    (void)state;
    struct limits limits;
    assert_int_equal(limits_resolve(NULL, NULL, NULL, &limits, NULL), 0);
    static const uint64_t expected[LIMIT_COUNT] = {
        [LIMIT_TIMEOUT] = 30000000, [LIMIT_CPU_TIME] = 0,      [LIMIT_MEMORY] = 512 * MIB, [LIMIT_SWAP] = 0,
        [LIMIT_CPUS] = 1000,        [LIMIT_CPU_SHARES] = 1024, [LIMIT_PIDS] = 100,         [LIMIT_OUTPUT] = MIB,
        [LIMIT_DISK] = 100 * MIB,   [LIMIT_INODES] = 16384,    [LIMIT_FILES_OPEN] = 256,
    };
    for (int id = 0; id < LIMIT_COUNT; id++) {
        assert_int_equal(limits.value[id], expected[id]);
        assert_false(limits.set[id]);
    }
}

static void test_the_table_agrees_with_itself(void **state)
{
    (void)state;
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_info *info = &limit_table[id];
        assert_int_equal(limit_find(info->name), id);
        assert_true(info->low <= info->initial && info->initial <= info->high);
        assert_true(info->high < (uint64_t)1 << 53); /* limit_from_number compares doubles */
        assert_true(strlen(info->summary) > 0);
    }
    assert_int_equal(limit_find("privileged"), -1);
    assert_int_equal(limit_find(""), -1);
}

/* tmpfs and the cgroup files take 0 for "no limit". */
static void test_nothing_that_the_kernel_takes_for_unlimited_is_accepted(void **state)
{
    (void)state;
    static const enum limit_id never_zero[] = {LIMIT_TIMEOUT, LIMIT_MEMORY, LIMIT_CPUS,   LIMIT_CPU_SHARES, LIMIT_PIDS,
                                               LIMIT_OUTPUT,  LIMIT_DISK,   LIMIT_INODES, LIMIT_FILES_OPEN};
    for (size_t i = 0; i < COUNT_OF(never_zero); i++) {
        uint64_t value = 77;
        assert_int_equal(limit_parse(never_zero[i], "0", &value, NULL), -ERANGE);
        assert_int_equal(limit_from_number(never_zero[i], 0, &value, NULL), -ERANGE);
        assert_int_equal(value, 77);
    }
}

static void test_rubbish_is_refused_for_every_limit_and_names_it(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "-1",
        "-0.5",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "max",
        "",
        " ",
        "unlimited",
        "none",
        "1e30",
        "0x10",
        "12abc",
        "1;2",
    };
    for (int id = 0; id < LIMIT_COUNT; id++) {
        for (size_t i = 0; i < COUNT_OF(texts); i++) {
            struct hc_err err = {0};
            uint64_t value = 77;
            char field[64];
            if (limit_parse((enum limit_id)id, texts[i], &value, &err) == 0)
                fail_msg("%s accepted \"%s\" as %llu", limit_table[id].name, texts[i], (unsigned long long)value);
            snprintf(field, sizeof(field), "limits.%s", limit_table[id].name);
            assert_string_equal(err.field, field);
            assert_int_equal(err.class, HC_CLASS_REQUEST);
            assert_true(strlen(err.message) > 0 && strlen(err.remedy) > 0);
            assert_int_equal(value, 77);
        }
    }
}

static void test_numbers_that_are_no_limit_are_refused(void **state)
{
    (void)state;
    static const double numbers[] = {-1, -0.001, 9223372036854775808.0, 1e300, NAN, INFINITY, -INFINITY};
    for (int id = 0; id < LIMIT_COUNT; id++) {
        for (size_t i = 0; i < COUNT_OF(numbers); i++) {
            struct hc_err err = {0};
            uint64_t value = 77;
            assert_int_equal(limit_from_number((enum limit_id)id, numbers[i], &value, &err), -ERANGE);
            assert_int_equal(value, 77);
            assert_true(err.field[0] != '\0');
        }
    }
    uint64_t value = 77;
    assert_int_equal(limit_from_number(LIMIT_PIDS, 1.5, &value, NULL), -ERANGE);
    assert_int_equal(limit_from_number(LIMIT_MEMORY, 8388608.5, &value, NULL), -ERANGE);
}

static void test_the_bounds_are_accepted_and_one_beyond_is_not(void **state)
{
    (void)state;
    static const struct {
        enum limit_id id;
        const char *text;
        int status;
        uint64_t value;
    } cases[] = {
        {LIMIT_TIMEOUT, "24h", 0, 86400000000},
        {LIMIT_TIMEOUT, "86400.1", -ERANGE, 0},
        {LIMIT_TIMEOUT, "1us", 0, 1},
        {LIMIT_TIMEOUT, "1.5", 0, 1500000},
        {LIMIT_CPU_TIME, "0", 0, 0},
        {LIMIT_MEMORY, "4m", 0, 4 * MIB},
        {LIMIT_MEMORY, "4194303", -ERANGE, 0},
        {LIMIT_MEMORY, "16t", 0, 16 * MIB * MIB},
        {LIMIT_MEMORY, "17t", -ERANGE, 0},
        {LIMIT_SWAP, "0", 0, 0},
        {LIMIT_CPUS, "0.5", 0, 500},
        {LIMIT_CPUS, "0.01", 0, 10},
        {LIMIT_CPUS, "0.009", -ERANGE, 0},
        {LIMIT_CPUS, "1024", 0, 1024000},
        {LIMIT_CPUS, "1024.001", -ERANGE, 0},
        {LIMIT_PIDS, "1", 0, 1},
        {LIMIT_PIDS, "4194304", 0, 4194304},
        {LIMIT_PIDS, "4194305", -ERANGE, 0},
        {LIMIT_OUTPUT, "64k", 0, 65536},
        {LIMIT_OUTPUT, "1g", 0, 1024 * MIB},
        {LIMIT_OUTPUT, "1073741825", -ERANGE, 0},
        {LIMIT_DISK, "64k", 0, 65536},
        {LIMIT_DISK, "65535", -ERANGE, 0},
        {LIMIT_INODES, "64", 0, 64},
        {LIMIT_INODES, "63", -ERANGE, 0},
        {LIMIT_FILES_OPEN, "8", 0, 8},
        {LIMIT_FILES_OPEN, "7", -ERANGE, 0},
        {LIMIT_CPU_SHARES, "2", 0, 2},
        {LIMIT_CPU_SHARES, "1", -ERANGE, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t value = 0;
        int status = limit_parse(cases[i].id, cases[i].text, &value, NULL);
        if (status != cases[i].status || value != cases[i].value)
            fail_msg("%s \"%s\" gave %d, %llu", limit_table[cases[i].id].name, cases[i].text, status,
                     (unsigned long long)value);
    }
}

static void test_numbers_are_seconds_bytes_and_cpus(void **state)
{
    (void)state;
    uint64_t value = 0;
    assert_int_equal(limit_from_number(LIMIT_TIMEOUT, 30, &value, NULL), 0);
    assert_int_equal(value, 30000000);
    assert_int_equal(limit_from_number(LIMIT_TIMEOUT, 0.25, &value, NULL), 0);
    assert_int_equal(value, 250000);
    assert_int_equal(limit_from_number(LIMIT_MEMORY, 67108864, &value, NULL), 0);
    assert_int_equal(value, 64 * MIB);
    assert_int_equal(limit_from_number(LIMIT_CPUS, 0.1, &value, NULL), 0);
    assert_int_equal(value, 100);
    assert_int_equal(limit_from_number(LIMIT_PIDS, 20, &value, NULL), 0);
    assert_int_equal(value, 20);
    assert_int_equal(limit_from_number(LIMIT_CPU_TIME, 0, &value, NULL), 0);
    assert_int_equal(value, 0);
}

static void test_limits_are_printed_for_people(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(limit_format(LIMIT_MEMORY, 64 * MIB, text, sizeof(text)), "64 MiB");
    assert_string_equal(limit_format(LIMIT_TIMEOUT, 2000000, text, sizeof(text)), "2 s");
    assert_string_equal(limit_format(LIMIT_CPU_TIME, 0, text, sizeof(text)), "none");
    assert_string_equal(limit_format(LIMIT_CPUS, 500, text, sizeof(text)), "0.5");
    assert_string_equal(limit_format(LIMIT_CPUS, 1000, text, sizeof(text)), "1");
    assert_string_equal(limit_format(LIMIT_CPUS, 10000, text, sizeof(text)), "10");
    assert_string_equal(limit_format(LIMIT_CPUS, 10, text, sizeof(text)), "0.01");
    assert_string_equal(limit_format(LIMIT_CPUS, 1, text, sizeof(text)), "0.001");
    assert_string_equal(limit_format(LIMIT_PIDS, 100, text, sizeof(text)), "100");
    assert_string_equal(limit_option(LIMIT_CPU_TIME, text, sizeof(text)), "--cpu-time");
    assert_string_equal(limit_option(LIMIT_MEMORY, text, sizeof(text)), "--memory");
}

static void give(struct limits *limits, enum limit_id id, uint64_t value)
{
    limits->value[id] = value;
    limits->set[id] = true;
}

static void test_asked_beats_default_and_both_are_marked_as_given(void **state)
{
    (void)state;
    struct limits asked = {0}, defaults = {0}, out;
    give(&asked, LIMIT_MEMORY, 64 * MIB);
    give(&defaults, LIMIT_MEMORY, 128 * MIB);
    give(&defaults, LIMIT_PIDS, 7);
    assert_int_equal(limits_resolve(&asked, &defaults, NULL, &out, NULL), 0);
    assert_int_equal(out.value[LIMIT_MEMORY], 64 * MIB);
    assert_int_equal(out.value[LIMIT_PIDS], 7);
    assert_true(out.set[LIMIT_MEMORY] && out.set[LIMIT_PIDS]);
    assert_false(out.set[LIMIT_DISK]);
}

static void test_asking_for_more_than_the_ceiling_names_both(void **state)
{
    (void)state;
    struct limits asked = {0}, ceilings = {0}, out = {.value[LIMIT_MEMORY] = 77};
    struct hc_err err = {0};
    give(&asked, LIMIT_MEMORY, 128 * MIB);
    give(&ceilings, LIMIT_MEMORY, 64 * MIB);
    assert_int_equal(limits_resolve(&asked, NULL, &ceilings, &out, &err), -EPERM);
    assert_int_equal(out.value[LIMIT_MEMORY], 77);
    assert_string_equal(err.field, "limits.memory");
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    assert_non_null(strstr(err.message, "128 MiB"));
    assert_non_null(strstr(err.message, "64 MiB"));
    give(&asked, LIMIT_MEMORY, 64 * MIB);
    assert_int_equal(limits_resolve(&asked, NULL, &ceilings, &out, NULL), 0);
    assert_int_equal(out.value[LIMIT_MEMORY], 64 * MIB);
}

static void test_a_default_over_the_ceiling_is_lowered(void **state)
{
    (void)state;
    struct limits defaults = {0}, ceilings = {0}, out;
    give(&ceilings, LIMIT_MEMORY, 64 * MIB); /* below the table's default */
    give(&ceilings, LIMIT_PIDS, 10);
    give(&defaults, LIMIT_PIDS, 20);
    assert_int_equal(limits_resolve(NULL, &defaults, &ceilings, &out, NULL), 0);
    assert_int_equal(out.value[LIMIT_MEMORY], 64 * MIB);
    assert_int_equal(out.value[LIMIT_PIDS], 10);
}

static void test_no_cpu_time_limit_is_over_any_ceiling(void **state)
{
    (void)state;
    struct limits asked = {0}, ceilings = {0}, out;
    give(&ceilings, LIMIT_CPU_TIME, 5000000);
    assert_int_equal(limits_resolve(NULL, NULL, &ceilings, &out, NULL), 0);
    assert_int_equal(out.value[LIMIT_CPU_TIME], 5000000);
    give(&asked, LIMIT_CPU_TIME, 0);
    assert_int_equal(limits_resolve(&asked, NULL, &ceilings, &out, NULL), -EPERM);
    give(&ceilings, LIMIT_CPU_TIME, 0); /* a ceiling of "none" allows everything */
    assert_int_equal(limits_resolve(&asked, NULL, &ceilings, &out, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_those_that_are_promised),
        cmocka_unit_test(test_the_table_agrees_with_itself),
        cmocka_unit_test(test_nothing_that_the_kernel_takes_for_unlimited_is_accepted),
        cmocka_unit_test(test_rubbish_is_refused_for_every_limit_and_names_it),
        cmocka_unit_test(test_numbers_that_are_no_limit_are_refused),
        cmocka_unit_test(test_the_bounds_are_accepted_and_one_beyond_is_not),
        cmocka_unit_test(test_numbers_are_seconds_bytes_and_cpus),
        cmocka_unit_test(test_limits_are_printed_for_people),
        cmocka_unit_test(test_asked_beats_default_and_both_are_marked_as_given),
        cmocka_unit_test(test_asking_for_more_than_the_ceiling_names_both),
        cmocka_unit_test(test_a_default_over_the_ceiling_is_lowered),
        cmocka_unit_test(test_no_cpu_time_limit_is_over_any_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
