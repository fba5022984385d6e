/*
 * Taking files away, and whole trees. Never through a symlink, and never over the border of a file system: a volume
 * below a folder is not the folder's to empty. The kernel sees to that: a folder is gone into only after rmdir(2) said
 * that it is not empty, and of one that something is mounted on it says EBUSY.
 */
#include "base/fd.h"
#include "cell/files_internal.h"
#include "cell/files_walk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { AGAIN_MAX = 100 };

struct removal {
    unsigned again; /* folders that were not empty after all */
    uint64_t deleted;
};

static int fail_at(struct hc_err *err, int code, const struct files_walk *walk)
{
    return files_fail(err, code, "delete", walk->path.data);
}

static int remove_entry(struct files_walk *walk, const char *name, unsigned char type, void *data, struct hc_err *err)
{
    struct removal *removal = data;
    /* Not what readdir said, if that has changed: each call says so (EISDIR, ENOTDIR) and the other one is tried. */
    int flags = type == DT_DIR ? AT_REMOVEDIR : 0;
    int result = unlinkat(walk->at, name, flags);
    if (result < 0 && (errno == EISDIR || errno == ENOTDIR))
        result = unlinkat(walk->at, name, flags ^ AT_REMOVEDIR);
    if (result == 0)
        removal->deleted++;
    else if (errno == ENOTEMPTY || errno == EEXIST)
        return 1;
    else if (errno != ENOENT)
        return fail_at(err, errno, walk);
    return 0;
}

static int remove_folder(struct files_walk *walk, const char *name, void *data, struct hc_err *err)
{
    struct removal *removal = data;
    if (unlinkat(walk->at, name, AT_REMOVEDIR) == 0) {
        removal->deleted++;
        return 0;
    }
    if (errno == ENOENT || errno == ENOTDIR) /* taken away, or replaced: its own folder will not be empty then */
        return 0;
    if ((errno == ENOTEMPTY || errno == EEXIST) && removal->again++ < AGAIN_MAX)
        return 1;
    return fail_at(err, errno, walk);
}

static int fail_lost(struct files_walk *walk, int code, void *data, struct hc_err *err)
{
    (void)data;
    if (code == ENOTDIR || code == ELOOP)
        return 0; /* replaced meanwhile */
    if (code)
        return fail_at(err, code, walk);
    return hc_fail(err, HC_CLASS_REQUEST, EBUSY, "folders were moved while they were being deleted");
}

int files_remove_tree(int dir, const char *name, uint64_t *deleted, struct hc_err *err)
{
    static const struct files_hooks hooks = {.entry = remove_entry, .leave = remove_folder, .lost = fail_lost};
    struct removal removal = {0};
    hc_cleanup_fd int root = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0)
        return files_fail(err, errno, "delete", name);
    int status = 0;
    for (unsigned i = 0; status == 0; i++) {
        status = files_walk(root, &hooks, &removal, err);
        if (status == 0 && unlinkat(dir, name, AT_REMOVEDIR) == 0) {
            removal.deleted++;
            break;
        }
        if (status == 0 && ((errno != ENOTEMPTY && errno != EEXIST) || i == AGAIN_MAX))
            status = files_fail(err, errno, "delete", name);
    }
    *deleted += removal.deleted;
    return status;
}

bool files_is_in(const char *path, const struct stat *folder)
{
    int at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat stat, before = {0};
    bool found = false;
    while (at >= 0 && !found && fstat(at, &stat) == 0) {
        found = stat.st_dev == folder->st_dev && stat.st_ino == folder->st_ino;
        if (stat.st_dev == before.st_dev && stat.st_ino == before.st_ino)
            break; /* the root is its own parent */
        before = stat;
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        hc_close(at);
        at = up;
    }
    hc_close(at);
    return found;
}

static int remove_path(const char *path, const struct stat *stat, bool recursive, uint64_t *deleted, struct hc_err *err)
{
    if (unlinkat(AT_FDCWD, path, S_ISDIR(stat->st_mode) ? AT_REMOVEDIR : 0) == 0) {
        *deleted = 1;
        return 0;
    }
    if (errno != ENOTEMPTY && errno != EEXIST)
        return files_fail(err, errno, "delete", path);
    if (recursive)
        return files_remove_tree(AT_FDCWD, path, deleted, err);
    files_fail(err, ENOTEMPTY, "delete", path);
    return hc_err_remedy(err, "delete what is in it first, or ask for recursive=true");
}

int files_delete(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX];
    bool recursive = false;
    struct stat stat;
    uint64_t deleted = 0;
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_switch(files, FILES_RECURSIVE, &recursive, err);
    if (status < 0)
        return status;
    if (lstat(path, &stat) < 0)
        return files_fail(err, errno, "delete", path);
    if (S_ISDIR(stat.st_mode) && files_is_in(".", &stat)) {
        hc_fail(err, HC_CLASS_REQUEST, EBUSY,
                "cannot delete %s: it is the working directory, or the working directory "
                "is in it",
                path);
        return hc_err_remedy(err, "delete what is in it, name by name");
    }
    status = remove_path(path, &stat, recursive, &deleted, err);
    if (status < 0)
        return status;
    files_head_begin(files);
    files_json_number(&files->head, "deleted", (int64_t)deleted);
    return files_head_end(files, err);
}
