/*
 * A change as bytes: what the journal holds of it. Changes that have no kind here cannot wait for the database, and are
 * written to it at once.
 */
#ifndef HC_STORE_RECORD_H
#define HC_STORE_RECORD_H

#include "store/store.h"
#include <stddef.h>
#include <sys/types.h>

/* The numbers are in files: a new kind is added at the end, and with it journal_image.c counts its format up. */
enum record_kind { RECORD_INSERT = 1, RECORD_STARTED, RECORD_FINISH, RECORD_USAGE, RECORD_KINDS };

struct record {
    enum record_kind kind;
    struct run_row row; /* insert, finish: all of it; started: `id`, `started_at`; usage: `tenant`, `cpu_us` */
    size_t shape_length;
    int64_t day; /* usage */
    uint64_t runs;
};

size_t record_size(const struct record *record);
/* Writes record_size() bytes. */
void record_write(const struct record *record, unsigned char *bytes);
/* The first record of these bytes; what it points to is in them, and no NUL is behind it. The bytes it took, or
 * -EBADMSG. */
ssize_t record_read(const unsigned char *bytes, size_t length, struct record *record);

#endif
