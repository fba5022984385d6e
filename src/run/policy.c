/*
 * The mount policy: which host folders may appear in a cell.
 *
 * Theory of operation. A host path is opened once, with O_PATH, following symlinks but no magic links of /proc. What
 * the kernel then says the path is gets checked, and the fd is what gets mounted: nothing is looked up a second time. A
 * path is refused
 *   - by name: it is a forbidden path, lies under one, or is a parent of one;
 *   - by identity: the same three, by device and inode, so that other spellings (a case-insensitive filesystem, a bind
 * mount elsewhere) change nothing;
 *   - by what it is: neither a folder nor a regular file, or on a filesystem that is a window into the kernel;
 * and is then allowed only if an allow-list has it or a parent of it. Forbidden beats allowed. A name is forbidden
 * whether or not it exists at the moment: what is made later would show through a mounted parent.
 *
 * The forbidden list is in policy_forbidden.c.
 */
#include "run/policy.h"
#include "base/fd.h"
#include "run/policy_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Not in linux/magic.h. */
#ifndef MQUEUE_MAGIC
#define MQUEUE_MAGIC 0x19800202
#endif
#ifndef CONFIGFS_MAGIC
#define CONFIGFS_MAGIC 0x62656570
#endif
#ifndef FUSECTL_SUPER_MAGIC
#define FUSECTL_SUPER_MAGIC 0x65735543
#endif
#ifndef RPC_PIPEFS_MAGIC
#define RPC_PIPEFS_MAGIC 0x67596969
#endif

bool policy_is_under(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    if (length == 1) /* "/" */
        return true;
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* ---- allowed ---- */

/* The longest entry of a list that `path` is under, as its resolved length; 0: none. An entry is resolved like the path
 * was; one that does not exist holds nothing that exists. */
static size_t longest_match(const struct words *list, const char *path)
{
    size_t longest = 0;
    for (size_t i = 0; i < list->count; i++) {
        char resolved[PATH_MAX];
        if (realpath(list->item[i], resolved) && policy_is_under(path, resolved) && strlen(resolved) > longest)
            longest = strlen(resolved);
    }
    return longest;
}

/* An entry of the list that lies inside `path`, or NULL. */
static const char *entry_inside(const struct words *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++) {
        char resolved[PATH_MAX];
        if (realpath(list->item[i], resolved) && strcmp(resolved, path) != 0 && policy_is_under(resolved, path))
            return list->item[i];
    }
    return NULL;
}

static const char *check_allowed(const struct config *config, const char *path, bool writable, char *why, size_t size)
{
    size_t read_match = longest_match(&config->read_paths, path);
    size_t write_match = longest_match(&config->write_paths, path);
    if (!writable) {
        if (read_match || write_match)
            return NULL;
        snprintf(why, size, "%s is under none of mounts.allowed_read_paths%s", path,
                 config->read_paths.count > 0 || config->write_paths.count > 0 ? "" : ", which is empty");
        return why;
    }
    if (!write_match) {
        snprintf(why, size, "%s is %s, not writable", path,
                 read_match ? "allowed read-only (mounts.allowed_read_paths)"
                            : "under none of mounts.allowed_write_paths");
        return why;
    }
    /* A read-only entry below a writable one is a narrower rule, and a wider mount must not undo it. */
    if (read_match > write_match) {
        snprintf(why, size, "%s is allowed read-only (mounts.allowed_read_paths), not writable", path);
        return why;
    }
    const char *inside = entry_inside(&config->read_paths, path);
    if (inside) {
        snprintf(why, size, "%s holds %.200s, which mounts.allowed_read_paths allows read-only", path, inside);
        return why;
    }
    return NULL;
}

/* ---- forbidden ---- */

const char *policy_refuse_name(const char *path, const struct policy_entry *entry, char *why, size_t size)
{
    if (policy_is_under(path, entry->path))
        snprintf(why, size, "%s is %s%s: %s", path, strcmp(path, entry->path) == 0 ? "forbidden" : "under ",
                 strcmp(path, entry->path) == 0 ? "" : entry->path, entry->reason);
    else if (policy_is_under(entry->path, path))
        snprintf(why, size, "%s is a parent of %s: %s", path, entry->path, entry->reason);
    else
        return NULL;
    return why;
}

static const char *check_names(const struct policy_forbidden *forbidden, const char *path, char *why, size_t size)
{
    for (size_t i = 0; i < forbidden->count; i++)
        if (policy_refuse_name(path, &forbidden->item[i], why, size))
            return why;
    /* Homes that are mounted when they are used are in no list. */
    if (policy_is_under(path, "/home") && !(forbidden->own[0] && policy_is_under(path, forbidden->own))) {
        snprintf(why, size, "%s is in another user's home", path);
        return why;
    }
    return NULL;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_entry(const struct policy_entry *entry, const struct stat *status)
{
    return entry->exists && entry->device == status->st_dev && entry->inode == status->st_ino;
}

static bool is_parent_of_entry(const struct policy_entry *entry, const struct stat *wanted)
{
    char path[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof path, "%s", entry->path);
    while (strcmp(path, "/") != 0) {
        char *slash = strrchr(path, '/');
        slash[slash == path] = '\0';
        if (stat(path, &status) == 0 && same_file(&status, wanted))
            return true;
    }
    return false;
}

/* The folder above an opened path. A folder is asked itself, so that nobody can move it in between. */
static int open_above(int fd, const struct stat *status, const char *path)
{
    char parent[PATH_MAX];
    if (S_ISDIR(status->st_mode))
        return openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    return open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Walks up by "..", and so past the folders that are really above. */
static const char *check_identity_above(const struct policy_forbidden *forbidden, int from, const char *path, char *why,
                                        size_t size)
{
    int at hc_cleanup_fd = from;
    struct stat status, below = {0};
    for (int depth = 0; at >= 0 && depth < PATH_MAX / 2 && fstat(at, &status) == 0; depth++) {
        if (same_file(&status, &below)) /* the root is its own parent */
            return NULL;
        for (size_t i = 0; i < forbidden->count; i++) {
            if (!is_entry(&forbidden->item[i], &status))
                continue;
            snprintf(why, size, "%s is under another name of %s: %s", path, forbidden->item[i].path,
                     forbidden->item[i].reason);
            return why;
        }
        below = status;
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        hc_close(at);
        at = up;
    }
    snprintf(why, size, "the folders above %s cannot be looked at", path);
    return why;
}

static const char *check_identity(const struct policy_forbidden *forbidden, int fd, const char *path, char *why,
                                  size_t size)
{
    struct stat status;
    if (fstat(fd, &status) < 0) {
        snprintf(why, size, "%s cannot be looked at", path);
        return why;
    }
    for (size_t i = 0; i < forbidden->count; i++) {
        bool parent = S_ISDIR(status.st_mode) && is_parent_of_entry(&forbidden->item[i], &status);
        if (!parent && !is_entry(&forbidden->item[i], &status))
            continue;
        snprintf(why, size, "%s is another name of %s%s: %s", path, parent ? "a parent of " : "",
                 forbidden->item[i].path, forbidden->item[i].reason);
        return why;
    }
    return check_identity_above(forbidden, open_above(fd, &status, path), path, why, size);
}

const char *policy_check(const struct config *config, const char *canonical, bool writable, char *why, size_t size)
{
    struct policy_forbidden forbidden HC_CLEANUP(policy_forbidden_release) = {0};
    if (canonical[0] != '/' || policy_forbidden_load(config, &forbidden) < 0) {
        snprintf(why, size, "%s",
                 canonical[0] == '/' ? "the list of forbidden paths cannot be made" : "the path is not absolute");
        return why;
    }
    const char *refused = check_names(&forbidden, canonical, why, size);
    return refused ? refused : check_allowed(config, canonical, writable, why, size);
}

/* ---- what it is ---- */

static const char *kernel_filesystem(long type)
{
    static const struct {
        long magic;
        const char *name;
    } windows[] = {
        {PROC_SUPER_MAGIC, "proc"},
        {SYSFS_MAGIC, "sysfs"},
        {CGROUP_SUPER_MAGIC, "cgroup"},
        {CGROUP2_SUPER_MAGIC, "cgroup2"},
        {DEVPTS_SUPER_MAGIC, "devpts"},
        {DEBUGFS_MAGIC, "debugfs"},
        {TRACEFS_MAGIC, "tracefs"},
        {SECURITYFS_MAGIC, "securityfs"},
        {SELINUX_MAGIC, "selinuxfs"},
        {BPF_FS_MAGIC, "bpf"},
        {PSTOREFS_MAGIC, "pstore"},
        {EFIVARFS_MAGIC, "efivarfs"},
        {NSFS_MAGIC, "nsfs"},
        {MQUEUE_MAGIC, "mqueue"},
        {CONFIGFS_MAGIC, "configfs"},
        {BINFMTFS_MAGIC, "binfmt_misc"},
        {FUSECTL_SUPER_MAGIC, "fusectl"},
        {RPC_PIPEFS_MAGIC, "rpc_pipefs"},
        {ANON_INODE_FS_MAGIC, "an anonymous inode"},
    };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        if (windows[i].magic == type)
            return windows[i].name;
    return NULL;
}

/* devtmpfs says that it is a tmpfs; but there is one of it in a machine, so its device number tells. */
static bool on_devices(const struct stat *status)
{
    struct stat devices, root;
    return stat("/dev", &devices) == 0 && stat("/", &root) == 0 && devices.st_dev != root.st_dev &&
           status->st_dev == devices.st_dev;
}

static const char *check_nature(int fd, const char *path, bool writable, char *why, size_t size)
{
    struct statfs filesystem;
    struct stat status;
    if (fstat(fd, &status) < 0 || fstatfs(fd, &filesystem) < 0) {
        snprintf(why, size, "%s cannot be looked at", path);
        return why;
    }
    if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) {
        snprintf(why, size, "%s is neither a folder nor a regular file", path);
        return why;
    }
    const char *window = kernel_filesystem(filesystem.f_type);
    if (window || on_devices(&status)) {
        snprintf(why, size, "%s is on %s, which the kernel makes", path, window ? window : "the filesystem of devices");
        return why;
    }
    if (writable && (filesystem.f_flags & ST_RDONLY)) {
        snprintf(why, size, "%s is on a read-only filesystem, not writable", path);
        return why;
    }
    return NULL;
}

/* ---- opening ---- */

static int open_host(const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) /* an old kernel, or a seccomp filter that does not know it */
        fd = open(path, O_PATH | O_CLOEXEC);
    return fd < 0 ? -errno : (int)fd;
}

/* The path of an fd, as the kernel has it; it must lead back to the same file. */
static int canonical_path(int fd, char *path, size_t size)
{
    char link[64];
    struct stat opened, named;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0)
        return -errno;
    if ((size_t)length >= size - 1)
        return -ENAMETOOLONG;
    path[length] = '\0';
    if (path[0] != '/' || fstat(fd, &opened) < 0 || lstat(path, &named) < 0 || !same_file(&opened, &named))
        return -ESTALE;
    return 0;
}

static int fail_open(const char *host, int code, struct hc_err *err)
{
    if (code == ENOENT || code == ENOTDIR)
        return hc_fail(err, HC_CLASS_REQUEST, ENOENT, "mount %.200s: there is no such file or folder", host);
    if (code == ELOOP)
        return hc_fail(err, HC_CLASS_REQUEST, EACCES,
                       "mount %.200s: refused by the mount policy: the path passes through a link of /proc, or a loop",
                       host);
    return hc_fail_errno(err, HC_CLASS_REQUEST, code, "mount %.200s: cannot be opened", host);
}

static int fail_refused(const struct config *config, const char *path, bool writable, bool forbidden, const char *why,
                        struct hc_err *err)
{
    const char *key = writable ? "allowed_write_paths" : "allowed_read_paths";
    const struct words *list = writable ? &config->write_paths : &config->read_paths;
    hc_fail(err, HC_CLASS_REQUEST, EACCES, "mount refused by the mount policy: %.380s", why);
    hc_err_field(err, "mounts");
    if (forbidden && strstr(why, FORBIDDEN_BY_SETTING))
        hc_err_remedy(err,
                      "copy what the program needs to another folder, or take that entry out of the configuration");
    else if (forbidden)
        hc_err_remedy(err, "no setting allows this; copy what the program needs to another folder");
    else if (list->count == 0)
        hc_err_remedy(err, "add to the configuration, under [mounts]: %s = [\"%.120s\"]", key, path);
    else
        hc_err_remedy(err, "add \"%.120s\" to %s under [mounts] in the configuration", path, key);
    return -EACCES;
}

static int check_opened(const struct config *config, int fd, const char *path, bool writable, struct hc_err *err)
{
    char why[PATH_MAX + 512];
    struct policy_forbidden forbidden HC_CLEANUP(policy_forbidden_release) = {0};
    int rc = policy_forbidden_load(config, &forbidden);
    if (rc < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -rc, "cannot make the list of forbidden paths");
    const char *refused = check_names(&forbidden, path, why, sizeof why);
    if (!refused)
        refused = check_identity(&forbidden, fd, path, why, sizeof why);
    if (!refused)
        refused = check_nature(fd, path, writable, why, sizeof why);
    if (refused)
        return fail_refused(config, path, writable, true, refused, err);
    refused = check_allowed(config, path, writable, why, sizeof why);
    return refused ? fail_refused(config, path, writable, false, refused, err) : 0;
}

/* ---- other names ---- */

/* Leaves what has to do with `path` by its name to those who compare names. */
static void drop_by_name(struct policy_forbidden *forbidden, const char *path, char *why, size_t size)
{
    size_t kept = 0;
    for (size_t i = 0; i < forbidden->count; i++) {
        if (policy_refuse_name(path, &forbidden->item[i], why, size))
            free(forbidden->item[i].path);
        else
            forbidden->item[kept++] = forbidden->item[i];
    }
    forbidden->count = kept;
}

const char *policy_other_name(const struct config *config, const struct words *own, const char *canonical, char *why,
                              size_t size)
{
    struct policy_forbidden forbidden HC_CLEANUP(policy_forbidden_release) = {0};
    int rc = policy_forbidden_load(config, &forbidden);
    for (size_t i = 0; rc == 0 && i < own->count; i++)
        rc = policy_forbidden_add(&forbidden, own->item[i], "it is this server's own");
    if (rc < 0) {
        snprintf(why, size, "the list of forbidden paths cannot be made");
        return why;
    }
    drop_by_name(&forbidden, canonical, why, size);
    int fd hc_cleanup_fd = open_host(canonical);
    if (fd < 0) {
        snprintf(why, size, "%s cannot be looked at", canonical);
        return why;
    }
    return check_identity(&forbidden, fd, canonical, why, size);
}

int policy_open(const struct config *config, const struct request_mount *mount, struct policy_mount *out,
                struct hc_err *err)
{
    struct policy_mount opened = {.fd = -1, .read_only = mount->read_only};
    int rc = policy_check_target(mount->path, opened.path, sizeof opened.path, err);
    if (rc < 0)
        return rc;
    if (mount->host[0] == '\0')
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "a mount needs a host path");
    if (config->served) {
        rc = policy_open_served(config, mount, &opened, err);
        if (rc == 0)
            *out = opened;
        return rc;
    }
    int fd hc_cleanup_fd = open_host(mount->host);
    if (fd < 0) {
        rc = fail_open(mount->host, -fd, err);
        hc_err_field(err, "mounts");
        return rc;
    }
    rc = canonical_path(fd, opened.host, sizeof opened.host);
    if (rc < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, -rc, "mount %.200s: its real path cannot be told", mount->host);
    rc = check_opened(config, fd, opened.host, !mount->read_only, err);
    if (rc < 0)
        return rc;
    *out = opened;
    out->fd = HC_TAKE_FD(fd);
    return 0;
}

/* ---- the target in the cell ---- */

/* Where a mount would hide what the cell is made of. /sandbox is another name of the working directory. */
static const char *const reserved_targets[] = {"/proc",   "/sys",  "/dev",   "/usr",     "/etc",
                                               "/bin",    "/sbin", "/lib",   "/boot",    "/lib32",
                                               "/libx32", "/run",  "/lib64", "/sandbox", "/.hotcell"};

int policy_clean_path(const char *path, char *clean, size_t size)
{
    size_t used = 0;
    for (const char *part = path; *part;) {
        part += strspn(part, "/");
        size_t length = strcspn(part, "/");
        if (length == 2 && part[0] == '.' && part[1] == '.')
            return -EINVAL;
        if (length > 0 && !(length == 1 && part[0] == '.')) {
            if (length > NAME_MAX || used + length + 2 > size)
                return -ENAMETOOLONG;
            clean[used++] = '/';
            memcpy(clean + used, part, length);
            used += length;
        }
        part += length;
    }
    clean[used] = '\0';
    return 0;
}

static int check_target(const char *path, char *clean, size_t size, struct hc_err *err)
{
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "a path in the cell cannot have control characters");
    if (path[0] != '/')
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the path in the cell must be absolute, found \"%.200s\"", path);
    int rc = policy_clean_path(path, clean, size);
    if (rc == -ENAMETOOLONG)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the path in the cell is too long: %.80s…", path);
    if (rc < 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the path in the cell cannot have \"..\", found \"%.200s\"",
                       path);
    if (clean[0] == '\0')
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the path in the cell cannot be the root");
    for (size_t i = 0; i < sizeof reserved_targets / sizeof *reserved_targets; i++)
        if (policy_is_under(clean, reserved_targets[i]))
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%.200s is the cell's own: nothing can be put at or under %s",
                           clean, reserved_targets[i]);
    return 0;
}

int policy_check_target(const char *path, char *canonical, size_t size, struct hc_err *err)
{
    char clean[PATH_MAX];
    int rc = check_target(path, clean, size < sizeof clean ? size : sizeof clean, err);
    if (rc < 0) {
        hc_err_field(err, "mounts");
        hc_err_remedy(err, "use a path of its own, such as /data or /workspace/data");
        return rc;
    }
    memcpy(canonical, clean, strlen(clean) + 1);
    return 0;
}
