/*
 * Files on their way into a cell and out of it: a flat stream of records, each a fixed header, the path, the content.
 * Written by the client and read by the job (in), written by the collect helper and read by the client (out). The
 * reader never trusts a length: every read is bounded by what is left.
 */
#ifndef HC_CELL_ARCHIVE_H
#define HC_CELL_ARCHIVE_H

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

enum { ARCHIVE_MAGIC = 0x48434152, ARCHIVE_PATH_MAX = 1024 };
enum archive_type { ARCHIVE_FILE = 1, ARCHIVE_SYMLINK = 2, ARCHIVE_END = 3 };

struct archive_header {
    uint32_t magic;
    uint32_t type;
    uint32_t mode;
    uint32_t path_length;    /* without NUL; 1 to ARCHIVE_PATH_MAX; 0 for ARCHIVE_END */
    uint64_t content_length; /* what follows */
    uint64_t true_size;      /* out: the file's size, which may be more than what follows */
};

/* Header checks shared by both readers: magic, type, lengths; the path is relative, clean, without ".." or NUL. */
int archive_header_check(const struct archive_header *header, struct hc_err *err);
int archive_path_check(const char *path, size_t length);

/* A file, whole. 0 or -errno. */
int archive_put_file(int out, unsigned mode, const char *path, const void *content, size_t length);
/* Write one header and path. END has neither path nor content: pass "". 0 or -errno. */
int archive_put_header(int out, enum archive_type type, unsigned mode, const char *path, uint64_t content_length,
                       uint64_t true_size);

/* In the cell, as the guest: make the files of the sealed memfd `fd` below the working directory, parents included. */
int archive_unpack(int fd, struct hc_err *err);
/* In the cell, as the guest: write every regular file and symlink below the working directory whose relative path
 * matches a pattern to `out`, at most `limit` bytes of content in all. Never follows a symlink, never opens a fifo
 * or device. */
int archive_collect(int out, char *const *patterns, size_t count, uint64_t limit, struct hc_err *err);

#endif
