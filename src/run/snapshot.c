/* See snapshot.h. */
#include "run/snapshot.h"

#include "base/fd.h"
#include "cell/archive.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, RECORDS_LIMIT = 64 << 20 /* headers and paths, on top of the content */ };

void snapshot_init(struct snapshot *snapshot)
{
    *snapshot = (struct snapshot){.fd = -1};
}

void snapshot_release(struct snapshot *snapshot)
{
    hc_close(snapshot->fd);
    snapshot_init(snapshot);
}

int snapshot_begin(struct snapshot *snapshot)
{
    snapshot->fd = hc_memfd_open("hotcell-workspace");
    return snapshot->fd < 0 ? snapshot->fd : 0;
}

void snapshot_add(struct snapshot *snapshot, const char *data, size_t length)
{
    if (snapshot->failure.code)
        return;
    snapshot->size += length;
    int result =
        snapshot->size > (uint64_t)SNAPSHOT_LIMIT + RECORDS_LIMIT ? -EFBIG : hc_write_all(snapshot->fd, data, length);
    if (result < 0)
        hc_fail_errno(&snapshot->failure, HC_CLASS_HOST, -result, "keeping the workspace for the tests");
}

static int fail_too_large(const char *path, size_t length, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_REQUEST, EFBIG,
            "what the stages left is more than the %d MiB that tests can begin with, or unreadable: %.*s is not whole",
            SNAPSHOT_LIMIT >> 20, (int)length, path);
    return hc_err_remedy(err, "remove in a last stage what the tests do not need");
}

/* Each path may have folders of its own. */
static uint64_t folders_of(const char *path, size_t length)
{
    uint64_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += path[i] == '/';
    return count;
}

static int read_through(struct snapshot *snapshot, const char *data, struct hc_err *err)
{
    uint64_t at = 0, left = snapshot->size;
    struct archive_header header;
    while (left >= sizeof header) {
        memcpy(&header, data + at, sizeof header);
        int result = archive_header_check(&header, err);
        if (result < 0)
            return result;
        at += sizeof header;
        left -= sizeof header;
        if (header.type == ARCHIVE_END)
            return left == 0 ? 0 : hc_fail(err, HC_CLASS_OURS, EPROTO, "the workspace goes on after its end");
        if (header.path_length > left || header.content_length > left - header.path_length)
            break;
        if (header.content_length < header.true_size)
            return fail_too_large(data + at, header.path_length, err);
        snapshot->inodes += folders_of(data + at, header.path_length);
        snapshot->inodes++;
        snapshot->disk += (header.content_length + PAGE - 1) / PAGE * PAGE;
        at += header.path_length + header.content_length;
        left -= header.path_length + header.content_length;
    }
    return hc_fail(err, HC_CLASS_OURS, EPROTO, "the workspace could not be read to its end");
}

int snapshot_finish(struct snapshot *snapshot, struct hc_err *err)
{
    if (snapshot->failure.code) {
        *err = snapshot->failure;
        return -err->code;
    }
    int result = hc_memfd_seal(snapshot->fd);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "keeping the workspace for the tests");
    if (snapshot->size == 0)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the workspace could not be read");
    char *data = mmap(NULL, snapshot->size, PROT_READ, MAP_PRIVATE, snapshot->fd, 0);
    if (data == MAP_FAILED)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "reading the workspace");
    result = read_through(snapshot, data, err);
    munmap(data, snapshot->size);
    return result;
}
