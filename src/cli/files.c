/*
 * Files that go into the cell. They are read here, as the person who typed the command, and travel as bytes. A path
 * typed as a relative one keeps its folders in the cell, so that `src/main.py` finds `src/utils.py` as it does at home;
 * any other path is known by its last part.
 */
#include "base/fd.h"
#include "base/suggest.h"
#include "cli/message.h"
#include "cli/run.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILE_LIMIT = 256 * 1024 * 1024, FOLDER_DEPTH = 64, MAX_CANDIDATES = 512, MOST_TRIES = 10000 };

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

/* The name in the cell for a path as typed; "" for the working directory itself. */
static int cell_name(const char *path, char *name, size_t size)
{
    size_t length = 0;
    bool relative = path[0] != '/';

    name[0] = '\0';
    for (const char *at = path; *at;) {
        size_t part = strcspn(at, "/");
        if (part == 2 && strncmp(at, "..", 2) == 0) {
            relative = false;
            length = 0;
            name[0] = '\0';
        } else if (part > 0 && !(part == 1 && at[0] == '.')) {
            if (!relative)
                length = 0;
            if (length + part + 2 > size)
                return -ENAMETOOLONG;
            if (length > 0)
                name[length++] = '/';
            memcpy(name + length, at, part);
            length += part;
            name[length] = '\0';
        }
        at += part;
        at += strspn(at, "/");
    }
    return 0;
}

static int add_open_file(hc_request *request, int fd, const char *path, const char *name, struct hc_err *err)
{
    hc_cleanup_free char *data = NULL;
    hc_error *error = NULL;
    struct stat info;
    size_t length = 0;

    if (fstat(fd, &info) < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read %s", path);
    int status = hc_read_all(fd, FILE_LIMIT, &data, &length);
    if (status == -EFBIG) {
        hc_fail(err, HC_CLASS_REQUEST, EFBIG, "%s is larger than 256 MiB", path);
        return hc_err_remedy(err, "large files are better mounted: --mount HOST:PATH");
    }
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, -status, "cannot read %s", path);
    if (hc_request_add_file(request, name, data, length, info.st_mode & 0111 ? 0755 : 0644, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

struct tree { /* a folder that is being added */
    hc_request *request;
    int root;
    size_t prefix; /* of a path in it, up to where it is relative to the root */
};

static int add_folder(const struct tree *tree, int fd, const char *path, const char *name, int depth,
                      struct hc_err *err);

/* Whatever is mounted or renamed anywhere on the machine makes the kernel unsure of a ".." that it has just passed, and
 * it asks to be asked again (openat2(2), EAGAIN). A server that builds cells mounts some thousand times a second. */
static int open_beneath(const struct tree *tree, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd, tries = 0;
    do
        fd = (int)syscall(SYS_openat2, tree->root, path + tree->prefix, &how, sizeof how);
    while (fd < 0 && errno == EAGAIN && ++tries < MOST_TRIES);
    return fd;
}

/* A link to a file is followed within the tree, as it is at home. Whoever made the tree, which may be a stranger, does
 * not get another file of its user's into the cell by one that leads out of it. Links to folders can go round in
 * circles. -1: it is left out. */
static int open_link(const struct tree *tree, const char *path)
{
    hc_cleanup_fd int fd = open_beneath(tree, path);
    struct stat info;
    if (fd < 0 && errno == EXDEV)
        message_note("%s is left out: it is a link that leads out of the folder; name the file itself with --file",
                     path);
    else if (fd < 0)
        message_note("%s is left out: it is a link to nothing that can be read", path);
    else if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        message_note("%s is left out: it is a link to what is no file", path);
    else
        return HC_TAKE_FD(fd);
    return -1;
}

static int add_member(const struct tree *tree, int folder, const char *path, const char *name, const char *member,
                      int depth, struct hc_err *err)
{
    char full_path[PATH_MAX], full_name[PATH_MAX];
    struct stat info;

    if (snprintf(full_path, sizeof full_path, "%s/%s", path, member) >= (int)sizeof full_path ||
        snprintf(full_name, sizeof full_name, "%s%s%s", name, name[0] ? "/" : "", member) >= (int)sizeof full_name)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "a path in %s is too long", path);
    if (fstatat(folder, member, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read %s", full_path);
    bool link = S_ISLNK(info.st_mode);
    if (!link && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        message_note("%s is left out: it is neither a file nor a folder", full_path);
        return 0;
    }
    hc_cleanup_fd int fd =
        link ? open_link(tree, full_path) : openat(folder, member, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return link ? 0 : hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read %s", full_path);
    if (S_ISDIR(info.st_mode))
        return add_folder(tree, fd, full_path, full_name, depth + 1, err);
    return add_open_file(tree->request, fd, full_path, full_name, err);
}

static bool is_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
    char **item;
    size_t count;
};

static void names_release(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->item[i]);
    free(names->item);
}

static int names_add(struct names *names, const char *name)
{
    /* Room is doubled at each power of two. */
    if ((names->count & (names->count - 1)) == 0) {
        char **more = reallocarray(names->item, names->count ? names->count * 2 : 1, sizeof *more);
        if (!more)
            return -ENOMEM;
        names->item = more;
    }
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    names->item[names->count++] = copy;
    return 0;
}

/* What is in the folder, in order, so that a request does not depend on the file system. Not scandirat: musl has none.
 */
static int list_folder(int folder, struct names *names)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int status = 0;

    if (!dir) {
        status = -errno;
        hc_close(fd);
        return status;
    }
    while (status == 0 && (errno = 0, entry = readdir(dir)))
        if (!is_dots(entry))
            status = names_add(names, entry->d_name);
    if (status == 0 && errno)
        status = -errno;
    closedir(dir);
    if (names->count)
        qsort(names->item, names->count, sizeof *names->item, by_name);
    return status;
}

static int add_folder(const struct tree *tree, int fd, const char *path, const char *name, int depth,
                      struct hc_err *err)
{
    struct names members HC_CLEANUP(names_release) = {0};

    if (depth > FOLDER_DEPTH)
        return hc_fail(err, HC_CLASS_REQUEST, ELOOP, "%s is too deep: more than %d folders", path, FOLDER_DEPTH);
    int status = list_folder(fd, &members);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, -status, "cannot read the folder %s", path);
    if (members.count == 0)
        message_note("%s is left out: it is an empty folder", path);
    for (size_t i = 0; status == 0 && i < members.count; i++)
        status = add_member(tree, fd, path, name, members.item[i], depth, err);
    return status;
}

int files_add(hc_request *request, const char *spec, struct hc_err *err)
{
    hc_cleanup_free char *path = strdup(spec);
    char name[PATH_MAX];
    const char *given = NULL;
    struct stat info;

    if (!path)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    char *colon = strrchr(path, ':');
    if (colon && access(path, F_OK) < 0) { /* a file whose own name has a colon wins */
        *colon = '\0';
        given = colon + 1;
    }
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return files_missing(path, err);
    if (fstat(fd, &info) < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read %s", path);
    int status = cell_name(given ? given : path, name, sizeof name);
    if (given && (given[0] == '/' || strstr(given, "..")))
        snprintf(name, sizeof name, "%s", given); /* the library refuses it, and says why */
    size_t length = strlen(name);
    if (status == 0 && given && (length == 0 || given[strlen(given) - 1] == '/') && !S_ISDIR(info.st_mode))
        status = snprintf(name + length, sizeof name - length, "%s%s", length ? "/" : "", last_part(path)) >=
                         (int)(sizeof name - length)
                     ? -ENAMETOOLONG
                     : 0;
    if (status < 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the name of %s is too long", path);
    struct tree tree = {request, fd, strlen(path) + 1};
    return S_ISDIR(info.st_mode) ? add_folder(&tree, fd, path, name, 0, err)
                                 : add_open_file(request, fd, path, name, err);
}

/* "#!/usr/bin/env ruby -w" → "ruby". `line` is changed. NULL when there is none. */
static char *interpreter(char *line)
{
    char *rest = NULL;

    if (strncmp(line, "#!", 2) != 0)
        return NULL;
    line[strcspn(line, "\n")] = '\0';
    char *word = strtok_r(line + 2, " \t\r", &rest);
    if (word && strcmp(last_part(word), "env") == 0)
        word = strtok_r(NULL, " \t\r", &rest);
    return word ? strdup(last_part(word)) : NULL;
}

static int language_by_first_line(hc_request *request, int fd, struct hc_err *err)
{
    char line[256];
    hc_error *error = NULL;

    ssize_t count = pread(fd, line, sizeof line - 1, 0);
    if (count <= 0)
        return 0;
    line[count] = '\0';
    hc_cleanup_free char *word = interpreter(line);
    if (word && hc_request_set(request, "language", word, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

static bool is_command(const char *name)
{
    const char *search = getenv("PATH");
    hc_cleanup_free char *folders = strdup(search ? search : "/usr/bin:/bin");
    char path[PATH_MAX], *rest = NULL;

    if (!folders || strchr(name, '/'))
        return false;
    for (char *folder = strtok_r(folders, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest))
        if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && access(path, X_OK) == 0)
            return true;
    return false;
}

int files_add_program(hc_request *request, const char *path, bool has_language, struct hc_err *err)
{
    char name[PATH_MAX];
    hc_error *error = NULL;
    struct stat info;

    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        bool command = errno == ENOENT && is_command(path);
        files_missing(path, err);
        if (command)
            hc_err_remedy(err, "to run the command: hotcell run -- %s", path);
        return -ENOENT;
    }
    if (fstat(fd, &info) < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read %s", path);
    if (S_ISDIR(info.st_mode)) {
        hc_fail(err, HC_CLASS_REQUEST, EISDIR, "%s is a folder", path);
        return hc_err_remedy(err, "name the file to start: --file %s --entry NAME", path);
    }
    if (cell_name(path, name, sizeof name) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the name of %s is too long", path);
    int status = 0;
    if (!has_language && !strchr(last_part(name), '.'))
        status = language_by_first_line(request, fd, err);
    if (status == 0)
        status = add_open_file(request, fd, path, name, err);
    if (status == 0 && hc_request_set(request, "entry", name, &error) < 0)
        status = message_adopt(error, err);
    return status;
}

/* The nearest name beside a path that does not exist, as a path; false when there is none. */
static bool nearest_file(const char *path, char *text, size_t size)
{
    hc_cleanup_free char *folder = strdup(path);
    char *names[MAX_CANDIDATES];
    size_t count = 0;

    if (!folder)
        return false;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
    DIR *dir = opendir(slash ? folder : ".");
    struct dirent *entry;
    while (dir && count < MAX_CANDIDATES && (entry = readdir(dir)))
        if (!is_dots(entry) && (names[count] = strdup(entry->d_name)))
            count++;
    if (dir)
        closedir(dir);
    const char *nearest = hc_suggest(last_part(path), (const char *const *)names, count);
    if (nearest)
        snprintf(text, size, "%s%s", slash ? folder : "", nearest);
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    return nearest;
}

int files_missing(const char *path, struct hc_err *err)
{
    int code = errno;
    char nearest[PATH_MAX];

    if (code != ENOENT)
        return hc_fail_errno(err, HC_CLASS_REQUEST, code, "cannot read %s", path);
    struct stat info;
    if (lstat(path, &info) == 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENOENT, "%s is a link to a file that is not there", path);
    hc_fail(err, HC_CLASS_REQUEST, ENOENT, "there is no file %s", path);
    if (nearest_file(path, nearest, sizeof nearest))
        hc_err_remedy(err, "did you mean %s?", nearest);
    return -ENOENT;
}
