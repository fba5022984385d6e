/* See extract.h. */
#include "cli/extract.h"

#include "base/fd.h"
#include "cli/run.h"
#include "cli/stream.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, FOLDERS_MAX = 1000000 };

struct extract_folder {
    char *path; /* below root */
    mode_t mode;
    time_t mtime;
};

void extract_start(struct extract *extract, int root, const char *base)
{
    mode_t mask = umask(0);

    umask(mask);
    *extract = (struct extract){.root = root, .base = base, .mask = mask};
}

void extract_release(struct extract *extract)
{
    for (size_t i = 0; i < extract->folder_count; i++)
        free(extract->folders[i].path);
    free(extract->folders);
}

static int cannot(struct hc_err *err, int status, const char *path)
{
    return hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot write %s", path);
}

/* ---- links ---- */

/* Whether a link at this path stays below the base, wherever other links lead: it may go up at its beginning alone, and
 * no further than to the base. A ".." after a name could undo a step that was longer than it looks. */
static bool stays_inside(const char *path, const char *target)
{
    size_t depth = 0;

    for (const char *at = path; *at; at++)
        depth += *at == '/';
    if (target[0] == '/' || target[0] == '\0')
        return false;
    for (bool named = false; *target;) {
        size_t part = strcspn(target, "/");
        bool up = part == 2 && strncmp(target, "..", 2) == 0;
        if (up && (named || depth == 0))
            return false;
        depth -= up;
        named = named || (!up && part > 0 && !(part == 1 && target[0] == '.'));
        target += part;
        target += strspn(target, "/");
    }
    return true;
}

static int make_link(int folder, const char *name, const struct tar_entry *entry, const char *path, struct hc_err *err)
{
    if (unlinkat(folder, name, 0) < 0 && errno != ENOENT)
        return cannot(err, -errno, path);
    if (symlinkat(entry->target, folder, name) < 0)
        return cannot(err, -errno, path);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = entry->mtime}};
    (void)utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW); /* a time that cannot be held is no reason to fail */
    return 0;
}

/* ---- folders ---- */

static int remember(struct extract *extract, const char *path, const struct tar_entry *entry)
{
    size_t count = extract->folder_count;

    if (count >= FOLDERS_MAX)
        return -E2BIG;
    if ((count & (count - 1)) == 0) { /* room is doubled at each power of two */
        struct extract_folder *more = reallocarray(extract->folders, count ? count * 2 : 1, sizeof *more);
        if (!more)
            return -ENOMEM;
        extract->folders = more;
    }
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    extract->folders[extract->folder_count++] = (struct extract_folder){copy, entry->mode & 0777, entry->mtime};
    return 0;
}

/* It stays open to its owner until all is in it. */
static int make_folder(struct extract *extract, int folder, const char *name, const struct tar_entry *entry,
                       const char *path, struct hc_err *err)
{
    struct stat info;

    if (mkdirat(folder, name, 0700) == 0) {
        int status = remember(extract, path, entry);
        return status < 0 ? cannot(err, status, path) : 0;
    }
    int code = errno;
    if (code == EEXIST && fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
        code = S_ISDIR(info.st_mode) ? 0 : S_ISLNK(info.st_mode) ? ELOOP : ENOTDIR;
    return code ? cannot(err, -code, path) : 0;
}

void extract_finish(struct extract *extract)
{
    for (size_t i = extract->folder_count; i-- > 0;) {
        struct extract_folder *made = &extract->folders[i];
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = made->mtime}};
        const char *name = "";
        hc_cleanup_fd int parent = collect_parent(extract->root, made->path, &name);
        hc_cleanup_fd int fd = parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        (void)futimens(fd, times);
        (void)fchmod(fd, made->mode & ~extract->mask);
    }
}

/* ---- files ---- */

static int take_content(const struct extract *extract, struct tar_reader *reader, int fd, const char *path,
                        struct hc_err *err)
{
    hc_cleanup_free char *chunk = malloc(CHUNK);
    ssize_t count = chunk ? 1 : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");

    while (count > 0 && (count = tar_content(reader, chunk, CHUNK, err)) > 0) {
        int status = stream_write(fd, chunk, (size_t)count);
        if (status < 0)
            return cannot(err, status, path);
        if (extract->wrote)
            extract->wrote(extract->data, (size_t)count);
    }
    return (int)count;
}

static int make_file(const struct extract *extract, struct tar_reader *reader, int folder, const char *name,
                     const struct tar_entry *entry, const char *path, struct hc_err *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = entry->mtime}};
    char temporary[64];

    snprintf(temporary, sizeof temporary, ".hotcell-%ld.tmp", (long)getpid());
    hc_cleanup_fd int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return cannot(err, -errno, path);
    int status = take_content(extract, reader, fd, path, err);
    if (status == 0 && fchmod(fd, entry->mode & 0777 & ~extract->mask) < 0)
        status = cannot(err, -errno, path);
    if (status == 0) {
        (void)futimens(fd, times);
        if (renameat(folder, temporary, folder, name) < 0)
            status = cannot(err, -errno, path);
    }
    if (status < 0)
        unlinkat(folder, temporary, 0);
    return status;
}

/* ---- one of them ---- */

static const char *unfit(const struct tar_entry *entry, const char *path)
{
    if (entry->type == TAR_HARDLINK)
        return "it is a hard link";
    if (entry->type == TAR_SYMLINK && !stays_inside(path, entry->target))
        return "it is a link that leads out of the folder";
    return NULL;
}

int extract_entry(struct extract *extract, struct tar_reader *reader, const struct tar_entry *entry, const char *path,
                  const char **why, struct hc_err *err)
{
    char full[PATH_MAX], parts[PATH_MAX];
    const char *name = "";

    *why = unfit(entry, path);
    if (*why)
        return 1;
    if (snprintf(full, sizeof full, "%s%s%s", extract->base, extract->base[0] && path[0] ? "/" : "", path) >=
        (int)sizeof full)
        return hc_fail(err, HC_CLASS_HOST, ENAMETOOLONG, "the path %.200s… is too long", path);
    if (!full[0])
        return 0; /* the folder itself, which is there */
    snprintf(parts, sizeof parts, "%s", full);
    hc_cleanup_fd int folder = collect_parent(extract->root, parts, &name);
    if (folder == -ELOOP || folder == -ENOTDIR) {
        *why = "there is a link, or a file, in the place of its folder";
        return 1;
    }
    if (folder < 0)
        return cannot(err, folder, full);
    switch (entry->type) {
    case TAR_FOLDER:
        return make_folder(extract, folder, name, entry, full, err);
    case TAR_SYMLINK:
        return make_link(folder, name, entry, full, err);
    default:
        return make_file(extract, reader, folder, name, entry, full, err);
    }
}
