/* Folders, with those that they are in. */
#include "cell/files_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static bool is_folder(const char *path)
{
    struct stat stat;
    return fstatat(AT_FDCWD, path, &stat, 0) == 0 && S_ISDIR(stat.st_mode);
}

/* A folder on the way that is there, and may not be made (a read-only root says EROFS before EEXIST), is fine. */
static int make_one(const char *path, struct hc_err *err)
{
    if (mkdir(path, 0755) == 0)
        return 0;
    int code = errno;
    if (is_folder(path))
        return 0;
    return files_fail(err, code == EEXIST ? ENOTDIR : code, "make the folder", path);
}

int files_make_parents(const char *path, bool last_too, struct hc_err *err)
{
    char part[PATH_MAX];
    size_t length = strlen(path), end = length;
    memcpy(part, path, length + 1);
    /* Mostly the parent is there: one look instead of one for each name. */
    while (!last_too && end > 0 && part[end - 1] != '/')
        end--;
    if (end == 0)
        return 0;
    part[end] = '\0';
    if (is_folder(part))
        return 0;
    for (size_t at = 1; at <= end; at++) {
        if ((path[at] != '/' && path[at] != '\0') || path[at - 1] == '/')
            continue;
        part[at] = '\0';
        int status = make_one(part, err);
        if (status < 0)
            return status;
        part[at] = path[at];
        if (at == end)
            break;
    }
    return 0;
}

int files_mkdir(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX];
    bool parents = false;
    int mode = FILES_NO_MODE;
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_switch(files, FILES_PARENTS, &parents, err);
    if (status == 0)
        status = files_mode(files, &mode, err);
    if (status == 0 && parents)
        status = files_make_parents(path, false, err);
    if (status < 0)
        return status;
    bool created = mkdir(path, 0755) == 0;
    int code = errno; /* is_folder has one of its own */
    bool there = !created && is_folder(path);
    if (!created && !(parents && there))
        return files_fail(err, code == EROFS && there ? EEXIST : code, "make the folder", path);
    if (created && mode != FILES_NO_MODE && fchmodat(AT_FDCWD, path, (mode_t)mode, 0) < 0) {
        status = files_fail(err, errno, "set the mode of", path);
        rmdir(path);
        return status;
    }
    files_head_begin(files);
    files_put_path(&files->head, "path", path);
    files_json_bool(&files->head, "created", created);
    return files_head_end(files, err);
}
