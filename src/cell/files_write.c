/*
 * A file's new content. It is written beside its place and then renamed, so that whoever reads the file sees the old or
 * the new one whole; nothing is changed by a body that is too long, too short, or does not fit on the disk. Appending
 * is done in place, and undone where nobody else has written meanwhile.
 */
#include "base/fd.h"
#include "cell/files_internal.h"
#include "cell/files_temp.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINKS_MAX = 40, NEW_MODE = 0644 };

struct writing {
    char path[PATH_MAX];
    uint64_t limit;  /* of the body */
    uint64_t length; /* what it must come to; FILES_NO_LIMIT: unknown */
    int mode;
    bool append, parents;
};

static int read_words(const struct files *files, struct writing *writing, struct hc_err *err)
{
    *writing = (struct writing){.limit = INT64_MAX, .length = FILES_NO_LIMIT, .parents = true};
    int status = files_path(files, FILES_PATH, writing->path, err);
    if (status == 0)
        status = files_number(files, FILES_LIMIT, 0, INT64_MAX, &writing->limit, err);
    if (status == 0)
        status = files_number(files, FILES_LENGTH, 0, INT64_MAX, &writing->length, err);
    if (status == 0)
        status = files_mode(files, &writing->mode, err);
    if (status == 0)
        status = files_switch(files, FILES_APPEND, &writing->append, err);
    if (status == 0)
        status = files_switch(files, FILES_PARENTS, &writing->parents, err);
    return status;
}

static int too_large(const struct writing *writing, struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_REQUEST, EFBIG, "%s: the body has more than %" PRIu64 " bytes", writing->path,
                   writing->limit);
}

/* All of the body into fd. *size counts, also on failure. */
static int take_body(const struct writing *writing, int fd, uint64_t *size, struct hc_err *err)
{
    char chunk[FILES_CHUNK];
    if (writing->length != FILES_NO_LIMIT && writing->length > writing->limit)
        return too_large(writing, err);
    for (;;) {
        ssize_t count = read(STDIN_FILENO, chunk, sizeof chunk);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "cannot read the body");
        if (count == 0)
            break;
        if ((uint64_t)count > writing->limit - *size)
            return too_large(writing, err);
        int status = hc_write_all(fd, chunk, (size_t)count);
        if (status < 0)
            return files_fail(err, -status, "write", writing->path);
        *size += (uint64_t)count;
    }
    if (writing->length != FILES_NO_LIMIT && *size != writing->length)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s: the body has %" PRIu64 " bytes and not %" PRIu64,
                       writing->path, *size, writing->length);
    return 0;
}

/* Where the path leads when its last name is a symlink: a file that is written to through one stays one. */
static int follow_links(char path[PATH_MAX], struct stat *stat, bool *exists, struct hc_err *err)
{
    for (int i = 0; i < LINKS_MAX; i++) {
        char target[PATH_MAX], next[2 * PATH_MAX];
        *exists = lstat(path, stat) == 0;
        if (!*exists && errno != ENOENT)
            return files_fail(err, errno, "write", path);
        if (!*exists || !S_ISLNK(stat->st_mode))
            return 0;
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0)
            return files_fail(err, errno, "write", path);
        target[length] = '\0';
        const char *slash = strrchr(path, '/');
        int folder = target[0] == '/' || !slash ? 0 : (int)(slash - path) + 1;
        int size = snprintf(next, sizeof next, "%.*s%s", folder, path, target);
        if (size >= PATH_MAX)
            return files_fail(err, ENAMETOOLONG, "write", path);
        memcpy(path, next, (size_t)size + 1);
    }
    return files_fail(err, ELOOP, "write", path);
}

/* The folder of the path, and its last name. */
static int open_folder(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    *name = slash ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int append_body(const struct writing *writing, bool exists, uint64_t *size, struct hc_err *err)
{
    struct stat before, after;
    hc_cleanup_fd int fd = files_open_regular(AT_FDCWD, writing->path, O_WRONLY | O_APPEND | O_CREAT, &before);
    if (fd < 0)
        return files_fail(err, -fd, "append to", writing->path);
    int status = take_body(writing, fd, size, err);
    /* *size lacks what the last write put in before it failed, so this asks for no more than that it is ours. */
    if (status < 0 && fstat(fd, &after) == 0 && after.st_size >= before.st_size &&
        (uint64_t)(after.st_size - before.st_size) <= *size + FILES_CHUNK)
        (void)!ftruncate(fd, before.st_size);
    if (status < 0 && !exists)
        unlink(writing->path);
    if (status == 0 && writing->mode != FILES_NO_MODE && fchmod(fd, (mode_t)writing->mode) < 0)
        return files_fail(err, errno, "set the mode of", writing->path);
    return status;
}

static int replace(const struct writing *writing, const struct stat *before, bool exists, uint64_t *size,
                   struct hc_err *err)
{
    const char *name = NULL;
    struct files_temp temp;
    hc_cleanup_fd int folder = open_folder(writing->path, &name);
    if (folder < 0)
        return files_fail(err, -folder, "write", writing->path);
    int status = files_temp_open(&temp, folder);
    if (status < 0)
        return files_fail(err, -status, "write", writing->path);
    int mode = writing->mode != FILES_NO_MODE ? writing->mode : exists ? (int)before->st_mode & 01777 : NEW_MODE;
    status = take_body(writing, temp.fd, size, err);
    if (status == 0 && fchmod(temp.fd, (mode_t)mode) < 0)
        status = files_fail(err, errno, "set the mode of", writing->path);
    if (status == 0 && (status = files_temp_commit(&temp, name)) < 0)
        files_fail(err, -status, "write", writing->path);
    files_temp_close(&temp);
    return status;
}

int files_write(struct files *files, struct hc_err *err)
{
    struct writing writing;
    struct stat before = {0};
    bool exists = false;
    uint64_t size = 0;
    int status = read_words(files, &writing, err);
    if (status == 0 && writing.parents)
        status = files_make_parents(writing.path, false, err);
    if (status == 0)
        status = follow_links(writing.path, &before, &exists, err);
    if (status < 0)
        return status;
    if (exists && !S_ISREG(before.st_mode))
        return files_fail(err, S_ISDIR(before.st_mode) ? EISDIR : ENXIO, "write", writing.path);
    status =
        writing.append ? append_body(&writing, exists, &size, err) : replace(&writing, &before, exists, &size, err);
    if (status < 0)
        return status;
    files_head_begin(files);
    files_json_number(&files->head, "size", (int64_t)(writing.append ? size + (uint64_t)before.st_size : size));
    files_json_bool(&files->head, "created", !exists);
    return files_head_end(files, err);
}
