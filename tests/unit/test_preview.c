/* Links to previews: who has one may use that port of that sandbox until it expires, and nothing else. */
#include "gateway/preview.h"

#include "sandbox/internal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct world {
    struct sandbox one, other;
    struct sandboxes all;
    char token[PREVIEW_TOKEN_SIZE];
};

static struct world world_new(void)
{
    return (struct world){.one = {.id = "sbx_01aaaa", .secret = "0123456789abcdef", .state = SANDBOX_RUNNING},
                          .other = {.id = "sbx_01bbbb", .secret = "fedcba9876543210", .state = SANDBOX_RUNNING}};
}

/* The list is linked in place: it points into the world. */
static void link_up(struct world *world, int64_t from_now)
{
    world->one.next = &world->other;
    world->all.first = &world->one;
    assert_int_equal(preview_token(&world->one, 8000, (int64_t)time(NULL) + from_now, world->token), 0);
}

static void test_a_token_names_its_sandbox_and_its_port(void **state)
{
    (void)state;
    struct world world = world_new();
    unsigned port = 0;
    link_up(&world, 60);
    assert_ptr_equal(preview_find(&world.all, world.token, &port), &world.one);
    assert_int_equal(port, 8000);
}

static void test_a_token_with_any_byte_altered_is_not_valid(void **state)
{
    (void)state;
    struct world world = world_new();
    unsigned port;
    link_up(&world, 60);
    for (size_t i = 0; world.token[i]; i++) {
        char altered[PREVIEW_TOKEN_SIZE];
        memcpy(altered, world.token, sizeof altered);
        altered[i] = altered[i] == '1' ? '2' : '1';
        assert_null(preview_find(&world.all, altered, &port));
        memcpy(altered, world.token, sizeof altered);
        altered[i] = '\0'; /* cut off */
        assert_null(preview_find(&world.all, altered, &port));
    }
    char longer[PREVIEW_TOKEN_SIZE * 2];
    snprintf(longer, sizeof longer, "%s0", world.token);
    assert_null(preview_find(&world.all, longer, &port));
    memset(longer, '1', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_null(preview_find(&world.all, longer, &port));
}

static void test_a_token_is_for_no_other_port_sandbox_or_time(void **state)
{
    (void)state;
    struct world world = world_new();
    unsigned port;
    link_up(&world, 60);
    const char *mark = strrchr(world.token, '.');
    long long now = (long long)time(NULL);
    char forged[PREVIEW_TOKEN_SIZE];
    snprintf(forged, sizeof forged, "%s.8001.%llx%s", world.one.id, now + 60, mark);
    assert_null(preview_find(&world.all, forged, &port));
    snprintf(forged, sizeof forged, "%s.8000.%llx%s", world.other.id, now + 60, mark);
    assert_null(preview_find(&world.all, forged, &port));
    snprintf(forged, sizeof forged, "%s.8000.%llx%s", world.one.id, now + 86400, mark);
    assert_null(preview_find(&world.all, forged, &port));
    world.one.secret[0] = 'x'; /* of a sandbox that was made anew, say */
    assert_null(preview_find(&world.all, world.token, &port));
}

static void test_a_token_that_has_expired_is_not_valid(void **state)
{
    (void)state;
    struct world world = world_new();
    unsigned port;
    link_up(&world, -1);
    assert_null(preview_find(&world.all, world.token, &port));
}

static void test_a_token_of_a_sandbox_that_goes_or_has_gone_is_not_valid(void **state)
{
    (void)state;
    struct world world = world_new();
    unsigned port;
    link_up(&world, 60);
    world.one.state = SANDBOX_STOPPING;
    assert_null(preview_find(&world.all, world.token, &port));
    world.all.first = &world.other;
    assert_null(preview_find(&world.all, world.token, &port));
}

static void test_what_is_no_token_is_not_valid(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        ".",
                                        "...",
                                        "sbx_01aaaa",
                                        "sbx_01aaaa.",
                                        "sbx_01aaaa.0.1.x",
                                        "sbx_01aaaa.65536.1.x",
                                        "sbx_01aaaa.-1.1.x",
                                        "sbx_01aaaa.8000.zz.x",
                                        "sbx_01aaaa.8000.ffffffffffffffffffff.x"};
    struct world world = world_new();
    unsigned port;
    link_up(&world, 60);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_null(preview_find(&world.all, texts[i], &port));
}

static void test_host_names(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        unsigned port; /* 0: it is no such name */
    } cases[] = {
        {"8000-sbx_01aaaa.preview.example", 8000},
        {"8000-sbx_01aaaa.preview.example:7600", 8000},
        {"8000-SBX_01AAAA.Preview.EXAMPLE", 8000},
        {"65535-sbx_01aaaa.preview.example", 65535},
        {"65536-sbx_01aaaa.preview.example", 0},
        {"0-sbx_01aaaa.preview.example", 0},
        {"-sbx_01aaaa.preview.example", 0},
        {"sbx_01aaaa.preview.example", 0},
        {"8000sbx_01aaaa.preview.example", 0},
        {"8000-sbx_01aaaa.preview.example.org", 0},
        {"8000-sbx_01aaaa.other.example", 0},
        {"8000-sbx_01aaaa.x.preview.example", 0},
        {"8000-sbx_01aaaa", 0},
        {"preview.example", 0},
        {"", 0},
        {"8000-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.preview.example", 0}, /* 40 letters: no room for the NUL */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned port = 0;
        char id[40] = "";
        bool found = preview_host(cases[i].host, "preview.example", &port, id);
        assert_int_equal(found, cases[i].port != 0);
        if (found) {
            assert_int_equal(port, cases[i].port);
            assert_string_equal(id, "sbx_01aaaa");
        }
        assert_false(preview_host(cases[i].host, "", &port, id)); /* no domain: no such names */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token_names_its_sandbox_and_its_port),
        cmocka_unit_test(test_a_token_with_any_byte_altered_is_not_valid),
        cmocka_unit_test(test_a_token_is_for_no_other_port_sandbox_or_time),
        cmocka_unit_test(test_a_token_that_has_expired_is_not_valid),
        cmocka_unit_test(test_a_token_of_a_sandbox_that_goes_or_has_gone_is_not_valid),
        cmocka_unit_test(test_what_is_no_token_is_not_valid),
        cmocka_unit_test(test_host_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
