/*
 * The collected files of a run, as they come out of a cell (cell/archive.h), read piece by piece from a pipe. The guest
 * may have written every byte of that stream: lengths are believed only as far as bytes arrive, and paths are relative,
 * clean and cannot clash.
 */
#ifndef HC_RUN_COLLECTED_H
#define HC_RUN_COLLECTED_H

#include "cell/archive.h"
#include "run/result.h"

enum { COLLECTED_MAX_FILES = 4096 };

struct collected {
    uint64_t left; /* of the cap on content, all files together */
    struct result_file *files;
    size_t count;
    uint64_t skipped; /* files over COLLECTED_MAX_FILES */
    bool ended;       /* ARCHIVE_END was seen */
    int phase;        /* the rest is collected.c's */
    size_t have;      /* bytes of the header, or of the path */
    uint64_t content_left;
    size_t content_size; /* allocated */
    bool keep;           /* the current record goes into files[count - 1] */
    struct archive_header header;
    char path[ARCHIVE_PATH_MAX + 1];
};

void collected_init(struct collected *collected, uint64_t cap);
void collected_release(struct collected *collected);
/* 0, -ENOMEM, or -EPROTO for what no archive has; what came before stays. Bytes after the end are an error, too. */
int collected_add(struct collected *collected, const char *data, size_t length, struct hc_err *err);
/* The stream is over. Moves the files, sorted by path, into the result (replacing its own); a file that the stream
 * broke off in is kept as truncated. -EPROTO when two paths clash: then there are no files. */
int collected_finish(struct collected *collected, struct result *result, struct hc_err *err);

#endif
