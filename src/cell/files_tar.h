/*
 * Archives in the form that every tar reads (POSIX.1-2001: ustar with pax headers), and of what others write also GNU
 * tar's long names and numbers. The reader believes nothing: sizes, checksums, names and lengths come from outside.
 */
#ifndef HC_CELL_FILES_TAR_H
#define HC_CELL_FILES_TAR_H

#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    TAR_BLOCK = 512,
    TAR_NAME_MAX = 64 * 1024, /* of a whole path or target */
    TAR_PAX_MAX = 256 * 1024, /* of one pax header */
};

enum tar_type { TAR_FILE, TAR_FOLDER, TAR_SYMLINK, TAR_HARDLINK };

struct tar_entry {
    enum tar_type type;
    char *path;   /* relative and clean: no empty name, "." or ".."; "" is the folder itself */
    char *target; /* of a symlink: as it is; of a hard link: like path. "" otherwise */
    uint64_t size;
    mode_t mode; /* & 01777 */
    time_t mtime;
};

/* ---- reading ---- */
struct tar_reader {
    ssize_t (*read)(void *data, void *bytes, size_t size); /* the count, 0 at the end, -errno; may give less */
    void *data;
    struct hc_buf path, target; /* of the entry at hand */
    struct hc_buf long_path, long_target;
    bool has_path, has_target, has_size, has_mtime; /* said by a header that came before the entry's own */
    uint64_t pax_size;
    time_t pax_mtime;
    uint64_t left;    /* of the content at hand */
    uint64_t padding; /* after it */
    uint64_t blocks;  /* read so far, to know the first */
    size_t have, next;
    char buffer[64 * 1024];
};

void tar_reader_init(struct tar_reader *reader, ssize_t (*read)(void *, void *, size_t), void *data);
void tar_reader_release(struct tar_reader *reader);
/* The next entry, past whatever of the last one's content was not read: 1, 0 at the end, -errno. The entry's text is
 * the reader's and lasts until the next call. */
int tar_next(struct tar_reader *reader, struct tar_entry *entry, struct hc_err *err);
/* Of its content: the count, 0 at its end, -errno (an archive that ends too soon). */
ssize_t tar_content(struct tar_reader *reader, void *bytes, size_t size, struct hc_err *err);

/* ---- the reader's parts, for what it is built of ---- */
/* A number field: octal, or GNU's base 256. -EINVAL, -ERANGE. */
int tar_number(const char *field, size_t size, int64_t *value);
bool tar_checksum_holds(const char block[TAR_BLOCK]);
/* The records of a pax header, kept in the reader. */
int tar_read_pax(struct tar_reader *reader, const char *text, size_t length, struct hc_err *err);
/* `raw` without "." and doubled slashes, into path. -EINVAL for what is absolute or has a "..". */
int tar_clean_path(const char *raw, size_t length, struct hc_buf *path, struct hc_err *err);

/* ---- writing ---- */
/* The blocks of an entry's header, pax header first where it takes one. `type` is '0', '2' or '5'. */
int tar_put_header(struct hc_buf *out, char type, const char *path, const char *target, const struct stat *stat);

#endif
