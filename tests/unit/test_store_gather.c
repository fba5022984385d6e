/* Ends of runs that gather: one sync for many, all of them acknowledged after it and within the time, and none lost. */
#include "store_rows.h"

#include "base/loop.h"

enum { GATHER_US = 40 * 1000, TOGETHER = 5 };

struct fixture {
    struct folder *folder;
    struct hc_loop *loop;
    struct store *store;
    struct outcome outcomes[ROWS];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct hc_err err = {0};
    if (rows_set_up((void **)&fixture->folder) < 0)
        return -1;
    *state = fixture;
    fixture->loop = hc_loop_new();
    return store_open(fixture->folder->path, fixture->loop, false, &fixture->store, &err);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    store_close(fixture->store);
    hc_loop_free(fixture->loop);
    rows_tear_down((void **)&fixture->folder);
    free(fixture);
    return 0;
}

static void submit(struct fixture *fixture, int from, int to)
{
    for (int i = from; i < to; i++) {
        struct run_row row = row_ended((unsigned)i, "{}");
        assert_int_equal(store_run_finish(fixture->store, &row, outcome_done, &fixture->outcomes[i]), 0);
    }
}

static void wait_for(struct fixture *fixture, int from, int to)
{
    for (int i = from; i < to; i++)
        assert_int_equal(outcome_wait(fixture->loop, &fixture->outcomes[i], 1), 0);
}

static void test_what_gathers_is_one_entry_and_is_acknowledged_after_it(void **state)
{
    struct fixture *fixture = *state;
    uint64_t before = journal_last(fixture->store->journal);
    store_gather(fixture->store, GATHER_US);
    submit(fixture, 0, TOGETHER);
    for (int i = 0; i < TOGETHER; i++)
        assert_int_equal(fixture->outcomes[i].calls, 0);
    assert_int_equal(journal_last(fixture->store->journal), before);
    wait_for(fixture, 0, TOGETHER);
    assert_int_equal(journal_last(fixture->store->journal), before + 1);
    assert_int_equal(check_acknowledged(fixture->folder, fixture->outcomes, TOGETHER), TOGETHER);
}

static void test_what_cannot_wait_takes_along_what_gathers(void **state)
{
    struct fixture *fixture = *state;
    store_gather(fixture->store, GATHER_US);
    submit(fixture, 0, 2);
    struct run_row row = row_queued(2);
    assert_int_equal(store_run_insert(fixture->store, &row, outcome_done, &fixture->outcomes[2]), 0);
    wait_for(fixture, 2, 3);
    assert_int_equal(fixture->outcomes[0].calls, 1);
    assert_int_equal(fixture->outcomes[1].calls, 1);
}

static void test_nothing_gathers_any_more_when_the_crowd_is_gone(void **state)
{
    struct fixture *fixture = *state;
    store_gather(fixture->store, GATHER_US);
    submit(fixture, 0, 2);
    wait_for(fixture, 0, 2);
    store_gather(fixture->store, 0);
    uint64_t before = journal_last(fixture->store->journal);
    for (int i = 2; i < 5; i++) {
        submit(fixture, i, i + 1);
        wait_for(fixture, i, i + 1);
    }
    assert_int_equal(journal_last(fixture->store->journal), before + 3);
}

static void test_what_gathers_is_written_when_the_store_is_closed(void **state)
{
    struct fixture *fixture = *state;
    struct hc_err err = {0};
    store_gather(fixture->store, GATHER_US);
    submit(fixture, 0, TOGETHER);
    store_close(fixture->store);
    assert_int_equal(check_acknowledged(fixture->folder, fixture->outcomes, TOGETHER), TOGETHER);
    assert_int_equal(store_open(fixture->folder->path, fixture->loop, false, &fixture->store, &err), 0);
}

static uint64_t written(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    uint64_t last = journal_last(store->journal);
    pthread_mutex_unlock(&store->lock);
    return last;
}

/* What a run used waits for the run's end, which may not come: it is written all the same, while the thread has nothing
 * to wake it and the loop nothing else to do. */
static void test_what_waits_for_an_end_that_does_not_come_is_written(void **state)
{
    struct fixture *fixture = *state;
    submit(fixture, 0, 2);
    wait_for(fixture, 0, 2);
    uint64_t settled = hc_now() + 300 * 1000;
    while (hc_now() < settled)
        assert_true(hc_loop_turn(fixture->loop, 50) >= 0);
    uint64_t before = written(fixture->store), deadline = hc_now() + 10 * 1000 * 1000;
    assert_int_equal(store_usage_add(fixture->store, "alice", 20000, 5, 1), 0);
    while (written(fixture->store) == before && hc_now() < deadline)
        assert_true(hc_loop_turn(fixture->loop, 100) >= 0);
    assert_int_equal(written(fixture->store), before + 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_what_gathers_is_one_entry_and_is_acknowledged_after_it),
        TEST(test_what_cannot_wait_takes_along_what_gathers),
        TEST(test_nothing_gathers_any_more_when_the_crowd_is_gone),
        TEST(test_what_gathers_is_written_when_the_store_is_closed),
        TEST(test_what_waits_for_an_end_that_does_not_come_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
