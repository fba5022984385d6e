/*
 * A tar, unpacked into a folder. What always holds: every name on the way to an entry is opened by itself with
 * O_NOFOLLOW, so no link is gone through, neither one of the archive's nor one that appears meanwhile (openat2 would do
 * it in one call, but guests have none); a file appears whole or not at all; the first entry that is refused ends it,
 * and its name is told. What came before it stays.
 *
 * The folder of the last entry is kept open: archives come folder by folder, and a deep tree would otherwise be opened
 * from its root for every file.
 *
 * Folders get their modes and times last, those inside first: until then they are open to the guest, who has to write
 * into them, and whatever is written into one changes its time.
 */
#include "base/fd.h"
#include "cell/files_internal.h"
#include "cell/files_tar.h"
#include "cell/files_temp.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DRAIN_MAX = 1 << 20, MADE_MAX = 64 << 20 };

/* A folder that was made. Before it stand its name, and the way from the folder that it is in to that of the one made
 * before it, which is how they are gone through again: whole paths would be too much of a deep tree. */
struct made {
    size_t name, down; /* lengths, with their NULs */
    size_t up;         /* so many times "..", and then `down` */
    dev_t dev;
    ino_t ino;
    mode_t mode;
    time_t mtime;
};

struct unpack {
    int root;
    int folder; /* of the last entry; -1: none */
    struct hc_buf folder_path;
    struct hc_buf made;      /* folders, in the order in which they were made */
    struct hc_buf made_path; /* of the folder that the last one is in */
    uint64_t limit, entries_limit, bytes, entries, skipped;
    bool recover; /* as much as there is room for */
    struct tar_reader reader;
};

static int fail_entry(struct hc_err *err, int code, const char *path)
{
    if (code == ELOOP)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the entry %.200s of the archive leads through a link", path);
    hc_err_clear(err);
    files_fail(err, code, "unpack", path);
    return -code;
}

/* One name on the way, made where it is missing and that is asked for. -ELOOP: a symlink. */
static int step(int dir, const char *name, bool make)
{
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat stat;
    int next = openat(dir, name, flags);
    if (next < 0 && errno == ENOENT && make) {
        if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
            return -errno;
        next = openat(dir, name, flags);
    }
    if (next >= 0)
        return next;
    int code = errno;
    bool link = fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(stat.st_mode);
    return link ? -ELOOP : -code;
}

static int steps(int from, char *path, char *end, bool make)
{
    int dir = fcntl(from, F_DUPFD_CLOEXEC, 3);
    for (char *at = path; dir >= 0 && at < end;) {
        char *slash = at + strcspn(at, "/"), kept = *slash;
        *slash = '\0';
        int next = step(dir, at, make);
        *slash = kept;
        hc_close(dir);
        dir = next;
        at = slash + 1;
    }
    return dir;
}

/* The folder `path` up to `end`, into unpack->folder: from the last entry's, if that is on the way. */
static int go_to(struct unpack *unpack, char *path, char *end)
{
    size_t length = (size_t)(end - path), known = unpack->folder_path.length;
    if (unpack->folder >= 0 && known == length && memcmp(path, unpack->folder_path.data, known) == 0)
        return 0;
    bool below = unpack->folder >= 0 && known > 0 && known < length && path[known] == '/' &&
                 memcmp(path, unpack->folder_path.data, known) == 0;
    int dir = below ? steps(unpack->folder, path + known + 1, end, true) : -ENOENT;
    if (dir < 0 && (!below || dir == -ENOENT)) /* the kept one may be gone */
        dir = steps(unpack->root, path, end, true);
    if (dir < 0)
        return dir;
    hc_close(unpack->folder);
    unpack->folder = dir;
    hc_buf_reset(&unpack->folder_path);
    return hc_buf_add(&unpack->folder_path, path, length);
}

/* *name is the last name of the path, in unpack->folder. */
static int go_to_parent(struct unpack *unpack, char *path, const char **name)
{
    char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    return go_to(unpack, path, slash ? slash : path);
}

static bool is_empty(const char *bytes, size_t length)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* A hole where nothing but zeros were: what was sparse fits again. */
static int put_piece(const struct unpack *unpack, int fd, const char *bytes, size_t length)
{
    if (unpack->recover && is_empty(bytes, length))
        return lseek(fd, (off_t)length, SEEK_CUR) < 0 ? -errno : 0;
    return hc_write_all(fd, bytes, length);
}

static int take_content(struct unpack *unpack, const struct tar_entry *entry, int fd, struct hc_err *err)
{
    char chunk[FILES_CHUNK];
    ssize_t count;
    while ((count = tar_content(&unpack->reader, chunk, sizeof chunk, err)) > 0) {
        int status = put_piece(unpack, fd, chunk, (size_t)count);
        if (status < 0)
            return fail_entry(err, -status, entry->path);
    }
    if (count == 0 && unpack->recover && ftruncate(fd, (off_t)entry->size) < 0)
        return fail_entry(err, errno, entry->path);
    return count < 0 ? hc_err_context(err, "%.200s", entry->path) : 0;
}

static int unpack_file(struct unpack *unpack, const struct tar_entry *entry, const char *name, struct hc_err *err)
{
    struct files_temp temp;
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = entry->mtime}};
    int status = files_temp_open(&temp, unpack->folder);
    if (status < 0)
        return fail_entry(err, -status, entry->path);
    status = take_content(unpack, entry, temp.fd, err);
    if (status == 0) {
        if (fchmod(temp.fd, entry->mode) < 0)
            status = fail_entry(err, errno, entry->path);
        else if ((status = files_temp_commit(&temp, name)) < 0)
            fail_entry(err, -status, entry->path);
        else
            (void)futimens(temp.fd, times); /* a time that the file system cannot hold is no reason to fail */
    }
    files_temp_close(&temp);
    return status;
}

/* The folder at hand is the one that it is in. */
static int remember(struct unpack *unpack, const struct tar_entry *entry, const char *name, struct hc_err *err)
{
    const struct hc_buf *now = &unpack->folder_path;
    struct hc_buf *last = &unpack->made_path, *made = &unpack->made;
    size_t before = made->length, same = 0, at = 0;
    struct stat stat;
    if (fstatat(unpack->folder, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_entry(err, errno, entry->path);
    while (at < now->length && at < last->length && now->data[at] == last->data[at]) {
        at++;
        bool whole = (at == now->length || now->data[at] == '/') && (at == last->length || last->data[at] == '/');
        same = whole ? at : same;
    }
    struct made one = {
        .name = strlen(name) + 1, .dev = stat.st_dev, .ino = stat.st_ino, .mode = entry->mode, .mtime = entry->mtime};
    for (at = same; at < now->length; at++)
        one.up += at == 0 || now->data[at] == '/';
    at = same + (same > 0 && same < last->length); /* past the slash */
    one.down = last->length - at + 1;
    hc_buf_add(made, name, one.name);
    hc_buf_add(made, last->length ? last->data + at : "", one.down - 1);
    hc_buf_add(made, "", 1);
    if (hc_buf_add(made, &one, sizeof one) < 0) {
        made->length = before;
        return hc_fail(err, HC_CLASS_REQUEST, EFBIG,
                       "with %.200s the archive has more folders than memory is allowed for", entry->path);
    }
    hc_buf_reset(last);
    return hc_buf_add(last, now->length ? now->data : "", now->length);
}

static int unpack_folder(struct unpack *unpack, const struct tar_entry *entry, const char *name, struct hc_err *err)
{
    struct stat stat;
    if (mkdirat(unpack->folder, name, 0700) == 0)
        return remember(unpack, entry, name, err);
    int code = errno;
    if (code != EEXIST || fstatat(unpack->folder, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_entry(err, code, entry->path);
    if (S_ISDIR(stat.st_mode))
        return 0;
    return fail_entry(err, S_ISLNK(stat.st_mode) ? ELOOP : ENOTDIR, entry->path);
}

/* From one folder to the next, as struct made has it. */
static int go_on(int dir, const struct made *made, char *down)
{
    for (size_t i = 0; dir >= 0 && i < made->up; i++) {
        int up = openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        hc_close(dir);
        dir = up;
    }
    if (dir < 0 || !*down)
        return dir;
    int next = steps(dir, down, down + strlen(down), false);
    hc_close(dir);
    return next;
}

/* What was made last is inside, and comes first: what a folder's mode hides would not be found any more. When the guest
 * moves folders about meanwhile the way is lost, and the rest stay as they are: open to the guest alone. */
static int finish_folders(struct unpack *unpack, struct hc_err *err)
{
    struct hc_buf *last = &unpack->made_path;
    char *data = unpack->made.data;
    struct made made;
    struct stat stat;
    if (unpack->made.length == 0)
        return 0;
    int status = 0, dir = steps(unpack->root, last->data, last->data + last->length, false);
    for (size_t end = unpack->made.length; status == 0 && dir >= 0 && end > 0;
         end -= made.name + made.down + sizeof made) {
        memcpy(&made, data + end - sizeof made, sizeof made);
        char *down = data + end - sizeof made - made.down, *name = down - made.name;
        const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = made.mtime}};
        hc_cleanup_fd int fd = step(dir, name, false);
        if (fd >= 0 && fstat(fd, &stat) == 0 && stat.st_ino == made.ino && stat.st_dev == made.dev &&
            (status = files_finish_folder(fd, made.mode, times)) < 0)
            fail_entry(err, -status, name);
        dir = go_on(dir, &made, down);
    }
    hc_close(dir);
    return status;
}

/* What is in the place of a link goes away, unless it is a folder. */
static int clear_place(const struct unpack *unpack, const char *name)
{
    return unlinkat(unpack->folder, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int unpack_symlink(struct unpack *unpack, const struct tar_entry *entry, const char *name, struct hc_err *err)
{
    int status = clear_place(unpack, name);
    if (status < 0)
        return fail_entry(err, -status, entry->path);
    if (symlinkat(entry->target, unpack->folder, name) < 0)
        return fail_entry(err, errno, entry->path);
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = entry->mtime}};
    (void)utimensat(unpack->folder, name, times, AT_SYMLINK_NOFOLLOW); /* as with a file */
    return 0;
}

static int unpack_hardlink(struct unpack *unpack, struct tar_entry *entry, const char *name, struct hc_err *err)
{
    struct stat stat, place;
    char *slash = strrchr(entry->target, '/');
    const char *from_name = slash ? slash + 1 : entry->target;
    hc_cleanup_fd int from = steps(unpack->root, entry->target, slash ? slash : entry->target, false);
    if (from < 0)
        return fail_entry(err, -from, entry->path);
    if (fstatat(from, from_name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                       "the entry %.200s of the archive is a link to %.200s, which is not there", entry->path,
                       entry->target);
    if (!S_ISREG(stat.st_mode))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                       "the entry %.200s of the archive is a link to %.200s, which is no file", entry->path,
                       entry->target);
    if (fstatat(unpack->folder, name, &place, AT_SYMLINK_NOFOLLOW) == 0 && place.st_ino == stat.st_ino &&
        place.st_dev == stat.st_dev)
        return 0;
    int status = clear_place(unpack, name);
    if (status < 0)
        return fail_entry(err, -status, entry->path);
    return linkat(from, from_name, unpack->folder, name, 0) < 0 ? fail_entry(err, errno, entry->path) : 0;
}

static int unpack_entry(struct unpack *unpack, struct tar_entry *entry, struct hc_err *err)
{
    const char *name = NULL;
    if (entry->path[0] == '\0')
        return 0; /* the folder itself, which is there */
    if (unpack->entries == unpack->entries_limit)
        return hc_fail(err, HC_CLASS_REQUEST, EFBIG, "the archive has more than %" PRIu64 " entries",
                       unpack->entries_limit);
    if (entry->size > unpack->limit - unpack->bytes)
        return hc_fail(err, HC_CLASS_REQUEST, EFBIG,
                       "with the entry %.200s the archive has more than %" PRIu64 " bytes", entry->path, unpack->limit);
    unpack->bytes += entry->size;
    unpack->entries++;
    int status = go_to_parent(unpack, entry->path, &name);
    if (status < 0)
        return fail_entry(err, -status, entry->path);
    switch (entry->type) {
    case TAR_FOLDER:
        return unpack_folder(unpack, entry, name, err);
    case TAR_SYMLINK:
        return unpack_symlink(unpack, entry, name, err);
    case TAR_HARDLINK:
        return unpack_hardlink(unpack, entry, name, err);
    case TAR_FILE:
        break;
    }
    return unpack_file(unpack, entry, name, err);
}

static ssize_t read_body(void *data, void *bytes, size_t size)
{
    ssize_t count;
    (void)data;
    do
        count = read(STDIN_FILENO, bytes, size);
    while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

/* Writers fill the last record up with zeros: whoever sends them is to see them taken. */
static void drain(void)
{
    char chunk[FILES_CHUNK];
    for (size_t total = 0; total < DRAIN_MAX;) {
        ssize_t count = read_body(NULL, chunk, sizeof chunk);
        if (count <= 0)
            return;
        total += (size_t)count;
    }
}

/* One entry that the disk has no room for is no reason to be without the others. */
static bool goes_on(struct unpack *unpack, int status)
{
    bool full = status == -ENOSPC || status == -EDQUOT || status == -EFBIG;
    unpack->skipped += unpack->recover && full;
    return unpack->recover && full;
}

static int unpack_all(struct unpack *unpack, struct hc_err *err)
{
    struct tar_entry entry = {0};
    int status;
    while ((status = tar_next(&unpack->reader, &entry, err)) > 0) {
        status = unpack_entry(unpack, &entry, err);
        if (status < 0 && !goes_on(unpack, status))
            return status;
    }
    if (status == 0)
        drain();
    return status;
}

int files_unpack(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX];
    hc_cleanup_free struct unpack *unpack = calloc(1, sizeof *unpack);
    if (!unpack)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "no memory to unpack an archive");
    unpack->limit = INT64_MAX;
    unpack->entries_limit = 1000000;
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_number(files, FILES_LIMIT, 0, INT64_MAX, &unpack->limit, err);
    if (status == 0)
        status = files_number(files, FILES_ENTRIES, 0, INT64_MAX, &unpack->entries_limit, err);
    if (status == 0)
        status = files_switch(files, FILES_RECOVER, &unpack->recover, err);
    if (status == 0)
        status = files_make_parents(path, true, err);
    if (status < 0)
        return status;
    unpack->folder_path = HC_BUF_INIT(TAR_NAME_MAX);
    unpack->made = HC_BUF_INIT(MADE_MAX);
    unpack->made_path = HC_BUF_INIT(TAR_NAME_MAX);
    unpack->folder = -1;
    unpack->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (unpack->root < 0)
        return files_fail(err, errno, "unpack into", path);
    tar_reader_init(&unpack->reader, read_body, NULL);
    status = unpack_all(unpack, err);
    struct hc_err ignored = {0};
    int finished = finish_folders(unpack, status < 0 ? &ignored : err); /* also those that came before a failure */
    if (status == 0)
        status = finished;
    tar_reader_release(&unpack->reader);
    hc_buf_release(&unpack->folder_path);
    hc_buf_release(&unpack->made);
    hc_buf_release(&unpack->made_path);
    hc_close(unpack->folder);
    hc_close(unpack->root);
    if (status < 0)
        return status;
    files_head_begin(files);
    files_json_number(&files->head, "entries", (int64_t)unpack->entries);
    files_json_number(&files->head, "bytes", (int64_t)unpack->bytes);
    if (unpack->recover)
        files_json_number(&files->head, "skipped", (int64_t)unpack->skipped);
    return files_head_end(files, err);
}
