/* "Did you mean …?": what is near enough to be worth saying, and what is not. */
#include "base/suggest.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *const LANGUAGES[] = {"python", "javascript", "typescript", "bash", "sh",  "ruby", "go",
                                        "c",      "cpp",        "rust",       "java", "php", "perl", "lua"};

static const char *suggest(const char *word)
{
    const char *found = hc_suggest(word, LANGUAGES, COUNT_OF(LANGUAGES));
    return found != NULL ? found : "(none)";
}

static void test_one_mistake_is_forgiven_in_each_form(void **state)
{
    (void)state;
    assert_string_equal(suggest("pyhton"), "python");  /* swapped */
    assert_string_equal(suggest("pythn"), "python");   /* left out */
    assert_string_equal(suggest("pythoon"), "python"); /* doubled */
    assert_string_equal(suggest("pythom"), "python");  /* another letter */
    assert_string_equal(suggest("rusty"), "rust");
    assert_string_equal(suggest("rubi"), "ruby");
}

static void test_two_mistakes_need_six_letters(void **state)
{
    (void)state;
    assert_string_equal(suggest("javascirpd"), "javascript");
    assert_string_equal(suggest("pithom"), "python");
    assert_string_equal(suggest("bzzh"), "(none)");
}

static void test_case_does_not_matter(void **state)
{
    (void)state;
    assert_string_equal(suggest("PYTHON"), "python");
    assert_string_equal(suggest("JavaScirpt"), "javascript");
}

static void test_a_beginning_counts(void **state)
{
    (void)state;
    assert_string_equal(suggest("typ"), "typescript");
    assert_string_equal(suggest("py"), "python");
    assert_string_equal(suggest("JAVASC"), "javascript");
}

static void test_the_shortest_of_several_longer_words_is_taken(void **state)
{
    (void)state;
    static const char *const words[] = {"memory-swap", "memory", "memory-peak"};
    assert_string_equal(hc_suggest("mem", words, COUNT_OF(words)), "memory");
}

static void test_the_nearest_of_several_is_taken(void **state)
{
    (void)state;
    static const char *const words[] = {"timeouts-all", "time", "timeouts", "timeout"};
    assert_string_equal(hc_suggest("timeuot", words, COUNT_OF(words)), "timeout");
}

static void test_nothing_near_gives_nothing(void **state)
{
    (void)state;
    assert_string_equal(suggest("cobol"), "(none)");
    assert_string_equal(suggest("x"), "(none)");
    assert_string_equal(suggest(""), "(none)");
    assert_null(hc_suggest("python", NULL, 0));
}

static void test_very_long_words_are_ignored_on_both_sides(void **state)
{
    (void)state;
    char word[300];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_string_equal(suggest(word), "(none)");
    const char *const words[] = {word, "aaaa"};
    assert_string_equal(hc_suggest("aaab", words, COUNT_OF(words)), "aaaa");
}

static void test_words_at_the_longest_length_are_compared_whole(void **state)
{
    (void)state;
    char word[65], candidate[65];
    memset(word, 'a', 64);
    memset(candidate, 'a', 64);
    word[64] = candidate[64] = '\0';
    candidate[63] = 'b';
    const char *const words[] = {candidate};
    assert_ptr_equal(hc_suggest(word, words, 1), candidate);
}

static void test_bytes_outside_ascii_do_no_harm(void **state)
{
    (void)state;
    assert_string_equal(suggest("pythön"), "python");
    assert_string_equal(suggest("\xff\xfe\xfd"), "(none)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_mistake_is_forgiven_in_each_form),
        cmocka_unit_test(test_two_mistakes_need_six_letters),
        cmocka_unit_test(test_case_does_not_matter),
        cmocka_unit_test(test_a_beginning_counts),
        cmocka_unit_test(test_the_shortest_of_several_longer_words_is_taken),
        cmocka_unit_test(test_the_nearest_of_several_is_taken),
        cmocka_unit_test(test_nothing_near_gives_nothing),
        cmocka_unit_test(test_very_long_words_are_ignored_on_both_sides),
        cmocka_unit_test(test_words_at_the_longest_length_are_compared_whole),
        cmocka_unit_test(test_bytes_outside_ascii_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
