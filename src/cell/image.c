/* See image.h. Every step is needed: the first that fails ends the build, and no warden starts. */
#include "cell/image.h"

#include "base/fd.h"
#include "cell/place.h"
#include "cell/spec.h"
#include "kernel/sys.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define ROOT "/tmp" /* where the new root is mounted while it is being built; hidden by it, in our own namespace */

enum { COPY_LIMIT = 16 << 10, MAX_PATTERNS = 32, SEALED = HC_MOUNT_ATTR_RDONLY | HC_MOUNT_ATTR_NOSUID };

static const char *const devices[] = {"null", "zero", "full", "random", "urandom"};
static const char *const top_folders[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

static const struct made_up {
    const char *path, *text;
} made_up[] = {
    {"/etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
                    "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n"
                    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"/etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"},
    {"/etc/hosts", "127.0.0.1 localhost hotcell\n::1 localhost hotcell\n"},
    {"/etc/hostname", "hotcell\n"},
    {"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
    {"/etc/resolv.conf", ""},
    {IMAGE_NOTHING, ""},
};

static int make_file(const char *path, const char *text, struct hc_err *err)
{
    hc_cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", path);
    int result = hc_write_all(fd, text, strlen(text));
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "writing %s", path);
    return 0;
}

static int make_link(const char *target, const char *path, struct hc_err *err)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", ROOT, path);
    if (symlink(target, full) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", path);
    return 0;
}

/* A small file is cheaper copied than mounted: every mount here is cloned into every cell. One that we may not read is
 * left out. */
static int copy_file(const char *from, const char *to, struct hc_err *err)
{
    hc_cleanup_fd int source = open(from, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (source < 0 && errno == EACCES)
        return 0;
    hc_cleanup_fd int target = source < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (target < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "copying %s", from);
    int result = hc_copy_all(source, target);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "copying %s", from);
    return 0;
}

/* Let `to` show what `from` is: a copy of a small file or a symlink, else the thing itself, bound. */
static int mirror(const char *from, const char *to, struct hc_err *err)
{
    struct stat st;
    if (lstat(from, &st) < 0) {
        if (errno == ENOENT)
            return 0;
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "looking at %s", from);
    }
    if (S_ISLNK(st.st_mode)) {
        char target[PATH_MAX];
        ssize_t length = readlink(from, target, sizeof target - 1);
        if (length < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "reading the link %s", from);
        target[length] = '\0';
        if (symlink(target, to) < 0 && errno != EEXIST)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "making the link %s", to);
        return 0;
    }
    if (S_ISREG(st.st_mode) && st.st_size <= COPY_LIMIT)
        return copy_file(from, to, err);
    int result = S_ISDIR(st.st_mode) ? place_folder(to, 0755, err) : make_file(to, "", err);
    return result < 0 ? result : place_bind(from, to, err);
}

/* An entry such as ssl/certs: the folders above it are made. */
static int build_etc_entry(const char *entry, struct hc_err *err)
{
    char from[PATH_MAX], to[PATH_MAX + 32];
    for (const char *slash = strchr(entry, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(to, sizeof to, "%s/etc/%.*s", ROOT, (int)(slash - entry), entry);
        int result = place_folder(to, 0755, err);
        if (result < 0)
            return result;
    }
    snprintf(from, sizeof from, "/etc/%s", entry);
    snprintf(to, sizeof to, "%s/etc/%s", ROOT, entry);
    return mirror(from, to, err);
}

/* Entries that end in '*', which is the only place where the configuration takes one, match names directly in /etc,
 * which is read once for all of them. */
static int build_etc_patterns(const struct image_plan *plan, struct hc_err *err)
{
    const char *patterns[MAX_PATTERNS];
    size_t count = 0;
    for (size_t i = 0; i < plan->etc_count; i++)
        if (strchr(plan->etc[i], '*') && count < MAX_PATTERNS)
            patterns[count++] = plan->etc[i];
    DIR *list = count ? opendir("/etc") : NULL;
    if (count == 0)
        return 0;
    if (!list)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "reading /etc");
    int result = 0;
    for (struct dirent *found; result == 0 && (found = readdir(list));)
        for (size_t i = 0; i < count && result == 0; i++)
            if (strncmp(found->d_name, patterns[i], strcspn(patterns[i], "*")) == 0)
                result = build_etc_entry(found->d_name, err);
    closedir(list);
    return result;
}

static int build_etc(const struct image_plan *plan, struct hc_err *err)
{
    /* A mount of its own, so that it, and what is bound into it, has attributes of its own. */
    int result = place_bind(ROOT "/etc", ROOT "/etc", err);
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up && result == 0; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s", ROOT, made_up[i].path);
        result = make_file(path, made_up[i].text, err);
    }
    if (result == 0)
        result = make_link("/proc/self/mounts", "/etc/mtab", err);
    for (size_t i = 0; i < plan->etc_count && result == 0; i++)
        if (!strchr(plan->etc[i], '*'))
            result = build_etc_entry(plan->etc[i], err);
    if (result == 0)
        result = build_etc_patterns(plan, err);
    return result < 0 ? result : place_attributes(ROOT "/etc", SEALED | HC_MOUNT_ATTR_NODEV, HC_AT_RECURSIVE, err);
}

static int build_dev(struct hc_err *err)
{
    int result = place_bind(ROOT "/dev", ROOT "/dev", err);
    if (result == 0)
        result = place_folder(ROOT "/dev/shm", 0755, err);
    if (result == 0)
        result = place_folder(ROOT "/dev/pts", 0755, err);
    char from[64], to[64];
    for (size_t i = 0; i < sizeof devices / sizeof *devices && result == 0; i++) {
        snprintf(from, sizeof from, "/dev/%s", devices[i]);
        snprintf(to, sizeof to, "%s/dev/%s", ROOT, devices[i]);
        result = make_file(to, "", err);
        if (result == 0)
            result = place_bind(from, to, err);
    }
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                           {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"},
                                           {"/proc/self/fd/2", "/dev/stderr"},
                                           {"pts/ptmx", "/dev/ptmx"}};
    for (size_t i = 0; i < sizeof links / sizeof *links && result == 0; i++)
        result = make_link(links[i][0], links[i][1], err);
    return result < 0 ? result : place_attributes(ROOT "/dev", SEALED | HC_MOUNT_ATTR_NOEXEC, HC_AT_RECURSIVE, err);
}

/* Host folders may lie below ROOT: they are opened, as detached mounts, before it is covered. */
static int open_hosts(const struct image_plan *plan, int *trees, struct hc_err *err)
{
    for (size_t i = 0; i < plan->host_count; i++) {
        trees[i] = plan->host_fds ? plan->host_fds[i] : -1;
        if (trees[i] >= 0)
            continue;
        trees[i] = hc_open_tree(AT_FDCWD, plan->host[i], HC_OPEN_TREE_CLONE | HC_AT_RECURSIVE | O_CLOEXEC);
        if (trees[i] < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening %s", plan->host[i]);
    }
    return 0;
}

static int build_host(const struct image_plan *plan, const int *trees, struct hc_err *err)
{
    int result = place_folder(ROOT IMAGE_HOST, 0755, err);
    for (size_t i = 0; i < plan->host_count && result == 0; i++) {
        char to[64];
        snprintf(to, sizeof to, "%s%s/%zu", ROOT, IMAGE_HOST, i);
        struct stat st;
        if (fstat(trees[i], &st) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "looking at %s", plan->host[i]);
        result = S_ISDIR(st.st_mode) ? place_folder(to, 0755, err) : make_file(to, "", err);
        if (result < 0)
            return result;
        if (hc_move_mount(trees[i], "", AT_FDCWD, to, HC_MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "attaching %s", plan->host[i]);
        /* Devices and set-uid programs of the host stay what they are on the host, and nothing here. What is allowed
         * for reading cannot be had writable, whatever is asked for later. */
        unsigned attributes =
            HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV | (plan->host_writable[i] ? 0 : HC_MOUNT_ATTR_RDONLY);
        result = place_attributes(to, attributes, HC_AT_RECURSIVE, err);
    }
    return result;
}

/* The folder itself, so that what the server puts there later is there, too. */
static int build_cache(int tree, struct hc_err *err)
{
    if (tree < 0)
        return 0;
    int result = place_folder(ROOT IMAGE_CACHE, 0755, err);
    if (result == 0 && hc_move_mount(tree, "", AT_FDCWD, ROOT IMAGE_CACHE, HC_MOVE_MOUNT_F_EMPTY_PATH) < 0)
        result = hc_fail_errno(err, HC_CLASS_HOST, errno, "placing the cache");
    return result < 0 ? result
                      : place_attributes(ROOT IMAGE_CACHE, SEALED | HC_MOUNT_ATTR_NODEV | HC_MOUNT_ATTR_NOEXEC, 0, err);
}

static int build_warm(const struct image_plan *plan, struct hc_err *err)
{
    int result = plan->file_count ? place_folder(ROOT IMAGE_WARM, 0755, err) : 0;
    for (size_t i = 0; i < plan->file_count && result == 0; i++) {
        const struct image_file *file = &plan->files[i];
        char to[PATH_MAX];
        const char *slash = strchr(file->path, '/');
        if (slash) {
            snprintf(to, sizeof to, "%s%s/%.*s", ROOT, IMAGE_WARM, (int)(slash - file->path), file->path);
            result = place_folder(to, 0755, err);
            if (result < 0)
                return result;
        }
        snprintf(to, sizeof to, "%s%s/%s", ROOT, IMAGE_WARM, file->path);
        hc_cleanup_fd int copy = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file->program ? 0755 : 0644);
        int code = copy < 0 || lseek(file->fd, 0, SEEK_SET) < 0 ? -errno : hc_copy_all(file->fd, copy);
        if (code < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, -code, "copying %s", file->path);
    }
    return result;
}

static int enter_root(struct hc_err *err)
{
    if (chdir(ROOT) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering the new root");
    if (hc_pivot_root(".", ".") < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "leaving the old root");
    if (chdir("/") < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering /");
    return place_attributes("/", HC_MOUNT_ATTR_RDONLY | HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV, 0, err);
}

static int build_layout(struct hc_err *err)
{
    static const char *const folders[] = {"/usr", "/etc",    "/dev",     "/proc",       "/tmp",     "/workspace",
                                          "/run", "/var",    "/root",    "/home",       "/opt",     "/srv",
                                          "/mnt", IMAGE_OWN, IMAGE_CELL, IMAGE_SCRATCH, IMAGE_EMPTY};
    int result = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && result == 0; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s%s", ROOT, folders[i]);
        result = place_folder(path, 0755, err);
    }
    for (size_t i = 0; i < sizeof top_folders / sizeof *top_folders && result == 0; i++) {
        char from[32], to[64];
        snprintf(from, sizeof from, "/%s", top_folders[i]);
        snprintf(to, sizeof to, "%s/%s", ROOT, top_folders[i]);
        result = mirror(from, to, err);
    }
    if (result == 0)
        result = make_link("/workspace", "/sandbox", err);
    return result < 0 ? result : make_link("/tmp", "/var/tmp", err);
}

static int place_usr(int tree, struct hc_err *err)
{
    if (hc_move_mount(tree, "", AT_FDCWD, ROOT "/usr", HC_MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "placing /usr");
    return place_attributes(ROOT "/usr", SEALED | HC_MOUNT_ATTR_NODEV, HC_AT_RECURSIVE, err);
}

static int mount_proc(struct hc_err *err)
{
    if (mount("proc", ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0)
        return 0;
    hc_fail_errno(err, HC_CLASS_HOST, errno, "mounting /proc");
    return hc_err_remedy(err, "in a container, /proc must not be masked: run it with --security-opt "
                              "systempaths=unconfined or alike");
}

static int open_parts(const struct image_plan *plan, struct image_parts *parts, struct hc_err *err)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making mounts private");
    if (plan->host_count > CELL_MAX_HOSTS)
        return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "more than %d host folders", CELL_MAX_HOSTS);
    parts->usr = hc_open_tree(AT_FDCWD, "/usr", HC_OPEN_TREE_CLONE | HC_AT_RECURSIVE | O_CLOEXEC);
    if (parts->usr < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening /usr");
    parts->cache = plan->cache ? plan->cache_fd : -1;
    if (plan->cache && parts->cache < 0 &&
        (parts->cache = hc_open_tree(AT_FDCWD, plan->cache, HC_OPEN_TREE_CLONE | O_CLOEXEC)) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening %s", plan->cache);
    return open_hosts(plan, parts->host, err);
}

int image_open(const struct image_plan *plan, struct image_parts *parts, struct hc_err *err)
{
    int result = open_parts(plan, parts, err);
    return result < 0 ? hc_err_context(err, "building the image") : 0;
}

static int build(const struct image_plan *plan, const struct image_parts *parts, struct hc_err *err)
{
    if (mount("hotcell", ROOT, "tmpfs", MS_NOSUID, "mode=0755,size=16m,nr_inodes=4096") < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "mounting a tmpfs");
    int result = build_layout(err);
    if (result == 0)
        result = place_usr(parts->usr, err);
    if (result == 0)
        result = build_etc(plan, err);
    if (result == 0)
        result = build_dev(err);
    if (result == 0)
        result = build_host(plan, parts->host, err);
    if (result == 0)
        result = build_warm(plan, err);
    if (result == 0)
        result = build_cache(parts->cache, err);
    return result < 0 ? result : mount_proc(err);
}

int image_build(const struct image_plan *plan, const struct image_parts *parts, struct hc_err *err)
{
    int result = build(plan, parts, err);
    return result < 0 ? hc_err_context(err, "building the image") : 0;
}

int image_enter(struct hc_err *err)
{
    int result = enter_root(err);
    return result < 0 ? hc_err_context(err, "entering the image") : 0;
}
