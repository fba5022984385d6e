/* Rows that a test of the store's faults writes, and looks for afterwards. */
#ifndef HC_TESTS_STORE_ROWS_H
#define HC_TESTS_STORE_ROWS_H

#include "store/internal.h"
#include "store_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ROWS = 12 };

static inline int rows_set_up(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    *state = folder;
    /* In memory where there is such a folder: what survives is decided by the tests, and a true fsync only takes time.
     */
    return folder == NULL ? -1 : folder_make_in(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

static inline int rows_tear_down(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

static inline int count_row(void *data, const struct run_row *row)
{
    (void)row;
    ++*(int *)data;
    return 0;
}

/* Opens the folder as it is and looks for every row whose outcome was 0. How many those are. */
static inline int check_acknowledged(const struct folder *folder, const struct outcome *outcomes, int count)
{
    struct store *store = NULL;
    struct hc_err err = {0};
    int good = 0, found = 0;
    if (store_open(folder->path, NULL, false, &store, &err) < 0)
        fail_msg("cannot be opened again: %s", err.message);
    for (int i = 0; i < count; i++) {
        char id[40];
        snprintf(id, sizeof id, "run_%08d", i);
        if (outcomes[i].calls != 1 || outcomes[i].result != 0)
            continue;
        good++;
        if (store_run_get(store, NULL, id, count_row, &found) != 1)
            fail_msg("%s was acknowledged and is lost", id);
    }
    assert_int_equal(found, good);
    store_close(store);
    return good;
}

/* Some of the rows, each larger than a page. Checkpoints come often, so that they are hit as well. */
static inline void write_rows(struct store *store, struct outcome *outcomes, int from, int to)
{
    static const char digits[] = "0123456789abcdef";
    char result[6000];
    for (int i = from; i < to; i++) {
        memset(result, digits[i % 16], sizeof result);
        result[sizeof result - 1] = '\0';
        struct run_row row = row_ended((unsigned)i, result);
        int status = store_run_finish(store, &row, outcome_done, &outcomes[i]);
        assert_int_equal(status, 0);
    }
}

/* As a server does: through the journal, now and then applied because somebody reads. */
static inline void write_with_loop(struct store *store, struct hc_loop *loop, struct outcome *outcomes)
{
    struct store_totals totals;
    for (int i = 0; i < ROWS; i += 2) {
        struct run_row queued = row_queued((unsigned)i);
        store_run_insert(store, &queued, NULL, NULL);
        store_usage_add(store, "local", 1, 1, 1);
        write_rows(store, outcomes, i, i + 2);
        assert_int_equal(outcome_wait(loop, &outcomes[i + 1], 1), 0);
        if (i % 4 == 0)
            store_totals(store, NULL, 0, &totals);
    }
}

#endif
