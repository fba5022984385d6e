/* The queue of runs: fair turns, bounds, expiry. */
#include "gateway/queue.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

struct thing {
    struct queue_item item;
    char tenant[16];
    int number;
};

static void put(struct queue *queue, struct thing *thing, const char *tenant, int number, uint64_t now)
{
    *thing = (struct thing){.number = number};
    snprintf(thing->tenant, sizeof thing->tenant, "%s", tenant);
    assert_int_equal(queue_put(queue, &thing->item, tenant, 1000, now), 0);
}

static void take(struct queue *queue, const char *tenant, int number)
{
    struct thing *thing = (struct thing *)queue_take(queue);
    assert_non_null(thing);
    assert_string_equal(thing->tenant, tenant);
    assert_int_equal(thing->number, number);
    assert_null(thing->item.lane);
}

static void test_one_tenant_is_served_in_the_order_of_asking(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing things[5];
    for (int i = 0; i < 5; i++)
        put(queue, &things[i], "a", i, 1);
    for (int i = 0; i < 5; i++)
        take(queue, "a", i);
    assert_null(queue_take(queue));
    queue_free(queue);
}

static void test_tenants_take_turns_whoever_came_first(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing things[8];
    for (int i = 0; i < 5; i++)
        put(queue, &things[i], "greedy", i, 1);
    put(queue, &things[5], "b", 0, 2);
    put(queue, &things[6], "b", 1, 2);
    put(queue, &things[7], "c", 0, 2);
    take(queue, "greedy", 0);
    take(queue, "b", 0);
    take(queue, "c", 0);
    take(queue, "greedy", 1);
    take(queue, "b", 1);
    take(queue, "greedy", 2);
    take(queue, "greedy", 3);
    take(queue, "greedy", 4);
    assert_int_equal(queue_count(queue), 0);
    queue_free(queue);
}

static void test_a_tenant_that_comes_back_waits_for_the_others_first(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing things[4];
    put(queue, &things[0], "a", 0, 1);
    put(queue, &things[1], "b", 0, 1);
    take(queue, "a", 0);
    put(queue, &things[2], "a", 1, 1);
    put(queue, &things[3], "c", 0, 1);
    take(queue, "b", 0);
    take(queue, "a", 1);
    take(queue, "c", 0);
    queue_free(queue);
}

static void test_a_full_queue_refuses(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing things[3] = {0};
    assert_int_equal(queue_put(queue, &things[0].item, "a", 2, 1), 0);
    assert_int_equal(queue_put(queue, &things[1].item, "a", 2, 1), 0);
    assert_int_equal(queue_put(queue, &things[2].item, "a", 2, 1), -EAGAIN);
    assert_int_equal(queue_put(queue, &things[2].item, "b", 2, 1), -EAGAIN);
    assert_null(things[2].item.lane);
    assert_non_null(queue_take(queue));
    assert_int_equal(queue_put(queue, &things[2].item, "b", 2, 1), 0);
    queue_free(queue);
}

static void test_no_places_at_all_is_a_queue_that_is_always_full(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing thing = {0};
    assert_int_equal(queue_put(queue, &thing.item, "a", 0, 1), -EAGAIN);
    queue_free(queue);
}

static void test_one_tenant_cannot_fill_the_queue_for_all(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing things[33] = {0};
    int put_by_a = 0;
    while (put_by_a < 32 && queue_put(queue, &things[put_by_a].item, "a", 32, 1) == 0)
        put_by_a++;
    assert_int_equal(put_by_a, 30);
    assert_int_equal(queue_put(queue, &things[30].item, "b", 32, 1), 0);
    assert_int_equal(queue_put(queue, &things[31].item, "b", 32, 1), -EAGAIN);
    assert_int_equal(queue_put(queue, &things[31].item, "c", 32, 1), 0);
    assert_int_equal(queue_put(queue, &things[32].item, "d", 32, 1), -EAGAIN);
    queue_free(queue);
}

static void test_what_waited_too_long_is_found_in_every_lane(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing things[4];
    put(queue, &things[0], "a", 0, 10);
    put(queue, &things[1], "a", 1, 30);
    put(queue, &things[2], "b", 0, 20);
    put(queue, &things[3], "c", 0, 40);
    assert_null(queue_expired(queue, 10));
    int seen = 0;
    for (struct thing *thing; (thing = (struct thing *)queue_expired(queue, 25)) != NULL; seen++)
        assert_true(thing == &things[0] || thing == &things[2]);
    assert_int_equal(seen, 2);
    assert_int_equal(queue_count(queue), 2);
    queue_free(queue);
}

static void test_removing_from_the_middle_keeps_the_rest(void **state)
{
    (void)state;
    struct queue *queue = queue_new();
    struct thing things[4];
    for (int i = 0; i < 3; i++)
        put(queue, &things[i], "a", i, 1);
    put(queue, &things[3], "b", 0, 1);
    queue_remove(queue, &things[1].item);
    queue_remove(queue, &things[1].item);
    queue_remove(queue, &things[3].item);
    take(queue, "a", 0);
    take(queue, "a", 2);
    assert_null(queue_take(queue));
    queue_free(queue);
}

/* Many tenants with random arrivals: between two turns of one lane that always has something, every other lane that
 * always has something has exactly one. */
static void test_no_lane_is_passed_over(void **state)
{
    (void)state;
    enum { TENANTS = 7, EACH = 40 };
    struct queue *queue = queue_new();
    struct thing *things = calloc((size_t)TENANTS * EACH, sizeof *things);
    unsigned seed = 7;
    int left[TENANTS], next[TENANTS] = {0}, used = 0;
    for (int t = 0; t < TENANTS; t++)
        left[t] = EACH;
    while (used < TENANTS * EACH) {
        seed = seed * 1103515245U + 12345U;
        int t = (int)(seed >> 16) % TENANTS;
        if (left[t] == 0)
            continue;
        char name[16];
        snprintf(name, sizeof name, "t%d", t);
        put(queue, &things[used++], name, EACH - left[t]--, 1);
    }
    for (int turn = 0; turn < EACH; turn++) {
        bool seen[TENANTS] = {false};
        for (int i = 0; i < TENANTS; i++) {
            struct thing *thing = (struct thing *)queue_take(queue);
            int t = thing->tenant[1] - '0';
            assert_false(seen[t]);
            seen[t] = true;
            assert_int_equal(thing->number, next[t]++);
        }
    }
    assert_int_equal(queue_count(queue), 0);
    queue_free(queue);
    free(things);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tenant_is_served_in_the_order_of_asking),
        cmocka_unit_test(test_tenants_take_turns_whoever_came_first),
        cmocka_unit_test(test_a_tenant_that_comes_back_waits_for_the_others_first),
        cmocka_unit_test(test_a_full_queue_refuses),
        cmocka_unit_test(test_no_places_at_all_is_a_queue_that_is_always_full),
        cmocka_unit_test(test_one_tenant_cannot_fill_the_queue_for_all),
        cmocka_unit_test(test_what_waited_too_long_is_found_in_every_lane),
        cmocka_unit_test(test_removing_from_the_middle_keeps_the_rest),
        cmocka_unit_test(test_no_lane_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
