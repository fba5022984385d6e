/* Opening the store: who may read its files, what is refused and left alone, what another process sees. And keys. */
#include "base/fd.h"
#include "store/internal.h"
#include "store_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static int set_up(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    *state = folder;
    return folder != NULL ? folder_make(folder) : -1;
}

static int tear_down(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

static struct store *open_store(const struct folder *folder)
{
    struct store *store = NULL;
    struct hc_err err = {0};
    int status = store_open(folder->path, NULL, false, &store, &err);
    if (status < 0)
        print_error("%s\n", err.message);
    assert_int_equal(status, 0);
    return store;
}

static int64_t ask(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t answer = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return answer;
}

static void change_by_hand(const struct folder *folder, const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    folder_file(folder, "history.db", path, sizeof path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static int refuse_row(void *data, const struct run_row *row)
{
    (void)data;
    (void)row;
    return 0;
}

static void test_files_are_for_their_owner_alone(void **state)
{
    struct folder *folder = *state;
    mode_t before = umask(0);
    struct store *store = open_store(folder);
    struct run_row row = row_queued(1);
    static const char *const names[] = {"history.db", "history.db-wal", "history.db-shm"};
    assert_int_equal(store_run_insert(store, &row, NULL, NULL), 0);
    umask(before);
    for (size_t i = 0; i < 3; i++) {
        char path[128];
        struct stat file;
        folder_file(folder, names[i], path, sizeof path);
        assert_int_equal(stat(path, &file), 0);
        assert_int_equal(file.st_mode & 07777, 0600);
    }
    store_close(store);
}

static void test_root_makes_the_file_for_the_folders_owner(void **state)
{
    struct folder *folder = *state;
    static const char *const names[] = {"history.db", "history.db-wal", "history.db-shm"};
    if (geteuid() != 0) {
        print_message("skipped: only root can give a file away\n");
        skip();
    }
    assert_int_equal(chown(folder->path, 12345, 12346), 0);
    struct store *store = open_store(folder);
    for (size_t i = 0; i < 3; i++) {
        char path[128];
        struct stat file;
        folder_file(folder, names[i], path, sizeof path);
        assert_int_equal(stat(path, &file), 0);
        assert_int_equal(file.st_uid, 12345);
        assert_int_equal(file.st_gid, 12346);
    }
    store_close(store);
}

static void test_the_journal_is_made_like_the_database(void **state)
{
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct stat file;
    char path[128];
    if (geteuid() == 0)
        assert_int_equal(chown(folder->path, 12345, 12346), 0);
    mode_t before = umask(0);
    assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
    umask(before);
    folder_file(folder, "history.db-runs", path, sizeof path);
    assert_int_equal(lstat(path, &file), 0);
    assert_true(S_ISREG(file.st_mode));
    assert_int_equal(file.st_mode & 07777, 0600);
    if (geteuid() == 0)
        assert_true(file.st_uid == 12345 && file.st_gid == 12346);
    store_close(store);
    hc_loop_free(loop);
}

static void test_both_connections_are_set_as_promised(void **state)
{
    struct store *store = open_store(*state);
    static const struct {
        const char *sql;
        int64_t answer;
    } settings[] = {
        {"PRAGMA synchronous", 2},     {"PRAGMA foreign_keys", 1}, {"PRAGMA trusted_schema", 0},
        {"PRAGMA temp_store", 2},      {"PRAGMA mmap_size", 0},    {"PRAGMA auto_vacuum", 2},
        {"PRAGMA cell_size_check", 1}, {"PRAGMA user_version", 3}, {"PRAGMA application_id", 0x4843454c},
        {"PRAGMA busy_timeout", 5000},
    };
    sqlite3 *connections[] = {store->writer.db, store->reader.db};
    for (size_t i = 0; i < 2 * sizeof settings / sizeof *settings; i++) {
        int64_t answer;
        const char *sql = settings[i / 2].sql;
        if (strcmp(sql, "PRAGMA mmap_size") == 0) { /* no row at all where the library cannot map */
            sqlite3_stmt *statement = NULL;
            assert_int_equal(sqlite3_prepare_v2(connections[i % 2], sql, -1, &statement, NULL), SQLITE_OK);
            answer = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
            sqlite3_finalize(statement);
        } else {
            answer = ask(connections[i % 2], sql);
        }
        assert_int_equal(answer, settings[i / 2].answer);
    }
    assert_int_equal(sqlite3_exec(store->reader.db, "DELETE FROM runs", NULL, NULL, NULL) & 0xff, SQLITE_READONLY);
    assert_int_not_equal(
        sqlite3_exec(store->writer.db, "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema", NULL, NULL, NULL),
        SQLITE_OK);
    store_close(store);
}

static void test_a_trigger_in_the_file_is_not_run(void **state)
{
    struct folder *folder = *state;
    struct run_row row = row_queued(1);
    store_close(open_store(folder));
    change_by_hand(folder, "CREATE TRIGGER t AFTER INSERT ON runs BEGIN INSERT INTO usage VALUES ('x', 1, 1, 1); END");
    struct store *store = open_store(folder);
    assert_int_equal(store_run_insert(store, &row, NULL, NULL), 0);
    assert_int_equal(ask(store->writer.db, "SELECT count(*) FROM usage"), 0);
    store_close(store);
}

static void test_deleting_a_run_deletes_its_content(void **state)
{
    struct store *store = open_store(*state);
    struct run_row row = row_ended(1, "{}");
    assert_int_equal(store_run_finish(store, &row, NULL, NULL), 0);
    assert_int_equal(ask(store->writer.db, "SELECT count(*) FROM contents"), 1);
    assert_int_equal(store_prune(store, 2000000, 0, NULL, NULL), 0);
    assert_int_equal(ask(store->writer.db, "SELECT count(*) FROM contents"), 0);
    store_close(store);
}

/* It is an error, it names the file and says what to do, and the file stays as it is. */
static void refuses(const struct folder *folder, int code, const char *says)
{
    char path[128];
    struct store *store = NULL;
    struct hc_err err = {0};
    char *before hc_cleanup_free = NULL, *after hc_cleanup_free = NULL;
    size_t before_length = 0, after_length = 0;
    folder_file(folder, "history.db", path, sizeof path);
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(hc_read_all(fd, 1 << 24, &before, &before_length), 0);
    assert_int_equal(store_open(folder->path, NULL, false, &store, &err), -code);
    assert_null(store);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, says));
    assert_true(err.remedy[0] != '\0');
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(hc_read_all(fd, 1 << 24, &after, &after_length), 0);
    assert_int_equal(before_length, after_length);
    assert_memory_equal(before, after, before_length);
}

static void overwrite(const struct folder *folder, off_t at, const char *bytes, size_t length)
{
    char path[128];
    folder_file(folder, "history.db", path, sizeof path);
    hc_cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(fd, bytes, length, at), (ssize_t)length);
}

static void test_a_file_that_is_no_database_is_left_alone(void **state)
{
    char rubbish[8192];
    memset(rubbish, 'r', sizeof rubbish);
    overwrite(*state, 0, rubbish, sizeof rubbish);
    refuses(*state, EBADMSG, "damaged");
}

static void test_a_damaged_database_is_left_alone(void **state)
{
    struct store *store = open_store(*state);
    for (unsigned i = 0; i < 200; i++) {
        struct run_row row = row_ended(i, "{\"a\":1}");
        assert_int_equal(store_run_finish(store, &row, NULL, NULL), 0);
    }
    int64_t page = ask(store->writer.db, "SELECT rootpage FROM sqlite_schema WHERE name = 'runs'");
    store_close(store);
    char rubbish[2048];
    memset(rubbish, 0xa5, sizeof rubbish);
    overwrite(*state, (page - 1) * 4096, rubbish, sizeof rubbish);
    refuses(*state, EBADMSG, "damaged");
}

static void test_another_programs_database_is_left_alone(void **state)
{
    change_by_hand(*state, "CREATE TABLE cookies (name TEXT)");
    refuses(*state, EBADMSG, "not one of hotcell's");
}

static void test_a_newer_format_is_refused(void **state)
{
    store_close(open_store(*state));
    change_by_hand(*state, "PRAGMA journal_mode = DELETE; PRAGMA user_version = 99");
    refuses(*state, EPROTONOSUPPORT, "newer hotcell");
}

static void test_a_folder_that_is_not_there_is_an_error(void **state)
{
    struct store *store = NULL;
    struct hc_err err = {0};
    char path[128];
    folder_file(*state, "nowhere", path, sizeof path);
    assert_int_equal(store_open(path, NULL, false, &store, &err), -ENOENT);
    assert_non_null(strstr(err.message, path));
}

static void test_a_symbolic_link_in_place_of_the_database_is_not_followed(void **state)
{
    struct folder *folder = *state;
    struct store *store = NULL;
    struct hc_err err = {0};
    char path[128], target[128];
    folder_file(folder, "history.db", path, sizeof path);
    folder_file(folder, "target", target, sizeof target);
    assert_int_equal(symlink(target, path), 0);
    assert_true(store_open(folder->path, NULL, false, &store, &err) < 0);
    assert_int_equal(access(target, F_OK), -1);
}

static void test_reading_only_needs_a_history_and_changes_nothing(void **state)
{
    struct folder *folder = *state;
    struct store *reader = NULL;
    struct hc_err err = {0};
    struct run_row row = row_queued(1);
    assert_int_equal(store_open(folder->path, NULL, true, &reader, &err), -ENOENT);
    assert_non_null(strstr(err.message, folder->path));
    struct store *store = open_store(folder);
    hc_err_clear(&err);
    assert_int_equal(store_open(folder->path, NULL, true, &reader, &err), 0);
    assert_int_equal(store_run_insert(reader, &row, NULL, NULL), -EROFS);
    assert_int_equal(store_key_revoke(reader, "x", &err), -EROFS);
    assert_int_equal(store_run_insert(store, &row, NULL, NULL), 0);
    assert_int_equal(store_run_get(reader, NULL, row.id, refuse_row, NULL), 1); /* what others write is seen */
    store_close(store);
    store_close(reader);
    hc_err_clear(&err); /* and when nobody has it open */
    assert_int_equal(store_open(folder->path, NULL, true, &reader, &err), 0);
    assert_int_equal(store_run_get(reader, NULL, row.id, refuse_row, NULL), 1);
    store_close(reader);
}

static void test_a_full_queue_says_try_again(void **state)
{
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct outcome outcome = {0};
    struct run_row row = row_queued(1);
    assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
    pthread_mutex_lock(&store->lock);
    store->bytes += QUEUE_BYTES - 100; /* as if so much were waiting */
    pthread_mutex_unlock(&store->lock);
    assert_int_equal(store_run_insert(store, &row, outcome_done, &outcome), -EAGAIN);
    pthread_mutex_lock(&store->lock);
    store->bytes -= QUEUE_BYTES - 100;
    pthread_mutex_unlock(&store->lock);
    row.request = ""; /* is not touched */
    row.request_length = (size_t)QUEUE_BYTES + 1;
    assert_int_equal(store_run_insert(store, &row, outcome_done, &outcome), -EFBIG);
    row.request = NULL;
    row.request_length = 0;
    assert_int_equal(store_run_insert(store, &row, outcome_done, &outcome), 0);
    assert_int_equal(outcome_wait(loop, &outcome, 1), 0);
    assert_int_equal(outcome.calls, 1);
    pthread_mutex_lock(&store->lock);
    assert_int_equal(store->bytes, 0); /* nothing is counted twice or forgotten */
    pthread_mutex_unlock(&store->lock);
    store_close(store);
    hc_loop_free(loop);
}

static void test_another_process_that_holds_the_lock_is_an_error_and_later_it_works(void **state)
{
    struct folder *folder = *state;
    struct store *store = open_store(folder), *other = open_store(folder);
    struct run_row row = row_queued(1);
    sqlite3_busy_timeout(store->writer.db, 20);
    assert_int_equal(sqlite3_exec(other->writer.db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_run_insert(store, &row, NULL, NULL), -EBUSY);
    assert_int_equal(store_status(store), -EBUSY);
    assert_int_equal(sqlite3_exec(other->writer.db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_run_insert(store, &row, NULL, NULL), 0);
    assert_int_equal(store_status(store), 0);
    store_close(other);
    store_close(store);
}

struct keys {
    int count;
    struct key_row rows[8];
};

static int see_key(void *data, const struct key_row *row)
{
    struct keys *keys = data;
    assert_in_range(keys->count, 0, 7);
    keys->rows[keys->count++] = *row;
    return 0;
}

static void test_a_key_is_made_listed_and_revoked(void **state)
{
    struct store *store = open_store(*state);
    struct key_row row = {.name = "alice", .runs_per_minute = 60, .concurrent = 4, .cpu_seconds_per_day = 3600};
    struct hc_err err = {0};
    struct keys keys = {0};
    char token[STORE_TOKEN_LENGTH + 1], second[STORE_TOKEN_LENGTH + 1];
    unsigned char hash[32];
    assert_int_equal(store_key_create(store, &row, token, &err), 0);
    assert_int_equal(strlen(token), STORE_TOKEN_LENGTH);
    assert_int_equal(strspn(token, "hc_-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
                     STORE_TOKEN_LENGTH);
    assert_memory_equal(token, row.prefix, strlen(row.prefix));
    assert_int_equal(strlen(row.prefix), 11);
    store_key_hash(token, hash);
    assert_int_equal(store_key_list(store, see_key, &keys), 1);
    assert_true(store_key_equal(hash, keys.rows[0].hash));
    assert_int_equal(keys.rows[0].runs_per_minute, 60);
    assert_true(keys.rows[0].created_at > 0 && keys.rows[0].revoked_at == 0);

    assert_int_equal(store_key_create(store, &row, second, &err), -EEXIST);
    hc_err_clear(&err);
    assert_int_equal(store_key_revoke(store, "alice", &err), 0);
    assert_int_equal(store_key_revoke(store, "alice", &err), -ENOENT);
    hc_err_clear(&err);
    /* The same tenant, a new key; the old one stays listed as revoked. */
    assert_int_equal(store_key_create(store, &row, second, &err), 0);
    assert_string_not_equal(token, second);
    keys.count = 0;
    assert_int_equal(store_key_list(store, see_key, &keys), 2);
    assert_true(keys.rows[0].revoked_at > 0 && keys.rows[1].revoked_at == 0);
    assert_false(store_key_equal(hash, keys.rows[1].hash));
    store_close(store);
}

static void test_the_token_itself_is_not_in_the_files(void **state)
{
    struct folder *folder = *state;
    struct store *store = open_store(folder);
    struct key_row row = {.name = "alice"};
    struct hc_err err = {0};
    char token[STORE_TOKEN_LENGTH + 1], path[128], *text hc_cleanup_free = NULL;
    size_t length = 0;
    assert_int_equal(store_key_create(store, &row, token, &err), 0);
    store_close(store);
    folder_file(folder, "history.db", path, sizeof path);
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(hc_read_all(fd, 1 << 24, &text, &length), 0);
    assert_non_null(memmem(text, length, "alice", 5));
    assert_null(memmem(text, length, token + 11, STORE_TOKEN_LENGTH - 11));
}

static void test_names_that_would_confuse_are_refused(void **state)
{
    struct store *store = open_store(*state);
    static const char *const names[] = {"", "a b", "a/b", "ä", "a\nb", "local"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct key_row row = {0};
        struct hc_err err = {0};
        char token[STORE_TOKEN_LENGTH + 1] = "untouched";
        snprintf(row.name, sizeof row.name, "%s", names[i]);
        assert_int_equal(store_key_create(store, &row, token, &err), -EINVAL);
        assert_string_equal(err.field, "name");
        assert_string_equal(token, "untouched");
    }
    store_close(store);
}

static void test_the_version_changes_with_keys_of_any_process_and_only_with_them(void **state)
{
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    struct store *store = NULL, *other = open_store(folder);
    struct key_row row = {.name = "alice"};
    struct run_row run = row_queued(1);
    struct hc_err err = {0};
    char token[STORE_TOKEN_LENGTH + 1];
    assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
    uint64_t version = store_version(store);
    assert_int_equal(store_key_create(other, &row, token, &err), 0);
    assert_int_not_equal(store_version(store), version);
    version = store_version(store);
    assert_int_equal(store_run_insert(other, &run, NULL, NULL), 0);
    assert_int_equal(store_key_used(other, "alice", 1), 0);
    assert_int_equal(store_version(store), version);
    assert_int_equal(store_key_revoke(store, "alice", &err), 0); /* by its own thread */
    assert_int_not_equal(store_version(store), version);
    store_close(store);
    store_close(other);
    hc_loop_free(loop);
}

/* As `hotcell key revoke` does: when it has ended, the server must know, the first time it asks. */
static void test_the_version_has_changed_when_another_process_has_revoked_a_key(void **state)
{
    struct folder *folder = *state;
    struct hc_loop *loop = hc_loop_new();
    struct store *store = NULL;
    struct hc_err err = {0};
    struct key_row row = {.name = "alice"};
    char token[STORE_TOKEN_LENGTH + 1];
    assert_int_equal(store_open(folder->path, loop, false, &store, &err), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(store_key_create(store, &row, token, &err), 0);
        uint64_t version = store_version(store);
        assert_int_equal(store_version(store), version);
        pid_t pid = fork();
        if (pid == 0) {
            struct store *other = NULL;
            int status = store_open(folder->path, NULL, false, &other, &err);
            _exit(status == 0 && store_key_revoke(other, "alice", &err) == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_not_equal(store_version(store), version);
    }
    store_close(store);
    hc_loop_free(loop);
}

static void test_a_keys_last_use_is_written_once_a_minute(void **state)
{
    struct store *store = open_store(*state);
    struct key_row row = {.name = "alice"};
    struct hc_err err = {0};
    char token[STORE_TOKEN_LENGTH + 1];
    static const struct {
        int64_t when, seen;
    } uses[] = {{100, 100}, {130, 100}, {159, 100}, {160, 160}, {161, 160}, {300, 300}, {200, 300}};
    assert_int_equal(store_key_create(store, &row, token, &err), 0);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        struct keys keys = {0};
        assert_int_equal(store_key_used(store, "alice", uses[i].when * 1000000), 0);
        assert_int_equal(store_key_list(store, see_key, &keys), 1);
        assert_int_equal(keys.rows[0].used_at, uses[i].seen * 1000000);
    }
    store_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_files_are_for_their_owner_alone),
        TEST(test_root_makes_the_file_for_the_folders_owner),
        TEST(test_the_journal_is_made_like_the_database),
        TEST(test_both_connections_are_set_as_promised),
        TEST(test_a_trigger_in_the_file_is_not_run),
        TEST(test_deleting_a_run_deletes_its_content),
        TEST(test_a_file_that_is_no_database_is_left_alone),
        TEST(test_a_damaged_database_is_left_alone),
        TEST(test_another_programs_database_is_left_alone),
        TEST(test_a_newer_format_is_refused),
        TEST(test_a_folder_that_is_not_there_is_an_error),
        TEST(test_a_symbolic_link_in_place_of_the_database_is_not_followed),
        TEST(test_reading_only_needs_a_history_and_changes_nothing),
        TEST(test_a_full_queue_says_try_again),
        TEST(test_another_process_that_holds_the_lock_is_an_error_and_later_it_works),
        TEST(test_a_key_is_made_listed_and_revoked),
        TEST(test_the_token_itself_is_not_in_the_files),
        TEST(test_names_that_would_confuse_are_refused),
        TEST(test_the_version_changes_with_keys_of_any_process_and_only_with_them),
        TEST(test_the_version_has_changed_when_another_process_has_revoked_a_key),
        TEST(test_a_keys_last_use_is_written_once_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
