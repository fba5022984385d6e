/* Hints of diagnoses as somebody types them. */
#include "base/remedy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_remedies_are_what_somebody_types(void **state)
{
    (void)state;
    static const struct {
        const char *hint, *typed;
    } cases[] = {
        {"", ""},
        {"raise limits.memory (--memory on the command line)", "raise --memory"},
        {"raise limits.timeout (--timeout on the command line), or wait", "raise --timeout, or wait"},
        {"raise limits.memory", "raise limits.memory"},
        {"a cell has no network: send what it needs with `files` or `stdin`",
         "a cell has no network: send what it needs with --file or stdin"},
        {"`file` and (more)", "`file` and (more)"},
    };
    char text[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(hc_remedy_typed(cases[i].hint, text, sizeof text), cases[i].typed);
}

static void test_remedy_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char text[8];
    assert_string_equal(hc_remedy_typed("with `files`", text, sizeof text), "with --");
    assert_string_equal(hc_remedy_typed("raise limits.memory (--memory on the command line)", text, sizeof text),
                        "raise -");
}

static void test_only_what_is_around_a_program_is_told(void **state)
{
    (void)state;
    assert_true(hc_remedy_is_around("exception", "raise limits.files_open (--files-open on the command line)"));
    assert_true(hc_remedy_is_around("network", "a cell has no network"));
    assert_false(hc_remedy_is_around("network", ""));
    assert_false(hc_remedy_is_around("exception", "look whether the divisor is 0 before dividing"));
    assert_false(hc_remedy_is_around("", "look in the program"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remedies_are_what_somebody_types),
        cmocka_unit_test(test_remedy_that_is_too_long_is_cut),
        cmocka_unit_test(test_only_what_is_around_a_program_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
