/* The option parser: every way to write an option, where options end, and what a mistake is answered with. */
#include "cli/options.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { CODE = OPTION_FIRST_OWN, MEMORY, QUIET, VERBOSE, BOOLEAN };

static const struct option TABLE[] = {
    {OPTION_HEADING, 0, NULL, NULL, false, NULL, "a title"},
    {CODE, 'c', "code", "CODE", false, NULL, ""},
    {MEMORY, 0, "memory", "SIZE", false, NULL, ""},
    {QUIET, 'q', "quiet", NULL, false, NULL, ""},
    {VERBOSE, 'v', NULL, NULL, false, NULL, ""},
    {BOOLEAN, 0, "read-only", "BOOL", true, NULL, ""},
    {0},
};

static struct options options;
static const struct option *option;
static const char *value;
static struct hc_err err;

#define START(...)                                                                                                     \
    do {                                                                                                               \
        static const char *words[] = {"verb", __VA_ARGS__, NULL};                                                      \
        options_start(&options, TABLE, (int)(sizeof words / sizeof words[0]) - 1, (char **)words);                     \
    } while (0)

static void expect(int id, const char *text)
{
    assert_int_equal(options_next(&options, &option, &value, &err), 1);
    assert_int_equal(option->id, id);
    if (text)
        assert_string_equal(value, text);
    else
        assert_null(value);
}

static void expect_end(int operand)
{
    assert_int_equal(options_next(&options, &option, &value, &err), 0);
    assert_int_equal(options_next(&options, &option, &value, &err), 0);
    assert_int_equal(options.next, operand);
}

static void expect_mistake(const char *message, const char *remedy)
{
    err = (struct hc_err){0};
    assert_int_equal(options_next(&options, &option, &value, &err), -EINVAL);
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    assert_string_equal(err.message, message);
    assert_string_equal(err.remedy, remedy);
}

static void test_every_way_to_write_an_option(void **state)
{
    (void)state;
    START("--memory", "64m", "--memory=", "-c", "x", "-cx", "-qvcy", "--read-only", "--read-only=no", "--quiet");
    expect(MEMORY, "64m");
    expect(MEMORY, "");
    expect(CODE, "x");
    expect(CODE, "x");
    expect(QUIET, NULL);
    expect(VERBOSE, NULL);
    expect(CODE, "y");
    expect(BOOLEAN, NULL);
    expect(BOOLEAN, "no");
    expect(QUIET, NULL);
    expect_end(11);
}

static void test_a_value_may_look_like_an_option(void **state)
{
    (void)state;
    START("-c", "--memory", "--memory", "--", "x");
    expect(CODE, "--memory");
    expect(MEMORY, "--");
    expect_end(5);
}

static void test_options_end_at_the_first_operand(void **state)
{
    (void)state;
    START("-q", "file", "--memory", "1");
    expect(QUIET, NULL);
    expect_end(2);
    assert_false(options.dashes);
}

static void test_a_lone_dash_is_an_operand(void **state)
{
    (void)state;
    START("-");
    expect_end(1);
}

static void test_two_dashes_end_the_options_and_are_no_operand(void **state)
{
    (void)state;
    START("-q", "--", "-q");
    expect(QUIET, NULL);
    expect_end(3);
    assert_true(options.dashes);
}

static void test_mistakes(void **state)
{
    (void)state;
    START("--memry", "1");
    expect_mistake("unknown option --memry", "did you mean --memory?");
    START("--memry=1");
    expect_mistake("unknown option --memry", "did you mean --memory?");
    START("--zzzzzzzz");
    expect_mistake("unknown option --zzzzzzzz", "--help lists the options");
    START("-memory", "1");
    expect_mistake("unknown option -m", "did you mean --memory?");
    START("-x");
    expect_mistake("unknown option -x", "--help lists the options");
    START("--memory");
    expect_mistake("--memory needs a value: --memory SIZE", "");
    START("-qc");
    expect(QUIET, NULL);
    expect_mistake("--code needs a value: --code CODE", "");
    START("--quiet=yes");
    expect_mistake("--quiet takes no value", "");
    START("--=x");
    expect_mistake("unknown option --", "--help lists the options");
}

static void test_a_very_long_option_is_only_unknown(void **state)
{
    (void)state;
    static char word[5000] = "--";
    char *words[] = {(char *)"verb", word, NULL};
    memset(word + 2, 'm', sizeof word - 3);
    options_start(&options, TABLE, 2, words);
    err = (struct hc_err){0};
    assert_int_equal(options_next(&options, &option, &value, &err), -EINVAL);
}

static void test_json_is_seen_before_two_dashes_only(void **state)
{
    (void)state;
    char *with[] = {(char *)"run", (char *)"--memry", (char *)"--json", NULL};
    char *without[] = {(char *)"run", (char *)"--", (char *)"--json", NULL};
    assert_true(options_want_json(3, with));
    assert_false(options_want_json(3, without));
}

static void test_booleans(void **state)
{
    (void)state;
    assert_int_equal(option_boolean("x", "true", &err), 1);
    assert_int_equal(option_boolean("x", "No", &err), 0);
    assert_int_equal(option_boolean("x", "1", &err), 1);
    assert_int_equal(option_boolean("x", "off", &err), 0);
    assert_int_equal(option_boolean("x", "", &err), -EINVAL);
    assert_int_equal(option_boolean("x", "truee", &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_to_write_an_option),
        cmocka_unit_test(test_a_value_may_look_like_an_option),
        cmocka_unit_test(test_options_end_at_the_first_operand),
        cmocka_unit_test(test_a_lone_dash_is_an_operand),
        cmocka_unit_test(test_two_dashes_end_the_options_and_are_no_operand),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_a_very_long_option_is_only_unknown),
        cmocka_unit_test(test_json_is_seen_before_two_dashes_only),
        cmocka_unit_test(test_booleans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
