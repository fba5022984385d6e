/*
 * Files into a cell. Runs in the cell, as the guest, before the program is exec'ed. The archive was written by our own
 * client, but it is read as if it were not. What always holds: no symlink is followed, nothing that exists is
 * overwritten, and every length is checked against what is left.
 */
#include "cell/archive.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { SMALL = 1024, CHUNK = 16 * 1024 }; /* a large frame is touched, page by page, when it is made */

/* Read by position: the fd may be one of several on the same open file, each with a cell of its own. Most archives are
 * shorter than what is read ahead. */
struct source {
    int fd;
    off_t at;
    uint64_t left;
    char ahead[SMALL];
    size_t from, until; /* of `ahead`, what has not been taken */
};

static int read_ahead(struct source *source)
{
    ssize_t count;
    do
        count = pread(source->fd, source->ahead, sizeof source->ahead, source->at);
    while (count < 0 && errno == EINTR);
    source->from = 0;
    source->until = count < 0 ? 0 : (size_t)count;
    source->at += count < 0 ? 0 : count;
    return count < 0 ? -errno : 0;
}

static size_t take_ahead(struct source *source, void *data, size_t length)
{
    size_t there = source->until - source->from, taken = length < there ? length : there;
    memcpy(data, source->ahead + source->from, taken);
    source->from += taken;
    return taken;
}

static int take(struct source *source, void *data, size_t length, struct hc_err *err)
{
    if (length > source->left)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive of files ends too soon");
    for (size_t have = take_ahead(source, data, length); have < length;) {
        ssize_t count = pread(source->fd, (char *)data + have, length - have, source->at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "cannot read the archive of files");
        if (count == 0)
            return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive of files ends too soon");
        have += (size_t)count;
        source->at += count;
    }
    source->left -= length;
    return 0;
}

/* The working directory's: it is the disk that the files go to. */
static bool is_out_of_inodes(void)
{
    struct statfs disk;
    return statfs(".", &disk) == 0 && disk.f_files > 0 && disk.f_ffree == 0;
}

static int fail_file(struct hc_err *err, int code, const char *path)
{
    if (code == ENOSPC && is_out_of_inodes()) {
        hc_fail(err, HC_CLASS_REQUEST, EDQUOT,
                "the request has more files and folders than the cell's disk may: no room for %s", path);
        hc_err_remedy(err, "raise --inodes or send fewer");
        return -EDQUOT;
    }
    if (code == ENOSPC || code == EDQUOT) {
        hc_fail(err, HC_CLASS_REQUEST, ENOSPC, "the files of the request do not fit on the cell's disk: no room for %s",
                path);
        hc_err_remedy(err, "raise --disk or send less");
        return -ENOSPC;
    }
    hc_fail_errno(err, HC_CLASS_REQUEST, code, "cannot make the file %s in the cell", path);
    if (code == EROFS)
        hc_err_remedy(err, "what is mounted there is read-only: mount it elsewhere, or writable");
    return -code;
}

/* The folder that the last component of `path` goes into, made where it is missing; *name is that component. AT_FDCWD:
 * the working directory. */
static int open_parent(char *path, const char **name)
{
    if (!strchr(path, '/'))
        return AT_FDCWD;
    hc_cleanup_fd int dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *at = path;

    if (dir < 0)
        return -errno;
    for (char *slash = strchr(at, '/'); slash; slash = strchr(at, '/')) {
        *slash = '\0';
        int made = mkdirat(dir, at, 0755) < 0 ? -errno : 0;
        int next = openat(dir, at, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int failed = next < 0 ? (made < 0 && made != -EEXIST ? -made : errno) : 0;
        *slash = '/';
        if (failed)
            return -failed;
        hc_close(dir);
        dir = next;
        at = slash + 1;
    }
    *name = at;
    return HC_TAKE_FD(dir);
}

static int copy_part(struct source *source, int out, char *chunk, size_t size, const char *path, struct hc_err *err)
{
    int status = take(source, chunk, size, err);
    if (status < 0)
        return status;
    status = hc_write_all(out, chunk, size);
    return status < 0 ? fail_file(err, -status, path) : 0;
}

static __attribute__((noinline)) int copy_large(struct source *source, int out, uint64_t length, const char *path,
                                                struct hc_err *err)
{
    char chunk[CHUNK];
    int status = 0;

    while (length > 0 && status == 0) {
        size_t size = length < sizeof(chunk) ? (size_t)length : sizeof(chunk);
        status = copy_part(source, out, chunk, size, path, err);
        length -= size;
    }
    return status;
}

static int copy_content(struct source *source, int out, uint64_t length, const char *path, struct hc_err *err)
{
    char chunk[SMALL];

    return length > sizeof(chunk) ? copy_large(source, out, length, path, err)
                                  : copy_part(source, out, chunk, (size_t)length, path, err);
}

static int unpack_file(struct source *source, const struct archive_header *header, int parent, const char *name,
                       const char *path, struct hc_err *err)
{
    hc_cleanup_fd int out = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (out < 0)
        return fail_file(err, errno, path);
    int status = copy_content(source, out, header->content_length, path, err);
    if (status < 0)
        return status;
    if (fchmod(out, header->mode) < 0)
        return fail_file(err, errno, path);
    return 0;
}

static __attribute__((noinline)) int unpack_symlink(struct source *source, const struct archive_header *header,
                                                    int parent, const char *name, const char *path, struct hc_err *err)
{
    char target[PATH_MAX];

    int status = take(source, target, (size_t)header->content_length, err);
    if (status < 0)
        return status;
    target[header->content_length] = '\0';
    return symlinkat(target, parent, name) < 0 ? fail_file(err, errno, path) : 0;
}

static int unpack_record(struct source *source, const struct archive_header *header, struct hc_err *err)
{
    char path[ARCHIVE_PATH_MAX + 1];
    const char *name = path;

    int status = take(source, path, header->path_length, err);
    if (status < 0)
        return status;
    path[header->path_length] = '\0';
    if (archive_path_check(path, header->path_length) < 0)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive of files has a path that leads out of it");
    if (header->content_length > source->left)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive of files ends too soon");
    hc_cleanup_fd int parent = open_parent(path, &name);
    if (parent < 0 && parent != AT_FDCWD)
        return fail_file(err, -parent, path);
    return header->type == ARCHIVE_SYMLINK ? unpack_symlink(source, header, parent, name, path, err)
                                           : unpack_file(source, header, parent, name, path, err);
}

int archive_unpack(int fd, struct hc_err *err)
{
    struct source source = {.fd = fd};
    struct stat stat;

    if (fstat(fd, &stat) < 0 || read_ahead(&source) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "cannot read the archive of files");
    source.left = (uint64_t)stat.st_size;
    while (source.left > 0) {
        struct archive_header header = {0};
        int status = take(&source, &header, sizeof(header), err);
        if (status == 0)
            status = archive_header_check(&header, err);
        if (status < 0 || header.type == ARCHIVE_END)
            return status;
        status = unpack_record(&source, &header, err);
        if (status < 0)
            return status;
    }
    return 0;
}
