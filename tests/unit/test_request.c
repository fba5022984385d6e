/* Requests: the setters, and API.md's JSON object with everything that is wrong about one. */
#include "run/request.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct request *load(const char *text)
{
    struct request *request = request_new();
    struct hc_err err = {0};
    assert_non_null(request);
    if (request_from_json(request, text, strlen(text), &err) != 0)
        fail_msg("%s: %s", text, err.message);
    assert_int_equal(err.code, 0);
    return request;
}

/* The text is refused as the request's fault, and the field at fault is named. */
static void refuse(const char *text, const char *field)
{
    struct request *request = request_new();
    struct hc_err err = {0};
    assert_non_null(request);
    int status = request_from_json(request, text, strlen(text), &err);
    if (status >= 0 || strcmp(err.field, field) != 0 || err.class != HC_CLASS_REQUEST || err.message[0] == '\0')
        fail_msg("%s gave %d, field \"%s\", \"%s\"", text, status, err.field, err.message);
    request_free(request);
}

static void test_the_example_of_the_contract_is_read_whole(void **state)
{
    (void)state;
    struct request *r = load(
        "{ \"language\": \"python\", \"code\": \"print(42)\","
        "  \"files\": {\"utils.py\": \"x = 1\", \"data.bin\": {\"base64\": \"AAH/\"}}, \"entry\": \"main.py\","
        "  \"command\": [\"make\", \"test\"],"
        "  \"stdin\": \"in\", \"args\": [\"a\", \"\"], \"env\": {\"K\": \"V\"},"
        "  \"limits\": {\"timeout\": 30, \"cpu_time\": null, \"memory\": \"512m\", \"swap\": 0, \"cpus\": 1.0, "
        "\"cpu_shares\": 1024, \"pids\": 100, \"output\": \"1m\", \"disk\": \"100m\", \"files_open\": 256},"
        "  \"network\": \"none\", \"image\": \"host\", \"read_only\": true,"
        "  \"mounts\": [{\"host\":\"/data\",\"path\":\"/mnt\",\"read_only\":false},{\"host\":\"/a\",\"path\":\"/b\"}],"
        "  \"stages\": [{\"command\": [\"gcc\",\"-O2\",\"main.c\"], \"timeout\": 10}],"
        "  \"tests\": [{\"stdin\":\"1 2\\n\",\"expect_stdout\":\"3\\n\",\"args\":[\"x\"],\"limits\":{\"pids\":5}}],"
        "  \"collect\": [\"out/*.png\"], \"metadata\": {\"a\": [1, 2.5]}, \"async\": false }");
    assert_string_equal(r->language, "python");
    assert_true(r->has_code);
    assert_string_equal(r->code.data, "print(42)");
    assert_int_equal(r->file_count, 2);
    assert_string_equal(r->files[0].path, "utils.py");
    assert_int_equal(r->files[0].mode, 0644);
    assert_int_equal(r->files[1].content.length, 3);
    assert_memory_equal(r->files[1].content.data, "\0\1\377", 3);
    assert_string_equal(r->entry, "main.py");
    assert_int_equal(r->command.count, 2);
    assert_false(r->command_shell);
    assert_null(r->command.item[2]);
    assert_string_equal(r->input.data, "in");
    assert_int_equal(r->args.count, 2);
    assert_string_equal(r->env.item[0], "K=V");
    assert_int_equal(r->limits.value[LIMIT_TIMEOUT], 30000000);
    assert_false(r->limits.set[LIMIT_CPU_TIME]);
    assert_int_equal(r->limits.value[LIMIT_MEMORY], 512 << 20);
    assert_int_equal(r->limits.value[LIMIT_CPUS], 1000);
    assert_true(r->limits.set[LIMIT_SWAP]);
    assert_string_equal(r->network, "none");
    assert_int_equal(r->read_only, 1);
    assert_int_equal(r->mount_count, 2);
    assert_false(r->mounts[0].read_only);
    assert_true(r->mounts[1].read_only);
    assert_int_equal(r->stage_count, 1);
    assert_int_equal(r->stages[0].command.count, 3);
    assert_int_equal(r->stages[0].limits.value[LIMIT_TIMEOUT], 10000000);
    assert_int_equal(r->test_count, 1);
    assert_true(r->tests[0].has_expect);
    assert_string_equal(r->tests[0].expect_stdout.data, "3\n");
    assert_int_equal(r->tests[0].limits.value[LIMIT_PIDS], 5);
    assert_string_equal(r->collect.item[0], "out/*.png");
    assert_string_equal(r->metadata, "{\"a\":[1,2.5]}");
    assert_false(r->async);
    request_free(r);
}

static void test_null_is_the_same_as_leaving_out(void **state)
{
    (void)state;
    struct request *r = load("{\"language\":null,\"code\":null,\"files\":null,\"entry\":null,\"command\":null,"
                             "\"stdin\":null,\"args\":null,\"env\":null,\"limits\":null,\"network\":null,"
                             "\"image\":null,\"read_only\":null,\"mounts\":null,\"stages\":null,\"tests\":null,"
                             "\"collect\":null,\"metadata\":null,\"async\":null}");
    assert_null(r->language);
    assert_false(r->has_code);
    assert_int_equal(r->read_only, -1);
    assert_int_equal(r->allow_weak, -1);
    assert_int_equal(r->file_count + r->mount_count + r->stage_count + r->test_count + r->command.count, 0);
    assert_null(r->metadata);
    request_free(r);
}

static void test_a_command_is_a_list_or_a_line_for_the_shell(void **state)
{
    (void)state;
    struct request *r = load("{\"command\":\"make test | tail\",\"stages\":[{\"command\":\"a && b\",\"name\":\"x\"}]}");
    assert_true(r->command_shell);
    assert_int_equal(r->command.count, 1);
    assert_string_equal(r->command.item[0], "make test | tail");
    assert_int_equal(r->stages[0].command.count, 3);
    assert_string_equal(r->stages[0].command.item[0], "/bin/sh");
    assert_string_equal(r->stages[0].command.item[2], "a && b");
    assert_string_equal(r->stages[0].name, "x");
    request_free(r);
}

static void test_code_and_stdin_keep_a_nul(void **state)
{
    (void)state;
    struct request *r = load("{\"code\":\"a\\u0000b\",\"stdin\":{\"base64\":\"AP8=\"},\"files\":{\"f\":\"\\u0000\"}}");
    assert_int_equal(r->code.length, 3);
    assert_memory_equal(r->code.data, "a\0b", 3);
    assert_int_equal(r->input.length, 2);
    assert_int_equal(r->files[0].content.length, 1);
    request_free(r);
}

static void test_empty_code_is_code(void **state)
{
    (void)state;
    struct request *r = load("{\"code\":\"\"}");
    assert_true(r->has_code);
    assert_int_equal(r->code.length, 0);
    assert_string_equal(r->code.data, "");
    request_free(r);
}

static void test_what_is_not_one_json_object_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "null",
        "42",
        "[]",
        "\"x\"",
        "{",
        "{}x",
        "{\"code\":\"a\",}",
        "{'code':'a'}",
        "{\"code\":NaN}",
        "{\"limits\":{\"cpus\":Infinity}}",
        "{\"code\":\"a\",\"code\":\"b\"}",
        "{\"code\":\"\\ud800\"}",
        "{\"code\":\"\xff\"}",
        "{\"limits\":{\"memory\":9223372036854775808}}",
        "{\"limits\":{\"memory\":1e999}}",
        "{\"a\\u0000b\":1}",
        "{\"metadata\":{\"x\":1,\"x\":2}}",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        refuse(texts[i], "");
}

static void test_every_wrong_field_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field;
    } cases[] = {
        {"{\"privileged\":true}", "privileged"},
        {"{\"allow_weak\":true}", "allow_weak"},
        {"{\"preload\":null}", "preload"},
        {"{\"language\":1}", "language"},
        {"{\"language\":\"\"}", "language"},
        {"{\"language\":\"py\\u0000\"}", "language"},
        {"{\"code\":1}", "code"},
        {"{\"code\":[\"x\"]}", "code"},
        {"{\"code\":{\"base64\":\"AA\"}}", "code.base64"},
        {"{\"code\":{\"base64\":\"AAAA\",\"x\":1}}", "code"},
        {"{\"files\":[]}", "files"},
        {"{\"files\":{\"data.bin\":{\"base64\":\"@@@@\"}}}", "files.data.bin.base64"},
        {"{\"files\":{\"data.bin\":{\"base64\":\"AB==\"}}}", "files.data.bin.base64"}, /* stray bits */
        {"{\"files\":{\"data.bin\":{\"base64\":1}}}", "files.data.bin.base64"},
        {"{\"files\":{\"data.bin\":{\"b64\":\"\"}}}", "files.data.bin"},
        {"{\"files\":{\"a\":null}}", "files.a"},
        {"{\"files\":{\"../x\":\"\"}}", "files"},
        {"{\"files\":{\"/etc/passwd\":\"\"}}", "files"},
        {"{\"files\":{\"a//b\":\"\"}}", "files"},
        {"{\"files\":{\"a/./b\":\"\"}}", "files"},
        {"{\"files\":{\"a/..\":\"\"}}", "files"},
        {"{\"files\":{\"\":\"\"}}", "files"},
        {"{\"files\":{\"a\":\"\",\"a/b\":\"\"}}", "files.a/b"},
        {"{\"files\":{\"a/b\":\"\",\"a\":\"\"}}", "files.a"},
        {"{\"entry\":\"../x.py\"}", "entry"},
        {"{\"command\":[]}", "command"},
        {"{\"command\":\"\"}", "command"},
        {"{\"command\":[\"\"]}", "command"},
        {"{\"command\":[\"a\",1]}", "command[1]"},
        {"{\"command\":[\"a\\u0000\"]}", "command[0]"},
        {"{\"command\":{\"a\":1}}", "command"},
        {"{\"args\":\"a\"}", "args"},
        {"{\"args\":[null]}", "args[0]"},
        {"{\"env\":{\"A=B\":\"c\"}}", "env.A=B"},
        {"{\"env\":{\"\":\"c\"}}", "env."},
        {"{\"env\":{\"A\":1}}", "env.A"},
        {"{\"env\":{\"A\":\"\\u0000\"}}", "env.A"},
        {"{\"env\":[]}", "env"},
        {"{\"limits\":[]}", "limits"},
        {"{\"limits\":{\"memroy\":1}}", "limits.memroy"},
        {"{\"limits\":{\"memory\":-1}}", "limits.memory"},
        {"{\"limits\":{\"memory\":9223372036854775807}}", "limits.memory"},
        {"{\"limits\":{\"memory\":\"9223372036854775808\"}}", "limits.memory"},
        {"{\"limits\":{\"memory\":\"NaN\"}}", "limits.memory"},
        {"{\"limits\":{\"memory\":\"lots\"}}", "limits.memory"},
        {"{\"limits\":{\"memory\":\"512m\\u0000\"}}", "limits.memory"},
        {"{\"limits\":{\"memory\":true}}", "limits.memory"},
        {"{\"limits\":{\"memory\":{}}}", "limits.memory"},
        {"{\"limits\":{\"memory\":0}}", "limits.memory"},
        {"{\"limits\":{\"timeout\":0}}", "limits.timeout"},
        {"{\"limits\":{\"timeout\":1e300}}", "limits.timeout"},
        {"{\"limits\":{\"pids\":1.5}}", "limits.pids"},
        {"{\"limits\":{\"cpus\":-0.5}}", "limits.cpus"},
        {"{\"read_only\":\"yes\"}", "read_only"},
        {"{\"async\":1}", "async"},
        {"{\"network\":false}", "network"},
        {"{\"mounts\":{}}", "mounts"},
        {"{\"mounts\":[1]}", "mounts[0]"},
        {"{\"mounts\":[{\"host\":\"/a\"}]}", "mounts[0].path"},
        {"{\"mounts\":[{\"path\":\"/a\"}]}", "mounts[0].host"},
        {"{\"mounts\":[{\"host\":\"/a\",\"path\":\"b\"}]}", "mounts[0]"},
        {"{\"mounts\":[{\"host\":\"/a\",\"path\":\"/b\"},{\"host\":\"/a\",\"path\":\"/b\",\"rw\":true}]}",
         "mounts[1].rw"},
        {"{\"stages\":[{}]}", "stages[0].command"},
        {"{\"stages\":[{\"command\":[]}]}", "stages[0].command"},
        {"{\"stages\":[{\"command\":[\"a\"],\"timeout\":-1}]}", "stages[0].timeout"},
        {"{\"stages\":[{\"command\":[\"a\"],\"limits\":{\"pids\":\"x\"}}]}", "stages[0].limits.pids"},
        {"{\"stages\":[{\"command\":[\"a\"]},{\"comand\":[\"a\"]}]}", "stages[1].comand"},
        {"{\"stages\":{}}", "stages"},
        {"{\"tests\":[{},{},{\"stdin\":1}]}", "tests[2].stdin"},
        {"{\"tests\":[{\"limits\":{\"memory\":-5}}]}", "tests[0].limits.memory"},
        {"{\"tests\":[{\"expected\":\"\"}]}", "tests[0].expected"},
        {"{\"tests\":[{\"args\":[1]}]}", "tests[0].args[0]"},
        {"{\"collect\":\"*\"}", "collect"},
        {"{\"collect\":[\"/etc/*\"]}", "collect"},
        {"{\"collect\":[\"../*\"]}", "collect"},
        {"{\"collect\":[1]}", "collect[0]"},
        {"{\"metadata\":[]}", "metadata"},
        {"{\"metadata\":\"x\"}", "metadata"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        refuse(cases[i].text, cases[i].field);
}

static void test_a_near_miss_gets_a_suggestion(void **state)
{
    (void)state;
    static const struct {
        const char *text, *suggestion;
    } cases[] = {
        {"{\"comand\":[\"a\"]}", "command"},
        {"{\"limits\":{\"memroy\":1}}", "limits.memory"},
        {"{\"stages\":[{\"timout\":1}]}", "stages[0].timeout"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct request *request = request_new();
        struct hc_err err = {0};
        assert_true(request_from_json(request, cases[i].text, strlen(cases[i].text), &err) < 0);
        if (!strstr(err.remedy, cases[i].suggestion))
            fail_msg("%s: \"%s\"", cases[i].text, err.remedy);
        request_free(request);
    }
}

static char *nested(size_t depth)
{
    char *text = calloc(1, depth * 2 + 64);
    assert_non_null(text);
    strcpy(text, "{\"metadata\":{\"x\":");
    char *at = text + strlen(text);
    memset(at, '[', depth);
    memset(at + depth, ']', depth);
    strcpy(at + 2 * depth, "}}");
    return text;
}

static void test_deep_nesting_is_refused_and_shallow_is_not(void **state)
{
    (void)state;
    char *text = nested(30); /* 32 levels with the two objects around them */
    request_free(load(text));
    free(text);
    text = nested(31);
    refuse(text, "");
    free(text);
    text = nested(100000);
    refuse(text, "");
    free(text);
}

static void test_counts_have_ceilings(void **state)
{
    (void)state;
    struct request *request = request_new();
    struct hc_err err = {0};
    char path[32];
    for (int i = 0; i < REQUEST_MAX_FILES; i++) {
        snprintf(path, sizeof(path), "f%d", i);
        assert_int_equal(request_add_file(request, path, "", 0, 0644, NULL), 0);
    }
    assert_int_equal(request_add_file(request, "more", "", 0, 0644, &err), -EINVAL);
    assert_string_equal(err.field, "files");
    for (int i = 0; i < REQUEST_MAX_WORDS; i++)
        assert_int_equal(request_add_arg(request, "a", NULL), 0);
    assert_int_equal(request_add_arg(request, "a", NULL), -EINVAL);
    for (int i = 0; i < REQUEST_MAX_MOUNTS; i++)
        assert_int_equal(request_add_mount(request, "/a", "/b", true, NULL), 0);
    assert_int_equal(request_add_mount(request, "/a", "/b", true, NULL), -EINVAL);
    request_free(request);
}

static void test_setters_set_and_replace(void **state)
{
    (void)state;
    struct request *r = request_new();
    assert_int_equal(request_set(r, "language", "python", NULL), 0);
    assert_int_equal(request_set(r, "language", "ruby", NULL), 0);
    assert_string_equal(r->language, "ruby");
    assert_int_equal(request_set(r, "code", "puts 1", NULL), 0);
    assert_true(r->has_code);
    assert_int_equal(request_set(r, "entry", "src/main.rb", NULL), 0);
    assert_int_equal(request_set(r, "stdin", "x", NULL), 0);
    assert_int_equal(request_set(r, "read_only", "false", NULL), 0);
    assert_int_equal(r->read_only, 0);
    assert_int_equal(request_set_metadata(r, " {\"k\": \"v\"} ", 12, NULL), 0);
    assert_string_equal(r->metadata, "{\"k\":\"v\"}");
    assert_int_equal(request_set(r, "limits.memory", "64m", NULL), 0);
    assert_int_equal(r->limits.value[LIMIT_MEMORY], 64 << 20);
    assert_int_equal(request_add_env(r, "K", "1", NULL), 0);
    assert_int_equal(request_add_env(r, "KK", "2", NULL), 0);
    assert_int_equal(request_add_env(r, "K", "3", NULL), 0);
    assert_int_equal(r->env.count, 2);
    assert_string_equal(r->env.item[0], "K=3");
    assert_int_equal(request_add_collect(r, "./out/**", NULL), 0);
    assert_string_equal(r->collect.item[0], "out/**");
    request_free(r);
}

static void test_a_setter_that_fails_changes_nothing(void **state)
{
    (void)state;
    struct request *r = request_new();
    struct hc_err err = {0};
    request_set(r, "limits.memory", "64m", NULL);
    assert_int_equal(request_set(r, "limits.memory", "-1", &err), -EINVAL);
    assert_string_equal(err.field, "limits.memory");
    assert_int_equal(r->limits.value[LIMIT_MEMORY], 64 << 20);
    hc_err_clear(&err);
    request_set(r, "entry", "a.py", NULL);
    assert_int_equal(request_set(r, "entry", "../a.py", &err), -EINVAL);
    assert_string_equal(r->entry, "a.py");
    hc_err_clear(&err);
    assert_int_equal(request_set_metadata(r, "{\"a\":", 5, &err), -EINVAL);
    assert_string_equal(err.field, "metadata");
    hc_err_clear(&err);
    assert_int_equal(request_set(r, "langauge", "x", &err), -EINVAL);
    assert_non_null(strstr(err.remedy, "language"));
    hc_err_clear(&err);
    request_set(r, "shell", "true", NULL);
    assert_int_equal(request_add_command(r, "ls", &err), -EINVAL);
    assert_int_equal(r->command.count, 1);
    request_free(r);
}

static void test_a_release_of_nothing_is_fine(void **state)
{
    (void)state;
    request_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_example_of_the_contract_is_read_whole),
        cmocka_unit_test(test_null_is_the_same_as_leaving_out),
        cmocka_unit_test(test_a_command_is_a_list_or_a_line_for_the_shell),
        cmocka_unit_test(test_code_and_stdin_keep_a_nul),
        cmocka_unit_test(test_empty_code_is_code),
        cmocka_unit_test(test_what_is_not_one_json_object_is_refused),
        cmocka_unit_test(test_every_wrong_field_is_named),
        cmocka_unit_test(test_a_near_miss_gets_a_suggestion),
        cmocka_unit_test(test_deep_nesting_is_refused_and_shallow_is_not),
        cmocka_unit_test(test_counts_have_ceilings),
        cmocka_unit_test(test_setters_set_and_replace),
        cmocka_unit_test(test_a_setter_that_fails_changes_nothing),
        cmocka_unit_test(test_a_release_of_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
