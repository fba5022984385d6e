/*
 * Walking through a tree of any depth with three fds and no recursion. Symlinks are never followed. The tree is
 * the guest's, who may change it meanwhile: what moves away is lost to the walk, and nothing is walked twice for ever.
 */
#ifndef HC_CELL_FILES_WALK_H
#define HC_CELL_FILES_WALK_H

#include "base/buf.h"
#include "base/err.h"
#include <stddef.h>
#include <sys/types.h>

struct files_level;

struct files_walk {
    struct hc_buf path;    /* of the entry at hand, below the root of the walk; "" is the root */
    struct hc_buf pending; /* names of folders to go into, those of the deepest level last */
    struct files_level *levels;
    size_t depth; /* levels in use: 1 while in the root */
    size_t room;
    int root;
    int at; /* the folder at hand, on the way back up without the right to read it; -1: lost */
};

struct files_hooks {
    /* Of everything but . and ..; `type` is DT_DIR or another. 1: go into it, when all of this folder is done; 0; or
     * -errno. */
    int (*entry)(struct files_walk *walk, const char *name, unsigned char type, void *data, struct hc_err *err);
    /* Optional. A folder was opened, walk->at: 0; or 1: leave it again at once, without leave(). */
    int (*enter)(struct files_walk *walk, const char *name, void *data, struct hc_err *err);
    /* Optional. All of a folder is done; walk->at is the one it is in. 1: go into it once more. */
    int (*leave)(struct files_walk *walk, const char *name, void *data, struct hc_err *err);
    /* Optional. A folder could not be opened (code), or it moved away (0). Without it such a folder is passed over. */
    int (*lost)(struct files_walk *walk, int code, void *data, struct hc_err *err);
};

/* root stays the caller's. 0 or -errno; -EFBIG when a tree has more folders than memory is allowed for. */
int files_walk(int root, const struct files_hooks *hooks, void *data, struct hc_err *err);

#endif
