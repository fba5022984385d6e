/*
 * The archive's records: what both readers check and both writers write. What always holds: a path that passes
 * archive_path_check, opened component by component without following symlinks, stays below where it started.
 */
#include "cell/archive.h"

#include "base/fd.h"
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

int archive_path_check(const char *path, size_t length)
{
    if (length == 0 || length > ARCHIVE_PATH_MAX || memchr(path, '\0', length))
        return -EINVAL;
    for (size_t at = 0; at <= length;) {
        const char *slash = memchr(path + at, '/', length - at);
        size_t part = slash ? (size_t)(slash - path) - at : length - at;
        bool dots = (part == 1 && path[at] == '.') || (part == 2 && path[at] == '.' && path[at + 1] == '.');
        if (part == 0 || part > NAME_MAX || dots)
            return -EINVAL;
        at += part + 1;
    }
    return 0;
}

int archive_header_check(const struct archive_header *header, struct hc_err *err)
{
    if (header->magic != ARCHIVE_MAGIC)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive has a record with a wrong beginning");
    switch (header->type) {
    case ARCHIVE_END:
        if (header->path_length != 0 || header->content_length != 0)
            return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive's last record is not empty");
        return 0;
    case ARCHIVE_SYMLINK:
        if (header->content_length >= PATH_MAX)
            return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive has a symlink with a target of a wrong length");
        break;
    case ARCHIVE_FILE:
        break;
    default:
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive has a record of unknown type %u", header->type);
    }
    if (header->path_length == 0 || header->path_length > ARCHIVE_PATH_MAX)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive has a path of %u bytes", header->path_length);
    if (header->mode & ~0777U)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the archive has a file with mode %o", header->mode);
    return 0;
}

static struct archive_header header_of(enum archive_type type, unsigned mode, const char *path, uint64_t content_length,
                                       uint64_t true_size)
{
    return (struct archive_header){
        .magic = ARCHIVE_MAGIC,
        .type = type,
        .mode = mode & 0777,
        .path_length = (uint32_t)strlen(path),
        .content_length = content_length,
        .true_size = true_size,
    };
}

int archive_put_file(int out, unsigned mode, const char *path, const void *content, size_t length)
{
    struct archive_header header = header_of(ARCHIVE_FILE, mode, path, length, length);
    struct iovec parts[] = {{&header, sizeof header}, {(void *)path, header.path_length}, {(void *)content, length}};
    return hc_writev_all(out, parts, 3);
}

int archive_put_header(int out, enum archive_type type, unsigned mode, const char *path, uint64_t content_length,
                       uint64_t true_size)
{
    struct archive_header header = header_of(type, mode, path, content_length, true_size);
    struct iovec parts[] = {{&header, sizeof header}, {(void *)path, header.path_length}};
    return hc_writev_all(out, parts, 2);
}
