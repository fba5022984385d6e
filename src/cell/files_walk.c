/*
 * The walk. Of each level it knows which folder it is (device and inode), how long its path is and which folders in it
 * are still to be visited; only the folder at hand is open. The way back up is "..", which is believed only if it is
 * the folder that we came from; if not (the guest moved something), the way is looked up from the root by its names,
 * and a level that is not found any more is dropped with all that was pending in it. Every step either uses up a
 * pending name or a level, so the walk ends when the guest stops making new folders, and the ceilings end it otherwise.
 */
#include "cell/files_walk.h"

#include "base/fd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PENDING_MAX = 64 << 20, PATH_ROOM = 4 << 20, LEVELS_MAX = 200000 };

struct files_level {
    dev_t dev;
    ino_t ino;
    size_t pending;     /* where its pending names begin */
    size_t path_length; /* of its own path */
};

static const int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC;
/* Of a folder that was read already: Landlock, which looks at every folder above, has no say in these. */
static const int way_flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

static int too_much(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_REQUEST, EFBIG, "the tree has too many folders, or too deep ones");
}

static struct files_level *top(const struct files_walk *walk)
{
    return &walk->levels[walk->depth - 1];
}

static void cut(struct hc_buf *buf, size_t length)
{
    buf->length = length;
    if (buf->data)
        buf->data[length] = '\0';
}

static int add_name(struct files_walk *walk, const char *name)
{
    if (walk->path.length > 0)
        hc_buf_add(&walk->path, "/", 1);
    return hc_buf_add_str(&walk->path, name);
}

static unsigned char type_of(int dir, const struct dirent *entry)
{
    struct stat stat;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type;
    return fstatat(dir, entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN : IFTODT(stat.st_mode);
}

static int scan_entry(struct files_walk *walk, const struct files_hooks *hooks, const struct dirent *entry, void *data,
                      struct hc_err *err)
{
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (add_name(walk, name) < 0)
        return too_much(err);
    int result = hooks->entry(walk, name, type_of(walk->at, entry), data, err);
    cut(&walk->path, top(walk)->path_length);
    if (result > 0 && hc_buf_add(&walk->pending, name, strlen(name) + 1) < 0)
        return too_much(err);
    return result < 0 ? result : 0;
}

static int scan(struct files_walk *walk, const struct files_hooks *hooks, void *data, struct hc_err *err)
{
    int fd = fcntl(walk->at, F_DUPFD_CLOEXEC, 3);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int status = 0;

    if (!dir) {
        hc_close(fd);
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "cannot read a folder");
    }
    rewinddir(dir); /* the offset is that of walk->at, and a folder may be visited again */
    for (struct dirent *entry = readdir(dir); entry && status == 0; entry = readdir(dir))
        status = scan_entry(walk, hooks, entry, data, err);
    closedir(dir);
    return status;
}

static int push(struct files_walk *walk, struct hc_err *err)
{
    struct stat stat;
    if (fstat(walk->at, &stat) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "cannot look at a folder");
    if (walk->depth == walk->room) {
        size_t room = walk->room ? walk->room * 2 : 16;
        struct files_level *levels = room > LEVELS_MAX ? NULL : realloc(walk->levels, room * sizeof *levels);
        if (!levels)
            return too_much(err);
        walk->levels = levels;
        walk->room = room;
    }
    walk->levels[walk->depth++] = (struct files_level){
        .dev = stat.st_dev, .ino = stat.st_ino, .pending = walk->pending.length, .path_length = walk->path.length};
    return 0;
}

/* The fd if it is the folder of the level; closed, and -1, if it is another. */
static int believe(int fd, const struct files_level *level)
{
    struct stat stat;
    if (fd >= 0 && fstat(fd, &stat) == 0 && stat.st_dev == level->dev && stat.st_ino == level->ino)
        return fd;
    return hc_close(fd);
}

/* By its names, from the root. */
static int look_up(struct files_walk *walk, const struct files_level *level)
{
    int fd = fcntl(walk->root, F_DUPFD_CLOEXEC, 3);
    char *end = walk->path.data + level->path_length;
    for (char *at = walk->path.data; fd >= 0 && level->path_length > 0 && at < end;) {
        size_t part = strcspn(at, "/");
        char after = at[part];
        at[part] = '\0';
        int next = openat(fd, at, way_flags);
        at[part] = after;
        hc_close(fd);
        fd = next;
        at += part + 1;
    }
    return believe(fd, level);
}

static int lose(struct files_walk *walk, const struct files_hooks *hooks, int code, void *data, struct hc_err *err)
{
    return hooks->lost ? hooks->lost(walk, code, data, err) : 0;
}

/* Leaves the folder at hand for the one it is in. */
static int ascend(struct files_walk *walk, const struct files_hooks *hooks, bool told, void *data, struct hc_err *err)
{
    size_t name_at = 0;
    if (--walk->depth == 0)
        return 0;
    struct files_level *level = top(walk);
    int parent = walk->at < 0 ? -1 : believe(openat(walk->at, "..", way_flags), level);
    hc_close(walk->at);
    walk->at = parent >= 0 ? parent : look_up(walk, level);
    if (walk->at < 0) { /* what was pending in it is lost with it */
        cut(&walk->pending, level->pending);
        int status = lose(walk, hooks, 0, data, err);
        cut(&walk->path, level->path_length);
        return status;
    }
    name_at = level->path_length + (level->path_length > 0);
    int again = told && hooks->leave ? hooks->leave(walk, walk->path.data + name_at, data, err) : 0;
    if (again > 0) {
        const char *name = walk->path.data + name_at;
        if (hc_buf_add(&walk->pending, name, strlen(name) + 1) < 0)
            again = too_much(err);
    }
    cut(&walk->path, level->path_length);
    return again < 0 ? again : 0;
}

/* Takes the last pending name off and goes into it. */
static int descend(struct files_walk *walk, const struct files_hooks *hooks, void *data, struct hc_err *err)
{
    size_t start = walk->pending.length - 1;
    while (start > 0 && walk->pending.data[start - 1] != '\0')
        start--;
    const char *name = walk->pending.data + start;
    if (add_name(walk, name) < 0)
        return too_much(err);
    int child = openat(walk->at, name, folder_flags), code = errno;
    cut(&walk->pending, start);
    if (child < 0) {
        int status = code == ENOENT ? 0 : lose(walk, hooks, code, data, err);
        cut(&walk->path, top(walk)->path_length);
        return status;
    }
    size_t name_at = top(walk)->path_length + (top(walk)->path_length > 0);
    hc_close(walk->at);
    walk->at = child;
    int status = push(walk, err);
    if (status < 0)
        return status;
    int pass = hooks->enter ? hooks->enter(walk, walk->path.data + name_at, data, err) : 0;
    if (pass < 0)
        return pass;
    return pass > 0 ? ascend(walk, hooks, false, data, err) : scan(walk, hooks, data, err);
}

int files_walk(int root, const struct files_hooks *hooks, void *data, struct hc_err *err)
{
    struct files_walk walk = {.path = HC_BUF_INIT(PATH_ROOM), .pending = HC_BUF_INIT(PENDING_MAX), .root = root};
    hc_buf_add_str(&walk.path, "");
    walk.at = fcntl(root, F_DUPFD_CLOEXEC, 3);
    int status = walk.at < 0 ? hc_fail_errno(err, HC_CLASS_OURS, errno, "cannot open a folder") : push(&walk, err);
    if (status == 0)
        status = scan(&walk, hooks, data, err);
    while (status == 0 && walk.depth > 0)
        status = walk.pending.length > top(&walk)->pending ? descend(&walk, hooks, data, err)
                                                           : ascend(&walk, hooks, true, data, err);
    hc_close(walk.at);
    hc_buf_release(&walk.path);
    hc_buf_release(&walk.pending);
    free(walk.levels);
    return status;
}
