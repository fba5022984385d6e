/*
 * Files out of a cell. Runs in the cell, as the guest, on what the guest left: nothing here is to be trusted, least of
 * all the types, sizes and depths of files.
 *
 * What always holds: a path is opened component by component with O_NOFOLLOW, from the working directory, so no symlink
 * is followed, even one that appears while this runs. Content is read only from what fstat of the open fd says is a
 * regular file. A record has exactly as many bytes as its header announced, also when the file shrinks meanwhile (the
 * rest is zeros) or grows. Folders wait on a list of paths rather than on the stack or in open fds, so depth costs
 * neither.
 */
#include "cell/archive.h"

#include "base/buf.h"
#include "base/fd.h"
#include "cell/glob.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, PENDING_MAX = 64 * 1024 * 1024 };

struct collect {
    int out;
    char *const *patterns;
    size_t count;
    uint64_t left;         /* of the limit */
    struct hc_buf pending; /* folders still to be read, as "path\0path\0"; the last one is next */
    struct hc_err *err;
};

static bool wanted(const struct collect *collect, const char *path, bool (*matches)(const char *, const char *))
{
    for (size_t i = 0; i < collect->count; i++)
        if (matches(collect->patterns[i], path))
            return true;
    return false;
}

static int put(struct collect *collect, const void *data, size_t length)
{
    int status = hc_write_all(collect->out, data, length);
    return status < 0 ? hc_fail_errno(collect->err, HC_CLASS_OURS, -status, "cannot send the collected files") : 0;
}

static int put_header(struct collect *collect, enum archive_type type, unsigned mode, const char *path,
                      uint64_t content_length, uint64_t true_size)
{
    int status = archive_put_header(collect->out, type, mode, path, content_length, true_size);
    return status < 0 ? hc_fail_errno(collect->err, HC_CLASS_OURS, -status, "cannot send the collected files") : 0;
}

static int put_content(struct collect *collect, int fd, uint64_t length)
{
    char chunk[CHUNK];

    while (length > 0) {
        size_t size = length < sizeof(chunk) ? (size_t)length : sizeof(chunk);
        ssize_t count = hc_read_full(fd, chunk, size);
        size_t have = count < 0 ? 0 : (size_t)count;
        memset(chunk + have, 0, size - have);
        int status = put(collect, chunk, size);
        if (status < 0)
            return status;
        length -= size;
    }
    return 0;
}

/* A file that cannot be opened is still reported, without content, so that it is not lost in silence. */
static int collect_file(struct collect *collect, int dir, const char *name, const char *path)
{
    hc_cleanup_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat stat;

    if (fd < 0 && fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (fd >= 0 && fstat(fd, &stat) < 0)
        return 0;
    if (!S_ISREG(stat.st_mode))
        return 0;
    uint64_t size = stat.st_size > 0 ? (uint64_t)stat.st_size : 0;
    uint64_t sent = fd < 0 ? 0 : size < collect->left ? size : collect->left;
    int status = put_header(collect, ARCHIVE_FILE, stat.st_mode, path, sent, size);
    if (status < 0)
        return status;
    collect->left -= sent;
    return put_content(collect, fd, sent);
}

static int collect_symlink(struct collect *collect, int dir, const char *name, const char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(dir, name, target, sizeof(target) - 1);

    if (length <= 0)
        return 0;
    if ((uint64_t)length > collect->left) /* half a target would be another link */
        return put_header(collect, ARCHIVE_SYMLINK, 0777, path, 0, (uint64_t)length);
    int status = put_header(collect, ARCHIVE_SYMLINK, 0777, path, (uint64_t)length, (uint64_t)length);
    if (status < 0)
        return status;
    collect->left -= (uint64_t)length;
    return put(collect, target, (size_t)length);
}

static int collect_entry(struct collect *collect, int dir, const char *folder, const char *name)
{
    char path[ARCHIVE_PATH_MAX + 1];
    struct stat stat;

    int length = snprintf(path, sizeof(path), "%s%s%s", folder, folder[0] ? "/" : "", name);
    if ((size_t)length >= sizeof(path) || fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (S_ISDIR(stat.st_mode)) {
        if (!wanted(collect, path, glob_may_match_below))
            return 0;
        if (hc_buf_add(&collect->pending, path, (size_t)length + 1) < 0)
            return hc_fail(collect->err, HC_CLASS_PROGRAM, ENOMEM, "too many folders to collect files from");
        return 0;
    }
    if (!wanted(collect, path, glob_match))
        return 0;
    if (S_ISREG(stat.st_mode))
        return collect_file(collect, dir, name, path);
    return S_ISLNK(stat.st_mode) ? collect_symlink(collect, dir, name, path) : 0;
}

/* The folder at `path`, or -1 when it is gone, unreadable or no longer a folder. */
static int open_folder(char *path)
{
    hc_cleanup_fd int dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (char *at = path; dir >= 0 && *at != '\0';) {
        size_t part = strcspn(at, "/");
        char slash = at[part];
        at[part] = '\0';
        int next = openat(dir, at, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        at[part] = slash;
        hc_close(dir);
        dir = next;
        at += part + (slash != '\0');
    }
    return dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int collect_folder(struct collect *collect, char *path)
{
    int fd = open_folder(path);
    int status = 0;

    if (fd < 0)
        return 0;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        hc_close(fd);
        return hc_fail_errno(collect->err, HC_CLASS_OURS, errno, "cannot read a folder to collect files from");
    }
    for (struct dirent *entry = readdir(dir); entry && status == 0; entry = readdir(dir))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = collect_entry(collect, fd, path, entry->d_name);
    closedir(dir);
    return status;
}

/* Moves the last path of the pending ones to `path`. */
static void pop(struct hc_buf *pending, char *path)
{
    size_t start = pending->length - 1;

    while (start > 0 && pending->data[start - 1] != '\0')
        start--;
    memcpy(path, pending->data + start, pending->length - start);
    pending->length = start;
}

int archive_collect(int out, char *const *patterns, size_t count, uint64_t limit, struct hc_err *err)
{
    struct collect collect = {.out = out, .patterns = patterns, .count = count, .left = limit, .err = err};
    char path[ARCHIVE_PATH_MAX + 1] = "";
    int status;

    collect.pending = HC_BUF_INIT(PENDING_MAX);
    status = collect_folder(&collect, path);
    while (status == 0 && collect.pending.length > 0) {
        pop(&collect.pending, path);
        status = collect_folder(&collect, path);
    }
    hc_buf_release(&collect.pending);
    return status < 0 ? status : put_header(&collect, ARCHIVE_END, 0, "", 0, 0);
}
