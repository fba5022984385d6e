/*
 * The store on a disk that is full, that fails, that loses its power, and without its files: a row whose `done` got 0
 * is there afterwards, whatever happened, and once the fault is over writing goes on.
 */
#include "base/fd.h"
#include "store/internal.h"
#include "store_disk.h"
#include "store_rows.h"
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

static void check_often(struct store *store)
{
    sqlite3_exec(store->writer.db, "PRAGMA wal_autocheckpoint = 20", NULL, NULL, NULL);
}

static void round_of_cut(const struct folder *folder, struct hc_loop *loop, unsigned fail_at, unsigned *seed,
                         bool *was_cut)
{
    struct disk *disk = disk_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct outcome outcomes[ROWS] = {0};
    disk->fail_at = fail_at;
    disk->fail_code = SQLITE_IOERR;
    disk->cut = true;
    if (store_open(folder->path, loop, false, &store, &err) == 0) {
        check_often(store);
        if (loop != NULL)
            write_with_loop(store, loop, outcomes);
        else
            write_rows(store, outcomes, 0, ROWS);
    }
    store_close(store);
    *was_cut = disk_after_cut(disk, seed);
    disk_free(disk);
    int good = check_acknowledged(folder, outcomes, ROWS);
    if (!*was_cut)
        assert_int_equal(good, ROWS);
}

static void test_a_power_cut_at_any_change_loses_nothing_acknowledged(void **state)
{
    struct folder *folder = *state;
    unsigned seed = 1, rounds = 0;
    /* Every change there is, from making the file to closing it. */
    for (bool cut = true; cut; rounds++) {
        round_of_cut(folder, NULL, rounds + 1, &seed, &cut);
        folder_empty(folder);
    }
    assert_in_range(rounds, 100, 2000);
}

static void test_a_power_cut_at_any_change_of_a_server_loses_nothing_acknowledged(void **state)
{
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    unsigned seed = 2, rounds = 0;
    for (bool cut = true; cut; rounds++) {
        round_of_cut(folder, loop, rounds + 1, &seed, &cut);
        folder_empty(folder);
    }
    hc_loop_free(loop);
    assert_in_range(rounds, 100, 2000);
}

/* A fault that comes once. Whether the store could be opened. */
static bool round_of_fault(const struct folder *folder, struct hc_loop *loop, unsigned fail_at, int code, bool *hit)
{
    struct disk *disk = disk_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct outcome outcomes[ROWS] = {0};
    disk->fail_at = fail_at;
    disk->fail_code = code;
    int status = store_open(folder->path, loop, false, &store, &err);
    if (status == 0) {
        check_often(store);
        for (int i = 0; i < ROWS; i += 4) {
            write_rows(store, outcomes, i, i + 4);
            assert_int_equal(outcome_wait(loop, &outcomes[i + 3], 1), 0);
        }
    } else {
        if (status != -ENOSPC && status != -EIO)
            fail_msg("%u: %d: %s", fail_at, status, err.message);
    }
    store_close(store);
    *hit = disk->operations >= fail_at;
    disk_free(disk);
    int failed = 0;
    for (int i = 0; i < ROWS && status == 0; i++) {
        failed += outcomes[i].result != 0;
        if (outcomes[i].result != 0)
            assert_int_equal(outcomes[i].result, code == SQLITE_FULL ? -ENOSPC : -EIO);
    }
    assert_in_range(failed, 0, 4); /* one batch; the next ones went well */
    check_acknowledged(folder, outcomes, ROWS);
    return status == 0;
}

static void test_a_change_that_fails_is_told_and_the_next_ones_are_written(void **state)
{
    struct folder *folder = *state;
    static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC};
    int opened = 0;
    struct hc_loop *loop = hc_loop_new();
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        bool hit = true;
        for (unsigned fail_at = 1 + (unsigned)i; hit; fail_at += 3) {
            opened += round_of_fault(folder, loop, fail_at, codes[i], &hit);
            folder_empty(folder);
        }
    }
    hc_loop_free(loop);
    assert_in_range(opened, 50, 2000);
}

static void test_a_database_at_its_largest_refuses_and_goes_on_when_it_may_grow(void **state)
{
    struct folder *folder = *state;
    struct store *store = NULL;
    struct hc_err err = {0};
    struct outcome outcomes[ROWS] = {0};
    assert_int_equal(store_open(folder->path, NULL, false, &store, &err), 0);
    sqlite3_exec(store->writer.db, "PRAGMA max_page_count = 28", NULL, NULL, NULL);
    write_rows(store, outcomes, 0, ROWS - 1);
    assert_int_equal(outcomes[0].result, 0);
    assert_int_equal(outcomes[ROWS - 2].result, -ENOSPC);
    assert_int_equal(store_status(store), -ENOSPC);
    sqlite3_exec(store->writer.db, "PRAGMA max_page_count = 4000", NULL, NULL, NULL);
    write_rows(store, outcomes, ROWS - 1, ROWS);
    assert_int_equal(outcomes[ROWS - 1].result, 0);
    assert_int_equal(store_status(store), 0);
    store_close(store);
    assert_in_range(check_acknowledged(folder, outcomes, ROWS), 2, ROWS - 2);
}

/* In a mount namespace of its own, which goes with the process. */
static bool mount_small(const char *path)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", path, "tmpfs", 0, "size=1m,mode=0700") == 0;
}

static void fill(const char *path, size_t size)
{
    hc_cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)size), 0);
}

static void test_a_full_disk_is_told_and_writing_goes_on_when_there_is_room(void **state)
{
    enum { MANY = 200 };
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct outcome outcomes[MANY + 1] = {0};
    char filler[128];
    if (!mount_small(folder->path)) {
        hc_loop_free(loop);
        print_message("skipped: a small file system cannot be mounted here (%s)\n", strerror(errno));
        skip();
    }
    folder_file(folder, "filler", filler, sizeof filler);
    fill(filler, 300000);
    assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
    for (int i = 0; i < MANY; i += 10) {
        write_rows(store, outcomes, i, i + 10);
        assert_int_equal(outcome_wait(loop, &outcomes[i + 9], 1), 0);
    }
    assert_int_equal(outcomes[0].result, 0);
    assert_int_equal(outcomes[MANY - 1].result, -ENOSPC);
    assert_int_equal(store_status(store), -ENOSPC);
    struct store_totals totals;
    assert_int_equal(store_totals(store, NULL, 0, &totals), 0); /* reading goes on */
    assert_true(totals.runs > 0);

    assert_int_equal(unlink(filler), 0);
    uint64_t deadline = hc_now() + UINT64_C(5000000);
    while (store_status(store) != 0 && hc_now() < deadline) /* asking is enough for it to try again */
        usleep(10000);
    assert_int_equal(store_status(store), 0);
    write_rows(store, outcomes, MANY, MANY + 1);
    assert_int_equal(outcome_wait(loop, &outcomes[MANY], 1), 0);
    assert_int_equal(outcomes[MANY].result, 0);
    store_close(store);
    check_acknowledged(folder, outcomes, MANY + 1);
    hc_loop_free(loop);
    assert_int_equal(umount2(folder->path, MNT_DETACH), 0);
}

static void lose(const struct folder *folder, const char *name)
{
    struct hc_loop *loop = hc_loop_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct outcome outcomes[2] = {0};
    char path[128];
    assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
    write_rows(store, outcomes, 0, 1);
    assert_int_equal(outcome_wait(loop, &outcomes[0], 1), 0);
    assert_int_equal(outcomes[0].result, 0);
    folder_file(folder, name, path, sizeof path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(store_status(store), -ESTALE);
    write_rows(store, outcomes, 1, 2);
    assert_int_equal(outcome_wait(loop, &outcomes[1], 1), 0);
    assert_int_equal(outcomes[1].result, -ESTALE);
    store_close(store);
    hc_loop_free(loop);
}

static void test_a_database_that_is_taken_away_is_an_error(void **state)
{
    lose(*state, "history.db");
}

static void test_a_log_that_is_taken_away_is_an_error(void **state)
{
    lose(*state, "history.db-wal");
}

static void test_a_journal_that_is_taken_away_is_an_error(void **state)
{
    lose(*state, "history.db-runs");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rows_set_up, rows_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_power_cut_at_any_change_loses_nothing_acknowledged),
        TEST(test_a_power_cut_at_any_change_of_a_server_loses_nothing_acknowledged),
        TEST(test_a_change_that_fails_is_told_and_the_next_ones_are_written),
        TEST(test_a_database_at_its_largest_refuses_and_goes_on_when_it_may_grow),
        TEST(test_a_full_disk_is_told_and_writing_goes_on_when_there_is_room),
        TEST(test_a_database_that_is_taken_away_is_an_error),
        TEST(test_a_log_that_is_taken_away_is_an_error),
        TEST(test_a_journal_that_is_taken_away_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
