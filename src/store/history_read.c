/*
 * Runs, read: on the caller's thread, from a snapshot that writing does not disturb. What was acknowledged and is still
 * in the journal is put into the database first; where that cannot be done, what is there can still be read.
 */
#include "store/internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { COLUMN_SHAPE = 14, COLUMN_REQUEST, COLUMN_RESULT, COLUMN_LOG };

static const char *column_bytes(sqlite3_stmt *statement, int column, size_t *length)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    *length = text != NULL ? (size_t)sqlite3_column_bytes(statement, column) : 0;
    return text;
}

/* The columns of RUN_COLUMNS in statement.c, and behind them the contents, where they were asked for. */
static void read_row(sqlite3_stmt *statement, struct run_row *row)
{
    *row = (struct run_row){
        .exit_code = sqlite3_column_int(statement, 5),
        .created_at = sqlite3_column_int64(statement, 6),
        .started_at = sqlite3_column_int64(statement, 7),
        .ended_at = sqlite3_column_int64(statement, 8),
        .wall_us = (uint64_t)sqlite3_column_int64(statement, 9),
        .cpu_us = (uint64_t)sqlite3_column_int64(statement, 10),
        .queue_us = (uint64_t)sqlite3_column_int64(statement, 11),
        .memory_peak = (uint64_t)sqlite3_column_int64(statement, 12),
        .keep_going = sqlite3_column_int(statement, 13) != 0,
    };
    store_column(statement, 0, row->id, sizeof row->id);
    store_column(statement, 1, row->tenant, sizeof row->tenant);
    store_column(statement, 2, row->kind, sizeof row->kind);
    store_column(statement, 3, row->status, sizeof row->status);
    store_column(statement, 4, row->language, sizeof row->language);
    size_t ignored;
    row->shape = column_bytes(statement, COLUMN_SHAPE, &ignored);
    if (sqlite3_column_count(statement) > COLUMN_LOG) {
        row->request = column_bytes(statement, COLUMN_REQUEST, &row->request_length);
        row->result = column_bytes(statement, COLUMN_RESULT, &row->result_length);
        row->log = sqlite3_column_blob(statement, COLUMN_LOG);
        row->log_length = (size_t)sqlite3_column_bytes(statement, COLUMN_LOG);
    }
}

/* The count, or -errno. */
static int read_rows(struct binding *binding, store_row_fn fn, void *data)
{
    int count = 0;
    while (bind_row(binding)) {
        struct run_row row;
        read_row(binding->statement, &row);
        count++;
        if (fn(data, &row) != 0)
            break;
    }
    int status = bind_end(binding);
    return status < 0 ? status : count;
}

int store_run_get(struct store *store, const char *tenant, const char *id, store_row_fn fn, void *data)
{
    int settled = writer_settle(store);
    struct binding binding = bind_start(&store->reader, tenant != NULL ? READ_RUN_OF_TENANT : READ_RUN);
    bind_text(&binding, id);
    if (tenant != NULL)
        bind_text(&binding, tenant);
    int found = read_rows(&binding, fn, data);
    return found == 0 ? settled : found; /* it may be among those that are not there yet */
}

int store_run_unfinished(struct store *store, store_row_fn fn, void *data)
{
    int settled = writer_settle(store);
    if (settled < 0)
        return settled; /* some are not there yet: the caller comes again */
    struct binding binding = bind_start(&store->reader, READ_UNFINISHED);
    return read_rows(&binding, fn, data);
}

/* The condition is put together from fixed parts, so that each filter finds its index; the values are bound. */
static int prepare_list(struct store *store, const struct run_filter *filter, struct binding *binding)
{
    char sql[768];
    snprintf(sql, sizeof sql,
             "SELECT r.id, r.tenant, r.kind, r.status, r.language, r.exit_code, r.created_at, r.started_at, r.ended_at,"
             " r.wall_us, r.cpu_us, r.queue_us, r.memory_peak, r.keep_going, r.shape FROM runs r WHERE TRUE%s%s%s%s"
             " ORDER BY r.seq DESC LIMIT ?5",
             filter->tenant != NULL ? " AND r.tenant = ?1" : "", filter->language != NULL ? " AND r.language = ?2" : "",
             filter->status != NULL ? " AND r.status = ?3" : "",
             filter->before == NULL   ? ""
             : filter->tenant != NULL ? " AND r.seq < (SELECT seq FROM runs WHERE id = ?4 AND tenant = ?1)"
                                      : " AND r.seq < (SELECT seq FROM runs WHERE id = ?4)");
    *binding = (struct binding){.db = store->reader.db, .next = 1};
    binding->code = sqlite3_prepare_v2(store->reader.db, sql, -1, &binding->statement, NULL);
    const char *const values[] = {filter->tenant, filter->language, filter->status, filter->before};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        bind_text(binding, values[i]);
    bind_number(binding, filter->limit == 0 || filter->limit > INT32_MAX ? -1 : (int64_t)filter->limit);
    return store_errno(binding->db, binding->code);
}

int store_run_list(struct store *store, const struct run_filter *filter, store_row_fn fn, void *data)
{
    struct binding binding;
    writer_settle(store);
    int result = prepare_list(store, filter, &binding);
    if (result == 0)
        result = read_rows(&binding, fn, data);
    sqlite3_finalize(binding.statement);
    return result;
}

static void add_status(sqlite3_stmt *statement, struct store_totals *totals)
{
    uint64_t count = (uint64_t)sqlite3_column_int64(statement, 1);
    int64_t oldest = sqlite3_column_int64(statement, 4);
    char status[sizeof(((struct run_row *)NULL)->status)];
    store_column(statement, 0, status, sizeof status);
    for (size_t i = 0; store_statuses[i] != NULL; i++)
        if (strcmp(store_statuses[i], status) == 0)
            totals->by_status[i] += count;
    totals->runs += count;
    totals->cpu_us += (uint64_t)sqlite3_column_int64(statement, 2);
    totals->wall_us += (uint64_t)sqlite3_column_int64(statement, 3);
    if (totals->oldest == 0 || oldest < totals->oldest)
        totals->oldest = oldest;
}

static int add_statuses(struct store *store, enum statement which, const char *tenant, int64_t since,
                        struct store_totals *totals)
{
    struct binding binding = bind_start(&store->reader, which);
    if (since > 0)
        bind_number(&binding, since);
    if (tenant != NULL)
        bind_text(&binding, tenant);
    while (bind_row(&binding))
        add_status(binding.statement, totals);
    return bind_end(&binding);
}

static int ask_number(struct store *store, enum statement which, const char *tenant, int64_t *number)
{
    struct binding binding = bind_start(&store->reader, which);
    if (tenant != NULL)
        bind_text(&binding, tenant);
    if (bind_row(&binding))
        *number = sqlite3_column_int64(binding.statement, 0);
    return bind_end(&binding);
}

int store_totals(struct store *store, const char *tenant, int64_t since, struct store_totals *totals)
{
    struct store_totals sum = {0};
    int64_t bytes = 0;
    int status;
    writer_settle(store);
    if (since > 0) {
        enum statement which = tenant != NULL ? READ_TOTALS_SINCE_OF_TENANT : READ_TOTALS_SINCE;
        status = add_statuses(store, which, tenant, since, &sum);
    } else {
        status = add_statuses(store, tenant != NULL ? READ_COUNTS_OF_TENANT : READ_COUNTS, tenant, 0, &sum);
        if (status == 0)
            status = ask_number(store, tenant != NULL ? READ_OLDEST_OF_TENANT : READ_OLDEST, tenant, &sum.oldest);
    }
    if (status == 0)
        status = ask_number(store, READ_BYTES, NULL, &bytes);
    sum.bytes = (uint64_t)bytes;
    if (status == 0)
        *totals = sum;
    return status;
}
