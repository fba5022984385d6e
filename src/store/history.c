/* Runs, written. */
#include "store/internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int write_row(struct store *store, enum statement which, const struct run_row *row, int64_t *seq)
{
    struct binding binding = bind_start(&store->writer, which);
    bind_text(&binding, row->id);
    bind_text(&binding, row->tenant);
    bind_text(&binding, row->kind);
    bind_text(&binding, row->status);
    bind_text(&binding, row->language);
    bind_number(&binding, row->exit_code);
    bind_number(&binding, row->created_at);
    bind_number(&binding, row->started_at);
    bind_number(&binding, row->ended_at);
    bind_number(&binding, (int64_t)row->wall_us);
    bind_number(&binding, (int64_t)row->cpu_us);
    bind_number(&binding, (int64_t)row->queue_us);
    bind_number(&binding, (int64_t)row->memory_peak);
    bind_number(&binding, row->keep_going);
    bind_text(&binding, row->shape);
    if (bind_row(&binding)) {
        *seq = sqlite3_column_int64(binding.statement, 0);
        bind_row(&binding); /* to its end: only then the row is written */
    }
    return bind_end(&binding);
}

static int write_content(struct store *store, int64_t seq, const struct run_row *row)
{
    struct binding binding = bind_start(&store->writer, WRITE_CONTENT);
    bind_number(&binding, seq);
    bind_number(&binding, (int64_t)(row->request_length + row->result_length + row->log_length));
    bind_bytes(&binding, row->request, row->request_length);
    bind_bytes(&binding, row->result, row->result_length);
    bind_blob(&binding, row->log, row->log_length);
    return bind_run(&binding);
}

int history_count(struct store *store, const char *tenant, const char *status, int runs, int64_t cpu_us,
                  int64_t wall_us)
{
    struct binding binding = bind_start(&store->writer, WRITE_COUNT);
    bind_text(&binding, tenant);
    bind_text(&binding, status);
    bind_number(&binding, runs);
    bind_number(&binding, runs * cpu_us);
    bind_number(&binding, runs * wall_us);
    return bind_run(&binding);
}

static int count_row(struct store *store, const struct run_row *row, const char *tenant)
{
    return history_count(store, tenant, row->status, 1, (int64_t)row->cpu_us, (int64_t)row->wall_us);
}

int history_apply_insert(struct store *store, struct task *task)
{
    const struct run_row *row = &((struct change *)task)->record.row;
    int64_t seq = 0;
    int status = write_row(store, WRITE_RUN_INSERT, row, &seq);
    if (status == 0 && (row->request != NULL || row->result != NULL || row->log != NULL))
        status = write_content(store, seq, row);
    return status < 0 ? status : count_row(store, row, row->tenant);
}

/* Takes the row of this id, where there is one, out of the sums; its tenant stays what it is. */
static int uncount(struct store *store, const char *id, char *tenant, size_t size)
{
    struct binding binding = bind_start(&store->writer, FIND_RUN);
    char status[sizeof(((struct run_row *)NULL)->status)];
    int64_t cpu_us = 0, wall_us = 0;
    bind_text(&binding, id);
    bool found = bind_row(&binding);
    if (found) {
        store_column(binding.statement, 0, tenant, size);
        store_column(binding.statement, 1, status, sizeof status);
        cpu_us = sqlite3_column_int64(binding.statement, 2);
        wall_us = sqlite3_column_int64(binding.statement, 3);
    }
    int result = bind_end(&binding);
    return result < 0 || !found ? result : history_count(store, tenant, status, -1, cpu_us, wall_us);
}

int history_apply_finish(struct store *store, struct task *task)
{
    const struct run_row *row = &((struct change *)task)->record.row;
    char tenant[sizeof row->tenant];
    int64_t seq = 0;
    memcpy(tenant, row->tenant, sizeof tenant);
    int status = uncount(store, row->id, tenant, sizeof tenant);
    if (status == 0)
        status = write_row(store, WRITE_RUN_FINISH, row, &seq);
    if (status == 0) /* also without a result: what the request held goes now */
        status = write_content(store, seq, row);
    if (status == 0)
        status = count_row(store, row, tenant);
    if (status == 0)
        status = errors_write(store, seq, row, tenant);
    return status;
}

int history_apply_started(struct store *store, struct task *task)
{
    const struct run_row *row = &((struct change *)task)->record.row;
    struct binding binding = bind_start(&store->writer, WRITE_RUN_STARTED);
    bind_text(&binding, row->id);
    bind_number(&binding, row->started_at);
    char tenant[sizeof row->tenant];
    bool changed = bind_row(&binding);
    if (changed) {
        store_column(binding.statement, 0, tenant, sizeof tenant);
        bind_row(&binding);
    }
    int status = bind_end(&binding);
    if (status == 0 && changed)
        status = history_count(store, tenant, "queued", -1, 0, 0);
    if (status == 0 && changed)
        status = history_count(store, tenant, "running", 1, 0, 0);
    return status;
}

/* ---- from the caller ---- */

/* Copies the row into a change. */
static int copy_row(enum record_kind kind, const struct run_row *row, store_done_fn done, void *data,
                    struct change **out)
{
    struct record record = {.kind = kind, .row = *row};
    record.shape_length = row->shape != NULL ? strlen(row->shape) : 0;
    return change_new(&record, done, data, out);
}

/* Whether a run of this id is there, or on its way. Nobody else makes runs: the answer holds until this caller's next
 * insert. First what is on its way, for it gets into the database meanwhile. */
static bool is_taken(struct store *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    bool taken = ids_has(store, id);
    pthread_mutex_unlock(&store->lock);
    struct binding binding = bind_start(&store->reader, READ_EXISTS);
    bind_text(&binding, id);
    taken |= bind_row(&binding);
    bind_end(&binding);
    return taken;
}

int store_run_insert(struct store *store, const struct run_row *row, store_done_fn done, void *data)
{
    struct change *change = NULL;
    int status = copy_row(RECORD_INSERT, row, done, data, &change);
    if (status < 0)
        return status;
    /* What goes through the journal is acknowledged before the database could tell. */
    change->task.refused = store->journal != NULL && is_taken(store, row->id);
    change->task.result = change->task.refused ? -EEXIST : 0;
    return writer_submit(store, &change->task);
}

int store_run_finish(struct store *store, const struct run_row *row, store_done_fn done, void *data)
{
    struct run_row ended = *row;
    struct change *change = NULL;
    ended.request = NULL;
    ended.request_length = 0;
    int status = copy_row(RECORD_FINISH, &ended, done, data, &change);
    return status < 0 ? status : writer_submit(store, &change->task);
}

int store_run_started(struct store *store, const char *id, int64_t started_at, store_done_fn done, void *data)
{
    struct record record = {.kind = RECORD_STARTED, .row = {.started_at = started_at}};
    struct change *change = NULL;
    strncpy(record.row.id, id, sizeof record.row.id - 1);
    int status = change_new(&record, done, data, &change);
    return status < 0 ? status : writer_submit(store, &change->task);
}
