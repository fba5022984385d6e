/*
 * A folder as a tar. The tree is walked twice: once to count, so that one that is too large is refused before the first
 * byte, and once to send. What always holds: an entry has exactly as many bytes as its header says, also when the file
 * shrinks meanwhile (the rest is zeros) or grows; no symlink is followed; fifos, sockets, devices and what the guest
 * may not read are left out and counted.
 */
#include "base/fd.h"
#include "cell/files_internal.h"
#include "cell/files_tar.h"
#include "cell/files_walk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

struct pack {
    bool counting;
    bool recover; /* what does not fit is left out */
    uint64_t limit, entries, bytes, skipped;
    struct hc_buf header; /* used again and again */
};

static int put(const void *data, size_t length, struct hc_err *err)
{
    int status = hc_write_all(STDOUT_FILENO, data, length);
    return status < 0 ? hc_fail_errno(err, HC_CLASS_OURS, -status, "nobody reads the body") : 0;
}

static int put_header(struct pack *pack, char type, const char *path, const char *target, const struct stat *stat,
                      struct hc_err *err)
{
    pack->entries++;
    if (pack->counting)
        return 0;
    hc_buf_reset(&pack->header);
    int status = tar_put_header(&pack->header, type, path, target, stat);
    if (status < 0)
        return hc_fail(err, HC_CLASS_HOST, -status, "no memory for a header of the archive");
    return put(pack->header.data, pack->header.length, err);
}

static int put_content(int fd, uint64_t size, struct hc_err *err)
{
    char chunk[FILES_CHUNK];
    uint64_t left = size + (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
    while (left > 0) {
        size_t part = left < sizeof chunk ? (size_t)left : sizeof chunk;
        size_t want = size < part ? (size_t)size : part;
        ssize_t count = hc_read_full(fd, chunk, want);
        size_t have = count < 0 ? 0 : (size_t)count;
        memset(chunk + have, 0, part - have);
        int status = put(chunk, part, err);
        if (status < 0)
            return status;
        left -= part;
        size -= want;
    }
    return 0;
}

static int pack_file(struct pack *pack, int dir, const char *name, const char *path, struct hc_err *err)
{
    struct stat stat;
    hc_cleanup_fd int fd = files_open_regular(dir, name, O_RDONLY | O_NOFOLLOW, &stat);
    if (fd < 0) {
        pack->skipped++;
        return 0;
    }
    uint64_t size = (uint64_t)stat.st_size;
    if (size > pack->limit - pack->bytes && pack->recover) {
        pack->skipped++;
        return 0;
    }
    if (size > pack->limit - pack->bytes) {
        hc_fail(err, HC_CLASS_REQUEST, EFBIG, "the files have more than %" PRIu64 " bytes in all", pack->limit);
        return hc_err_remedy(err, "ask for a folder with less in it");
    }
    pack->bytes += size;
    int status = put_header(pack, '0', path, "", &stat, err);
    return status < 0 || pack->counting ? status : put_content(fd, size, err);
}

static int pack_other(struct pack *pack, int dir, const char *name, const char *path, struct hc_err *err)
{
    struct stat stat;
    char target[PATH_MAX];
    if (fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    ssize_t length = S_ISLNK(stat.st_mode) ? readlinkat(dir, name, target, sizeof target - 1) : -1;
    if (length < 0) {
        pack->skipped++;
        return 0;
    }
    target[length] = '\0';
    return put_header(pack, '2', path, target, &stat, err);
}

static int pack_entry(struct files_walk *walk, const char *name, unsigned char type, void *data, struct hc_err *err)
{
    struct pack *pack = data;
    if (walk->path.length >= TAR_NAME_MAX - 1) {
        pack->skipped++;
        return 0;
    }
    if (type == DT_DIR)
        return 1;
    return type == DT_REG ? pack_file(pack, walk->at, name, walk->path.data, err)
                          : pack_other(pack, walk->at, name, walk->path.data, err);
}

static int pack_folder(struct files_walk *walk, const char *name, void *data, struct hc_err *err)
{
    struct stat stat;
    (void)name;
    if (fstat(walk->at, &stat) < 0 || hc_buf_add(&walk->path, "/", 1) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "cannot look at a folder");
    int status = put_header(data, '5', walk->path.data, "", &stat, err);
    walk->path.data[--walk->path.length] = '\0';
    return status;
}

static int pass_over(struct files_walk *walk, int code, void *data, struct hc_err *err)
{
    struct pack *pack = data;
    (void)walk, (void)code, (void)err;
    pack->skipped++;
    return 0;
}

/* Of a folder all that is in it; of a file or symlink that alone, by its last name. */
static int pack_path(struct pack *pack, const char *path, struct hc_err *err)
{
    static const struct files_hooks hooks = {.entry = pack_entry, .enter = pack_folder, .lost = pass_over};
    struct stat stat;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    pack->entries = pack->bytes = pack->skipped = 0;
    hc_cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOCTTY | O_CLOEXEC);
    if (dir >= 0)
        return files_walk(dir, &hooks, pack, err);
    if (errno != ENOTDIR && errno != ENOENT)
        return files_fail(err, errno, "pack", path);
    if (lstat(path, &stat) < 0)
        return files_fail(err, errno, "pack", path);
    if (S_ISREG(stat.st_mode))
        return pack_file(pack, AT_FDCWD, path, name, err);
    if (S_ISLNK(stat.st_mode))
        return pack_other(pack, AT_FDCWD, path, name, err);
    return files_fail(err, ENXIO, "pack", path);
}

static int send_archive(struct files *files, struct pack *pack, const char *path, struct hc_err *err)
{
    static const char end[2 * TAR_BLOCK];
    files_head_begin(files);
    files_json_number(&files->head, "entries", (int64_t)pack->entries);
    files_json_number(&files->head, "bytes", (int64_t)pack->bytes);
    files_json_number(&files->head, "skipped", (int64_t)pack->skipped);
    int status = files_head_end(files, err);
    pack->counting = false;
    if (status == 0)
        status = pack_path(pack, path, err);
    return status < 0 ? status : put(end, sizeof end, err);
}

int files_pack(struct files *files, struct hc_err *err)
{
    struct pack pack = {.counting = true, .limit = INT64_MAX, .header = HC_BUF_INIT(4UL * TAR_NAME_MAX)};
    char path[PATH_MAX];
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_number(files, FILES_LIMIT, 0, INT64_MAX, &pack.limit, err);
    if (status == 0)
        status = files_switch(files, FILES_RECOVER, &pack.recover, err);
    if (status == 0)
        status = pack_path(&pack, path, err);
    if (status == 0)
        status = send_archive(files, &pack, path, err);
    hc_buf_release(&pack.header);
    return status;
}
