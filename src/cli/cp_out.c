/* Out of a sandbox: the tar that the server makes of a path, read as it comes. Memory does not grow with it. */
#include "base/fd.h"
#include "cell/files_tar.h"
#include "cli/cp.h"
#include "cli/extract.h"
#include "cli/message.h"
#include "cli/stream.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 120 * 1000 * 1000 /* µs */, PIECES = 1024 * 1024, CHUNK = 64 * 1024, LINKS = 8 };

struct download {
    struct cp *cp;
    struct http_exchange *exchange;
    struct hc_buf piece;
    size_t at;
    int more;
    struct hc_err failure; /* of the connection, which the tar reader knows nothing about */
    struct tar_reader reader;
};

/* ---- the answer ---- */

/* Something in `piece` past `at`: 1, 0 at the end, -errno. */
static int fill(struct download *download)
{
    while (download->at == download->piece.length) {
        if (download->more <= 0)
            return download->more;
        hc_buf_reset(&download->piece);
        download->at = 0;
        download->more = http_read(download->exchange, &download->piece, &download->failure);
    }
    return 1;
}

/* As a tar_reader's. */
static ssize_t read_some(void *data, void *bytes, size_t size)
{
    struct download *download = data;
    int there = fill(download);

    if (there <= 0)
        return there;
    size_t left = download->piece.length - download->at, part = left < size ? left : size;
    memcpy(bytes, download->piece.data + download->at, part);
    download->at += part;
    return (ssize_t)part;
}

static int refused(struct download *download, struct hc_err *err)
{
    const struct http_response *response = http_response_of(download->exchange);

    while (download->more > 0)
        download->more = http_read(download->exchange, &download->piece, NULL);
    return server_problem(&download->cp->server, response->status, response->retry_after,
                          download->piece.data ? download->piece.data : "", download->piece.length, err);
}

static void end(struct download *download)
{
    if (!download)
        return;
    http_close(download->exchange);
    hc_buf_release(&download->piece);
    tar_reader_release(&download->reader);
    free(download);
}

static void end_ptr(struct download **download)
{
    end(*download);
}

static int begin(struct cp *cp, const char *path, struct download **out, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(SANDBOX_TARGET);
    struct download *download = calloc(1, sizeof *download);

    if (!download)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    download->cp = cp;
    download->more = 1;
    download->piece = HC_BUF_INIT(PIECES);
    tar_reader_init(&download->reader, read_some, download);
    int status = cp_target(cp, "archive", path, &target, err);
    const struct http_ask ask = {
        .method = "GET", .target = target.data, .accept = "application/x-tar", .patience = PATIENCE};
    if (status == 0)
        status = http_open(&cp->server.address, &ask, &download->exchange, err);
    hc_buf_release(&target);
    if (status == 0 && http_response_of(download->exchange)->status != 200)
        status = refused(download, err);
    if (status < 0) {
        end(download);
        return status;
    }
    *out = download;
    return 0;
}

/* What the reader says of a connection that was lost is beside the point. */
static int explain(const struct download *download, int status, struct hc_err *err)
{
    if (status >= 0 || !download->failure.code)
        return status;
    *err = download->failure;
    return -err->code;
}

static void note_skipped(const struct download *download)
{
    unsigned long long skipped = http_response_of(download->exchange)->skipped;

    if (skipped == 0)
        return;
    download->cp->partly = true;
    message_note("%llu entr%s left out: devices, sockets, or what may not be read", skipped,
                 skipped == 1 ? "y was" : "ies were");
}

static void on_wrote(void *data, size_t count)
{
    struct cp *cp = data;

    cp->bytes += count;
    progress_add(&cp->progress, count);
}

/* ---- to a folder ---- */

/* Of a folder, paths are below it; of a file there is one entry, which takes the name of the copy. */
static int extract_all(struct download *download, struct extract *extract, bool folder, struct hc_err *err)
{
    struct tar_entry entry;
    const char *why = NULL;
    int found;

    while ((found = tar_next(&download->reader, &entry, err)) > 0) {
        int status = extract_entry(extract, &download->reader, &entry, folder ? entry.path : "", &why, err);
        if (status < 0)
            return status;
        if (status > 0)
            cp_leave_out(download->cp, entry.path, why);
        else
            download->cp->entries++;
    }
    return found;
}

int cp_out(struct cp *cp, const char *path, int root, const char *name, struct hc_err *err)
{
    __attribute__((cleanup(end_ptr))) struct download *download = NULL;
    struct tar_entry top = {.type = TAR_FOLDER, .path = "", .target = "", .mode = 0777};
    struct extract extract;
    char type[16];

    int status = cp_look(cp, path, type, &cp->progress.total, err);
    if (status == 0)
        status = begin(cp, path, &download, err);
    if (status < 0 || !download)
        return status;
    bool folder = strcmp(type, "directory") == 0;
    extract_start(&extract, root, name);
    extract.wrote = on_wrote;
    extract.data = cp;
    top.mtime = time(NULL);
    const char *why = NULL;
    if (folder)
        status = extract_entry(&extract, &download->reader, &top, "", &why, err);
    if (status == 0)
        status = explain(download, extract_all(download, &extract, folder, err), err);
    extract_finish(&extract);
    extract_release(&extract);
    if (status == 0)
        note_skipped(download);
    return status < 0 ? status : 0;
}

/* ---- to a stream ---- */

int cp_out_archive(struct cp *cp, const char *path, struct hc_err *err)
{
    __attribute__((cleanup(end_ptr))) struct download *download = NULL;

    int status = begin(cp, path, &download, err), there = 1;
    while (status == 0 && (there = fill(download)) > 0) {
        size_t length = download->piece.length - download->at;
        status = stream_write(STDOUT_FILENO, download->piece.data + download->at, length);
        if (status < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot write to stdout");
        on_wrote(cp, length);
        download->at = download->piece.length;
    }
    if (status == 0 && there < 0)
        return explain(download, there, err);
    if (status == 0)
        note_skipped(download);
    cp->entries++;
    return status;
}

static int write_content(struct download *download, int fd, struct hc_err *err)
{
    hc_cleanup_free char *chunk = malloc(CHUNK);
    ssize_t count = chunk ? 1 : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");

    while (count > 0 && (count = tar_content(&download->reader, chunk, CHUNK, err)) > 0) {
        int status = stream_write(fd, chunk, (size_t)count);
        if (status < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot write");
        on_wrote(download->cp, (size_t)count);
    }
    return (int)count;
}

/* Where a link at `path` leads to, into `path`. */
static int follow_link(char *path, size_t size, const char *target, struct hc_err *err)
{
    char *slash = strrchr(path, '/');
    size_t keep = target[0] == '/' || !slash ? 0 : (size_t)(slash - path) + 1;

    if (keep + strlen(target) >= size)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the link at %s leads too far", path);
    memcpy(path + keep, target, strlen(target) + 1);
    return 0;
}

int cp_out_file(struct cp *cp, const char *path, int fd, struct hc_err *err)
{
    char at[PATH_MAX];

    if (strlen(path) >= sizeof at)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the path is too long");
    memcpy(at, path, strlen(path) + 1);
    for (int links = 0; links < LINKS; links++) {
        __attribute__((cleanup(end_ptr))) struct download *download = NULL;
        struct tar_entry entry;
        int status = begin(cp, at, &download, err);
        int found = status < 0 ? status : tar_next(&download->reader, &entry, err);
        if (found <= 0)
            return status < 0  ? status
                   : found < 0 ? explain(download, found, err)
                               : hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is no file", path);
        if (entry.type == TAR_FILE) {
            cp->entries++;
            return explain(download, write_content(download, fd, err), err);
        }
        if (entry.type != TAR_SYMLINK)
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is no file", path);
        status = follow_link(at, sizeof at, entry.target, err);
        if (status < 0)
            return status;
    }
    return hc_fail(err, HC_CLASS_REQUEST, ELOOP, "%s: too many links, one after the other", path);
}
