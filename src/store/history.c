/* Runs, written. Each change copies what it needs into one block of memory, which is the task. */
#include "store/internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct run_task {
    struct task task; /* first: a task is freed as a whole */
    struct run_row row;
    char bytes[]; /* shape, request, result, log, each with a NUL behind */
};

static char *copy_bytes(char **free_space, const char *bytes, size_t length)
{
    if (bytes == NULL)
        return NULL;
    char *copy = *free_space;
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    *free_space += length + 1;
    return copy;
}

enum { PROMPT_BYTES = 64 * 1024 };

static int apply_insert(struct store *store, struct task *task);
static int apply_finish(struct store *store, struct task *task);

/* Copies the row and hands the copy to the writer. */
static int submit_row(struct store *store, int (*apply)(struct store *, struct task *), const struct run_row *row,
                      store_done_fn done, void *data)
{
    size_t shape = row->shape != NULL ? strlen(row->shape) : 0, size = sizeof(struct run_task);
    size_t parts[] = {shape, row->request_length, row->result_length, row->log_length};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i] >= QUEUE_BYTES) /* before so much memory is asked for; it would not fit into the queue */
            return -EFBIG;
        size += parts[i] + 1;
    }
    struct run_task *copy = malloc(size);
    if (copy == NULL)
        return -ENOMEM;
    *copy = (struct run_task){.task = {.apply = apply, .done = done, .data = data, .bytes = size}, .row = *row};
    copy->task.prompt = apply == apply_finish && size < PROMPT_BYTES;
    /* Nobody waits to hear that a run has begun unless it is to go on by itself; most are over soon, and then it is one
     * commit. */
    copy->task.patient = apply == apply_insert && !row->keep_going;
    char *free_space = copy->bytes;
    copy->row.shape = copy_bytes(&free_space, row->shape, shape);
    copy->row.request = copy_bytes(&free_space, row->request, row->request_length);
    copy->row.result = copy_bytes(&free_space, row->result, row->result_length);
    copy->row.log = copy_bytes(&free_space, row->log, row->log_length);
    return writer_submit(store, &copy->task);
}

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

static int apply_insert(struct store *store, struct task *task)
{
    const struct run_row *row = &((struct run_task *)task)->row;
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

static int apply_finish(struct store *store, struct task *task)
{
    const struct run_row *row = &((struct run_task *)task)->row;
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

int store_run_insert(struct store *store, const struct run_row *row, store_done_fn done, void *data)
{
    return submit_row(store, apply_insert, row, done, data);
}

int store_run_finish(struct store *store, const struct run_row *row, store_done_fn done, void *data)
{
    struct run_row ended = *row;
    ended.request = NULL;
    ended.request_length = 0;
    return submit_row(store, apply_finish, &ended, done, data);
}

struct started_task {
    struct task task;
    char id[sizeof(((struct run_row *)NULL)->id)];
    int64_t started_at;
};

static int apply_started(struct store *store, struct task *task)
{
    const struct started_task *started = (struct started_task *)task;
    struct binding binding = bind_start(&store->writer, WRITE_RUN_STARTED);
    bind_text(&binding, started->id);
    bind_number(&binding, started->started_at);
    char tenant[sizeof(((struct run_row *)NULL)->tenant)];
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

int store_run_started(struct store *store, const char *id, int64_t started_at, store_done_fn done, void *data)
{
    struct started_task *copy = malloc(sizeof *copy);
    if (copy != NULL) {
        *copy =
            (struct started_task){.task = {.apply = apply_started, .done = done, .data = data, .bytes = sizeof *copy},
                                  .started_at = started_at};
        strncpy(copy->id, id, sizeof copy->id - 1);
    }
    return writer_submit(store, (struct task *)copy);
}
