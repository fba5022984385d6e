/* What each tenant used on each day, added up as runs end. */
#include "store/internal.h"
#include <stdio.h>
#include <stdlib.h>

struct usage_task {
    struct task task;
    char tenant[sizeof(((struct run_row *)NULL)->tenant)];
    int64_t day;
    uint64_t cpu_us, runs;
};

static int apply_usage(struct store *store, struct task *task)
{
    const struct usage_task *usage = (struct usage_task *)task;
    struct binding binding = bind_start(&store->writer, WRITE_USAGE_ADD);
    bind_text(&binding, usage->tenant);
    bind_number(&binding, usage->day);
    bind_number(&binding, (int64_t)usage->cpu_us);
    bind_number(&binding, (int64_t)usage->runs);
    return bind_run(&binding);
}

int store_usage_add(struct store *store, const char *tenant, int64_t day, uint64_t cpu_us, uint64_t runs)
{
    struct usage_task *copy = malloc(sizeof *copy);
    if (copy != NULL) {
        *copy = (struct usage_task){.task = {.apply = apply_usage, .bytes = sizeof *copy, .patient = true},
                                    .day = day,
                                    .cpu_us = cpu_us,
                                    .runs = runs};
        snprintf(copy->tenant, sizeof copy->tenant, "%s", tenant);
    }
    return writer_submit(store, (struct task *)copy);
}

int store_usage_get(struct store *store, const char *tenant, int64_t day, uint64_t *cpu_us, uint64_t *runs)
{
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
