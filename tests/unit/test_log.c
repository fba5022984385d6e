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

/* Runs one call with stderr in a pipe. */
#define CAPTURE(...) CAPTURE_CALL(hc_log(__VA_ARGS__))
#define CAPTURE_CALL(call)                                                                                             \
    do {                                                                                                               \
        int ends[2], saved = dup(STDERR_FILENO);                                                                       \
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);                                                      \
        dup2(ends[1], STDERR_FILENO);                                                                                  \
        call;                                                                                                          \
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
    assert_true(strlen(shown) <= 2048);
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

static void test_fields_follow_the_message_as_text_or_json(void **state)
{
    (void)state;
    const struct hc_log_field fields[] = {{"id", "run_1", 0}, {"why", "a \"b\"\n", 0}, {"wall_ms", NULL, 1.5}};
    CAPTURE_CALL(hc_log_event(HC_LOG_ERROR, "run", fields, 3));
    assert_string_equal(shown, "hotcell: error: run id=run_1 why=\"a \\\"b\\\"\\u000a\" wall_ms=1.5\n");
    hc_log_set_json(true);
    CAPTURE_CALL(hc_log_event(HC_LOG_ERROR, "run", fields, 3));
    hc_log_set_json(false);
    assert_non_null(strstr(
        shown,
        ",\"level\":\"error\",\"message\":\"run\",\"id\":\"run_1\",\"why\":\"a \\\"b\\\"\\u000a\",\"wall_ms\":1.5}\n"));
    assert_int_equal(shown[0], '{');
}

static void test_level_and_form_are_what_the_configuration_says(void **state)
{
    (void)state;
    hc_log_configure("info", "json");
    CAPTURE(HC_LOG_INFO, "heard");
    assert_int_equal(shown[0], '{');
    CAPTURE(HC_LOG_DEBUG, "quiet");
    assert_string_equal(shown, "");
    hc_log_configure("error", "text");
    CAPTURE(HC_LOG_WARNING, "quiet");
    assert_string_equal(shown, "");
    CAPTURE(HC_LOG_ERROR, "heard");
    assert_string_equal(shown, "hotcell: error: heard\n");
    CAPTURE_CALL((hc_log_configure("error", "auto"), hc_log(HC_LOG_ERROR, "a pipe is no terminal")));
    assert_int_equal(shown[0], '{');
    hc_log_configure("warning", "text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_names_the_program_and_the_level),
        cmocka_unit_test(test_levels_below_the_set_one_are_silent),
        cmocka_unit_test(test_control_bytes_cannot_forge_a_line),
        cmocka_unit_test(test_a_long_line_is_cut_and_still_ends),
        cmocka_unit_test(test_errno_is_left_alone),
        cmocka_unit_test(test_fields_follow_the_message_as_text_or_json),
        cmocka_unit_test(test_level_and_form_are_what_the_configuration_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
