/* The table of routes: matching, methods, suggestions; and the OpenAPI document, which describes exactly these. */
#include "gateway/gateway.h"
#include "gateway/openapi.h"
#include "text/json.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static const char *pattern_of(enum http_method method, const char *path)
{
    struct route_match match;
    route_match(method, path, &match);
    return match.route != NULL ? match.route->pattern : NULL;
}

static void test_every_route_matches_its_own_pattern(void **state)
{
    (void)state;
    for (const struct route *route = ROUTES; route->pattern != NULL; route++) {
        struct route_match match;
        route_match(route->method, route->pattern, &match);
        assert_ptr_equal(match.route, route);
        assert_non_null(route->handle);
        assert_true(route->summary[0] != '\0');
    }
}

static void test_an_id_is_one_component(void **state)
{
    (void)state;
    struct route_match match;
    route_match(HTTP_GET, "/v1/runs/run_1", &match);
    assert_string_equal(match.route->pattern, "/v1/runs/{id}");
    assert_string_equal(match.id, "run_1");
    route_match(HTTP_GET, "/v1/runs/run_1/events", &match);
    assert_string_equal(match.route->pattern, "/v1/runs/{id}/events");
    assert_memory_equal(match.id, "run_1/", 6);
    assert_null(pattern_of(HTTP_GET, "/v1/runs/"));
    assert_null(pattern_of(HTTP_GET, "/v1/runs/run_1/"));
    assert_null(pattern_of(HTTP_GET, "/v1/runs/a/b/events"));
    assert_null(pattern_of(HTTP_GET, "/v1/runs//events"));
    assert_null(pattern_of(HTTP_GET, "/v1/runsx"));
    assert_null(pattern_of(HTTP_GET, "/v1/run"));
    assert_null(pattern_of(HTTP_GET, "/V1/runs"));
}

static void test_head_is_where_get_is(void **state)
{
    (void)state;
    assert_string_equal(pattern_of(HTTP_HEAD, "/healthz"), "/healthz");
    assert_null(pattern_of(HTTP_HEAD, "/execute"));
}

static void test_another_method_tells_what_is_allowed(void **state)
{
    (void)state;
    struct route_match match;
    route_match(HTTP_GET, "/execute", &match);
    assert_null(match.route);
    assert_string_equal(match.allow, "POST");
    route_match(HTTP_PUT, "/v1/runs", &match);
    assert_string_equal(match.allow, "POST, GET, HEAD");
    route_match(HTTP_OTHER, "/v1/runs/x", &match);
    assert_string_equal(match.allow, "GET, HEAD, DELETE");
    route_match(HTTP_GET, "/nothing", &match);
    assert_string_equal(match.allow, "");
}

static void test_the_nearest_route_is_suggested(void **state)
{
    (void)state;
    assert_string_equal(route_nearest("/v1/run"), "/v1/runs");
    assert_string_equal(route_nearest("/v1/langauges"), "/v1/languages");
    assert_string_equal(route_nearest("/health"), "/healthz");
    assert_null(route_nearest("/wp-admin/setup-config.php"));
}

/* ---- the document ---- */

static json_t *document(void)
{
    json_t *root = NULL;
    assert_int_equal(hc_json_read(openapi_text, openapi_length, 64, &root, NULL), 0);
    return root;
}

static const char *method_key(enum http_method method)
{
    switch (method) {
    case HTTP_GET:
        return "get";
    case HTTP_POST:
        return "post";
    case HTTP_PUT:
        return "put";
    case HTTP_DELETE:
        return "delete";
    default:
        fail_msg("a method that the document has no word for");
        return "";
    }
}

static void test_every_route_is_described(void **state)
{
    (void)state;
    hc_cleanup_json json_t *root = document();
    for (const struct route *route = ROUTES; route->pattern != NULL; route++) {
        const json_t *path = json_object_get(json_object_get(root, "paths"), route->pattern);
        const json_t *operation = json_object_get(path, method_key(route->method));
        if (operation == NULL)
            fail_msg("%s %s is not described", method_key(route->method), route->pattern);
        assert_string_equal(json_string_value(json_object_get(operation, "summary")), route->summary);
        /* An empty list of needs takes the general one away. */
        const json_t *security = json_object_get(operation, "security");
        assert_int_equal(json_is_array(security) && json_array_size(security) == 0, route->open);
    }
}

static void test_nothing_else_is_described(void **state)
{
    (void)state;
    hc_cleanup_json json_t *root = document();
    const char *pattern, *method;
    json_t *path, *operation;
    json_object_foreach(json_object_get(root, "paths"), pattern, path)
    {
        json_object_foreach(path, method, operation)
        {
            bool found = false;
            for (const struct route *route = ROUTES; route->pattern != NULL; route++)
                found |= strcmp(route->pattern, pattern) == 0 && strcmp(method_key(route->method), method) == 0;
            if (!found)
                fail_msg("there is no route %s %s", method, pattern);
        }
    }
}

static void check_references(const json_t *root, const json_t *value)
{
    const char *key;
    json_t *item;
    size_t index;
    if (json_is_array(value))
        json_array_foreach(value, index, item) check_references(root, item);
    json_object_foreach((json_t *)value, key, item)
    {
        if (strcmp(key, "$ref") != 0) {
            check_references(root, item);
            continue;
        }
        char group[32], name[64];
        assert_int_equal(sscanf(json_string_value(item), "#/components/%31[a-z]/%63s", group, name), 2);
        const json_t *components = json_object_get(root, "components");
        if (json_object_get(json_object_get(components, group), name) == NULL)
            fail_msg("%s is not there", json_string_value(item));
    }
}

static void test_every_reference_in_the_document_leads_somewhere(void **state)
{
    (void)state;
    hc_cleanup_json json_t *root = document();
    check_references(root, root);
    assert_string_equal(json_string_value(json_object_get(root, "openapi")), "3.1.0");
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "info"), "version")), HC_VERSION);
}

static void test_the_limits_of_the_document_are_those_of_the_table(void **state)
{
    (void)state;
    hc_cleanup_json json_t *root = document();
    const json_t *schemas = json_object_get(json_object_get(root, "components"), "schemas");
    static const char *const names[] = {"Limits", "EffectiveLimits"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *limits = json_object_get(json_object_get(schemas, names[i]), "properties");
        assert_int_equal(json_object_size(limits), LIMIT_COUNT);
        for (int id = 0; id < LIMIT_COUNT; id++)
            assert_non_null(json_object_get(limits, limit_table[id].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route_matches_its_own_pattern),
        cmocka_unit_test(test_an_id_is_one_component),
        cmocka_unit_test(test_head_is_where_get_is),
        cmocka_unit_test(test_another_method_tells_what_is_allowed),
        cmocka_unit_test(test_the_nearest_route_is_suggested),
        cmocka_unit_test(test_every_route_is_described),
        cmocka_unit_test(test_nothing_else_is_described),
        cmocka_unit_test(test_every_reference_in_the_document_leads_somewhere),
        cmocka_unit_test(test_the_limits_of_the_document_are_those_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
