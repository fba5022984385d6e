/*
 * Files that come out of the cell. The guest chose their names and bytes, so the names are walked part by part: no
 * "..", no symbolic link is followed, nothing is written outside the folder, and nothing that exists is replaced unless
 * --force says so. A file appears whole or not at all where it replaces another.
 */
#include "base/fd.h"
#include "base/size.h"
#include "cli/message.h"
#include "cli/run.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int collect_open(const char *folder, struct hc_err *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT && mkdir(folder, 0777) == 0)
        fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot write files to %s", folder);
    return fd;
}

int collect_parent(int root, char *path, const char **name)
{
    hc_cleanup_fd int folder = fcntl(root, F_DUPFD_CLOEXEC, 3);

    if (folder < 0)
        return -errno;
    for (char *part = path;;) {
        char *slash = strchr(part, '/');
        if (slash)
            *slash = '\0';
        if (!part[0] || strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
            return -EINVAL;
        if (!slash) {
            *name = part;
            return HC_TAKE_FD(folder);
        }
        if (mkdirat(folder, part, 0777) < 0 && errno != EEXIST)
            return -errno;
        int next = openat(folder, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return -errno;
        hc_close(folder);
        folder = next;
        part = slash + 1;
    }
}

static int write_new(int folder, const char *name, const char *content, size_t length)
{
    hc_cleanup_fd int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);

    if (fd < 0)
        return -errno;
    int status = hc_write_all(fd, content, length);
    if (status < 0)
        unlinkat(folder, name, 0);
    return status;
}

static int write_over(int folder, const char *name, const char *content, size_t length)
{
    char temporary[64];

    snprintf(temporary, sizeof temporary, ".hotcell-%ld.tmp", (long)getpid());
    int status = write_new(folder, temporary, content, length);
    if (status == 0 && renameat(folder, temporary, folder, name) < 0) {
        status = -errno;
        unlinkat(folder, temporary, 0);
    }
    return status;
}

/* What the program was given and has not changed, most likely: there is nothing to replace. */
static bool is_the_same(int folder, const char *name, const char *content, size_t length)
{
    hc_cleanup_fd int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != length)
        return false;
    char part[4096];
    size_t at = 0;
    for (ssize_t got; at < length && (got = read(fd, part, sizeof part)) > 0; at += (size_t)got)
        if ((size_t)got > length - at || memcmp(part, content + at, (size_t)got) != 0)
            return false;
    return at == length;
}

int collect_file(int root, const char *path, const char *content, size_t length, bool force)
{
    char parts[PATH_MAX];
    const char *name = "";

    if (snprintf(parts, sizeof parts, "%s", path) >= (int)sizeof parts)
        return -ENAMETOOLONG;
    hc_cleanup_fd int folder = collect_parent(root, parts, &name);
    if (folder < 0)
        return folder;
    int status = force ? write_over(folder, name, content, length) : write_new(folder, name, content, length);
    return status == -EEXIST && is_the_same(folder, name, content, length) ? 0 : status;
}

static void say_why(const char *path, int status)
{
    const struct cli plain = {0};
    struct hc_err err = {0};

    if (status == -EEXIST) {
        hc_fail(&err, HC_CLASS_HOST, EEXIST, "%s exists, and was not replaced by the collected file", path);
        hc_err_remedy(&err, "add --force, or name another folder: --collect-to DIR");
    } else {
        hc_fail_errno(&err, HC_CLASS_HOST, -status, "cannot write the collected file %s", path);
    }
    message_error(&plain, &err);
}

/* A link is not made: it could lead anywhere, and the next program to write through it would follow. */
static int write_one(int folder, const struct run_file *file, bool force, bool verbose)
{
    char size[32];

    if (strcmp(file->type, "symlink") == 0) {
        message_note("%s is a symbolic link, and was not written", file->path);
        return 0;
    }
    int status = collect_file(folder, file->path, file->content, file->length, force);
    hc_format_size(file->length, size, sizeof size);
    if (status < 0) {
        say_why(file->path, status);
    } else if (strcmp(file->type, "truncated") == 0) {
        message_note("%s is incomplete: only its first %s could be collected", file->path, size);
        status = -EFBIG;
    } else if (verbose) {
        message_note("wrote %s (%s)", file->path, size);
    }
    return status;
}

int collect_write(int folder, const struct run_file *files, size_t count, bool force, bool verbose)
{
    int first = 0;

    for (size_t i = 0; i < count; i++) {
        int status = write_one(folder, &files[i], force, verbose);
        if (first == 0)
            first = status;
    }
    return first;
}
