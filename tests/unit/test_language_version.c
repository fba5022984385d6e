/* What is installed of a language: what is missing, which version it is, and the cache that remembers it. */
#include "language_folder.h"

/* ---- what is installed ---- */

static void test_a_missing_need_is_named(void **state)
{
    struct language *toy = read_toy(*state, TOY TOY_RUN);
    const char *missing = NULL;
    assert_true(language_available(toy, &missing));
    assert_null(missing);
    assert_int_equal(words_add(&toy->needs, "/usr/bin/no-such-tool"), 0);
    assert_false(language_available(toy, &missing));
    assert_string_equal(missing, "/usr/bin/no-such-tool");
    assert_false(language_available(toy, NULL));
    assert_string_equal(toy->package, "toybox");
    language_free(toy);
}

/* A tool that counts how often it was asked. */
static struct language *toy_with_tool(const struct folder *folder, const char *script)
{
    hc_cleanup_free char *text = NULL;
    assert_true(asprintf(&text, "#!/bin/sh\necho x >> '%s/asked'\n%s\n", folder->path, script) > 0);
    write_mode(folder, "tool", text, 0755);
    hc_cleanup_free char *toml = NULL;
    assert_true(
        asprintf(&toml, TOY TOY_RUN "[version]\ncommand = [\"%s/tool\"]\npattern = 'v([0-9.]+)'\n", folder->path) > 0);
    return read_toy(folder, toml);
}

static int times_asked(const struct folder *folder)
{
    hc_cleanup_free char *path = in(folder, "asked");
    struct stat status;
    return stat(path, &status) < 0 ? 0 : (int)status.st_size / 2;
}

static void expect_version(const struct language *language, const char *expected)
{
    char version[64];
    language_version(language, version, sizeof version);
    assert_string_equal(version, expected);
}

static void test_a_version_is_asked_for_once(void **state)
{
    struct language *toy = toy_with_tool(*state, "echo toy v1.2.3, the best >&2");
    expect_version(toy, "1.2.3");
    expect_version(toy, "1.2.3");
    assert_int_equal(times_asked(*state), 1);
    struct language *python = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_find(NULL, "python", &python, &err), 0);
    char version[64];
    language_version(python, version, sizeof version);
    assert_true(version[0] == '3');
    language_free(python);
    expect_version(toy, "1.2.3");
    assert_int_equal(times_asked(*state), 1);
    language_free(toy);
}

static void test_a_changed_tool_is_asked_again(void **state)
{
    struct language *toy = toy_with_tool(*state, "echo v1");
    expect_version(toy, "1");
    language_free(toy);
    toy = toy_with_tool(*state, "echo v2.0");
    expect_version(toy, "2.0");
    expect_version(toy, "2.0");
    assert_int_equal(times_asked(*state), 2);
    language_free(toy);
}

static void test_a_version_that_cannot_be_found_is_empty_and_not_kept(void **state)
{
    struct language *toy = toy_with_tool(*state, "echo nothing of use");
    expect_version(toy, "");
    expect_version(toy, "");
    assert_int_equal(times_asked(*state), 2);
    language_free(toy);
    toy = read_toy(*state, TOY TOY_RUN "[version]\ncommand = [\"/no/such/tool\"]\npattern = '(.)'\n");
    expect_version(toy, "");
    language_free(toy);
    toy = read_toy(*state, TOY TOY_RUN);
    expect_version(toy, "");
    language_free(toy);
}

static void test_a_cache_that_others_can_write_is_not_trusted(void **state)
{
    struct language *toy = toy_with_tool(*state, "echo v1");
    expect_version(toy, "1");
    hc_cleanup_free char *folder = in(*state, "cache/hotcell");
    hc_cleanup_free char *file = in(*state, "cache/hotcell/versions");
    assert_int_equal(chmod(file, 0666), 0);
    expect_version(toy, "1");
    assert_int_equal(times_asked(*state), 2);
    struct stat status;
    assert_int_equal(stat(file, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(chmod(folder, 0777), 0);
    expect_version(toy, "1");
    assert_int_equal(times_asked(*state), 3);
    assert_int_equal(chmod(folder, 0700), 0);
    hc_cleanup_free char *elsewhere = in(*state, "elsewhere");
    assert_int_equal(rename(file, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, file), 0);
    expect_version(toy, "1");
    assert_int_equal(times_asked(*state), 4);
    language_free(toy);
}

static void test_a_damaged_cache_is_replaced(void **state)
{
    struct language *toy = toy_with_tool(*state, "echo v1");
    expect_version(toy, "1");
    write_file(*state, "cache/hotcell/versions", "rubbish\n\n\t\t\n1\t2\t3");
    expect_version(toy, "1");
    expect_version(toy, "1");
    assert_int_equal(times_asked(*state), 2);
    language_free(toy);
}

static void test_a_cache_that_cannot_be_written_is_no_error(void **state)
{
    struct language *toy = toy_with_tool(*state, "echo v1");
    setenv("XDG_CACHE_HOME", "/proc/no/such", 1);
    expect_version(toy, "1");
    expect_version(toy, "1");
    assert_int_equal(times_asked(*state), 2);
    language_free(toy);
}

static void test_the_tool_has_a_clean_environment_and_empty_input(void **state)
{
    setenv("SECRET_OF_THE_CALLER", "v9", 1);
    struct language *toy = toy_with_tool(*state, "cat; echo ${SECRET_OF_THE_CALLER-v1}; pwd | sed s,^/$,v2,");
    expect_version(toy, "1");
    language_free(toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_missing_need_is_named),
        TEST(test_a_version_is_asked_for_once),
        TEST(test_a_changed_tool_is_asked_again),
        TEST(test_a_version_that_cannot_be_found_is_empty_and_not_kept),
        TEST(test_a_cache_that_others_can_write_is_not_trusted),
        TEST(test_a_damaged_cache_is_replaced),
        TEST(test_a_cache_that_cannot_be_written_is_no_error),
        TEST(test_the_tool_has_a_clean_environment_and_empty_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
