/* What a sandbox may be asked for with: fields, times and ceilings; and that a bad order leaves the sandbox as it was.
 */
#include "sandbox/order.h"

#include "sandbox/internal.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND (1000000ULL)

struct world {
    struct config *config;
    struct sandboxes all;
    struct sandbox sandbox;
    struct hc_err err;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    const char *source = getenv("HOTCELL_SOURCE");
    char languages[4096];
    snprintf(languages, sizeof languages, "%s/languages", source ? source : ".");
    setenv("HOTCELL_LANGUAGES", languages, 1);
    if (!world || config_load(NULL, &world->config, &world->err) < 0)
        return -1;
    world->config->sandboxes.idle_timeout = 600 * SECOND;
    world->config->sandboxes.max_lifetime = 0;
    world->config->sandboxes.longest_lifetime = 3600 * SECOND;
    world->all.config = world->config;
    world->sandbox.all = &world->all;
    world->sandbox.files = -1;
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    if (world->sandbox.request)
        plan_release(&world->sandbox.plan);
    request_free(world->sandbox.request);
    free(world->sandbox.volumes);
    config_free(world->config);
    free(world);
    return 0;
}

static int order(struct world *world, const char *text)
{
    memset(&world->err, 0, sizeof world->err);
    return order_read(&world->sandbox, world->config, text, strlen(text), &world->err);
}

static void test_an_empty_order_gets_what_is_usual(void **state)
{
    struct world *world = *state;
    world->config->defaults.value[LIMIT_MEMORY] = 80ULL << 20;
    world->config->defaults.set[LIMIT_MEMORY] = true;
    assert_int_equal(order(world, "{}"), 0);
    assert_true(world->sandbox.idle_timeout == 600 * SECOND);
    assert_true(world->sandbox.max_lifetime == 0);
    assert_false(world->sandbox.recover);
    assert_int_equal(world->sandbox.volume_count, 0);
    assert_true(world->sandbox.limits.value[LIMIT_MEMORY] == 80ULL << 20);
}

static void test_what_is_asked_for_is_there(void **state)
{
    struct world *world = *state;
    assert_int_equal(order(world, "{\"idle_timeout\": \"5m\", \"max_lifetime\": 90.5, \"recover\": true,"
                                  " \"limits\": {\"memory\": \"96m\"}, \"env\": {\"A\": \"b\"}}"),
                     0);
    assert_true(world->sandbox.idle_timeout == 300 * SECOND);
    assert_true(world->sandbox.max_lifetime == 90 * SECOND + SECOND / 2);
    assert_true(world->sandbox.recover);
    assert_true(world->sandbox.limits.value[LIMIT_MEMORY] == 96ULL << 20);
}

static void test_a_bad_order_names_its_field_and_changes_nothing(void **state)
{
    static const struct {
        const char *text, *field; /* "": of the whole */
    } cases[] = {
        {"{\"colour\": \"red\"}", "colour"},
        {"{\"code\": \"1\"}", "code"}, /* of a run, and of no sandbox */
        {"{\"command\": [\"true\"]}", "command"},
        {"{\"recover\": 1}", "recover"},
        {"{\"recover\": \"yes\"}", "recover"},
        {"{\"idle_timeout\": -1}", "idle_timeout"},
        {"{\"idle_timeout\": true}", "idle_timeout"},
        {"{\"idle_timeout\": \"soon\"}", "idle_timeout"},
        {"{\"idle_timeout\": 1e300}", "idle_timeout"},
        {"{\"idle_timeout\": 3601}", "idle_timeout"},
        {"{\"max_lifetime\": \"2h\"}", "max_lifetime"},
        {"{\"max_lifetime\": 0}", "max_lifetime"}, /* for ever is longer than any ceiling */
        {"{\"max_lifetime\": null}", "max_lifetime"},
        {"[]", ""},
        {"\"order\"", ""},
        {"{", ""},
        {"", ""},
    };
    struct world *world = *state;
    assert_int_equal(order(world, "{\"idle_timeout\": 7, \"recover\": true}"), 0);
    const struct request *before = world->sandbox.request;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(order(world, cases[i].text) < 0);
        assert_string_equal(world->err.field, cases[i].field);
        assert_int_equal(world->err.class, HC_CLASS_REQUEST);
        assert_true(world->err.message[0] != '\0');
        assert_ptr_equal(world->sandbox.request, before);
        assert_true(world->sandbox.idle_timeout == 7 * SECOND && world->sandbox.recover);
    }
}

static void test_an_unknown_field_is_answered_with_those_there_are(void **state)
{
    struct world *world = *state;
    assert_true(order(world, "{\"idle_timout\": 5}") < 0);
    assert_non_null(strstr(world->err.message, "idle_timout"));
    assert_non_null(strstr(world->err.remedy, "idle_timeout"));
}

static void test_without_a_ceiling_any_time_goes(void **state)
{
    struct world *world = *state;
    world->config->sandboxes.longest_lifetime = 0;
    assert_int_equal(order(world, "{\"max_lifetime\": \"48h\", \"idle_timeout\": 0}"), 0);
    assert_true(world->sandbox.max_lifetime == 48 * 3600 * SECOND);
    assert_true(world->sandbox.idle_timeout == 0);
}

static void test_limits_have_the_ceilings_of_a_run(void **state)
{
    struct world *world = *state;
    world->config->ceilings.value[LIMIT_MEMORY] = 100ULL << 20;
    world->config->ceilings.set[LIMIT_MEMORY] = true;
    assert_true(order(world, "{\"limits\": {\"memory\": \"101m\"}}") < 0);
    assert_non_null(strstr(world->err.field, "memory"));
    assert_null(world->sandbox.request);
    assert_int_equal(order(world, "{\"limits\": {\"memory\": \"100m\"}}"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_empty_order_gets_what_is_usual),
        TEST(test_what_is_asked_for_is_there),
        TEST(test_a_bad_order_names_its_field_and_changes_nothing),
        TEST(test_an_unknown_field_is_answered_with_those_there_are),
        TEST(test_without_a_ceiling_any_time_goes),
        TEST(test_limits_have_the_ceilings_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
