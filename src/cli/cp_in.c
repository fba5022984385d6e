/*
 * Into a sandbox: a file or a folder of this machine as a tar, made while it is sent. What always holds: memory does
 * not grow with what is copied; an entry has exactly as many bytes as its header says, also when the file changes
 * meanwhile; no link is followed but one that was named on the command line.
 */
#include "base/fd.h"
#include "cell/files_tar.h"
#include "cli/cp.h"
#include "cli/interrupt.h"
#include "cli/run.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HEADERS = 4 * TAR_NAME_MAX,
    CHUNK = 64 * 1024,
    DEPTH = 128,
    PATIENCE = 600 * 1000 * 1000 /* µs */,
    REFUSAL = 1024 * 1024
};

struct upload {
    struct cp *cp;
    struct http_exchange *exchange;
    struct hc_buf header; /* used again and again */
    bool answered;        /* the server wants no more */
};

/* ---- bytes ---- */

static int push(struct upload *upload, const void *data, size_t length, struct hc_err *err)
{
    int status = upload->answered ? 1 : http_push(upload->exchange, data, length, err);

    upload->answered = upload->answered || status > 0;
    return status < 0 ? status : 0;
}

static int put_header(struct upload *upload, char type, const char *path, const char *target, const struct stat *info,
                      struct hc_err *err)
{
    struct stat plain = *info;

    plain.st_uid = plain.st_gid = 0; /* whose it is here means nothing there */
    hc_buf_reset(&upload->header);
    int status = tar_put_header(&upload->header, type, path, target, &plain);
    if (status < 0)
        return hc_fail(err, HC_CLASS_OURS, -status, "no memory for a header of the archive");
    upload->cp->entries++;
    return push(upload, upload->header.data, upload->header.length, err);
}

/* Exactly `size` bytes and the padding: what is missing is zeros, what came after is not seen. */
static int put_content(struct upload *upload, int fd, uint64_t size, struct hc_err *err)
{
    hc_cleanup_free char *chunk = malloc(CHUNK);
    uint64_t left = size + (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;

    if (!chunk)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    while (left > 0 && !upload->answered) {
        size_t part = left < CHUNK ? (size_t)left : CHUNK, want = size < part ? (size_t)size : part;
        ssize_t count = hc_read_full(fd, chunk, want);
        if (count < 0)
            return hc_fail_errno(err, HC_CLASS_REQUEST, (int)-count, "cannot read the file");
        memset(chunk + count, 0, part - (size_t)count);
        int status = push(upload, chunk, part, err);
        if (status < 0)
            return status;
        left -= part;
        size -= want;
        upload->cp->bytes += (uint64_t)count;
        progress_add(&upload->cp->progress, (uint64_t)count);
    }
    return 0;
}

/* ---- the tree ---- */

static int put_folder(struct upload *upload, int fd, const char *path, const char *name, int depth, struct hc_err *err);

static int put_file(struct upload *upload, int fd, const char *path, const char *name, const struct stat *info,
                    struct hc_err *err)
{
    int status = put_header(upload, '0', name, "", info, err);

    if (status == 0)
        status = put_content(upload, fd, (uint64_t)info->st_size, err);
    return status < 0 ? hc_err_context(err, "%s", path) : 0;
}

static int put_link(struct upload *upload, int folder, const char *member, const char *path, const char *name,
                    const struct stat *info, struct hc_err *err)
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(folder, member, target, sizeof target - 1);

    if (length < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read the link %s", path);
    target[length] = '\0';
    return put_header(upload, '2', name, target, info, err);
}

static int put_member(struct upload *upload, int folder, const char *path, const char *name, const char *member,
                      int depth, struct hc_err *err)
{
    char full_path[PATH_MAX], full_name[PATH_MAX];
    struct stat info;

    if (snprintf(full_path, sizeof full_path, "%s/%s", path, member) >= (int)sizeof full_path ||
        snprintf(full_name, sizeof full_name, "%s%s%s", name, name[0] ? "/" : "", member) >= (int)sizeof full_name)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "a path in %s is too long", path);
    if (fstatat(folder, member, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read %s", full_path);
    if (S_ISLNK(info.st_mode))
        return put_link(upload, folder, member, full_path, full_name, &info, err);
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        cp_leave_out(upload->cp, full_path, "it is no file, folder or link");
        return 0;
    }
    hc_cleanup_fd int fd = openat(folder, member, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) < 0) {
        cp_leave_out(upload->cp, full_path, strerror(errno));
        return 0;
    }
    if (S_ISDIR(info.st_mode))
        return put_folder(upload, fd, full_path, full_name, depth + 1, err);
    return S_ISREG(info.st_mode) ? put_file(upload, fd, full_path, full_name, &info, err) : 0;
}

static int put_members(struct upload *upload, int fd, const char *path, const char *name, int depth, struct hc_err *err)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    const struct dirent *entry;
    int status = 0;

    if (!dir) {
        hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read the folder %s", path);
        hc_close(own);
        return -err->code;
    }
    while (status == 0 && !upload->answered && (errno = 0, entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = put_member(upload, fd, path, name, entry->d_name, depth, err);
    if (status == 0 && !upload->answered && errno)
        status = hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read the folder %s", path);
    closedir(dir);
    return status;
}

static int put_folder(struct upload *upload, int fd, const char *path, const char *name, int depth, struct hc_err *err)
{
    char with_slash[PATH_MAX + 1];
    struct stat info;
    int status = 0;

    if (depth > DEPTH)
        return hc_fail(err, HC_CLASS_REQUEST, ELOOP, "%s is too deep: more than %d folders", path, DEPTH);
    if (fstat(fd, &info) < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read the folder %s", path);
    if (name[0]) {
        snprintf(with_slash, sizeof with_slash, "%s/", name);
        status = put_header(upload, '5', with_slash, "", &info, err);
    }
    return status < 0 ? status : put_members(upload, fd, path, name, depth, err);
}

/* ---- the request ---- */

static int begin(struct upload *upload, const char *kind, const char *path, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(SANDBOX_TARGET);

    int status = cp_target(upload->cp, kind, path, &target, err);
    struct http_ask ask = {.method = "PUT", .target = target.data, .chunked = true, .patience = PATIENCE};
    if (status == 0)
        status = http_send(&upload->cp->server.address, &ask, &upload->exchange, err);
    hc_buf_release(&target);
    return status;
}

static int finish(struct upload *upload, struct hc_err *err)
{
    struct hc_buf body = HC_BUF_INIT(REFUSAL);
    int status = http_push_end(upload->exchange, err), more = 1;

    if (status == 0)
        status = http_receive(upload->exchange, err);
    if (status < 0)
        return status;
    const struct http_response *response = http_response_of(upload->exchange);
    while (more > 0)
        more = http_read(upload->exchange, &body, NULL);
    if (response->status / 100 != 2)
        status = server_problem(&upload->cp->server, response->status, response->retry_after,
                                body.data ? body.data : "", body.length, err);
    hc_buf_release(&body);
    return status;
}

static void end(struct upload *upload)
{
    http_close(upload->exchange);
    hc_buf_release(&upload->header);
}

int cp_in(struct cp *cp, const char *source, const char *folder, const char *name, struct hc_err *err)
{
    static const char zeros[2 * TAR_BLOCK];
    struct upload upload = {.cp = cp, .header = HC_BUF_INIT(HEADERS)};
    struct stat info;

    hc_cleanup_fd int fd = open(source, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return files_missing(source, err);
    if (fstat(fd, &info) < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read %s", source);
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is neither a file nor a folder", source);
        return hc_err_remedy(err, "its bytes can be sent by stdin: hotcell cp - ID:PATH");
    }
    cp->progress.total = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    int status = begin(&upload, "archive", folder, err);
    if (status == 0)
        status = S_ISDIR(info.st_mode) ? put_folder(&upload, fd, source, name, 0, err)
                                       : put_file(&upload, fd, source, name, &info, err);
    if (status == 0)
        status = push(&upload, zeros, sizeof zeros, err);
    if (status == 0)
        status = finish(&upload, err);
    end(&upload);
    return status;
}

int cp_in_stream(struct cp *cp, const char *path, bool archive, struct hc_err *err)
{
    struct upload upload = {.cp = cp, .header = HC_BUF_INIT(TAR_BLOCK)};
    hc_cleanup_free char *chunk = malloc(CHUNK);
    ssize_t count = 0;

    int status = chunk ? begin(&upload, archive ? "archive" : "files", path, err)
                       : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    while (status == 0 && !upload.answered && (count = read(STDIN_FILENO, chunk, CHUNK)) != 0) {
        if (count < 0) {
            status = errno == EINTR && !interrupt_caught()
                         ? 0
                         : hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read stdin");
            continue;
        }
        cp->bytes += (uint64_t)count;
        progress_add(&cp->progress, (uint64_t)count);
        status = push(&upload, chunk, (size_t)count, err);
    }
    if (status == 0)
        status = finish(&upload, err);
    cp->entries++;
    end(&upload);
    return status;
}
