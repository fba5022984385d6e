/*
 * A server whose power is cut: while its journal goes round, while it stops, after a crash, while the journal is
 * replayed; and a disk that forgets what it could not write. A row whose `done` got 0 is there afterwards, and none is
 * there twice.
 */
#include "base/fd.h"
#include "store_disk.h"
#include "store_rows.h"
#include <errno.h>

/* Rows that fill the journal several times over. With a power cut, the first one that is refused ends it. */
static void go_round(struct store *store, struct hc_loop *loop, struct outcome *outcomes, int count)
{
    static char result[50001];
    struct store_totals totals;
    memset(result, 'r', sizeof result - 1);
    for (int i = 0; i < count; i++) {
        struct run_row row = row_ended((unsigned)i, result);
        assert_int_equal(store_run_finish(store, &row, outcome_done, &outcomes[i]), 0);
        assert_int_equal(outcome_wait(loop, &outcomes[i], 1), 0);
        if (outcomes[i].result < 0 && disk_under_journal->off)
            return;
        if (i % 3 == 0)
            store_totals(store, NULL, 0, &totals);
    }
}

enum { ROUND = 110, CUTS = 30, OPERATIONS = 3000 };

static void round_of_going_round(const struct folder *folder, struct hc_loop *loop, unsigned forget_at, unsigned *seed,
                                 unsigned *cuts)
{
    struct outcome outcomes[ROUND] = {0};
    struct store *store = NULL;
    struct hc_err err = {0};
    struct disk *disk = disk_new();
    disk->cut_at = 200 + (unsigned)rand_r(seed) % OPERATIONS;
    disk->forget_at = forget_at;
    disk->fail_code = SQLITE_IOERR;
    if (store_open(folder->path, loop, false, &store, &err) == 0)
        go_round(store, loop, outcomes, ROUND);
    store_close(store);
    *cuts += disk_after_cut(disk, seed);
    disk_free(disk);
    check_acknowledged(folder, outcomes, ROUND);
    folder_empty(folder);
}

static void test_a_power_cut_while_the_journal_goes_round_loses_nothing_acknowledged(void **state)
{
    struct hc_loop *loop = hc_loop_new();
    unsigned seed = 5, cuts = 0;
    for (unsigned round = 0; round < CUTS; round++)
        round_of_going_round(*state, loop, 0, &seed, &cuts);
    hc_loop_free(loop);
    assert_in_range(cuts, CUTS / 2, CUTS);
}

static void test_what_a_failed_sync_has_forgotten_is_not_lost(void **state)
{
    struct hc_loop *loop = hc_loop_new();
    unsigned seed = 6, cuts = 0;
    for (unsigned forget_at = 1; forget_at <= 4 * CUTS; forget_at += 2)
        round_of_going_round(*state, loop, forget_at, &seed, &cuts);
    hc_loop_free(loop);
    assert_in_range(cuts, CUTS, 2 * CUTS);
}

/* All of it was applied, by commits that were not synced: then the last one has nothing to write, and must sync. */
static void test_a_power_cut_while_a_server_stops_loses_nothing_acknowledged(void **state)
{
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    unsigned seed = 7, rounds = 0;
    for (bool cut = true; cut; rounds++) {
        struct outcome outcomes[ROWS] = {0};
        struct store_totals totals;
        struct store *store = NULL;
        struct hc_err err = {0};
        struct disk *disk = disk_new();
        disk->fail_code = SQLITE_IOERR;
        assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
        write_with_loop(store, loop, outcomes);
        assert_int_equal(store_totals(store, NULL, 0, &totals), 0);
        disk->cut_at = disk->operations + 1 + rounds / 2;
        store_close(store);
        cut = disk_after_cut(disk, &seed);
        disk_free(disk);
        assert_int_equal(check_acknowledged(folder, outcomes, ROWS), ROWS);
        folder_empty(folder);
    }
    hc_loop_free(loop);
    assert_in_range(rounds, 20, 2000);
}

/* A process that dies leaves what it wrote in the kernel's memory, synced or not; the next one builds on it. */
static void test_a_power_cut_after_a_crash_loses_nothing_that_was_acknowledged_before(void **state)
{
    enum { AFTER = 8 };
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    unsigned seed = 8, rounds = 0;
    for (bool cut = true; cut; rounds++) {
        struct outcome outcomes[ROWS + AFTER] = {0};
        struct store_totals totals;
        struct store *store = NULL;
        struct hc_err err = {0};
        struct disk *disk = disk_new();
        disk->fail_code = SQLITE_IOERR;
        assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
        write_with_loop(store, loop, outcomes);
        assert_int_equal(store_totals(store, NULL, 0, &totals), 0);
        disk->off = true; /* nothing that it does from now on has an effect */
        store_close(store);
        disk->off = false;
        disk->cut_at = disk->operations + 1 + 4 * rounds;
        if (store_open(folder->path, loop, false, &store, &err) == 0) {
            for (int i = ROWS; i < ROWS + AFTER; i++) {
                write_rows(store, outcomes, i, i + 1);
                assert_int_equal(outcome_wait(loop, &outcomes[i], 1), 0);
            }
            store_close(store);
        }
        cut = disk_after_cut(disk, &seed);
        disk_free(disk);
        assert_in_range(check_acknowledged(folder, outcomes, ROWS + AFTER), ROWS, ROWS + AFTER);
        folder_empty(folder);
    }
    hc_loop_free(loop);
    assert_in_range(rounds, 20, 2000);
}

/* What a crash has left: some of it in the database, some only in the journal. */
static void leave_behind(const struct folder *folder, struct outcome *outcomes)
{
    struct hc_loop *loop = hc_loop_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct disk *disk = disk_new();
    unsigned seed = 3;
    assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
    write_with_loop(store, loop, outcomes);
    disk->off = true;
    store_close(store);
    assert_true(disk_after_cut(disk, &seed));
    disk_free(disk);
    hc_loop_free(loop);
}

static void copy_folder(const struct folder *from, const struct folder *to)
{
    static const char *const names[] = {"history.db", "history.db-wal", "history.db-runs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128], copy[128];
        folder_file(from, names[i], path, sizeof path);
        folder_file(to, names[i], copy, sizeof copy);
        hc_cleanup_fd int in = open(path, O_RDONLY | O_CLOEXEC);
        hc_cleanup_fd int out = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(in >= 0 && out >= 0 && hc_copy_all(in, out) == 0);
    }
}

/* None is there twice, in the sums either. */
static void check_once(const struct folder *folder, int runs, uint64_t usage)
{
    struct store *store = NULL;
    struct hc_err err = {0};
    struct store_totals totals;
    uint64_t cpu_us = 0, count = 0;
    int listed = 0;
    assert_int_equal(store_open(folder->path, NULL, true, &store, &err), 0);
    assert_int_equal(store_totals(store, NULL, 0, &totals), 0);
    assert_int_equal(totals.runs, runs);
    assert_int_equal(store_run_list(store, &(struct run_filter){.status = "completed"}, count_row, &listed), runs);
    assert_int_equal(store_usage_get(store, "local", 1, &cpu_us, &count), 0);
    assert_int_equal(count, usage);
    store_close(store);
}

static void test_a_power_cut_while_the_journal_is_replayed_loses_and_doubles_nothing(void **state)
{
    struct folder *folder = *state, copy;
    struct hc_loop *loop = hc_loop_new();
    struct outcome outcomes[ROWS] = {0};
    unsigned seed = 4, rounds = 0;
    leave_behind(folder, outcomes);
    assert_int_equal(folder_make_in(&copy, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"), 0);
    for (bool cut = true; cut; rounds++) {
        struct store *store = NULL;
        struct hc_err err = {0};
        copy_folder(folder, &copy);
        struct disk *disk = disk_new();
        disk->fail_at = rounds + 1;
        disk->fail_code = SQLITE_IOERR;
        disk->cut = true;
        if (store_open(copy.path, rounds % 2 == 0 ? loop : NULL, false, &store, &err) == 0)
            store_close(store);
        cut = disk_after_cut(disk, &seed);
        disk_free(disk);
        assert_int_equal(check_acknowledged(&copy, outcomes, ROWS), ROWS);
        check_once(&copy, ROWS, ROWS / 2);
        folder_empty(&copy);
    }
    folder_remove(&copy);
    hc_loop_free(loop);
    assert_in_range(rounds, 10, 500);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rows_set_up, rows_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_power_cut_while_the_journal_goes_round_loses_nothing_acknowledged),
        TEST(test_what_a_failed_sync_has_forgotten_is_not_lost),
        TEST(test_a_power_cut_while_a_server_stops_loses_nothing_acknowledged),
        TEST(test_a_power_cut_after_a_crash_loses_nothing_that_was_acknowledged_before),
        TEST(test_a_power_cut_while_the_journal_is_replayed_loses_and_doubles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
