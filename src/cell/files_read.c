/*
 * A file's bytes, or a range of them. The head promises how many come; a file that shrinks meanwhile is cut short,
 * which the exit status tells, and one that grows is not read further.
 */
#include "base/fd.h"
#include "cell/files_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files of /proc and /sys say that they are empty. As much as this is read of them. */
enum { UNSIZED_MAX = 1 << 20 };

struct range {
    uint64_t offset, length, suffix;
    bool has_suffix;
};

static int read_range(const struct files *files, struct range *range, struct hc_err *err)
{
    range->length = INT64_MAX;
    int status = files_number(files, FILES_OFFSET, 0, INT64_MAX, &range->offset, err);
    if (status == 0)
        status = files_number(files, FILES_LENGTH, 1, INT64_MAX, &range->length, err);
    if (status == 0)
        status = files_number(files, FILES_SUFFIX, 1, INT64_MAX, &range->suffix, err);
    range->has_suffix = files->value[FILES_SUFFIX] != NULL;
    if (status == 0 && range->has_suffix && (files->value[FILES_OFFSET] || files->value[FILES_LENGTH]))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "suffix goes with neither offset nor length");
    return status;
}

/* What of the range a file of this size has. */
static int fit_range(struct files *files, struct range *range, uint64_t size, struct hc_err *err)
{
    bool asked = files->value[FILES_OFFSET] || files->value[FILES_LENGTH] || range->has_suffix;
    if (range->has_suffix)
        range->offset = range->suffix < size ? size - range->suffix : 0;
    if (asked && range->offset >= size) {
        files->told_size = true;
        files->size = (int64_t)size;
        return hc_fail(err, HC_CLASS_REQUEST, ERANGE,
                       "the range begins at %" PRIu64 ", and the file has %" PRIu64 " bytes", range->offset, size);
    }
    if (range->length > size - range->offset)
        range->length = size - range->offset;
    return 0;
}

static int send_bytes(int fd, const struct range *range, struct hc_err *err)
{
    char chunk[FILES_CHUNK];
    uint64_t at = range->offset, left = range->length;
    while (left > 0) {
        ssize_t count = pread(fd, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return hc_fail(err, HC_CLASS_REQUEST, count < 0 ? errno : EIO, "the file changed while it was read");
        int status = hc_write_all(STDOUT_FILENO, chunk, (size_t)count);
        if (status < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, -status, "nobody reads the body");
        at += (uint64_t)count;
        left -= (uint64_t)count;
    }
    return 0;
}

static int send_head(struct files *files, const char *path, struct stat *stat, uint64_t size, const struct range *range,
                     struct hc_err *err)
{
    stat->st_size = (off_t)size;
    files_head_begin(files);
    files_put_path(&files->head, "path", path);
    files_put_facts(&files->head, stat, NULL, 0);
    files_json_number(&files->head, "mtime", stat->st_mtim.tv_sec);
    files_json_number(&files->head, "offset", (int64_t)range->offset);
    files_json_number(&files->head, "length", (int64_t)range->length);
    return files_head_end(files, err);
}

/* A file that says it has 0 bytes: what can be read at once. */
static int send_unsized(struct files *files, const char *path, int fd, struct stat *stat, struct range *range,
                        struct hc_err *err)
{
    hc_cleanup_free char *data = malloc(UNSIZED_MAX);
    if (!data)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "no memory to read %s", path);
    ssize_t count = hc_read_full(fd, data, UNSIZED_MAX);
    if (count < 0)
        return files_fail(err, (int)-count, "read", path);
    int status = fit_range(files, range, (uint64_t)count, err);
    if (status == 0)
        status = send_head(files, path, stat, (uint64_t)count, range, err);
    if (status < 0)
        return status;
    status = hc_write_all(STDOUT_FILENO, data + range->offset, (size_t)range->length);
    return status < 0 ? hc_fail_errno(err, HC_CLASS_OURS, -status, "nobody reads the body") : 0;
}

int files_read(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX];
    struct range range = {0};
    struct stat stat;
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = read_range(files, &range, err);
    if (status < 0)
        return status;
    hc_cleanup_fd int fd = files_open_regular(AT_FDCWD, path, O_RDONLY, &stat);
    if (fd < 0)
        return files_fail(err, -fd, "read", path);
    if (stat.st_size == 0)
        return send_unsized(files, path, fd, &stat, &range, err);
    status = fit_range(files, &range, (uint64_t)stat.st_size, err);
    if (status == 0)
        status = send_head(files, path, &stat, (uint64_t)stat.st_size, &range, err);
    return status < 0 ? status : send_bytes(fd, &range, err);
}
