/* The sliding minute and the days of quotas. */
#include "gateway/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the standard headers that it needs */
#include <cmocka.h>

static void test_as_many_as_the_limit_are_taken_and_no_more(void **state)
{
    (void)state;
    struct quota_window window = {0};
    unsigned retry = 0;
    for (int i = 0; i < 5; i++)
        assert_true(quota_take(&window, 5, 1000, &retry));
    assert_false(quota_take(&window, 5, 1000, &retry));
    assert_int_equal(retry, 61);
}

static void test_retry_is_honest(void **state)
{
    (void)state;
    struct quota_window window = {0};
    unsigned retry = 0, ignored = 0;
    assert_true(quota_take(&window, 3, 100, &retry));
    assert_true(quota_take(&window, 3, 130, &retry));
    assert_true(quota_take(&window, 3, 140, &retry));
    assert_false(quota_take(&window, 3, 150, &retry));
    assert_int_equal(retry, 11);
    assert_false(quota_take(&window, 3, 150 + retry - 1, &ignored));
    assert_true(quota_take(&window, 3, 150 + retry, &ignored));
    /* The next to leave is the one of second 130. */
    assert_false(quota_take(&window, 3, 161, &retry));
    assert_int_equal(161 + retry, 191);
}

static void test_no_sixty_seconds_hold_more_than_the_limit(void **state)
{
    (void)state;
    enum { LIMIT = 7, SECONDS = 600 };
    struct quota_window window = {0};
    int taken[SECONDS] = {0};
    unsigned retry = 0;
    for (int now = 0; now < SECONDS; now++)
        for (int attempt = 0; attempt < 3; attempt++)
            taken[now] += quota_take(&window, LIMIT, (uint64_t)now, &retry);
    for (int from = 0; from + QUOTA_SECONDS <= SECONDS; from++) {
        int sum = 0;
        for (int now = from; now < from + QUOTA_SECONDS; now++)
            sum += taken[now];
        assert_in_range(sum, 1, LIMIT);
    }
}

static void test_no_limit_takes_everything_and_a_later_limit_counts_it(void **state)
{
    (void)state;
    struct quota_window window = {0};
    unsigned retry = 0;
    for (int i = 0; i < 1000; i++)
        assert_true(quota_take(&window, 0, 50, &retry));
    assert_false(quota_take(&window, 10, 50, &retry));
}

static void test_a_long_rest_empties_the_window(void **state)
{
    (void)state;
    struct quota_window window = {0};
    unsigned retry = 0;
    assert_true(quota_take(&window, 1, 10, &retry));
    assert_false(quota_take(&window, 1, 69, &retry));
    assert_true(quota_take(&window, 1, UINT64_C(1) << 40, &retry));
}

static void test_a_clock_that_goes_back_forgets_nothing(void **state)
{
    (void)state;
    struct quota_window window = {0};
    unsigned retry = 0;
    assert_true(quota_take(&window, 1, 1000, &retry));
    assert_false(quota_take(&window, 1, 5, &retry));
}

static void test_days_begin_at_midnight_utc(void **state)
{
    (void)state;
    const int64_t midnight = INT64_C(1700006400) * 1000000; /* 2023-11-15T00:00:00Z */
    assert_int_equal(quota_day(midnight), quota_day(midnight - 1) + 1);
    assert_int_equal(quota_day_left(midnight), 86400);
    assert_int_equal(quota_day_left(midnight - 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_as_the_limit_are_taken_and_no_more),
        cmocka_unit_test(test_retry_is_honest),
        cmocka_unit_test(test_no_sixty_seconds_hold_more_than_the_limit),
        cmocka_unit_test(test_no_limit_takes_everything_and_a_later_limit_counts_it),
        cmocka_unit_test(test_a_long_rest_empties_the_window),
        cmocka_unit_test(test_a_clock_that_goes_back_forgets_nothing),
        cmocka_unit_test(test_days_begin_at_midnight_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
