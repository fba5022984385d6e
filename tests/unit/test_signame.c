/* Our names of signals against glibc's. */
#include "base/signame.h"
#include <ctype.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_every_signal_is_called_what_glibc_calls_it(void **state)
{
    (void)state;
    for (int number = 1; number < 32; number++) {
        char name[32], meaning[64];
        snprintf(name, sizeof name, "SIG%s", sigabbrev_np(number));
        snprintf(meaning, sizeof meaning, "%s", sigdescr_np(number));
        if (islower((unsigned char)meaning[1])) /* "CPU time limit exceeded" and "I/O possible" stay */
            meaning[0] = (char)tolower((unsigned char)meaning[0]);
        assert_string_equal(hc_signal_name(number), name);
        assert_string_equal(hc_signal_meaning(number), meaning);
    }
}

static void test_a_number_that_is_no_signal_has_no_name(void **state)
{
    (void)state;
    const int numbers[] = {-1, 0, 32, SIGRTMIN, SIGRTMAX, 1000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_null(hc_signal_name(numbers[i]));
        assert_null(hc_signal_meaning(numbers[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_signal_is_called_what_glibc_calls_it),
        cmocka_unit_test(test_a_number_that_is_no_signal_has_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
