/* The JSON that the file helper writes: whatever bytes go in, what comes out is one valid value in UTF-8. */
#include "cell/files_json.h"
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct output {
    struct files_json json;
    FILE *file;
};

static int set_up(void **state)
{
    struct output *output = calloc(1, sizeof *output);
    if (!output || !(output->file = tmpfile()))
        return -1;
    files_json_init(&output->json, fileno(output->file));
    *state = output;
    return 0;
}

static int tear_down(void **state)
{
    struct output *output = *state;
    fclose(output->file);
    free(output);
    return 0;
}

/* What was written, parsed by another implementation. */
static json_t *parse(struct output *output)
{
    json_error_t error;
    assert_int_equal(files_json_line(&output->json), 0);
    rewind(output->file);
    json_t *value = json_loadf(output->file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!value)
        fail_msg("%s", error.text);
    return value;
}

static void test_values_of_every_kind(void **state)
{
    struct output *output = *state;
    struct files_json *json = &output->json;
    files_json_open(json, NULL, '{');
    files_json_text(json, "text", "a \"quoted\" \\ line\n\t\x01\x7f");
    files_json_number(json, "number", INT64_MIN);
    files_json_bool(json, "yes", true);
    files_json_null(json, "none");
    files_json_open(json, "list", '[');
    files_json_number(json, NULL, 1);
    files_json_open(json, NULL, '{');
    files_json_close(json, '}');
    files_json_number(json, NULL, 2);
    files_json_close(json, ']');
    files_json_bool(json, "no", false);
    files_json_close(json, '}');
    json_t *value = parse(output);
    assert_string_equal(json_string_value(json_object_get(value, "text")), "a \"quoted\" \\ line\n\t\x01\x7f");
    assert_true(json_integer_value(json_object_get(value, "number")) == INT64_MIN);
    assert_true(json_is_true(json_object_get(value, "yes")) && json_is_false(json_object_get(value, "no")));
    assert_true(json_is_null(json_object_get(value, "none")));
    assert_int_equal(json_array_size(json_object_get(value, "list")), 3);
    json_decref(value);
}

static void test_a_name_that_is_not_utf8_is_base64(void **state)
{
    struct output *output = *state;
    static const char *const names[] = {"\xff", "a\xc3",   "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                        "\x80", "\xe2\x98"};
    static const char *const encoded[] = {"/w==", "YcM=", "wK8=", "7aCA", "9JCAgA==", "gA==", "4pg="};
    files_json_open(&output->json, NULL, '[');
    for (size_t i = 0; i < 7; i++) {
        files_json_open(&output->json, NULL, '{');
        files_json_name(&output->json, "name", names[i], strlen(names[i]));
        files_json_close(&output->json, '}');
    }
    files_json_close(&output->json, ']');
    json_t *value = parse(output);
    for (size_t i = 0; i < 7; i++) {
        json_t *entry = json_array_get(value, i);
        assert_null(json_object_get(entry, "name"));
        assert_string_equal(json_string_value(json_object_get(entry, "name_base64")), encoded[i]);
    }
    json_decref(value);
}

static void test_a_name_that_is_utf8_stays_as_it_is(void **state)
{
    struct output *output = *state;
    static const char name[] = "caf\xc3\xa9 \xe2\x98\x83 \xf0\x9f\x98\x80";
    files_json_open(&output->json, NULL, '{');
    files_json_name(&output->json, "name", name, strlen(name));
    files_json_close(&output->json, '}');
    json_t *value = parse(output);
    assert_string_equal(json_string_value(json_object_get(value, "name")), name);
    json_decref(value);
}

static void test_bytes_that_are_no_text_are_replaced(void **state)
{
    struct output *output = *state;
    files_json_open(&output->json, NULL, '[');
    files_json_bytes(&output->json, NULL,
                     "a\xff"
                     "b\xe2\x98",
                     5);
    files_json_close(&output->json, ']');
    json_t *value = parse(output);
    assert_string_equal(json_string_value(json_array_get(value, 0)), "a\xef\xbf\xbd"
                                                                     "b\xef\xbf\xbd\xef\xbf\xbd");
    json_decref(value);
}

/* Every byte and pair of bytes, and more than the buffer holds. */
static void test_any_bytes_make_valid_json(void **state)
{
    struct output *output = *state;
    files_json_open(&output->json, NULL, '[');
    for (unsigned first = 0; first < 256; first++)
        for (unsigned second = 0; second < 256; second++) {
            const char pair[2] = {(char)first, (char)second};
            files_json_bytes(&output->json, NULL, pair, 2);
            files_json_open(&output->json, NULL, '{');
            files_json_name(&output->json, "name", pair, 2);
            files_json_close(&output->json, '}');
        }
    files_json_close(&output->json, ']');
    json_t *value = parse(output);
    assert_int_equal(json_array_size(value), 2 * 65536);
    json_decref(value);
}

static void test_a_reader_that_has_gone_is_remembered(void **state)
{
    struct output *output = *state;
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    files_json_init(&output->json, ends[1]);
    for (int i = 0; i < 100000; i++)
        files_json_number(&output->json, NULL, i);
    assert_int_equal(output->json.status, -EPIPE);
    assert_int_equal(files_json_flush(&output->json), -EPIPE);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values_of_every_kind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_name_that_is_not_utf8_is_base64, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_name_that_is_utf8_stays_as_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes_that_are_no_text_are_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_any_bytes_make_valid_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reader_that_has_gone_is_remembered, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
