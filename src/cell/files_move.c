/*
 * Another place or name for a file or tree. From one file system to another it is copied beside its new place first,
 * renamed when the copy is whole, and then the old one is deleted: at no time are there half of it in the new place. If
 * the old one cannot be deleted there is no copy either, unless the old one is no longer whole.
 */
#include "base/fd.h"
#include "cell/files_internal.h"
#include "cell/files_temp.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NO_REPLACE = 1 }; /* RENAME_NOREPLACE of <linux/fs.h>; musl has no renameat2 */

/* renameat2 where it is to refuse what exists; a file system that cannot (EINVAL) is asked first, which leaves a gap
 * that only the guest itself could use. */
static int rename_to(const char *from, const char *to, bool overwrite)
{
    struct stat stat;
    if (overwrite)
        return rename(from, to) < 0 ? -errno : 0;
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, NO_REPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (lstat(to, &stat) == 0)
        return -EEXIST;
    return rename(from, to) < 0 ? -errno : 0;
}

/* A name beside `path`. */
static int name_beside(const char *path, char beside[PATH_MAX])
{
    char name[32];
    const char *slash = strrchr(path, '/');
    files_temp_name(name);
    int length = snprintf(beside, PATH_MAX, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static void discard(const char *path)
{
    struct hc_err ignored = {0};
    uint64_t deleted = 0;
    if (unlink(path) < 0 && errno == EISDIR)
        (void)files_remove_tree(AT_FDCWD, path, &deleted, &ignored);
}

static int take_away(const char *path, uint64_t *deleted, struct hc_err *err)
{
    if (unlink(path) == 0)
        return 0;
    return errno == EISDIR ? files_remove_tree(AT_FDCWD, path, deleted, err) : files_fail(err, errno, "delete", path);
}

/* Whether its folder lets go of it, asked before anything is made in the new place. It is not the last word (a sticky
 * folder, something mounted on it): see copy_over. */
static int may_leave(const char *path, struct hc_err *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return access(folder, W_OK | X_OK) < 0 ? files_fail(err, errno, "move", path) : 0;
}

static int copy_over(const char *from, const char *to, bool overwrite, struct hc_err *err)
{
    char beside[PATH_MAX];
    struct stat stat;
    if (!overwrite && lstat(to, &stat) == 0)
        return files_fail(err, EEXIST, "move to", to);
    int status = name_beside(to, beside);
    if (status < 0)
        return files_fail(err, -status, "move to", to);
    status = files_copy_tree(AT_FDCWD, from, AT_FDCWD, beside, err);
    if (status == 0 && (status = rename_to(beside, to, overwrite)) < 0)
        files_fail(err, -status, "move to", to);
    if (status < 0) {
        discard(beside);
        return status;
    }
    uint64_t deleted = 0;
    status = take_away(from, &deleted, err);
    if (status == 0)
        return 0;
    if (!overwrite && deleted == 0) /* all is still in its old place, and nothing was in the new one */
        discard(to);
    else
        hc_err_remedy(err, "all of it is in its new place; delete what is left in the old one");
    return status;
}

/* Told before parents are made, which would be in the folder itself: the nearest folder of the new place that is there
 * already is asked. rename(2) says EINVAL, and from one file system to another a copy would never end. */
static int not_into_itself(const char *from, const char *to, const struct stat *stat, struct hc_err *err)
{
    char folder[PATH_MAX + 2];
    struct stat there;
    snprintf(folder, sizeof folder, "%s%s", to[0] == '/' ? "" : "./", to);
    do
        *strrchr(folder, '/') = '\0';
    while (folder[0] && fstatat(AT_FDCWD, folder, &there, 0) < 0 && strchr(folder, '/'));
    if (!S_ISDIR(stat->st_mode) || !files_is_in(folder[0] ? folder : "/", stat))
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "cannot move the folder %s to %s, which is inside of it", from, to);
    return hc_err_remedy(err, "give a place outside of the folder");
}

int files_move(struct files *files, struct hc_err *err)
{
    char from[PATH_MAX] = "", to[PATH_MAX] = "";
    bool overwrite = false, parents = true, copied = false;
    struct stat stat = {0};
    int status = files_path(files, FILES_FROM, from, err);
    if (status == 0)
        status = files_path(files, FILES_TO, to, err);
    if (status == 0)
        status = files_switch(files, FILES_OVERWRITE, &overwrite, err);
    if (status == 0)
        status = files_switch(files, FILES_PARENTS, &parents, err);
    if (status < 0)
        return status;
    if (lstat(from, &stat) < 0)
        return files_fail(err, errno, "move", from);
    if ((status = may_leave(from, err)) < 0 || (status = not_into_itself(from, to, &stat, err)) < 0)
        return status;
    if (parents && (status = files_make_parents(to, false, err)) < 0)
        return status;
    status = rename_to(from, to, overwrite);
    if (status == -EXDEV) {
        status = copy_over(from, to, overwrite, err);
        copied = true;
    } else if (status == -EEXIST) {
        files_fail(err, EEXIST, "move to", to);
        hc_err_remedy(err, "give another name, or overwrite=true");
    } else if (status < 0) {
        char what[PATH_MAX + 16];
        snprintf(what, sizeof what, "move %s to", from);
        files_fail(err, -status, what, to);
    }
    if (status < 0)
        return status;
    files_head_begin(files);
    files_json_bool(&files->head, "copied", copied);
    return files_head_end(files, err);
}
