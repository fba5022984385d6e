/*
 * What the stages of a run left in their cell, on its way to the cells of the tests: the stream of the collect helper
 * (cell/archive.h), kept as it came in a memory file. A guest may have written every byte of it, so it is only ever
 * given back to a guest; what is read of it here is whether it is whole.
 */
#ifndef HC_RUN_SNAPSHOT_H
#define HC_RUN_SNAPSHOT_H

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

/* Of the files together, which are held in memory. */
enum { SNAPSHOT_LIMIT = 256 << 20 };

struct snapshot {
    int fd; /* -1: there is none */
    uint64_t size;
    struct hc_err failure; /* the first, while it was being kept */
    uint64_t disk, inodes; /* what it takes in a cell */
};

void snapshot_init(struct snapshot *snapshot);
void snapshot_release(struct snapshot *snapshot);
int snapshot_begin(struct snapshot *snapshot); /* 0 or -errno */
void snapshot_add(struct snapshot *snapshot, const char *data, size_t length);
/* The stream is over: seals it and reads it through. Class REQUEST and EFBIG when a file is not all there. */
int snapshot_finish(struct snapshot *snapshot, struct hc_err *err);

#endif
