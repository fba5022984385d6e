/* The store: what was written is read back; keys, usage, forgetting; what is refused when it is opened. */
#include "store_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

struct fixture {
    struct folder folder;
    struct hc_loop *loop;
    struct store *store; /* without a loop: every change is made at once */
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct hc_err err = {0};
    if (fixture == NULL || folder_make(&fixture->folder) < 0)
        return -1;
    *state = fixture;
    fixture->loop = hc_loop_new();
    return store_open(fixture->folder.path, NULL, false, &fixture->store, &err);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    store_close(fixture->store);
    hc_loop_free(fixture->loop);
    folder_remove(&fixture->folder);
    free(fixture);
    return 0;
}

/* The same files once more, with the loop. */
static struct store *open_threaded(struct fixture *fixture)
{
    struct store *store = NULL;
    struct hc_err err = {0};
    assert_int_equal(store_open(fixture->folder.path, fixture->loop, false, &store, &err), 0);
    return store;
}

/* The last row that was shown, with its strings. */
struct seen {
    int count;
    struct run_row row;
    char shape[64], request[64], result[64], log[64];
    bool has_request, has_result;
    char ids[512];
};

static void keep(char *copy, size_t size, const char *bytes, size_t length)
{
    assert_true(length < size);
    memset(copy, 0, size);
    if (bytes != NULL)
        memcpy(copy, bytes, length);
}

static int see(void *data, const struct run_row *row)
{
    struct seen *seen = data;
    seen->count++;
    seen->row = *row;
    seen->has_request = row->request != NULL;
    seen->has_result = row->result != NULL;
    keep(seen->shape, sizeof seen->shape, row->shape, row->shape != NULL ? strlen(row->shape) : 0);
    keep(seen->request, sizeof seen->request, row->request, row->request_length);
    keep(seen->result, sizeof seen->result, row->result, row->result_length);
    keep(seen->log, sizeof seen->log, row->log, row->log_length);
    size_t used = strlen(seen->ids);
    if (used + 16 < sizeof seen->ids) /* the number without its zeros */
        snprintf(seen->ids + used, sizeof seen->ids - used, "%u ", (unsigned)strtoul(row->id + 4, NULL, 10));
    return 0;
}

static void put_ended(struct store *store, unsigned n, const char *status, const char *language, const char *tenant)
{
    struct run_row row = row_ended(n, "{}");
    snprintf(row.status, sizeof row.status, "%s", status);
    snprintf(row.language, sizeof row.language, "%s", language);
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    assert_int_equal(store_run_finish(store, &row, NULL, NULL), 0);
}

static void test_a_run_is_read_as_it_was_written(void **state)
{
    struct fixture *fixture = *state;
    struct run_row row = row_queued(7);
    struct seen seen = {0};
    row.keep_going = true;
    row.shape = "{\"files\":2}";
    row.request = "{\"code\":\"1\"}";
    row.request_length = strlen(row.request);
    assert_int_equal(store_run_insert(fixture->store, &row, NULL, NULL), 0);
    assert_int_equal(store_run_get(fixture->store, "local", row.id, see, &seen), 1);
    assert_string_equal(seen.row.status, "queued");
    assert_string_equal(seen.request, "{\"code\":\"1\"}");
    assert_true(seen.row.keep_going && !seen.has_result && seen.row.exit_code == -1);

    assert_int_equal(store_run_started(fixture->store, row.id, 7000001, NULL, NULL), 0);
    assert_int_equal(store_run_get(fixture->store, NULL, row.id, see, &seen), 1);
    assert_string_equal(seen.row.status, "running");
    assert_int_equal(seen.row.started_at, 7000001);

    row = row_ended(7, "{\"ok\":true}");
    row.shape = NULL;
    row.wall_us = UINT64_C(1) << 40;
    row.memory_peak = UINT64_C(3) << 32;
    row.log = "a\0b\xff";
    row.log_length = 4;
    assert_int_equal(store_run_finish(fixture->store, &row, NULL, NULL), 0);
    assert_int_equal(store_run_get(fixture->store, "local", row.id, see, &seen), 1);
    assert_string_equal(seen.row.status, "completed");
    assert_string_equal(seen.result, "{\"ok\":true}");
    assert_string_equal(seen.shape, "{\"files\":2}"); /* the finish gave none */
    assert_memory_equal(seen.log, "a\0b\xff", 5);
    assert_int_equal(seen.row.log_length, 4);
    assert_false(seen.has_request); /* forgotten */
    assert_true(seen.row.wall_us == UINT64_C(1) << 40 && seen.row.memory_peak == UINT64_C(3) << 32);
    assert_true(seen.row.keep_going);
}

static void test_another_tenants_run_is_not_found(void **state)
{
    struct fixture *fixture = *state;
    struct seen seen = {0};
    put_ended(fixture->store, 1, "completed", "c", "alice");
    assert_int_equal(store_run_get(fixture->store, "bob", "run_00000001", see, &seen), 0);
    assert_int_equal(store_run_get(fixture->store, "alice", "run_00000001", see, &seen), 1);
    assert_int_equal(store_run_get(fixture->store, NULL, "run_00000002", see, &seen), 0);
    assert_int_equal(seen.count, 1);
}

static void test_started_is_no_step_back_for_a_run_that_has_ended(void **state)
{
    struct fixture *fixture = *state;
    struct seen seen = {0};
    put_ended(fixture->store, 1, "killed", "", "local");
    assert_int_equal(store_run_started(fixture->store, "run_00000001", 9, NULL, NULL), 0);
    assert_int_equal(store_run_get(fixture->store, NULL, "run_00000001", see, &seen), 1);
    assert_string_equal(seen.row.status, "killed");
}

static void test_an_id_is_inserted_once_and_its_neighbours_are_written(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = open_threaded(fixture);
    struct outcome outcomes[3] = {0};
    struct run_row rows[] = {row_queued(1), row_queued(1), row_queued(2)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_run_insert(store, &rows[i], outcome_done, &outcomes[i]), 0);
    assert_int_equal(outcome_wait(fixture->loop, &outcomes[2], 1), 0);
    assert_int_equal(outcomes[0].result, 0);
    assert_int_equal(outcomes[1].result, -EEXIST);
    assert_int_equal(outcomes[2].result, 0);
    struct seen seen = {0};
    assert_int_equal(store_run_unfinished(store, see, &seen), 2);
    store_close(store);
}

struct order {
    struct store *other; /* a connection that sees only what was committed */
    int calls;
    bool in_order, on_disk;
};

static struct order order;

static void done_in_order(void *data, int result)
{
    struct seen seen = {0};
    char id[40];
    int n = (int)(intptr_t)data;
    snprintf(id, sizeof id, "run_%08d", n);
    order.in_order &= result == 0 && n == order.calls;
    order.on_disk &= store_run_get(order.other, NULL, id, see, &seen) == 1;
    order.calls++;
}

static void test_done_is_called_in_order_once_it_is_on_disk(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = open_threaded(fixture);
    order = (struct order){.other = fixture->store, .in_order = true, .on_disk = true};
    for (int i = 0; i < 300; i++) {
        struct run_row row = row_queued((unsigned)i);
        assert_int_equal(store_run_insert(store, &row, done_in_order, (void *)(intptr_t)i), 0);
    }
    assert_int_equal(order.calls, 0); /* never from within the call */
    uint64_t deadline = hc_now() + UINT64_C(10000000);
    while (order.calls < 300 && hc_now() < deadline)
        hc_loop_turn(fixture->loop, 100);
    assert_int_equal(order.calls, 300);
    assert_true(order.in_order && order.on_disk);
    store_close(store);
}

static void test_close_writes_everything_and_calls_every_done(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = open_threaded(fixture);
    struct outcome outcome = {0};
    for (unsigned i = 0; i < 500; i++) {
        struct run_row row = row_ended(i, "{}");
        assert_int_equal(store_run_finish(store, &row, outcome_done, &outcome), 0);
    }
    store_close(store);
    assert_int_equal(outcome.calls, 500);
    assert_int_equal(outcome.result, 0);
    struct store_totals totals;
    assert_int_equal(store_totals(fixture->store, NULL, 0, &totals), 0);
    assert_int_equal(totals.runs, 500);
}

static void test_a_listing_is_newest_first_filtered_and_paged(void **state)
{
    struct fixture *fixture = *state;
    put_ended(fixture->store, 1, "completed", "python", "alice");
    put_ended(fixture->store, 2, "timeout", "c", "alice");
    put_ended(fixture->store, 3, "completed", "c", "bob");
    put_ended(fixture->store, 4, "completed", "c", "alice");
    static const struct {
        struct run_filter filter;
        const char *ids;
    } cases[] = {
        {{.limit = 0}, "4 3 2 1 "},
        {{.limit = 2}, "4 3 "},
        {{.tenant = "alice", .limit = 10}, "4 2 1 "},
        {{.tenant = "alice", .language = "c"}, "4 2 "},
        {{.tenant = "alice", .language = "c", .status = "completed"}, "4 "},
        {{.status = "completed"}, "4 3 1 "},
        {{.before = "run_00000003", .limit = 1}, "2 "},
        {{.tenant = "alice", .before = "run_00000004"}, "2 1 "},
        {{.tenant = "alice", .before = "run_00000003"}, ""}, /* not alice's: tells nothing */
        {{.before = "run_unknown"}, ""},
        {{.tenant = "carol"}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen seen = {0};
        int count = store_run_list(fixture->store, &cases[i].filter, see, &seen);
        assert_string_equal(seen.ids, cases[i].ids);
        assert_int_equal(count, seen.count);
        assert_false(seen.has_result || seen.has_request);
    }
}

static int stop_at_once(void *data, const struct run_row *row)
{
    (void)row;
    ++*(int *)data;
    return 1;
}

static int list_again(void *data, const struct run_row *row)
{
    struct fixture *fixture = data;
    struct seen seen = {0};
    /* Another question is fine; the same one would end the outer reading. */
    assert_int_equal(store_run_get(fixture->store, NULL, row->id, see, &seen), 1);
    assert_int_equal(store_run_unfinished(fixture->store, see, &seen), -EDEADLK);
    return 0;
}

static void test_a_callback_may_stop_or_ask_something_else(void **state)
{
    struct fixture *fixture = *state;
    int calls = 0;
    for (unsigned i = 1; i <= 3; i++) {
        struct run_row row = row_queued(i);
        assert_int_equal(store_run_insert(fixture->store, &row, NULL, NULL), 0);
    }
    assert_int_equal(store_run_list(fixture->store, &(struct run_filter){0}, stop_at_once, &calls), 1);
    assert_int_equal(calls, 1);
    assert_int_equal(store_run_unfinished(fixture->store, list_again, fixture), 3);
}

static void test_unfinished_runs_come_oldest_first_with_their_request(void **state)
{
    struct fixture *fixture = *state;
    struct seen seen = {0};
    for (unsigned i = 1; i <= 3; i++) {
        struct run_row row = row_queued(i);
        row.request = "{\"n\":0}";
        row.request_length = 7;
        assert_int_equal(store_run_insert(fixture->store, &row, NULL, NULL), 0);
    }
    store_run_started(fixture->store, "run_00000001", 5, NULL, NULL);
    put_ended(fixture->store, 2, "internal", "", "local");
    assert_int_equal(store_run_unfinished(fixture->store, see, &seen), 2);
    assert_string_equal(seen.ids, "1 3 ");
    assert_string_equal(seen.request, "{\"n\":0}");
}

static void test_totals_count_by_status_tenant_and_time(void **state)
{
    struct fixture *fixture = *state;
    struct store_totals totals;
    assert_int_equal(store_totals(fixture->store, NULL, 0, &totals), 0);
    assert_true(totals.runs == 0 && totals.oldest == 0 && totals.bytes > 0);
    put_ended(fixture->store, 1, "completed", "c", "alice");
    put_ended(fixture->store, 2, "oom", "c", "alice");
    put_ended(fixture->store, 3, "completed", "c", "bob");
    assert_int_equal(store_totals(fixture->store, NULL, 0, &totals), 0);
    assert_int_equal(totals.runs, 3);
    assert_int_equal(totals.cpu_us, 6000);
    assert_int_equal(totals.wall_us, 12000);
    assert_int_equal(totals.oldest, 1000000);
    for (size_t i = 0; store_statuses[i] != NULL; i++)
        assert_int_equal(totals.by_status[i], strcmp(store_statuses[i], "completed") == 0 ? 2
                                              : strcmp(store_statuses[i], "oom") == 0     ? 1
                                                                                          : 0);
    assert_int_equal(store_totals(fixture->store, "alice", 2000000, &totals), 0);
    assert_int_equal(totals.runs, 1);
    assert_int_equal(totals.oldest, 2000000);
}

/* The sums that are kept are those that counting gives. */
static void counted_right(struct store *store, const char *tenant)
{
    struct store_totals kept, counted;
    assert_int_equal(store_totals(store, tenant, 0, &kept), 0);
    assert_int_equal(store_totals(store, tenant, 1, &counted), 0);
    kept.oldest = counted.oldest; /* by its place, and here times come in any order */
    assert_memory_equal(&kept, &counted, sizeof kept);
}

static void test_totals_stay_right_whatever_is_done(void **state)
{
    static const char *const tenants[] = {"alice", "bob", "local"};
    struct fixture *fixture = *state;
    unsigned seed = 3, oldest = 1;
    for (int i = 0; i < 600; i++) {
        unsigned n = oldest + (unsigned)rand_r(&seed) % 40;
        struct run_row row = rand_r(&seed) % 2 == 0 ? row_queued(n) : row_ended(n, "{}");
        row.cpu_us = (uint64_t)rand_r(&seed) % 1000;
        snprintf(row.tenant, sizeof row.tenant, "%s", tenants[rand_r(&seed) % 3]);
        switch (rand_r(&seed) % 8) {
        case 0:
            oldest += 10;
            store_prune(fixture->store, oldest * INT64_C(1000000), 0, NULL, NULL);
            break;
        case 1:
            store_run_started(fixture->store, row.id, row.created_at + 1, NULL, NULL);
            break;
        case 2:
        case 3:
        case 4:
            store_run_insert(fixture->store, &row, NULL, NULL); /* some ids are there already */
            break;
        default:
            snprintf(row.status, sizeof row.status, "%s", store_statuses[2 + rand_r(&seed) % 9]);
            store_run_finish(fixture->store, &row, NULL, NULL);
        }
        if (i % 20 == 0 || i > 580)
            for (size_t j = 0; j < 3; j++)
                counted_right(fixture->store, tenants[j]);
    }
    struct store_totals kept, counted;
    assert_int_equal(store_totals(fixture->store, NULL, 0, &kept), 0);
    assert_int_equal(store_totals(fixture->store, NULL, 1, &counted), 0);
    assert_true(kept.runs > 0);
    assert_memory_equal(kept.by_status, counted.by_status, sizeof kept.by_status);
    assert_int_equal(kept.cpu_us, counted.cpu_us);
}

static void test_prune_forgets_what_is_older_but_not_what_has_not_ended(void **state)
{
    struct fixture *fixture = *state;
    struct seen seen = {0};
    struct run_row waiting = row_queued(0);
    assert_int_equal(store_run_insert(fixture->store, &waiting, NULL, NULL), 0);
    for (unsigned i = 1; i <= 500; i++)
        put_ended(fixture->store, i, "completed", "c", "local");
    assert_int_equal(store_prune(fixture->store, INT64_C(499000000), 0, NULL, NULL), 0);
    assert_int_equal(store_run_list(fixture->store, &(struct run_filter){0}, see, &seen), 3);
    assert_string_equal(seen.ids, "500 499 0 ");
}

static void test_prune_brings_the_database_below_a_size(void **state)
{
    struct fixture *fixture = *state;
    char *text = malloc(20001), path[128];
    struct store_totals totals;
    struct stat file;
    memset(text, 'x', 20000);
    text[20000] = '\0';
    for (unsigned i = 1; i <= 100; i++) {
        struct run_row row = row_ended(i, text);
        assert_int_equal(store_run_finish(fixture->store, &row, NULL, NULL), 0);
    }
    free(text);
    assert_int_equal(store_prune(fixture->store, 0, 1000000, NULL, NULL), 0);
    assert_int_equal(store_totals(fixture->store, NULL, 0, &totals), 0);
    assert_in_range(totals.bytes, 700000, 1000000);
    assert_in_range(totals.runs, 30, 60);                                    /* no more than had to go */
    assert_int_equal(totals.oldest, (101 - (int64_t)totals.runs) * 1000000); /* the oldest ones */
    folder_file(&fixture->folder, "history.db", path, sizeof path);
    assert_int_equal(stat(path, &file), 0);
    assert_in_range(file.st_size, 700000, 1000000);
}

static void test_writing_goes_on_while_it_prunes(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = open_threaded(fixture);
    struct outcome many = {0}, prune = {0}, write = {0};
    for (unsigned i = 1; i <= 3000; i++) {
        struct run_row row = row_ended(i, "{\"some\":\"result\"}");
        assert_int_equal(store_run_finish(store, &row, outcome_done, &many), 0);
    }
    assert_int_equal(outcome_wait(fixture->loop, &many, 3000), 0);
    struct run_row row = row_queued(9999);
    assert_int_equal(store_prune(store, 9000 * INT64_C(1000000), 0, outcome_done, &prune), 0);
    assert_int_equal(store_run_insert(store, &row, outcome_done, &write), 0);
    while (write.calls == 0 && prune.calls == 0)
        hc_loop_turn(fixture->loop, 1000);
    assert_int_equal(write.calls, 1);
    assert_int_equal(prune.calls, 0);
    assert_int_equal(outcome_wait(fixture->loop, &prune, 1), 0);
    assert_int_equal(prune.result, 0);
    struct store_totals totals;
    assert_int_equal(store_totals(store, NULL, 0, &totals), 0);
    assert_int_equal(totals.runs, 1);
    store_close(store);
}

static void test_usage_adds_up_by_tenant_and_day(void **state)
{
    struct fixture *fixture = *state;
    uint64_t cpu = 9, runs = 9;
    assert_int_equal(store_usage_get(fixture->store, "alice", 20000, &cpu, &runs), 0);
    assert_true(cpu == 0 && runs == 0);
    assert_int_equal(store_usage_add(fixture->store, "alice", 20000, 5, 1), 0);
    assert_int_equal(store_usage_add(fixture->store, "alice", 20000, 7, 2), 0);
    assert_int_equal(store_usage_add(fixture->store, "alice", 20001, 100, 1), 0);
    assert_int_equal(store_usage_add(fixture->store, "bob", 20000, 100, 1), 0);
    assert_int_equal(store_usage_get(fixture->store, "alice", 20000, &cpu, &runs), 0);
    assert_int_equal(cpu, 12);
    assert_int_equal(runs, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_run_is_read_as_it_was_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_tenants_run_is_not_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_started_is_no_step_back_for_a_run_that_has_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_id_is_inserted_once_and_its_neighbours_are_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_done_is_called_in_order_once_it_is_on_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_close_writes_everything_and_calls_every_done, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_listing_is_newest_first_filtered_and_paged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_callback_may_stop_or_ask_something_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unfinished_runs_come_oldest_first_with_their_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_totals_count_by_status_tenant_and_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_totals_stay_right_whatever_is_done, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prune_forgets_what_is_older_but_not_what_has_not_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prune_brings_the_database_below_a_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_writing_goes_on_while_it_prunes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_usage_adds_up_by_tenant_and_day, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
