/*
 * A copy of a tree, for moves from one file system to another. What always holds: symlinks are copied and not followed;
 * holes stay holes; of the source nothing is changed. The copy goes down and up with the walk, one folder open: its
 * "..", too, is believed only if it is the folder that it was.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "cell/files_internal.h"
#include "cell/files_walk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { TRAIL_MAX = 64 << 20 };

struct place {
    dev_t dev;
    ino_t ino;
};

struct copy {
    int to;              /* the folder at hand, in the copy */
    struct hc_buf trail; /* struct place of those it is in */
};

static int copy_times(int fd, const struct stat *stat)
{
    const struct timespec times[2] = {stat->st_atim, stat->st_mtim};
    return futimens(fd, times);
}

/* The time first: with a mode that does not let us in, "." is not to be had any more. One that the file system cannot
 * hold is no reason to fail. */
int files_finish_folder(int fd, mode_t mode, const struct timespec times[2])
{
    (void)utimensat(fd, ".", times, 0);
    return fchmodat(fd, ".", mode & 01777, 0) < 0 ? -errno : 0;
}

static int finish_folder(int fd, const struct stat *stat)
{
    const struct timespec times[2] = {stat->st_atim, stat->st_mtim};
    return files_finish_folder(fd, stat->st_mode, times);
}

/* From `at` to `end`, by position. */
static int copy_range(int in, int out, off_t at, off_t end)
{
    char chunk[FILES_CHUNK];
    while (at < end) {
        size_t want = (size_t)(end - at) < sizeof chunk ? (size_t)(end - at) : sizeof chunk;
        ssize_t count = pread(in, chunk, want, at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : 0; /* it shrank */
        for (ssize_t done = 0, more; done < count; done += more) {
            more = pwrite(out, chunk + done, (size_t)(count - done), at + done);
            if (more < 0 && errno != EINTR)
                return -errno;
            if (more < 0)
                more = 0;
        }
        at += count;
    }
    return 0;
}

/* The size is looked at once: a file that grows while it is copied does not make the copy endless. */
static int copy_content(int in, int out, off_t size)
{
    for (off_t at = 0; at < size;) {
        off_t data = lseek(in, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break; /* a hole to the end */
        off_t hole = data < 0 ? size : lseek(in, data, SEEK_HOLE);
        if (data < 0)
            data = at; /* the file system knows no holes */
        if (hole < data || hole > size)
            hole = size;
        int status = copy_range(in, out, data, hole);
        if (status < 0)
            return status;
        at = hole;
    }
    return ftruncate(out, size) < 0 ? -errno : 0;
}

static int copy_file(int from, const char *name, int to, const char *to_name)
{
    struct stat stat;
    hc_cleanup_fd int in = files_open_regular(from, name, O_RDONLY | O_NOFOLLOW, &stat);
    if (in < 0)
        return in;
    hc_cleanup_fd int out = openat(to, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    int status = copy_content(in, out, stat.st_size);
    if (status == 0 && (fchmod(out, stat.st_mode & 01777) < 0 || copy_times(out, &stat) < 0))
        status = -errno;
    return status;
}

static int copy_one(int from, const char *name, int to, const char *to_name)
{
    struct stat stat;
    char target[PATH_MAX];
    if (fstatat(from, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISREG(stat.st_mode))
        return copy_file(from, name, to, to_name);
    if (S_ISFIFO(stat.st_mode))
        return mkfifoat(to, to_name, stat.st_mode & 0777) < 0 ? -errno : 0;
    if (!S_ISLNK(stat.st_mode))
        return -ENXIO;
    ssize_t length = readlinkat(from, name, target, sizeof target - 1);
    if (length < 0)
        return -errno;
    target[length] = '\0';
    return symlinkat(target, to, to_name) < 0 ? -errno : 0;
}

static int fail_copy(struct hc_err *err, int code, const char *path)
{
    if (code == ENXIO)
        return hc_fail(err, HC_CLASS_REQUEST, code, "cannot move %s to another file system: it is a socket or a device",
                       path);
    return files_fail(err, code, "copy", path);
}

static int copy_entry(struct files_walk *walk, const char *name, unsigned char type, void *data, struct hc_err *err)
{
    struct copy *copy = data;
    if (type == DT_DIR)
        return 1;
    int status = copy_one(walk->at, name, copy->to, name);
    return status < 0 && status != -ENOENT ? fail_copy(err, -status, walk->path.data) : 0;
}

static int step_into(struct copy *copy, const char *name)
{
    struct stat stat;
    if (mkdirat(copy->to, name, 0700) < 0)
        return -errno;
    hc_cleanup_fd int next = openat(copy->to, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 || fstat(copy->to, &stat) < 0)
        return -errno;
    const struct place place = {stat.st_dev, stat.st_ino};
    if (hc_buf_add(&copy->trail, &place, sizeof place) < 0)
        return -EFBIG;
    hc_close(copy->to);
    copy->to = HC_TAKE_FD(next);
    return 0;
}

static int enter_copy(struct files_walk *walk, const char *name, void *data, struct hc_err *err)
{
    int status = step_into(data, name);
    return status < 0 ? fail_copy(err, -status, walk->path.data) : 0;
}

static int leave_copy(struct files_walk *walk, const char *name, void *data, struct hc_err *err)
{
    struct copy *copy = data;
    struct stat stat, up;
    struct place place;
    if (fstatat(walk->at, name, &stat, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(stat.st_mode)) {
        int status = finish_folder(copy->to, &stat);
        if (status < 0)
            return fail_copy(err, -status, walk->path.data);
    }
    copy->trail.length -= sizeof place;
    memcpy(&place, copy->trail.data + copy->trail.length, sizeof place);
    int parent = openat(copy->to, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    hc_close(copy->to);
    copy->to = parent;
    if (parent < 0 || fstat(parent, &up) < 0 || up.st_dev != place.dev || up.st_ino != place.ino)
        return hc_fail(err, HC_CLASS_REQUEST, EBUSY, "the copy was moved while it was being made");
    return 0;
}

static int lost_copy(struct files_walk *walk, int code, void *data, struct hc_err *err)
{
    (void)data;
    if (code)
        return fail_copy(err, code, walk->path.data);
    return hc_fail(err, HC_CLASS_REQUEST, EBUSY, "folders were moved while they were being copied");
}

int files_copy_tree(int from, const char *from_name, int to, const char *to_name, struct hc_err *err)
{
    static const struct files_hooks hooks = {
        .entry = copy_entry, .enter = enter_copy, .leave = leave_copy, .lost = lost_copy};
    struct copy copy = {.trail = HC_BUF_INIT(TRAIL_MAX)};
    struct stat stat;
    if (fstatat(from, from_name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_copy(err, errno, from_name);
    if (!S_ISDIR(stat.st_mode)) {
        int status = copy_one(from, from_name, to, to_name);
        return status < 0 ? fail_copy(err, -status, from_name) : 0;
    }
    hc_cleanup_fd int root = openat(from, from_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0 || mkdirat(to, to_name, 0700) < 0)
        return fail_copy(err, errno, from_name);
    copy.to = openat(to, to_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int status = copy.to < 0 ? fail_copy(err, errno, from_name) : files_walk(root, &hooks, &copy, err);
    if (status == 0 && (status = finish_folder(copy.to, &stat)) < 0)
        fail_copy(err, -status, from_name);
    hc_close(copy.to);
    hc_buf_release(&copy.trail);
    return status;
}
