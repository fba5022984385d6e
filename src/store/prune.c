/*
 * Forgetting old runs. A step removes a few hundred rows, or gives a mebibyte of free pages back, in a transaction of
 * its own; then whatever else waits is written before the next step. A prune that fails has failed for itself alone.
 */
#include "store/internal.h"
#include <stdlib.h>

enum {
    STEP_ROWS = 200,
    STEP_BYTES = 32 * 1024 * 1024,
    ROW_BYTES = 512 /* what a run takes besides its content, roughly: its rows in the tables and indexes */
};

struct prune_task {
    struct task task;
    int64_t before;
    uint64_t bytes;
};

struct pages {
    uint64_t used, free, size; /* in bytes: with content, without, one page */
};

static int count_pages(struct store *store, struct pages *pages)
{
    struct binding binding = bind_start(&store->writer, PRUNE_PAGES);
    if (bind_row(&binding)) {
        uint64_t all = (uint64_t)sqlite3_column_int64(binding.statement, 0);
        uint64_t unused = (uint64_t)sqlite3_column_int64(binding.statement, 1);
        pages->size = (uint64_t)sqlite3_column_int64(binding.statement, 2);
        pages->free = unused * pages->size;
        pages->used = (all - unused) * pages->size;
    }
    return bind_end(&binding);
}

/* Which rows go, gathered first: deleting from what is being read has no order that one could rely on. */
struct victims {
    int64_t seq[STEP_ROWS];
    int count;
};

static int find_by_age(struct store *store, int64_t before, struct victims *victims)
{
    struct binding binding = bind_start(&store->writer, PRUNE_BY_AGE);
    bind_number(&binding, before);
    bind_number(&binding, STEP_ROWS);
    while (victims->count < STEP_ROWS && bind_row(&binding))
        victims->seq[victims->count++] = sqlite3_column_int64(binding.statement, 0);
    return bind_end(&binding);
}

static int find_oldest(struct store *store, uint64_t excess, struct victims *victims)
{
    struct binding binding = bind_start(&store->writer, PRUNE_OLDEST);
    uint64_t sum = 0, enough = excess < STEP_BYTES ? excess : STEP_BYTES;
    bind_number(&binding, STEP_ROWS);
    while (sum < enough && victims->count < STEP_ROWS && bind_row(&binding)) {
        victims->seq[victims->count++] = sqlite3_column_int64(binding.statement, 0);
        sum += ROW_BYTES + (uint64_t)sqlite3_column_int64(binding.statement, 1);
    }
    return bind_end(&binding);
}

static int delete_one(struct store *store, int64_t seq)
{
    int forgotten = errors_forget(store, seq);
    if (forgotten < 0)
        return forgotten;
    struct binding binding = bind_start(&store->writer, PRUNE_DELETE);
    char tenant[sizeof(((struct run_row *)NULL)->tenant)], status[sizeof(((struct run_row *)NULL)->status)];
    int64_t cpu_us = 0, wall_us = 0;
    bind_number(&binding, seq);
    bool found = bind_row(&binding);
    if (found) {
        store_column(binding.statement, 0, tenant, sizeof tenant);
        store_column(binding.statement, 1, status, sizeof status);
        cpu_us = sqlite3_column_int64(binding.statement, 2);
        wall_us = sqlite3_column_int64(binding.statement, 3);
        bind_row(&binding);
    }
    int result = bind_end(&binding);
    return result < 0 || !found ? result : history_count(store, tenant, status, -1, cpu_us, wall_us);
}

static int delete_all(struct store *store, const struct victims *victims)
{
    for (int i = 0; i < victims->count; i++) {
        int status = delete_one(store, victims->seq[i]);
        if (status < 0)
            return status;
    }
    return victims->count > 0 ? TASK_AGAIN : 0;
}

static int prune_step(struct store *store, struct task *task)
{
    const struct prune_task *prune = (struct prune_task *)task;
    struct victims victims = {.count = 0};
    struct pages pages = {0};
    int status = 0;
    if (prune->before > 0)
        status = find_by_age(store, prune->before, &victims);
    if (status == 0)
        status = count_pages(store, &pages);
    if (status == 0 && victims.count == 0 && prune->bytes > 0 && pages.used > prune->bytes)
        status = find_oldest(store, pages.used - prune->bytes, &victims);
    if (status == 0)
        status = delete_all(store, &victims);
    if (status != 0)
        return status;
    if (pages.free > 0) {
        struct binding binding = bind_start(&store->writer, PRUNE_VACUUM);
        status = bind_run(&binding);
        return status < 0 ? status : TASK_AGAIN;
    }
    task->checkpoint = true;
    return 0;
}

int store_prune(struct store *store, int64_t before, uint64_t bytes, store_done_fn done, void *data)
{
    struct prune_task *prune = malloc(sizeof *prune);
    if (prune != NULL)
        *prune = (struct prune_task){
            .task = {.apply = prune_step, .done = done, .data = data, .bytes = sizeof *prune, .alone = true},
            .before = before,
            .bytes = bytes,
        };
    return writer_submit(store, (struct task *)prune);
}
