/* What the operations on files share: their words, the head, the facts of a file, and walking through a tree. */
#ifndef HC_CELL_FILES_INTERNAL_H
#define HC_CELL_FILES_INTERNAL_H

#include "base/buf.h"
#include "base/err.h"
#include "cell/files_json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum files_key {
    FILES_PATH,
    FILES_FROM,
    FILES_TO,
    FILES_AFTER,
    FILES_NAME,
    FILES_CONTENT,
    FILES_LIMIT,
    FILES_DEPTH,
    FILES_OFFSET,
    FILES_LENGTH,
    FILES_SUFFIX,
    FILES_MODE,
    FILES_APPEND,
    FILES_PARENTS,
    FILES_RECURSIVE,
    FILES_OVERWRITE,
    FILES_FOLLOW,
    FILES_REGEX,
    FILES_MAX_SIZE,
    FILES_TIME,
    FILES_WATCHES,
    FILES_ENTRIES,
    FILES_RECOVER,
    FILES_KEYS
};

enum {
    FILES_CHUNK = 64 * 1024,
    FILES_NO_MODE = -1, /* of files_mode: none was given */
};
#define FILES_NO_LIMIT UINT64_MAX

struct files {
    const char *value[FILES_KEYS]; /* NULL: not given */
    struct files_json head;        /* fd 2 */
    struct files_json body;        /* fd 1, for those whose body is JSON */
    bool headed;                   /* the head is out */
    bool told_size;                /* a failure is told with the size of the file */
    int64_t size;
};

/* ---- the words ---- */
int files_number(const struct files *files, enum files_key key, uint64_t low, uint64_t high, uint64_t *value,
                 struct hc_err *err); /* *value is left alone when none was given */
int files_switch(const struct files *files, enum files_key key, bool *value, struct hc_err *err);
int files_mode(const struct files *files, int *mode, struct hc_err *err);
/* The path of a key, "." for an empty one. Without slashes at its end. -ENAMETOOLONG, -EINVAL when it is missing. */
int files_path(const struct files *files, enum files_key key, char path[4096], struct hc_err *err);
/* The failure of a system call on a file: `what` is the verb ("read"). Returns -code. */
int files_fail(struct hc_err *err, int code, const char *what, const char *path);

/* ---- the head ---- */
void files_head_begin(struct files *files); /* {"ok":true */
int files_head_end(struct files *files, struct hc_err *err);

/* ---- facts ---- */
const char *files_type(mode_t mode);
void files_put_facts(struct files_json *json, const struct stat *stat, const char *target, size_t target_length);
/* The path, made absolute. */
void files_put_path(struct files_json *json, const char *key, const char *path);
/* The path of something below the folder `root`, which comes before it as it was given. */
void files_put_below(struct files_json *json, const char *key, const char *root, const char *path);
/* What the descriptor of a body that goes out says when its reader has gone. */
int files_body_status(const struct files_json *body, struct hc_err *err);

/* A file to read from: never one that could hang. -EISDIR, -ENXIO (not a regular file), or what open(2) says. */
int files_open_regular(int dir, const char *path, int flags, struct stat *stat);
/* Everything up to, and with, the last name of path, where it is missing. */
int files_make_parents(const char *path, bool last_too, struct hc_err *err);
/* Takes a tree away, never through a symlink. `deleted` counts, also when it fails. */
int files_remove_tree(int dir, const char *name, uint64_t *deleted, struct hc_err *err);
/* Whether the folder `path` is `folder`, or somewhere in it. */
bool files_is_in(const char *path, const struct stat *folder);
/* Copies `from_name` in `from` to `to_name` in `to`, which must not exist, with modes and times. */
int files_copy_tree(int from, const char *from_name, int to, const char *to_name, struct hc_err *err);

/* Mode and times of a folder that all is in. It may be open as a place only (O_PATH). 0 or -errno. */
int files_finish_folder(int fd, mode_t mode, const struct timespec times[2]);

/* ---- the operations: 0 or -errno; before the head, *err becomes the head ---- */
int files_list(struct files *files, struct hc_err *err);
int files_stat(struct files *files, struct hc_err *err);
int files_disk(struct files *files, struct hc_err *err);
int files_read(struct files *files, struct hc_err *err);
int files_write(struct files *files, struct hc_err *err);
int files_delete(struct files *files, struct hc_err *err);
int files_move(struct files *files, struct hc_err *err);
int files_mkdir(struct files *files, struct hc_err *err);
int files_search(struct files *files, struct hc_err *err);
int files_watch(struct files *files, struct hc_err *err);
int files_pack(struct files *files, struct hc_err *err);
int files_unpack(struct files *files, struct hc_err *err);

#endif
