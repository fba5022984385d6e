/* The log: what is shown at which level, and that no value can forge a line. */
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char shown[4096];

/* Runs one hc_log call with stderr in a pipe. */
#define CAPTURE(...)                                                                                                   \
    do {                                                                                                               \
        int ends[2], saved = dup(STDERR_FILENO);                                                                       \
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);                                                      \
        dup2(ends[1], STDERR_FILENO);                                                                                  \
        hc_log(__VA_ARGS__);                                                                                           \
        dup2(saved, STDERR_FILENO);                                                                                    \
        ssize_t got = read(ends[0], shown, sizeof shown - 1);                                                          \
        shown[got > 0 ? got : 0] = '\0';                                                                               \
        close(saved);                                                                                                  \
        close(ends[0]);                                                                                                \
        close(ends[1]);                                                                                                \
    } while (0)

static void test_a_line_names_the_program_and_the_level(void **state)
{
    (void)state;
    CAPTURE(HC_LOG_ERROR, "cell %d failed", 3);
    assert_string_equal(shown, "hotcell: error: cell 3 failed\n");
}

static void test_levels_below_the_set_one_are_silent(void **state)
{
    (void)state;
    hc_log_set_level(HC_LOG_WARNING);
    CAPTURE(HC_LOG_INFO, "quiet");
    assert_string_equal(shown, "");
    CAPTURE(HC_LOG_WARNING, "heard");
    assert_string_equal(shown, "hotcell: warning: heard\n");
    hc_log_set_level(HC_LOG_DEBUG);
    CAPTURE(HC_LOG_DEBUG, "heard");
    assert_string_equal(shown, "hotcell: debug: heard\n");
    hc_log_set_level(HC_LOG_WARNING);
}

static void test_control_bytes_cannot_forge_a_line(void **state)
{
    (void)state;
    CAPTURE(HC_LOG_ERROR, "name %s", "a\nhotcell: error: b\x1b[2J\x7f");
    assert_string_equal(shown, "hotcell: error: name a?hotcell: error: b?[2J?\n");
}

static void test_a_long_line_is_cut_and_still_ends(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CAPTURE(HC_LOG_ERROR, "%s", text);
    assert_true(strlen(shown) <= 1024);
    assert_int_equal(shown[strlen(shown) - 1], '\n');
    assert_ptr_equal(strchr(shown, '\n'), shown + strlen(shown) - 1);
}

static void test_errno_is_left_alone(void **state)
{
    (void)state;
    errno = ENOTTY;
    hc_log(HC_LOG_DEBUG, "not shown");
    assert_int_equal(errno, ENOTTY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_names_the_program_and_the_level),
        cmocka_unit_test(test_levels_below_the_set_one_are_silent),
        cmocka_unit_test(test_control_bytes_cannot_forge_a_line),
        cmocka_unit_test(test_a_long_line_is_cut_and_still_ends),
        cmocka_unit_test(test_errno_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
