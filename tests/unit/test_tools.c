/* The tools as data: every definition is whole, has a function, and uses no more of JSON Schema than is checked here.
 */
#include "gateway/tools_internal.h"
#include "run/tools.h"
#include "text/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static const struct tool_row *row_of(const char *name)
{
    const struct tool_row *const groups[] = {TOOLS_RUN, TOOLS_SANDBOX, TOOLS_FILES};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        for (const struct tool_row *row = groups[i]; row->name != NULL; row++)
            if (strcmp(row->name, name) == 0)
                return row;
    return NULL;
}

/* Keywords that tool_check does not know would be promises that nobody keeps. */
static void check_schema(const json_t *schema)
{
    static const char *const known[] = {"type",     "description", "properties", "required",  "additionalProperties",
                                        "items",    "enum",        "anyOf",      "minimum",   "maximum",
                                        "minItems", "maxItems",    "minLength",  "maxLength", "exclusiveMinimum"};
    const char *key;
    json_t *value;
    size_t index;
    assert_true(json_is_object(schema));
    json_object_foreach((json_t *)schema, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found = found || strcmp(known[i], key) == 0;
        if (!found)
            fail_msg("the keyword \"%s\" is not checked", key);
    }
    json_object_foreach(json_object_get(schema, "properties"), key, value) check_schema(value);
    json_array_foreach(json_object_get(schema, "anyOf"), index, value) check_schema(value);
    if (json_object_get(schema, "items") != NULL)
        check_schema(json_object_get(schema, "items"));
    if (json_is_object(json_object_get(schema, "additionalProperties")))
        check_schema(json_object_get(schema, "additionalProperties"));
}

static void test_every_tool_is_whole_and_has_its_function(void **state)
{
    (void)state;
    hc_cleanup_json json_t *tools = tools_load();
    size_t index, rows = 0;
    json_t *tool;
    assert_non_null(tools);
    json_array_foreach(tools, index, tool)
    {
        const char *name = json_string_value(json_object_get(tool, "name"));
        assert_non_null(row_of(name));
        assert_true(json_string_length(json_object_get(tool, "title")) > 0);
        assert_true(json_string_length(json_object_get(tool, "description")) > 20);
        assert_true(json_is_false(json_object_get(json_object_get(tool, "inputSchema"), "additionalProperties")));
        check_schema(json_object_get(tool, "inputSchema"));
        check_schema(json_object_get(tool, "outputSchema"));
    }
    const struct tool_row *const groups[] = {TOOLS_RUN, TOOLS_SANDBOX, TOOLS_FILES};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        for (const struct tool_row *row = groups[i]; row->name != NULL; row++)
            rows++;
    assert_int_equal(rows, json_array_size(tools));
}

static int check_text(const char *value, const char *schema, struct hc_err *err)
{
    hc_cleanup_json json_t *what = json_loads(value, JSON_DECODE_ANY, NULL), *as = json_loads(schema, 0, NULL);
    assert_non_null(what);
    assert_non_null(as);
    *err = (struct hc_err){0};
    return tool_check(what, as, err);
}

static void test_arguments_are_checked_and_the_fault_is_named(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},"
        "\"s\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":3},\"e\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}"
        ","
        "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1},"
        "\"a\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]}},"
        "\"required\":[\"n\"],\"additionalProperties\":false}";
    static const struct {
        const char *value, *field; /* NULL: it is fine */
    } cases[] = {
        {"{\"n\":1}", NULL},
        {"{\"n\":9,\"s\":\"abc\",\"e\":\"b\",\"l\":[\"x\"],\"a\":[\"y\"]}", NULL},
        {"{\"n\":3.0}", NULL},
        {"{}", "n"},
        {"{\"n\":0}", "n"},
        {"{\"n\":10}", "n"},
        {"{\"n\":\"1\"}", "n"},
        {"{\"n\":1.5}", "n"},
        {"{\"n\":1,\"s\":\"\"}", "s"},
        {"{\"n\":1,\"s\":\"abcd\"}", "s"},
        {"{\"n\":1,\"e\":\"c\"}", "e"},
        {"{\"n\":1,\"l\":[]}", "l"},
        {"{\"n\":1,\"l\":[\"x\",2]}", "l[1]"},
        {"{\"n\":1,\"a\":[7]}", "a[0]"},
        {"{\"n\":1,\"a\":7}", "a"},
        {"{\"n\":1,\"m\":1}", "m"},
        {"[]", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hc_err err;
        int status = check_text(cases[i].value, schema, &err);
        assert_int_equal(status < 0, cases[i].field != NULL);
        if (cases[i].field != NULL)
            assert_string_equal(err.field, cases[i].field);
    }
}

static void test_a_projection_keeps_what_the_schema_names(void **state)
{
    (void)state;
    hc_cleanup_json json_t *value =
        json_loads("{\"a\":1,\"b\":{\"c\":2,\"d\":3},\"e\":[{\"f\":4,\"g\":5}],\"h\":6}", 0, NULL);
    hc_cleanup_json json_t *schema = json_loads(
        "{\"properties\":{\"a\":{},\"b\":{\"properties\":{\"c\":{}}},\"e\":{\"items\":{\"properties\":{\"g\":{}}}},"
        "\"missing\":{}}}",
        0, NULL);
    hc_cleanup_json json_t *expected = json_loads("{\"a\":1,\"b\":{\"c\":2},\"e\":[{\"g\":5}]}", 0, NULL);
    hc_cleanup_json json_t *projected = tool_project(value, schema);
    assert_true(json_equal(projected, expected));
}

static void test_formats_for_other_interfaces(void **state)
{
    (void)state;
    hc_cleanup_json json_t *tools = tools_load(), *openai = NULL, *anthropic = NULL, *none = NULL;
    struct hc_err err = {0};
    assert_int_equal(tools_format(tools, "openai", &openai, &err), 0);
    assert_int_equal(tools_format(tools, "anthropic", &anthropic, &err), 0);
    const json_t *function = json_object_get(json_array_get(openai, 0), "function");
    assert_string_equal(json_string_value(json_object_get(function, "name")), "run_code");
    assert_true(json_is_object(json_object_get(function, "parameters")));
    assert_true(json_is_object(json_object_get(json_array_get(anthropic, 0), "input_schema")));
    assert_true(tools_format(tools, "yaml", &none, &err) < 0);
    assert_string_equal(err.field, "format");
}

static void test_images_are_known_by_their_first_bytes(void **state)
{
    (void)state;
    assert_string_equal(content_image_type("\x89PNG\r\n\x1a\n....", 12), "image/png");
    assert_string_equal(content_image_type("RIFF....WEBPVP8 ", 16), "image/webp");
    assert_null(content_image_type("\x89PNG", 4));
    assert_null(content_image_type("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_tool_is_whole_and_has_its_function),
        cmocka_unit_test(test_arguments_are_checked_and_the_fault_is_named),
        cmocka_unit_test(test_a_projection_keeps_what_the_schema_names),
        cmocka_unit_test(test_formats_for_other_interfaces),
        cmocka_unit_test(test_images_are_known_by_their_first_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
