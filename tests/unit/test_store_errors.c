/* Failures in the store: grouped, fixed by similar code, forgotten with their runs, and an older database that learns
 * of them. */
#include "store/internal.h"
#include "store_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

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
    assert_int_equal(store_open(folder->path, NULL, false, &store, &err), 0);
    return store;
}

/* A shape of which the first `same` slots are those of every other shape made here. */
static void give_shape(struct run_row *row, unsigned same, uint32_t seed)
{
    row->has_shape = true;
    for (unsigned i = 0; i < STORE_SHAPE_SLOTS; i++)
        row->code_shape[i] = i < same ? i : seed + i;
}

static void write_failure(struct store *store, unsigned n, const char *tenant, const char *fingerprint, uint32_t seed)
{
    struct run_row row = row_ended(n, "{}");
    snprintf(row.status, sizeof row.status, "error");
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    snprintf(row.error.fingerprint, sizeof row.error.fingerprint, "%s", fingerprint);
    snprintf(row.error.category, sizeof row.error.category, "exception");
    snprintf(row.error.error_type, sizeof row.error.error_type, "KeyError");
    snprintf(row.error.message, sizeof row.error.message, "message %u", n);
    row.exit_code = 1;
    give_shape(&row, 40, seed);
    assert_int_equal(store_run_finish(store, &row, NULL, NULL), 0);
}

static void write_success(struct store *store, unsigned n, const char *tenant, unsigned same)
{
    struct run_row row = row_ended(n, "{}");
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    give_shape(&row, same, 900000);
    assert_int_equal(store_run_finish(store, &row, NULL, NULL), 0);
}

struct groups {
    struct error_group item[8];
    size_t count;
};

static int collect(void *data, const struct error_group *group)
{
    struct groups *groups = data;
    groups->item[groups->count++] = *group;
    return groups->count == 8;
}

static struct groups list(struct store *store, struct error_filter filter)
{
    struct groups groups = {.count = 0};
    int count = store_error_list(store, &filter, collect, &groups);
    assert_int_equal(count, groups.count);
    return groups;
}

static void test_failures_are_grouped_by_tenant_and_fingerprint(void **state)
{
    struct store *store = open_store(*state);
    write_failure(store, 1, "ann", "aaaa", 1000);
    write_failure(store, 2, "bob", "aaaa", 2000);
    write_failure(store, 3, "ann", "bbbb", 3000);
    write_failure(store, 4, "ann", "aaaa", 4000);
    struct groups groups = list(store, (struct error_filter){.tenant = "ann"});
    assert_int_equal(groups.count, 2);
    assert_string_equal(groups.item[0].error.fingerprint, "aaaa"); /* the last to fail is first */
    assert_int_equal(groups.item[0].count, 2);
    assert_string_equal(groups.item[0].error.message, "message 4");
    assert_string_equal(groups.item[0].last_run, "run_00000004");
    assert_true(groups.item[0].first_at < groups.item[0].last_at);
    assert_string_equal(groups.item[0].fixed_by, "");
    assert_int_equal(list(store, (struct error_filter){0}).count, 3);
    assert_int_equal(list(store, (struct error_filter){.fingerprint = "bbbb"}).count, 1);
    assert_int_equal(list(store, (struct error_filter){.error_type = "KeyError", .limit = 2}).count, 2);
    assert_int_equal(list(store, (struct error_filter){.error_type = "Other"}).count, 0);
    assert_int_equal(list(store, (struct error_filter){.language = "ruby"}).count, 0);
    store_close(store);
}

static void test_a_record_written_twice_counts_once(void **state)
{
    struct store *store = open_store(*state);
    write_failure(store, 1, "ann", "aaaa", 1000);
    write_failure(store, 1, "ann", "aaaa", 1000);
    assert_int_equal(list(store, (struct error_filter){0}).item[0].count, 1);
    store_close(store);
}

static void test_only_similar_code_of_the_same_tenant_fixes(void **state)
{
    struct store *store = open_store(*state);
    write_failure(store, 1, "ann", "aaaa", 1000);
    write_success(store, 2, "bob", 40); /* another tenant */
    write_success(store, 3, "ann", 31); /* 31 of 64 is less than half */
    assert_string_equal(list(store, (struct error_filter){0}).item[0].fixed_by, "");
    write_success(store, 4, "ann", 32);
    assert_string_equal(list(store, (struct error_filter){0}).item[0].fixed_by, "run_00000004");
    write_success(store, 5, "ann", 40); /* it is fixed already: the first stays */
    assert_string_equal(list(store, (struct error_filter){0}).item[0].fixed_by, "run_00000004");
    store_close(store);
}

static void test_likeness_counts_slots_that_either_uses(void **state)
{
    (void)state;
    uint32_t a[STORE_SHAPE_SLOTS], b[STORE_SHAPE_SLOTS];
    memset(a, 0xff, sizeof a);
    memset(b, 0xff, sizeof b);
    assert_true(store_shape_likeness(a, b) == 0);
    a[3] = b[3] = 7;
    assert_true(store_shape_likeness(a, b) == 1);
    b[9] = 1;
    assert_true(store_shape_likeness(a, b) == 0.5);
}

static void test_forgotten_runs_leave_their_groups(void **state)
{
    struct store *store = open_store(*state);
    write_failure(store, 1, "ann", "aaaa", 1000);
    write_failure(store, 2, "ann", "aaaa", 2000);
    write_failure(store, 3, "ann", "bbbb", 3000);
    write_success(store, 4, "ann", 40);
    assert_int_equal(store_prune(store, 2 * 1000000, 0, NULL, NULL), 0); /* those before the second */
    struct groups groups = list(store, (struct error_filter){.fingerprint = "aaaa"});
    assert_int_equal(groups.item[0].count, 1);
    assert_int_equal(groups.item[0].first_at, groups.item[0].last_at);
    assert_string_equal(groups.item[0].fixed_by, "run_00000004");
    assert_int_equal(store_prune(store, 100 * 1000000, 0, NULL, NULL), 0);
    assert_int_equal(list(store, (struct error_filter){0}).count, 0);
    store_close(store);
}

static void test_a_fix_that_was_forgotten_is_not_named(void **state)
{
    struct store *store = open_store(*state);
    write_failure(store, 5, "ann", "aaaa", 1000);
    struct run_row row = row_ended(6, "{}");
    snprintf(row.tenant, sizeof row.tenant, "ann");
    row.created_at = 1; /* the first to go */
    give_shape(&row, 40, 1);
    assert_int_equal(store_run_finish(store, &row, NULL, NULL), 0);
    assert_string_equal(list(store, (struct error_filter){0}).item[0].fixed_by, "run_00000006");
    assert_int_equal(store_prune(store, 2, 0, NULL, NULL), 0);
    assert_string_equal(list(store, (struct error_filter){0}).item[0].fixed_by, "");
    store_close(store);
}

static void test_a_database_of_the_second_format_becomes_one_of_today(void **state)
{
    struct folder *folder = *state;
    struct store *store = open_store(folder);
    struct run_row row = row_ended(1, "{\"kept\":true}");
    assert_int_equal(store_run_finish(store, &row, NULL, NULL), 0);
    store_close(store);
    char path[128];
    sqlite3 *db = NULL;
    folder_file(folder, "history.db", path, sizeof path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "DROP TABLE errors; DROP TABLE error_groups; PRAGMA user_version = 2", NULL, NULL, NULL), 0);
    sqlite3_close(db);
    store = open_store(folder);
    write_failure(store, 2, "ann", "aaaa", 1000);
    assert_int_equal(list(store, (struct error_filter){0}).count, 1);
    struct store_totals totals;
    assert_int_equal(store_totals(store, NULL, 0, &totals), 0);
    assert_int_equal(totals.runs, 2);
    store_close(store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_failures_are_grouped_by_tenant_and_fingerprint),
        TEST(test_a_record_written_twice_counts_once),
        TEST(test_only_similar_code_of_the_same_tenant_fixes),
        TEST(test_likeness_counts_slots_that_either_uses),
        TEST(test_forgotten_runs_leave_their_groups),
        TEST(test_a_fix_that_was_forgotten_is_not_named),
        TEST(test_a_database_of_the_second_format_becomes_one_of_today),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
