/* A plan says what a run will be: which stages, with what arguments, environment, files and limits. Nothing is run. */
#include "run/plan.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct config *config;
    struct request *request;
    struct plan plan;
    struct hc_err err;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    const char *source = getenv("HOTCELL_SOURCE");
    char languages[4096];
    snprintf(languages, sizeof languages, "%s/languages", source ? source : ".");
    setenv("HOTCELL_LANGUAGES", languages, 1);
    if (!fixture || config_load(NULL, &fixture->config, &fixture->err) < 0)
        return -1;
    fixture->request = request_new();
    fixture->plan.files = -1;
    *state = fixture;
    return fixture->request ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    plan_release(&fixture->plan);
    request_free(fixture->request);
    config_free(fixture->config);
    free(fixture);
    return 0;
}

static int make(struct fixture *fixture)
{
    return plan_make(fixture->config, fixture->request, &fixture->plan, &fixture->err);
}

static const char *env_of(const struct plan *plan, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < plan->env.count; i++)
        if (strncmp(plan->env.item[i], name, length) == 0 && plan->env.item[i][length] == '=')
            return plan->env.item[i] + length + 1;
    return NULL;
}

static void test_a_command_is_one_stage_as_it_was_given(void **state)
{
    struct fixture *fixture = *state;
    request_add_command(fixture->request, "make", NULL);
    request_add_command(fixture->request, "test", NULL);
    assert_int_equal(make(fixture), 0);
    assert_int_equal(fixture->plan.stage_count, 1);
    const struct plan_stage *stage = &fixture->plan.stages[0];
    assert_string_equal(stage->name, "run");
    assert_false(stage->compile);
    assert_int_equal(stage->argv.count, 2);
    assert_string_equal(stage->argv.item[1], "test");
    assert_null(fixture->plan.language);
    assert_int_equal(fixture->plan.files, -1);
}

static void test_a_command_string_goes_to_the_shell(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(request_set(fixture->request, "shell", "echo $1", NULL), 0);
    request_add_arg(fixture->request, "x", NULL);
    assert_int_equal(make(fixture), 0);
    const struct words *argv = &fixture->plan.stages[0].argv;
    assert_string_equal(argv->item[0], "/bin/sh");
    assert_string_equal(argv->item[2], "echo $1");
    assert_string_equal(argv->item[4], "x");
}

static void test_nothing_to_run_is_an_error_that_says_what_to_give(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(make(fixture), -EINVAL);
    assert_int_equal(fixture->err.class, HC_CLASS_REQUEST);
    assert_string_equal(fixture->err.field, "code");
    assert_non_null(strstr(fixture->err.remedy, "command"));
}

static void test_a_command_excludes_code(void **state)
{
    struct fixture *fixture = *state;
    request_add_command(fixture->request, "true", NULL);
    request_set(fixture->request, "code", "print(1)", NULL);
    assert_int_equal(make(fixture), -EINVAL);
    assert_string_equal(fixture->err.field, "command");
}

static void test_an_entry_must_be_among_the_files(void **state)
{
    struct fixture *fixture = *state;
    request_set(fixture->request, "entry", "job.py", NULL);
    assert_int_equal(make(fixture), -ENOENT);
    assert_string_equal(fixture->err.field, "entry");
}

static void test_code_gets_its_languages_file_and_may_not_clash_with_another(void **state)
{
    struct fixture *fixture = *state;
    request_set(fixture->request, "code", "print(1)", NULL);
    request_add_file(fixture->request, "main.py", "x", 1, 0644, NULL);
    assert_int_equal(make(fixture), -EEXIST);
    request_set(fixture->request, "entry", "job.py", NULL);
    hc_err_clear(&fixture->err);
    assert_int_equal(make(fixture), 0);
    assert_string_equal(fixture->plan.entry, "job.py");
    assert_true(fixture->plan.files >= 0);
}

static void test_code_that_is_put_apart_is_named_by_its_whole_path(void **state)
{
    struct fixture *fixture = *state;
    fixture->request->code_apart = true;
    request_set(fixture->request, "language", "python", NULL);
    request_set(fixture->request, "code", "print(1)", NULL);
    assert_int_equal(make(fixture), 0);
    const struct words *argv = &fixture->plan.stages[0].argv;
    assert_string_equal(argv->item[argv->count - 1], PLAN_APART "main.py");
    assert_string_equal(fixture->plan.cell.work_dir, "/workspace");
    assert_true(fixture->plan.files >= 0);
}

static void test_a_compiled_language_has_a_compile_stage_with_limits_of_its_own(void **state)
{
    struct fixture *fixture = *state;
    request_set(fixture->request, "language", "C", NULL);
    request_set(fixture->request, "code", "int main(void) { return 0; }", NULL);
    request_set(fixture->request, "limits.timeout", "1", NULL);
    request_add_arg(fixture->request, "argument", NULL);
    assert_int_equal(make(fixture), 0);
    assert_int_equal(fixture->plan.stage_count, 2);
    assert_true(fixture->plan.stages[0].compile);
    assert_false(fixture->plan.stages[1].compile);
    assert_true(fixture->plan.stages[0].limits.value[LIMIT_TIMEOUT] > 1000000);
    assert_int_equal(fixture->plan.stages[1].limits.value[LIMIT_TIMEOUT], 1000000);
    const struct words *argv = &fixture->plan.stages[1].argv;
    assert_string_equal(argv->item[argv->count - 1], "argument");
}

static void test_a_ceiling_holds_for_what_is_asked_and_for_compilers(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(config_set(fixture->config, "ceilings.timeout", "5", "test", &fixture->err), 0);
    request_set(fixture->request, "language", "c", NULL);
    request_set(fixture->request, "code", "int main(void) { return 0; }", NULL);
    assert_int_equal(make(fixture), 0);
    assert_int_equal(fixture->plan.stages[0].limits.value[LIMIT_TIMEOUT], 5000000);
    plan_release(&fixture->plan);
    request_set(fixture->request, "limits.timeout", "6", NULL);
    assert_true(make(fixture) < 0);
    assert_string_equal(fixture->err.field, "limits.timeout");
}

static void test_the_environment_is_ours_and_the_requests_and_not_the_callers(void **state)
{
    struct fixture *fixture = *state;
    setenv("HOTCELL_TEST_SECRET", "token", 1);
    request_add_command(fixture->request, "env", NULL);
    request_add_env(fixture->request, "LANG", "de_DE.UTF-8", NULL);
    request_add_env(fixture->request, "K", "V", NULL);
    assert_int_equal(make(fixture), 0);
    assert_null(env_of(&fixture->plan, "HOTCELL_TEST_SECRET"));
    assert_string_equal(env_of(&fixture->plan, "LANG"), "de_DE.UTF-8");
    assert_string_equal(env_of(&fixture->plan, "HOME"), "/workspace");
    assert_string_equal(env_of(&fixture->plan, "K"), "V");
    unsetenv("HOTCELL_TEST_SECRET");
}

static void test_network_and_image_that_are_not_there_are_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    request_add_command(fixture->request, "true", NULL);
    request_set(fixture->request, "network", "full", NULL);
    assert_true(make(fixture) < 0);
    assert_string_equal(fixture->err.field, "network");
    hc_err_clear(&fixture->err);
    request_set(fixture->request, "network", "none", NULL);
    request_set(fixture->request, "image", "python:3.12-slim", NULL);
    assert_true(make(fixture) < 0);
    assert_string_equal(fixture->err.field, "image");
    assert_non_null(strstr(fixture->err.message, "python:3.12-slim"));
}

static void test_a_mount_that_no_list_allows_is_refused(void **state)
{
    struct fixture *fixture = *state;
    request_add_command(fixture->request, "true", NULL);
    request_add_mount(fixture->request, "/usr/share", "/data", true, NULL);
    assert_int_equal(make(fixture), -EACCES);
    assert_int_equal(fixture->plan.cell.mount_count, 0);
}

static void load(struct fixture *fixture, const char *json)
{
    assert_int_equal(request_from_json(fixture->request, json, strlen(json), NULL), 0);
}

static void test_tests_take_the_place_of_the_program_each_with_its_own_words_and_limits(void **state)
{
    struct fixture *fixture = *state;
    load(fixture, "{\"command\":[\"x\"],\"args\":[\"a\"],\"stdin\":\"in\",\"limits\":{\"pids\":7},"
                  "\"stages\":[{\"command\":[\"make\"],\"pids\":9,\"disk\":\"300m\"}],"
                  "\"tests\":[{},{\"name\":\"n\",\"args\":[],\"stdin\":\"\",\"expect_stdout\":\"\","
                  "\"limits\":{\"pids\":3}}]}");
    assert_int_equal(make(fixture), 0);
    const struct plan *plan = &fixture->plan;
    assert_int_equal(plan->stage_count, 1);
    assert_string_equal(plan->stages[0].name, "stage1");
    assert_int_equal(plan->stages[0].limits.value[LIMIT_PIDS], 9);
    assert_int_equal(plan->cell.disk, 300 << 20);
    assert_int_equal(plan->test_count, 2);
    assert_string_equal(plan->tests[0].name, "test 1");
    assert_int_equal(plan->tests[0].argv.count, 2);
    assert_string_equal(plan->tests[0].input->data, "in");
    assert_null(plan->tests[0].expect);
    assert_int_equal(plan->tests[0].limits.value[LIMIT_PIDS], 7);
    assert_string_equal(plan->tests[1].name, "n");
    assert_int_equal(plan->tests[1].argv.count, 1);
    assert_int_equal(plan->tests[1].input->length, 0);
    assert_int_equal(plan->tests[1].expect->length, 0);
    assert_int_equal(plan->tests[1].limits.value[LIMIT_PIDS], 3);
}

static void test_tests_and_collect_exclude_each_other(void **state)
{
    struct fixture *fixture = *state;
    load(fixture, "{\"command\":[\"x\"],\"collect\":[\"*\"],\"tests\":[{}]}");
    assert_int_equal(make(fixture), -EINVAL);
    assert_string_equal(fixture->err.field, "collect");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_command_is_one_stage_as_it_was_given),
        TEST(test_a_command_string_goes_to_the_shell),
        TEST(test_nothing_to_run_is_an_error_that_says_what_to_give),
        TEST(test_a_command_excludes_code),
        TEST(test_an_entry_must_be_among_the_files),
        TEST(test_code_gets_its_languages_file_and_may_not_clash_with_another),
        TEST(test_code_that_is_put_apart_is_named_by_its_whole_path),
        TEST(test_a_compiled_language_has_a_compile_stage_with_limits_of_its_own),
        TEST(test_a_ceiling_holds_for_what_is_asked_and_for_compilers),
        TEST(test_the_environment_is_ours_and_the_requests_and_not_the_callers),
        TEST(test_network_and_image_that_are_not_there_are_refused_by_name),
        TEST(test_a_mount_that_no_list_allows_is_refused),
        TEST(test_tests_take_the_place_of_the_program_each_with_its_own_words_and_limits),
        TEST(test_tests_and_collect_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
