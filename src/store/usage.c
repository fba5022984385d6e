/* What each tenant used on each day, added up as runs end. */
#include "store/internal.h"
#include <stdio.h>

int usage_apply(struct store *store, struct task *task)
{
    const struct record *usage = &((struct change *)task)->record;
    struct binding binding = bind_start(&store->writer, WRITE_USAGE_ADD);
    bind_text(&binding, usage->row.tenant);
    bind_number(&binding, usage->day);
    bind_number(&binding, (int64_t)usage->row.cpu_us);
    bind_number(&binding, (int64_t)usage->runs);
    return bind_run(&binding);
}

int store_usage_add(struct store *store, const char *tenant, int64_t day, uint64_t cpu_us, uint64_t runs)
{
    struct record record = {.kind = RECORD_USAGE, .row = {.cpu_us = cpu_us}, .day = day, .runs = runs};
    struct change *change = NULL;
    snprintf(record.row.tenant, sizeof record.row.tenant, "%s", tenant);
    int status = change_new(&record, NULL, NULL, &change);
    return status < 0 ? status : writer_submit(store, &change->task);
}

int store_usage_get(struct store *store, const char *tenant, int64_t day, uint64_t *cpu_us, uint64_t *runs)
{
    writer_settle(store);
    struct binding binding = bind_start(&store->reader, READ_USAGE);
    bind_text(&binding, tenant);
    bind_number(&binding, day);
    uint64_t cpu = 0, count = 0;
    if (bind_row(&binding)) {
        cpu = (uint64_t)sqlite3_column_int64(binding.statement, 0);
        count = (uint64_t)sqlite3_column_int64(binding.statement, 1);
    }
    int status = bind_end(&binding);
    if (status == 0) {
        *cpu_us = cpu;
        *runs = count;
    }
    return status;
}
