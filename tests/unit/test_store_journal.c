/*
 * The store with its journal: what was acknowledged is read at once, by whomever; it survives a crash at any moment,
 * with a write-ahead log of any length behind its last sync; and what the database cannot take waits.
 */
#include "base/fd.h"
#include "store/internal.h"
#include "store_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

struct fixture {
    struct folder folder, copy;
    struct hc_loop *loop;
    struct store *store;
};

static struct store *open_store(const struct folder *folder, struct hc_loop *loop, bool read_only)
{
    struct store *store = NULL;
    struct hc_err err = {0};
    if (store_open(folder->path, loop, read_only, &store, &err) < 0)
        fail_msg("cannot be opened: %s", err.message);
    return store;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    *state = fixture;
    /* In memory where there is such a folder: nothing here loses its power, and a true fsync only takes time. */
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    if (fixture == NULL || folder_make_in(&fixture->folder, where) < 0 || folder_make_in(&fixture->copy, where) < 0)
        return -1;
    fixture->loop = hc_loop_new();
    fixture->store = open_store(&fixture->folder, fixture->loop, false);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    store_close(fixture->store);
    hc_loop_free(fixture->loop);
    folder_remove(&fixture->folder);
    folder_remove(&fixture->copy);
    free(fixture);
    return 0;
}

static int finish(struct fixture *fixture, unsigned n, const char *result)
{
    struct run_row row = row_ended(n, result);
    struct outcome outcome = {0};
    assert_int_equal(store_run_finish(fixture->store, &row, outcome_done, &outcome), 0);
    assert_int_equal(outcome_wait(fixture->loop, &outcome, 1), 0);
    return outcome.result;
}

static int count_row(void *data, const struct run_row *row)
{
    (void)row;
    ++*(int *)data;
    return 0;
}

static bool has(struct store *store, unsigned n)
{
    char id[40];
    int calls = 0;
    snprintf(id, sizeof id, "run_%08u", n);
    return store_run_get(store, NULL, id, count_row, &calls) == 1 && calls == 1;
}

/* Runs 1 to `count` are there once each, and in the sums; and as much usage. */
static void has_all_once(struct store *store, unsigned count)
{
    struct store_totals totals, counted;
    uint64_t cpu_us = 0, runs = 0;
    int listed = 0;
    for (unsigned i = 1; i <= count; i++)
        if (!has(store, i))
            fail_msg("run %u of %u is lost", i, count);
    assert_int_equal(store_totals(store, NULL, 0, &totals), 0);
    assert_int_equal(store_totals(store, NULL, 1, &counted), 0);
    assert_int_equal(totals.runs, count);
    assert_memory_equal(totals.by_status, counted.by_status, sizeof totals.by_status);
    assert_int_equal(store_run_list(store, &(struct run_filter){.status = "completed"}, count_row, &listed), count);
    assert_int_equal(store_usage_get(store, "local", 1, &cpu_us, &runs), 0);
    assert_int_equal(runs, count);
    assert_int_equal(cpu_us, 3 * count);
}

/* A run as a server has it. */
static void whole_run(struct fixture *fixture, unsigned n, const char *result)
{
    struct run_row row = row_queued(n);
    assert_int_equal(store_run_insert(fixture->store, &row, NULL, NULL), 0);
    assert_int_equal(store_run_started(fixture->store, row.id, row.created_at + 1, NULL, NULL), 0);
    assert_int_equal(store_usage_add(fixture->store, "local", 1, 3, 1), 0);
    assert_int_equal(finish(fixture, n, result), 0);
}

static size_t pending(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    size_t count = store->pending_count;
    pthread_mutex_unlock(&store->lock);
    return count;
}

/* Nothing is applied until the lock is given back: what is acknowledged is in the journal alone. */
static sqlite3 *hold_database(struct fixture *fixture)
{
    sqlite3 *db = NULL;
    pthread_mutex_lock(&fixture->store->lock);
    while (fixture->store->busy)
        pthread_cond_wait(&fixture->store->settled, &fixture->store->lock);
    sqlite3_busy_timeout(fixture->store->writer.db, 1);
    pthread_mutex_unlock(&fixture->store->lock);
    assert_int_equal(sqlite3_open(fixture->store->path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

static void test_what_was_acknowledged_is_read_at_once(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned i = 1; i <= 20; i++) {
        whole_run(fixture, i, "{}");
        assert_true(has(fixture->store, i));
    }
    has_all_once(fixture->store, 20);
}

static void test_it_is_in_the_database_within_moments(void **state)
{
    struct fixture *fixture = *state;
    whole_run(fixture, 1, "{}");
    assert_true(pending(fixture->store) > 0);
    uint64_t deadline = hc_now() + UINT64_C(5000000);
    while (pending(fixture->store) > 0 && hc_now() < deadline)
        usleep(5000);
    assert_int_equal(pending(fixture->store), 0);
}

static void test_a_reader_beside_sees_what_was_acknowledged(void **state)
{
    struct fixture *fixture = *state;
    struct store *reader = open_store(&fixture->folder, NULL, true);
    struct store *writer = open_store(&fixture->folder, NULL, false);
    for (unsigned i = 1; i <= 10; i++) {
        whole_run(fixture, i, "{}");
        assert_true(has(i % 2 == 0 ? reader : writer, i));
    }
    has_all_once(reader, 10);
    store_close(reader);
    store_close(writer);
}

static void test_a_reader_waits_no_longer_than_it_must_for_a_server_that_cannot_write(void **state)
{
    struct fixture *fixture = *state;
    whole_run(fixture, 1, "{}");
    struct store *reader = open_store(&fixture->folder, NULL, true);
    sqlite3 *db = hold_database(fixture);
    int calls = 0;
    assert_int_equal(finish(fixture, 2, "{}"), 0);
    assert_int_equal(store_run_get(reader, NULL, "run_00000002", count_row, &calls), -EBUSY); /* not: there is none */
    assert_int_equal(store_run_get(fixture->store, NULL, "run_00000002", count_row, &calls), -EBUSY);
    assert_true(has(reader, 1)); /* what is there can be read */
    sqlite3_close(db);
    assert_true(has(reader, 2));
    store_close(reader);
}

static void copy_files(const struct fixture *fixture)
{
    static const char *const names[] = {"history.db", "history.db-wal", "history.db-runs"};
    pid_t pid = fork(); /* closing a second descriptor of a database drops the locks that a process holds on it */
    assert_true(pid >= 0);
    for (size_t i = 0; i < sizeof names / sizeof *names && pid == 0; i++) {
        char path[128], copy[128];
        folder_file(&fixture->folder, names[i], path, sizeof path);
        folder_file(&fixture->copy, names[i], copy, sizeof copy);
        hc_cleanup_fd int in = open(path, O_RDONLY | O_CLOEXEC);
        hc_cleanup_fd int out = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (in < 0 || out < 0 || hc_copy_all(in, out) < 0)
            _exit(1);
    }
    if (pid == 0)
        _exit(0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* As they are at this moment; the log cut to so many bytes, unless it is -1. */
static void check_copy(struct fixture *fixture, off_t log, bool read_only, unsigned count)
{
    char path[128];
    folder_file(&fixture->copy, "history.db-wal", path, sizeof path);
    copy_files(fixture);
    if (log >= 0)
        assert_int_equal(truncate(path, log), 0);
    struct store *store = open_store(&fixture->copy, NULL, read_only);
    has_all_once(store, count);
    store_close(store);
    folder_empty(&fixture->copy);
}

static off_t log_size(const struct fixture *fixture)
{
    struct stat file;
    assert_int_equal(stat(fixture->store->wal_path, &file), 0);
    return file.st_size;
}

static void test_the_files_at_any_moment_have_all_that_was_acknowledged(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned i = 1; i <= 24; i++) {
        whole_run(fixture, i, "{}");
        if (i % 3 == 0)
            assert_true(has(fixture->store, i)); /* some of it is in the database, some not */
        check_copy(fixture, -1, i % 2 == 0, i);
    }
}

static void test_a_log_that_ends_anywhere_behind_its_last_sync_loses_nothing(void **state)
{
    struct fixture *fixture = *state;
    off_t synced = log_size(fixture); /* opening it ends with a commit that is */
    for (unsigned i = 1; i <= 12; i++) {
        whole_run(fixture, i, "{\"some\":\"result\"}");
        if (i % 2 == 0)
            assert_true(has(fixture->store, i)); /* commits that are not */
    }
    off_t end = log_size(fixture);
    assert_true(end > synced + 20000);
    for (off_t size = synced; size <= end; size += 8191)
        check_copy(fixture, size, false, 12);
}

static void test_a_torn_last_entry_costs_no_other(void **state)
{
    struct fixture *fixture = *state;
    char path[128];
    sqlite3 *db = hold_database(fixture);
    for (unsigned i = 1; i <= 5; i++)
        assert_int_equal(finish(fixture, i, "{}"), 0);
    off_t last = JOURNAL_BLOCK * (off_t)(1 + (journal_mark(fixture->store->journal) - 1) % JOURNAL_BLOCKS);
    folder_file(&fixture->copy, "history.db-runs", path, sizeof path);
    for (off_t cut = 0; cut < 80; cut += 8) { /* of its last block, the beginning is there */
        static const char zeros[JOURNAL_BLOCK];
        copy_files(fixture);
        hc_cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, zeros, (size_t)(JOURNAL_BLOCK - cut), last + cut), JOURNAL_BLOCK - cut);
        struct store *store = open_store(&fixture->copy, NULL, false);
        for (unsigned i = 1; i <= 4; i++)
            assert_true(has(store, i));
        assert_false(has(store, 5));
        store_close(store);
        folder_empty(&fixture->copy);
    }
    sqlite3_close(db);
}

static void test_a_server_that_was_killed_has_its_runs_also_for_the_command_line(void **state)
{
    struct fixture *fixture = *state;
    store_close(fixture->store);
    fixture->store = NULL;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fixture->loop = hc_loop_new();
        fixture->store = open_store(&fixture->folder, fixture->loop, false);
        for (unsigned i = 1; i <= 7; i++)
            whole_run(fixture, i, "{}");
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    struct store *reader = open_store(&fixture->folder, NULL, true);
    assert_int_equal(store_status(reader), 0);
    struct run_row row = row_queued(9);
    assert_int_equal(store_run_insert(reader, &row, NULL, NULL), -EROFS); /* it is still for reading */
    has_all_once(reader, 7);
    store_close(reader);
    fixture->store = open_store(&fixture->folder, fixture->loop, false);
    has_all_once(fixture->store, 7);
}

static void test_the_steps_of_a_run_are_applied_in_their_order(void **state)
{
    static char large[RECORD_BYTES + 1];
    struct fixture *fixture = *state;
    memset(large, 'l', sizeof large - 1);
    /* The last two go into the database at once: too large for the journal, which has what comes before. */
    static const char *const results[] = {"{}", "{\"a\":1}", large, large};
    for (unsigned i = 0; i < 4; i++)
        whole_run(fixture, i + 1, results[i]);
    check_copy(fixture, -1, false, 4);
    has_all_once(fixture->store, 4);
    for (unsigned i = 5; i <= 8; i++) {
        struct run_row row = row_queued(i);
        assert_int_equal(store_run_insert(fixture->store, &row, NULL, NULL), 0);
        assert_int_equal(store_run_started(fixture->store, row.id, 77, NULL, NULL), 0);
    }
    struct store_totals totals;
    uint64_t deadline = hc_now() + UINT64_C(5000000);
    do
        assert_int_equal(store_totals(fixture->store, NULL, 0, &totals), 0);
    while (totals.by_status[1] < 4 && hc_now() < deadline);
    assert_int_equal(totals.by_status[0], 0); /* queued */
    assert_int_equal(totals.by_status[1], 4); /* running */
}

static void test_an_id_that_is_in_the_database_is_refused_before_it_is_in_the_journal(void **state)
{
    struct fixture *fixture = *state;
    struct run_row row = row_queued(1);
    struct outcome outcomes[2] = {0};
    row.keep_going = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_run_insert(fixture->store, &row, outcome_done, &outcomes[i]), 0);
        assert_int_equal(outcome_wait(fixture->loop, &outcomes[i], 1), 0);
        assert_true(has(fixture->store, 1));
    }
    assert_int_equal(outcomes[0].result, 0);
    assert_int_equal(outcomes[1].result, -EEXIST);
}

static void test_the_journal_goes_round_many_times(void **state)
{
    struct fixture *fixture = *state;
    static char result[20001];
    memset(result, 'r', sizeof result - 1);
    for (unsigned i = 1; i <= 400; i++)
        whole_run(fixture, i, result);
    has_all_once(fixture->store, 400);
    check_copy(fixture, -1, false, 400);
}

/* Another process has the lock: the journal takes what comes until it is full. */
static void test_what_the_database_cannot_take_waits_and_then_the_calls_fail(void **state)
{
    struct fixture *fixture = *state;
    unsigned count = 0;
    sqlite3 *db = hold_database(fixture);
    while (finish(fixture, count + 1, "{}") == 0)
        count++;
    assert_in_range(count, 300, JOURNAL_BLOCKS);
    assert_int_equal(finish(fixture, count + 2, "{}"), -EBUSY);
    assert_int_equal(store_status(fixture->store), -EBUSY);
    sqlite3_close(db);
    uint64_t deadline = hc_now() + UINT64_C(5000000);
    while (store_status(fixture->store) != 0 && hc_now() < deadline)
        usleep(10000);
    assert_int_equal(store_status(fixture->store), 0);
    for (unsigned i = 1; i <= count; i++)
        assert_true(has(fixture->store, i));
    assert_int_equal(finish(fixture, count + 3, "{}"), 0);
}

static void test_a_full_disk_fills_the_journal_and_nothing_is_lost(void **state)
{
    struct fixture *fixture = *state;
    unsigned count = 0;
    char filler[128];
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", fixture->copy.path, "tmpfs", 0, "size=3m,mode=0700") < 0) {
        print_message("skipped: a small file system cannot be mounted here (%s)\n", strerror(errno));
        skip();
    }
    store_close(fixture->store);
    fixture->store = open_store(&fixture->copy, fixture->loop, false);
    folder_file(&fixture->copy, "filler", filler, sizeof filler);
    hc_cleanup_fd int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    static const char zeros[4096];
    while (write(fd, zeros, sizeof zeros) > 0)
        continue;
    while (finish(fixture, count + 1, "{}") == 0 && count < 10000)
        count++;
    assert_in_range(count, 100, 9999);
    assert_int_equal(finish(fixture, count + 2, "{}"), -ENOSPC);
    assert_int_equal(store_status(fixture->store), -ENOSPC);
    store_close(fixture->store); /* and it may be stopped and started again as it is */
    fixture->store = open_store(&fixture->copy, fixture->loop, false);
    assert_int_equal(store_status(fixture->store), -ENOSPC);
    assert_int_equal(ftruncate(fd, 0), 0);
    uint64_t deadline = hc_now() + UINT64_C(5000000);
    while (store_status(fixture->store) != 0 && hc_now() < deadline)
        usleep(10000);
    for (unsigned i = 1; i <= count; i++)
        assert_true(has(fixture->store, i));
    assert_int_equal(finish(fixture, count + 3, "{}"), 0);
    store_close(fixture->store);
    fixture->store = NULL;
    assert_int_equal(umount2(fixture->copy.path, MNT_DETACH), 0);
}

static void copy_file(const char *from, const char *to)
{
    hc_cleanup_fd int in = open(from, O_RDONLY | O_CLOEXEC);
    hc_cleanup_fd int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(in >= 0 && out >= 0 && hc_copy_all(in, out) == 0);
}

static void test_a_journal_of_another_database_is_left_alone_and_a_new_database_takes_it(void **state)
{
    struct fixture *fixture = *state;
    struct hc_err err = {0};
    struct store *store = NULL;
    char journal[128], database[128], log[128], kept[128];
    sqlite3 *db = hold_database(fixture);
    for (unsigned i = 1; i <= 3; i++)
        whole_run(fixture, i, "{}");
    copy_files(fixture); /* three runs in the journal alone */
    sqlite3_close(db);
    folder_file(&fixture->copy, "history.db-runs", journal, sizeof journal);
    folder_file(&fixture->folder, "kept", kept, sizeof kept);
    copy_file(journal, kept);
    folder_file(&fixture->copy, "history.db", database, sizeof database);
    folder_file(&fixture->copy, "history.db-wal", log, sizeof log);
    assert_int_equal(unlink(database), 0);
    assert_int_equal(unlink(log), 0);
    store = open_store(&fixture->copy, fixture->loop, false);
    has_all_once(store, 3);
    store_close(store);
    /* A database that names another one, and this one is not empty. */
    copy_file(kept, journal);
    store = open_store(&fixture->copy, NULL, false);
    assert_int_equal(
        sqlite3_exec(store->writer.db, "UPDATE state SET value = 5 WHERE name = 'journal_id'", NULL, NULL, NULL),
        SQLITE_OK);
    store_close(store);
    store = NULL;
    assert_int_equal(store_open(fixture->copy.path, fixture->loop, false, &store, &err), -EBADMSG);
    assert_non_null(strstr(err.message, journal));
    assert_true(err.remedy[0] != '\0');
}

static void test_nothing_of_a_run_is_left_in_the_journal_of_a_server_that_was_stopped(void **state)
{
    struct fixture *fixture = *state;
    char path[128], *text hc_cleanup_free = NULL;
    size_t length = 0;
    whole_run(fixture, 1, "{\"secret\":1}");
    folder_file(&fixture->folder, "history.db-runs", path, sizeof path);
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(hc_read_all(fd, 1 << 24, &text, &length), 0);
    assert_non_null(memmem(text, length, "secret", 6));
    free(HC_TAKE_PTR(text));
    store_close(fixture->store);
    fixture->store = NULL;
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(hc_read_all(fd, 1 << 24, &text, &length), 0);
    assert_null(memmem(text, length, "secret", 6));
    fixture->store = open_store(&fixture->folder, NULL, true);
    has_all_once(fixture->store, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_was_acknowledged_is_read_at_once),
        TEST(test_it_is_in_the_database_within_moments),
        TEST(test_a_reader_beside_sees_what_was_acknowledged),
        TEST(test_a_reader_waits_no_longer_than_it_must_for_a_server_that_cannot_write),
        TEST(test_the_files_at_any_moment_have_all_that_was_acknowledged),
        TEST(test_a_log_that_ends_anywhere_behind_its_last_sync_loses_nothing),
        TEST(test_a_torn_last_entry_costs_no_other),
        TEST(test_a_server_that_was_killed_has_its_runs_also_for_the_command_line),
        TEST(test_the_steps_of_a_run_are_applied_in_their_order),
        TEST(test_an_id_that_is_in_the_database_is_refused_before_it_is_in_the_journal),
        TEST(test_the_journal_goes_round_many_times),
        TEST(test_what_the_database_cannot_take_waits_and_then_the_calls_fail),
        TEST(test_a_full_disk_fills_the_journal_and_nothing_is_lost),
        TEST(test_a_journal_of_another_database_is_left_alone_and_a_new_database_takes_it),
        TEST(test_nothing_of_a_run_is_left_in_the_journal_of_a_server_that_was_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
