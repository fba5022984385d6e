/* A state folder for tests of the store, rows to put into it, and a loop that waits for what is written. */
#ifndef HC_TESTS_STORE_FOLDER_H
#define HC_TESTS_STORE_FOLDER_H

#include "base/loop.h"
#include "store/store.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct folder {
    char path[64];
};

static inline int folder_make_in(struct folder *folder, const char *where)
{
    snprintf(folder->path, sizeof folder->path, "%s/hotcell-store-XXXXXX", where);
    return mkdtemp(folder->path) != NULL ? 0 : -1;
}

static inline int folder_make(struct folder *folder)
{
    return folder_make_in(folder, "/tmp");
}

static inline void folder_file(const struct folder *folder, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", folder->path, name);
}

/* Flat: the store makes no folders. */
static inline void folder_empty(const struct folder *folder)
{
    DIR *directory = opendir(folder->path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder->path, entry->d_name);
        unlink(path);
    }
    if (directory != NULL)
        closedir(directory);
}

static inline void folder_remove(const struct folder *folder)
{
    folder_empty(folder);
    rmdir(folder->path);
}

/* A run that waits, number `n`, created at n seconds after the epoch. */
static inline struct run_row row_queued(unsigned n)
{
    struct run_row row = {
        .tenant = "local", .kind = "run", .status = "queued", .language = "python", .exit_code = -1, .shape = "{}"};
    snprintf(row.id, sizeof row.id, "run_%08u", n);
    row.created_at = (int64_t)n * 1000000;
    return row;
}

static inline struct run_row row_ended(unsigned n, const char *result)
{
    struct run_row row = row_queued(n);
    snprintf(row.status, sizeof row.status, "completed");
    row.exit_code = 0;
    row.started_at = row.created_at + 1000;
    row.ended_at = row.created_at + 5000;
    row.wall_us = 4000;
    row.cpu_us = 2000;
    row.result = result;
    row.result_length = strlen(result);
    return row;
}

/* A `done` that remembers. */
struct outcome {
    int calls;
    int result; /* of the last call */
};

static inline void outcome_done(void *data, int result)
{
    struct outcome *outcome = data;
    outcome->calls++;
    outcome->result = result;
}

/* Turns the loop until there were `calls`; at most ten seconds. */
static inline int outcome_wait(struct hc_loop *loop, const struct outcome *outcome, int calls)
{
    uint64_t deadline = hc_now() + UINT64_C(10000000);
    while (outcome->calls < calls && hc_now() < deadline)
        hc_loop_turn(loop, 100);
    return outcome->calls >= calls ? 0 : -1;
}

#endif
