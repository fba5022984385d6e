/* Messages of the Model Context Protocol: which are requests, notifications and answers, and which are nothing. */
#include "gateway/mcp_message.h"
#include "text/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static enum mcp_kind kind_of(const char *text)
{
    hc_cleanup_json json_t *value = NULL;
    struct mcp_message message;
    assert_int_equal(hc_json_read(text, strlen(text), 64, &value, NULL), 0);
    mcp_message_read(value, &message);
    assert_true((message.kind == MCP_INVALID) == (message.why != NULL));
    return message.kind;
}

static void test_a_message_is_what_its_members_say(void **state)
{
    (void)state;
    assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"), MCP_REQUEST);
    assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\",\"params\":{}}"), MCP_REQUEST);
    assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"), MCP_NOTIFICATION);
    assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"), MCP_RESPONSE);
    assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"\"}}"), MCP_RESPONSE);
}

static void test_what_is_no_message_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "1",
        "\"ping\"",
        "[]",
        "{}",
        "{\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":2.0,\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":1}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[1]}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":\"x\"}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(kind_of(wrong[i]), MCP_INVALID);
}

static void test_answers_carry_the_id_as_it_came(void **state)
{
    (void)state;
    hc_cleanup_json json_t *id = json_string("a\"b");
    hc_cleanup_json json_t *result = mcp_result(id, json_object());
    assert_true(json_equal(json_object_get(result, "id"), id));
    hc_cleanup_json json_t *error = mcp_error(NULL, MCP_PARSE_ERROR, "no\xff", json_integer(7));
    assert_true(json_is_null(json_object_get(error, "id")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(error, "error"), "code")), -32700);
    assert_string_equal(json_string_value(json_object_get(json_object_get(error, "error"), "message")), "no?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_is_what_its_members_say),
        cmocka_unit_test(test_what_is_no_message_is_refused),
        cmocka_unit_test(test_answers_carry_the_id_as_it_came),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
