/*
 * Failures, by what they have in common, and which of them a later run has put right. What decides that is similar
 * code, the same tenant and the same language; the code itself is never here, only its shape, and that only as long as
 * the failure is open. It is looked for once, when a run succeeds, among the last failures that are open: reading asks
 * for what is known then.
 */
#include "store/internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OPEN_LIMIT = 32 };

/* Half of the triples in common: a repaired line or two in a short program, and far from two programs of one author. */
static const double ALIKE = 0.5;

double store_shape_likeness(const uint32_t a[STORE_SHAPE_SLOTS], const uint32_t b[STORE_SHAPE_SLOTS])
{
    unsigned used = 0, same = 0;
    for (size_t i = 0; i < STORE_SHAPE_SLOTS; i++) {
        if (a[i] == UINT32_MAX && b[i] == UINT32_MAX)
            continue;
        used++;
        same += a[i] == b[i];
    }
    return used > 0 ? (double)same / used : 0;
}

/* ---- writing ---- */

static int write_error(struct store *store, int64_t seq, const struct run_row *row, const char *tenant, bool *fresh)
{
    struct binding binding = bind_start(&store->writer, WRITE_ERROR);
    bind_number(&binding, seq);
    bind_text(&binding, tenant);
    bind_text(&binding, row->language);
    bind_text(&binding, row->error.fingerprint);
    bind_number(&binding, row->ended_at);
    bind_blob(&binding, row->has_shape ? row->code_shape : NULL, sizeof row->code_shape);
    *fresh = bind_row(&binding);
    if (*fresh)
        bind_row(&binding);
    return bind_end(&binding);
}

static int write_group(struct store *store, int64_t seq, const struct run_row *row, const char *tenant)
{
    struct binding binding = bind_start(&store->writer, WRITE_ERROR_GROUP);
    bind_text(&binding, tenant);
    bind_text(&binding, row->error.fingerprint);
    bind_text(&binding, row->language);
    bind_text(&binding, row->error.category);
    bind_text(&binding, row->error.error_type);
    bind_text(&binding, row->error.message);
    bind_number(&binding, row->ended_at);
    bind_number(&binding, seq);
    bind_text(&binding, row->id);
    return bind_run(&binding);
}

struct open_error {
    int64_t seq;
    char fingerprint[17];
};

/* Those whose code is like this run's: gathered first, for what is being read must not change. */
static int find_alike(struct store *store, int64_t seq, const struct run_row *row, const char *tenant,
                      struct open_error *found, size_t *count)
{
    struct binding binding = bind_start(&store->writer, FIND_OPEN_ERRORS);
    bind_text(&binding, tenant);
    bind_text(&binding, row->language);
    bind_number(&binding, seq);
    bind_number(&binding, OPEN_LIMIT);
    while (*count < OPEN_LIMIT && bind_row(&binding)) {
        uint32_t shape[STORE_SHAPE_SLOTS];
        const void *blob = sqlite3_column_blob(binding.statement, 2);
        if (blob == NULL || sqlite3_column_bytes(binding.statement, 2) != sizeof shape)
            continue;
        memcpy(shape, blob, sizeof shape);
        if (store_shape_likeness(shape, row->code_shape) < ALIKE)
            continue;
        found[*count].seq = sqlite3_column_int64(binding.statement, 0);
        store_column(binding.statement, 1, found[*count].fingerprint, sizeof found[*count].fingerprint);
        (*count)++;
    }
    return bind_end(&binding);
}

static int write_fixed(struct store *store, const struct open_error *error, const char *id, const char *tenant)
{
    struct binding binding = bind_start(&store->writer, WRITE_ERROR_FIXED);
    bind_number(&binding, error->seq);
    bind_text(&binding, id);
    int status = bind_run(&binding);
    if (status < 0)
        return status;
    binding = bind_start(&store->writer, WRITE_GROUP_FIXED);
    bind_text(&binding, tenant);
    bind_text(&binding, error->fingerprint);
    bind_text(&binding, id);
    return bind_run(&binding);
}

int errors_write(struct store *store, int64_t seq, const struct run_row *row, const char *tenant)
{
    struct open_error found[OPEN_LIMIT];
    size_t count = 0;
    bool fresh = false;
    int status = 0;
    if (row->error.fingerprint[0] != '\0') {
        status = write_error(store, seq, row, tenant, &fresh);
        return status == 0 && fresh ? write_group(store, seq, row, tenant) : status;
    }
    if (!row->has_shape || row->exit_code != 0 || strcmp(row->status, "completed") != 0)
        return 0;
    status = find_alike(store, seq, row, tenant, found, &count);
    for (size_t i = 0; i < count && status == 0; i++)
        status = write_fixed(store, &found[i], row->id, tenant);
    return status;
}

int errors_forget(struct store *store, int64_t seq)
{
    static const enum statement after[] = {WRITE_GROUP_LESS, FORGET_GROUP};
    struct error_group group = {0};
    struct binding binding = bind_start(&store->writer, FORGET_ERROR);
    bind_number(&binding, seq);
    bool found = bind_row(&binding);
    if (found) {
        store_column(binding.statement, 0, group.tenant, sizeof group.tenant);
        store_column(binding.statement, 1, group.error.fingerprint, sizeof group.error.fingerprint);
        bind_row(&binding);
    }
    int status = bind_end(&binding);
    for (size_t i = 0; i < sizeof after / sizeof *after && found && status == 0; i++) {
        binding = bind_start(&store->writer, after[i]);
        bind_text(&binding, group.tenant);
        bind_text(&binding, group.error.fingerprint);
        status = bind_run(&binding);
    }
    return status;
}

/* ---- reading ---- */

static void read_group(sqlite3_stmt *statement, struct error_group *group)
{
    *group = (struct error_group){.count = (uint64_t)sqlite3_column_int64(statement, 6),
                                  .first_at = sqlite3_column_int64(statement, 7),
                                  .last_at = sqlite3_column_int64(statement, 8)};
    store_column(statement, 0, group->tenant, sizeof group->tenant);
    store_column(statement, 1, group->error.fingerprint, sizeof group->error.fingerprint);
    store_column(statement, 2, group->language, sizeof group->language);
    store_column(statement, 3, group->error.category, sizeof group->error.category);
    store_column(statement, 4, group->error.error_type, sizeof group->error.error_type);
    store_column(statement, 5, group->error.message, sizeof group->error.message);
    store_column(statement, 9, group->last_run, sizeof group->last_run);
    store_column(statement, 10, group->fixed_by, sizeof group->fixed_by);
}

/* As prepare_list of history_read.c: fixed parts, bound values. */
static int prepare(struct store *store, const struct error_filter *filter, struct binding *binding)
{
    char sql[768];
    snprintf(
        sql, sizeof sql,
        "SELECT g.tenant, g.fingerprint, g.language, g.category, g.error_type, g.message, g.count, g.first_at,"
        " g.last_at, g.last_run, (SELECT id FROM runs WHERE id = g.fixed_by) FROM error_groups g WHERE TRUE%s%s%s%s"
        " ORDER BY g.last_seq DESC LIMIT ?5",
        filter->tenant != NULL ? " AND g.tenant = ?1" : "",
        filter->fingerprint != NULL ? " AND g.fingerprint = ?2" : "",
        filter->error_type != NULL ? " AND g.error_type = ?3" : "",
        filter->language != NULL ? " AND g.language = ?4" : "");
    *binding = (struct binding){.db = store->reader.db, .next = 1};
    binding->code = sqlite3_prepare_v2(store->reader.db, sql, -1, &binding->statement, NULL);
    const char *const values[] = {filter->tenant, filter->fingerprint, filter->error_type, filter->language};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        bind_text(binding, values[i]);
    bind_number(binding, filter->limit == 0 || filter->limit > INT32_MAX ? -1 : (int64_t)filter->limit);
    return store_errno(binding->db, binding->code);
}

int store_error_list(struct store *store, const struct error_filter *filter, store_error_fn fn, void *data)
{
    struct binding binding;
    writer_settle(store);
    int count = 0, result = prepare(store, filter, &binding);
    if (result == 0) {
        while (bind_row(&binding)) {
            struct error_group group;
            read_group(binding.statement, &group);
            count++;
            if (fn(data, &group) != 0)
                break;
        }
        result = bind_end(&binding);
    }
    sqlite3_finalize(binding.statement);
    return result < 0 ? result : count;
}
