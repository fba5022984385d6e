/* The table of routes: matching, methods, suggestions; and the OpenAPI document, which describes exactly these. */
#include "gateway/gateway.h"
#include "gateway/openapi.h"
#include "text/json.h"

#include <ctype.h>
#include <errno.h>
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
    route_match(ROUTES, method, path, &match);
    return match.route != NULL ? match.route->pattern : NULL;
}

static void test_every_route_matches_its_own_pattern(void **state)
{
    (void)state;
    for (const struct route *route = ROUTES; route->pattern != NULL; route++) {
        struct route_match match;
        route_match(ROUTES, route->method, route->pattern, &match);
        assert_ptr_equal(match.route, route);
        assert_non_null(route->handle);
        assert_true(route->summary[0] != '\0');
    }
}

static void test_an_id_is_one_component(void **state)
{
    (void)state;
    struct route_match match;
    route_match(ROUTES, HTTP_GET, "/v1/runs/run_1", &match);
    assert_string_equal(match.route->pattern, "/v1/runs/{id}");
    assert_int_equal(route_bind(&match, "/v1/runs/run_1"), 0);
    assert_string_equal(route_value(&match, "id"), "run_1");
    assert_string_equal(route_value(&match, "job"), "");
    route_release(&match);
    route_match(ROUTES, HTTP_GET, "/v1/runs/run_1/events", &match);
    assert_string_equal(match.route->pattern, "/v1/runs/{id}/events");
    assert_int_equal(route_bind(&match, "/v1/runs/run_1/events"), 0);
    assert_string_equal(route_value(&match, "id"), "run_1");
    route_release(&match);
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
    route_match(ROUTES, HTTP_GET, "/execute", &match);
    assert_null(match.route);
    assert_string_equal(match.allow, "POST");
    route_match(ROUTES, HTTP_PUT, "/v1/runs", &match);
    assert_string_equal(match.allow, "POST, GET, HEAD");
    route_match(ROUTES, HTTP_OTHER, "/v1/runs/x", &match);
    assert_string_equal(match.allow, "GET, HEAD, DELETE");
    route_match(ROUTES, HTTP_GET, "/nothing", &match);
    assert_string_equal(match.allow, "");
}

static void test_the_nearest_route_is_suggested(void **state)
{
    (void)state;
    assert_string_equal(route_nearest(ROUTES, "/v1/run"), "/v1/runs");
    assert_string_equal(route_nearest(ROUTES, "/v1/langauges"), "/v1/languages");
    assert_string_equal(route_nearest(ROUTES, "/health"), "/healthz");
    assert_null(route_nearest(ROUTES, "/wp-admin/setup-config.php"));
}

/* ---- patterns with more than one value ---- */

static void no_handler(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)gateway, (void)request, (void)match;
}

static const struct route MANY[] = {
    {HTTP_GET, "/s/{id}/jobs/{job}", no_handler, false, "", 0},
    {HTTP_GET, "/s/{id}/files/search", no_handler, false, "", 0},
    {HTTP_GET, "/s/{id}/files/{path...}", no_handler, false, "", 0},
    {HTTP_PUT, "/s/{id}/files/{path...}", no_handler, false, "", ROUTE_STREAM},
    {HTTP_POST, "/s/{id}/ports/{port}/link", no_handler, false, "", 0},
    {HTTP_ANY, "/s/{id}/ports/{port}/{rest...}", no_handler, false, "", ROUTE_STREAM},
    {0},
};

/* The row that is meant, or -1; the values, with '|' between. */
static int find(enum http_method method, const char *path, char *values, size_t size)
{
    struct route_match match;
    route_match(MANY, method, path, &match);
    values[0] = '\0';
    if (match.route == NULL)
        return -1;
    int bound = route_bind(&match, path);
    size_t used = 0;
    for (size_t i = 0; bound == 0 && i < match.count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%.*s", (int)match.value[i].name_length, match.value[i].name);
        used += (size_t)snprintf(values + used, size - used, "%s=%s|", name, route_value(&match, name));
    }
    route_release(&match);
    return bound == 0 ? (int)(match.route - MANY) : bound;
}

static void test_values_have_names_and_a_rest_has_slashes(void **state)
{
    (void)state;
    static const struct {
        enum http_method method;
        const char *path;
        int row;
        const char *values;
    } cases[] = {
        {HTTP_GET, "/s/a/jobs/b", 0, "id=a|job=b|"},
        {HTTP_GET, "/s/a/jobs/b/c", -1, ""},
        {HTTP_GET, "/s/a/files/search", 1, "id=a|"},
        {HTTP_PUT, "/s/a/files/search", 3, "id=a|path=search|"},
        {HTTP_HEAD, "/s/a/files/x/y/z.txt", 2, "id=a|path=x/y/z.txt|"},
        {HTTP_GET, "/s/a/files/", 2, "id=a|path=|"},
        {HTTP_GET, "/s/a/files/x/", 2, "id=a|path=x/|"},
        {HTTP_GET, "/s/a/files", -1, ""},
        {HTTP_GET, "/s//files/x", -1, ""},
        {HTTP_POST, "/s/a/ports/80/link", 4, "id=a|port=80|"},
        {HTTP_GET, "/s/a/ports/80/link", 5, "id=a|port=80|rest=link|"},
        {HTTP_OTHER, "/s/a/ports/80/a b/c", 5, "id=a|port=80|rest=a b/c|"},
        {HTTP_HEAD, "/s/a/ports/80/", 5, "id=a|port=80|rest=|"},
        {HTTP_OPTIONS, "/s/a/ports/80/x", 5, "id=a|port=80|rest=x|"},
        {HTTP_GET, "/s/a/ports/80", -1, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char values[256];
        assert_int_equal(find(cases[i].method, cases[i].path, values, sizeof values), cases[i].row);
        assert_string_equal(values, cases[i].values);
    }
    char values[512], path[512];
    snprintf(path, sizeof path, "/s/%0160d/jobs/b", 1);
    assert_int_equal(find(HTTP_GET, path, values, sizeof values), -ENAMETOOLONG);
    snprintf(path, sizeof path, "/s/%0159d/files/%0200d", 1, 1);
    assert_int_equal(find(HTTP_GET, path, values, sizeof values), 2);
}

static void test_methods_of_several_rows_are_named_once(void **state)
{
    (void)state;
    struct route_match match;
    route_match(MANY, HTTP_DELETE, "/s/a/files/search", &match);
    assert_null(match.route);
    assert_string_equal(match.allow, "GET, HEAD, PUT");
    route_match(MANY, HTTP_GET, "/s/a/ports/80/link", &match);
    assert_string_equal(match.allow, "");
}

static void test_the_rest_is_handed_on_as_it_was_sent(void **state)
{
    (void)state;
    struct http_request request = {.target = (char *)"/s/%61/ports/80/a%20b/c?q=/x/%2F",
                                   .path = (char *)"/s/a/ports/80/a b/c"};
    struct route_match match;
    route_match(MANY, HTTP_GET, request.path, &match);
    assert_string_equal(route_raw_rest(&match, &request), "a%20b/c?q=/x/%2F");
    request = (struct http_request){.target = (char *)"/s/a/ports/80/?x", .path = (char *)"/s/a/ports/80/"};
    route_match(MANY, HTTP_GET, request.path, &match);
    assert_string_equal(route_raw_rest(&match, &request), "?x");
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
    case HTTP_ANY:
        return "get"; /* which stands for all */
    default:
        fail_msg("a method that the document has no word for");
        return "";
    }
}

/* The document's name for a pattern: it knows no "...". */
static const char *path_key(const char *pattern, char *text, size_t size)
{
    const char *dots = strstr(pattern, "...");
    snprintf(text, size, "%.*s%s", dots != NULL ? (int)(dots - pattern) : (int)strlen(pattern), pattern,
             dots != NULL ? dots + 3 : "");
    return text;
}

static void test_every_route_is_described(void **state)
{
    (void)state;
    hc_cleanup_json json_t *root = document();
    for (const struct route *route = ROUTES; route->pattern != NULL; route++) {
        char key[128];
        const json_t *path = json_object_get(json_object_get(root, "paths"), path_key(route->pattern, key, sizeof key));
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
            char key[128];
            for (const struct route *route = ROUTES; route->pattern != NULL; route++)
                found |= strcmp(path_key(route->pattern, key, sizeof key), pattern) == 0 &&
                         (route->method == HTTP_ANY || strcmp(method_key(route->method), method) == 0);
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
        cmocka_unit_test(test_values_have_names_and_a_rest_has_slashes),
        cmocka_unit_test(test_methods_of_several_rows_are_named_once),
        cmocka_unit_test(test_the_rest_is_handed_on_as_it_was_sent),
        cmocka_unit_test(test_every_route_is_described),
        cmocka_unit_test(test_nothing_else_is_described),
        cmocka_unit_test(test_every_reference_in_the_document_leads_somewhere),
        cmocka_unit_test(test_the_limits_of_the_document_are_those_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
