/* What is said of a file, and how one is opened so that it cannot hang whoever opens it. */
#include "base/fd.h"
#include "cell/files_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

const char *files_type(mode_t mode)
{
    static const struct {
        mode_t bits;
        const char *word;
    } types[] = {
        {S_IFREG, "file"},    {S_IFDIR, "directory"}, {S_IFLNK, "symlink"}, {S_IFIFO, "fifo"},
        {S_IFSOCK, "socket"}, {S_IFCHR, "char"},      {S_IFBLK, "block"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if ((mode & S_IFMT) == types[i].bits)
            return types[i].word;
    return "unknown";
}

/* RFC 3339, in UTC. A guest sets any time it likes: one that no calendar has is null. */
static void put_time(struct files_json *json, const char *key, const struct timespec *when)
{
    struct tm utc;
    char text[64], date[48];
    if (!gmtime_r(&when->tv_sec, &utc) || utc.tm_year < -1900 || utc.tm_year > 8099 ||
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc) == 0) {
        files_json_null(json, key);
        return;
    }
    snprintf(text, sizeof text, "%s.%03ldZ", date, when->tv_nsec / 1000000);
    files_json_text(json, key, text);
}

void files_put_facts(struct files_json *json, const struct stat *stat, const char *target, size_t target_length)
{
    char mode[8];
    snprintf(mode, sizeof mode, "%04o", (unsigned)(stat->st_mode & 07777));
    files_json_text(json, "type", files_type(stat->st_mode));
    files_json_number(json, "size", stat->st_size);
    files_json_text(json, "mode", mode);
    put_time(json, "modified_at", &stat->st_mtim);
    if (target)
        files_json_name(json, "target", target, target_length);
}

void files_put_path(struct files_json *json, const char *key, const char *path)
{
    char folder[PATH_MAX], full[2 * PATH_MAX];
    if (path[0] == '/' || !getcwd(folder, sizeof folder)) {
        files_json_name(json, key, path, strlen(path));
        return;
    }
    while (path[0] == '.' && path[1] == '/')
        path += 2 + strspn(path + 2, "/");
    bool same = strcmp(path, ".") == 0 || *path == '\0';
    int length =
        snprintf(full, sizeof full, "%s%s%s", folder, same || strcmp(folder, "/") == 0 ? "" : "/", same ? "" : path);
    files_json_name(json, key, full, (size_t)length);
}

void files_put_below(struct files_json *json, const char *key, const char *root, const char *path)
{
    char full[2 * PATH_MAX];
    const char *before = strcmp(root, ".") == 0 ? "" : root;
    const char *between = *before && *path && before[strlen(before) - 1] != '/' ? "/" : "";
    int length = snprintf(full, sizeof full, "%s%s%s", before, between, path);
    if ((size_t)length < sizeof full)
        files_json_name(json, key, full, (size_t)length);
    else /* a tree deeper than paths can say */
        files_json_name(json, key, path, strlen(path));
}

int files_body_status(const struct files_json *body, struct hc_err *err)
{
    return body->status < 0 ? hc_fail_errno(err, HC_CLASS_OURS, -body->status, "nobody reads the body") : 0;
}

static int refuse_kind(mode_t mode)
{
    return S_ISREG(mode) ? 0 : S_ISDIR(mode) ? -EISDIR : -ENXIO;
}

/* Looked at before it is opened, because opening is not nothing (it lets go whoever waits at a fifo's other end), and
 * after, because it may be another file by then: with O_NONBLOCK, so that whatever it has become does not hang. */
int files_open_regular(int dir, const char *path, int flags, struct stat *stat)
{
    int status = 0;
    if (fstatat(dir, path, stat, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) == 0)
        status = refuse_kind(stat->st_mode);
    else if (errno != ENOENT || !(flags & O_CREAT))
        status = -errno;
    if (status < 0)
        return status;
    hc_cleanup_fd int fd = openat(dir, path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0 || fstat(fd, stat) < 0)
        return -errno;
    status = refuse_kind(stat->st_mode);
    return status < 0 ? status : HC_TAKE_FD(fd);
}

int files_stat(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX], target[PATH_MAX];
    struct stat stat;
    bool follow = true;
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_switch(files, FILES_FOLLOW, &follow, err);
    if (status < 0)
        return status;
    if (fstatat(AT_FDCWD, path, &stat, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        return files_fail(err, errno, "look at", path);
    ssize_t length = S_ISLNK(stat.st_mode) ? readlink(path, target, sizeof target) : -1;
    files_head_begin(files);
    files_put_path(&files->head, "path", path);
    files_put_facts(&files->head, &stat, length < 0 ? NULL : target, (size_t)length);
    files_json_number(&files->head, "mtime", stat.st_mtim.tv_sec);
    return files_head_end(files, err);
}

int files_disk(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX];
    struct statvfs disk;
    int status = files_path(files, FILES_PATH, path, err);
    if (status < 0)
        return status;
    if (statvfs(path, &disk) < 0)
        return files_fail(err, errno, "look at the disk of", path);
    uint64_t unit = disk.f_frsize ? disk.f_frsize : disk.f_bsize;
    files_head_begin(files);
    files_json_number(&files->head, "used", (int64_t)((disk.f_blocks - disk.f_bfree) * unit));
    files_json_number(&files->head, "limit", (int64_t)(disk.f_blocks * unit));
    files_json_number(&files->head, "inodes", (int64_t)(disk.f_files - disk.f_ffree));
    files_json_number(&files->head, "inodes_limit", (int64_t)disk.f_files);
    return files_head_end(files, err);
}
