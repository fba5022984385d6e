/*
 * The file system of a cell: each function is one step of building it, in the builder's own copy of the warden's root
 * (image.h). An ordinary cell keeps that root, which is read-only and has nothing in it that a guest must not see, and
 * mounts over it what must be its own. One that differs puts a root together below /.hotcell/cell, with sources right
 * beside it; pivot_root and a detach then leave nothing of the other.
 */
#include "cell/build.h"

#include "base/fd.h"
#include "cell/image.h"
#include "cell/place.h"
#include "kernel/sys.h"
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT IMAGE_CELL
#define SCRATCH IMAGE_SCRATCH

/* With its parents; `path` begins with ROOT. */
static int make_folders(const char *path, struct hc_err *err)
{
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%s/", path);
    for (char *slash = strchr(text + sizeof ROOT, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int result = place_folder(text, 0755, err);
        if (result < 0)
            return result;
        *slash = '/';
    }
    return 0;
}

/* A path of the cell, as the builder must name it. */
static const char *cell_path(const struct build *build, const char *path, char *text, size_t size)
{
    snprintf(text, size, "%s%s", build->own_root ? ROOT : "", path);
    return text;
}

/* The folders that a writable root gives to the guest, below /usr: enough to install into. Everything else there can be
 * replaced but not changed in place, for its owner does not exist in the cell. */
static const char *const writable_usr[] = {"bin",           "sbin",      "lib",        "share",     "include",
                                           "local",         "local/bin", "local/sbin", "local/lib", "local/share",
                                           "local/include", "local/etc", "src",        "games"};

int mounts_scratch(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    char options[128];
    snprintf(options, sizeof options, "mode=0755,size=%" PRIu64 ",nr_inodes=%" PRIu64, build->spec->disk,
             build->spec->inodes + 8 + build->spec->mount_count);
    if (mount("scratch", SCRATCH, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "tmpfs");
    static const struct {
        const char *path;
        mode_t mode;
    } folders[] = {
        {SCRATCH "/work", 0755}, {SCRATCH "/tmp", 01777}, {SCRATCH "/shm", 01777}, {SCRATCH "/tmp/.hotcell", 0755}};
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        int result = place_folder(folders[i].path, 0700, err);
        if (result < 0)
            return result;
        if (chmod(folders[i].path, folders[i].mode) < 0 || chown(folders[i].path, GUEST_UID, GUEST_UID) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", folders[i].path);
    }
    return 0;
}

int mounts_root(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    if (!build->own_root)
        return 0;
    bool writable = build->spec->flags & CELL_WRITABLE_ROOT;
    char options[96];
    snprintf(options, sizeof options, "mode=0755,size=%s,nr_inodes=512", writable ? "16m" : "256k");
    if (mount("root", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "tmpfs");
    static const char *const folders[] = {"usr", "etc",  "dev",  "proc", "tmp", "run",
                                          "var", "root", "home", "opt",  "srv", "mnt"};
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", ROOT, folders[i]);
        int result = place_folder(path, 0755, err);
        if (result < 0)
            return result;
    }
    static const char *const own[] = {"", "/run", "/var", "/opt", "/srv", "/home", "/root", "/mnt"};
    for (unsigned i = 0; writable && i < sizeof own / sizeof *own; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s%s", ROOT, own[i]);
        if (chown(path, GUEST_UID, GUEST_UID) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", path);
    }
    if (symlink("/tmp", ROOT "/var/tmp") < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making /var/tmp");
    return 0;
}

/* Shells and interpreters of a sandbox are started with files of ours, in a root of the cell's own as in any other. */
static int bind_warm(struct hc_err *err)
{
    if (access(IMAGE_WARM, F_OK) < 0)
        return 0;
    int result = make_folders(ROOT IMAGE_WARM, err);
    return result < 0 ? result : place_bind(IMAGE_WARM, ROOT IMAGE_WARM, err);
}

/* The host's layout: /bin and its like are symlinks into /usr, or folders bound beside it. */
int mounts_top(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    if (!build->own_root)
        return 0;
    static const char *const names[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char target[PATH_MAX], to[64];
        snprintf(to, sizeof to, "%s%s", ROOT, names[i]);
        ssize_t length = readlink(names[i], target, sizeof target - 1);
        if (length < 0 && errno == ENOENT)
            continue;
        if (length < 0) {
            int result = place_folder(to, 0755, err);
            if (result == 0)
                result = place_bind(names[i], to, err);
            if (result < 0)
                return result;
            continue;
        }
        target[length] = '\0';
        if (symlink(target, to) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", names[i]);
    }
    return bind_warm(err);
}

static int prepare_upper(struct hc_err *err)
{
    static const char *const layers[] = {SCRATCH "/upper", SCRATCH "/upper/usr", SCRATCH "/upper/work"};
    for (unsigned i = 0; i < sizeof layers / sizeof *layers; i++) {
        int result = place_folder(layers[i], 0755, err);
        if (result < 0)
            return result;
    }
    for (int i = -1; i < (int)(sizeof writable_usr / sizeof *writable_usr); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/upper/usr/%s", SCRATCH, i < 0 ? "" : writable_usr[i]);
        int result = place_folder(path, 0755, err);
        if (result < 0)
            return result;
        if (chown(path, GUEST_UID, GUEST_UID) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", path);
    }
    return 0;
}

/* An overlay of the cell's own even where nothing is writable, so that file locks and inode numbers are not shared
 * between cells. /usr is its last layer: of folders there the kernel need not ask whether they hide others. */
int mounts_usr(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    bool writable = build->spec->flags & CELL_WRITABLE_ROOT;
    const char *options = "lowerdir=" IMAGE_EMPTY ":/usr,userxattr";
    if (writable) {
        int result = prepare_upper(err);
        if (result < 0)
            return result;
        options = "lowerdir=/usr,upperdir=" SCRATCH "/upper/usr,workdir=" SCRATCH "/upper/work,userxattr";
    }
    char usr[64];
    if (mount("usr", cell_path(build, "/usr", usr, sizeof usr), "overlay",
              MS_NOSUID | MS_NODEV | (writable ? 0 : MS_RDONLY), options) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "overlay");
    return 0;
}

/* A made-up file or link, as the guest's own. */
static int copy_etc_entry(const char *from, const char *to, bool link, struct hc_err *err)
{
    if (link) {
        char target[PATH_MAX];
        ssize_t length = readlink(from, target, sizeof target - 1);
        if (length < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "reading %s", from);
        target[length] = '\0';
        if (symlink(target, to) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", to);
    } else {
        hc_cleanup_fd int source = open(from, O_RDONLY | O_CLOEXEC);
        hc_cleanup_fd int copy = source < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        int result = copy < 0 ? -errno : hc_copy_all(source, copy);
        if (result < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, -result, "copying %s", from);
    }
    if (lchown(to, GUEST_UID, GUEST_UID) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", to);
    return 0;
}

/* A writable /etc: what is made up is copied, and what the image has from the host is bound, read-only. (Not an
 * overlay: the kernel takes no lower layer with mounts in it that are locked.) */
static int build_writable_etc(struct hc_err *err)
{
    struct stat base, st;
    DIR *list = opendir("/etc");
    if (!list || fstat(dirfd(list), &base) < 0) {
        if (list)
            closedir(list);
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "reading /image/etc");
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(list));) {
        if (entry->d_name[0] == '.' || fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        char from[PATH_MAX], to[PATH_MAX];
        snprintf(from, sizeof from, "/etc/%s", entry->d_name);
        snprintf(to, sizeof to, "%s/etc/%s", ROOT, entry->d_name);
        bool ours = st.st_dev == base.st_dev;
        if (ours && !S_ISDIR(st.st_mode)) {
            result = copy_etc_entry(from, to, S_ISLNK(st.st_mode), err);
            continue;
        }
        if (S_ISDIR(st.st_mode)) {
            result = place_folder(to, 0755, err);
        } else {
            hc_cleanup_fd int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            if (fd < 0)
                result = hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", to);
        }
        if (result == 0)
            result = place_bind(from, to, err);
    }
    closedir(list);
    if (result == 0 && chown(ROOT "/etc", GUEST_UID, GUEST_UID) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving /etc to the guest");
    return result;
}

int mounts_etc(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    if (!build->own_root)
        return 0;
    if (build->spec->flags & CELL_WRITABLE_ROOT)
        return build_writable_etc(err);
    return place_bind("/etc", ROOT "/etc", err);
}

int mounts_dev(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    char path[64];
    int result = build->own_root ? place_bind("/dev", ROOT "/dev", err) : 0;
    return result < 0 ? result : place_bind(SCRATCH "/shm", cell_path(build, "/dev/shm", path, sizeof path), err);
}

/* World-readable files, and folders (with a slash), that tell of the host, of what it does, or of other cells. What
 * only real root may read needs no cover: nobody in a cell is that. What merely says how the kernel was built (crypto,
 * filesystems) stays. A bind of the wrong kind is not tried first: a mount that fails waits for an RCU grace period. */
static const char *const masked[] = {
    "acpi/",      "asound/",
    "buddyinfo",  "bus/",
    "cmdline",    "config.gz",
    "consoles",   "diskstats",
    "driver/",    "dynamic_debug/",
    "fb",         "fs/",
    "interrupts", "iomem",
    "ioports",    "irq/",
    "kallsyms",   "key-users",
    "keys",       "locks",
    "mdstat",     "modules",
    "mtrr",       "partitions",
    "pressure/",  "sched_debug",
    "schedstat",  "scsi/",
    "softirqs",   "swaps",
    "tty/",       "vmstat",
    "zoneinfo",   "sys/kernel/random/boot_id",
};

/* What the kernel counts by user goes up to the warden's uid, which all cells share: each may take only a part, of 128
 * instances as a rule. A server has dozens of cells. */
static int limit_shares(const struct build *build, struct hc_err *err)
{
    static const char *const shares[][3] = {{"/proc/sys/user/max_inotify_instances", "48", "4"},
                                            {"/proc/sys/user/max_inotify_watches", "16384", "4096"}};
    for (unsigned i = 0; i < sizeof shares / sizeof *shares; i++) {
        char path[96];
        int result = hc_write_file_at(AT_FDCWD, cell_path(build, shares[i][0], path, sizeof path),
                                      shares[i][build->host->many_cells ? 2 : 1]);
        if (result < 0 && result != -ENOENT)
            return hc_fail_errno(err, HC_CLASS_HOST, -result, "writing %s", shares[i][0]);
    }
    return 0;
}

static int mount_proc(const struct build *build, struct hc_err *err)
{
    char proc[64], path[128];
    cell_path(build, "/proc", proc, sizeof proc);
    if (mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "proc");
    for (unsigned i = 0; i < sizeof masked / sizeof *masked; i++) {
        snprintf(path, sizeof path, "%s/%s", proc, masked[i]);
        bool folder = path[strlen(path) - 1] == '/';
        if (mount(folder ? IMAGE_EMPTY : IMAGE_NOTHING, path, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "masking /proc/%s", masked[i]);
    }
    int result = limit_shares(build, err);
    snprintf(path, sizeof path, "%s/sys", proc);
    if (result == 0)
        result = place_bind(path, path, err);
    return result < 0 ? result : place_attributes(path, HC_MOUNT_ATTR_RDONLY, HC_AT_RECURSIVE, err);
}

int mounts_proc_early(void *plan, struct hc_err *err)
{
    const struct build *build = plan;
    return build->own_root ? 0 : mount_proc(build, err);
}

int mounts_proc(void *plan, struct hc_err *err)
{
    const struct build *build = plan;
    return build->own_root ? mount_proc(build, err) : 0;
}

int mounts_work(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    const char *work = build->spec->work_dir;
    char path[PATH_MAX];
    int result = build->own_root ? make_folders(cell_path(build, work, path, sizeof path), err) : 0;
    if (result == 0)
        result = place_bind(SCRATCH "/work", cell_path(build, work, path, sizeof path), err);
    if (result == 0)
        result = place_bind(SCRATCH "/tmp", cell_path(build, "/tmp", path, sizeof path), err);
    static const char *const names[] = {"/workspace", "/sandbox"};
    for (unsigned i = 0; result == 0 && build->own_root && i < sizeof names / sizeof *names; i++)
        if (symlink(work, cell_path(build, names[i], path, sizeof path)) < 0 && errno != EEXIST)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", names[i]);
    return result;
}

/* The host folder of mount `i`. One that came detached is attached first, beside the guest's own folders: a part of it
 * can be cloned only then (until Linux 6.15). It goes with the old root. */
static int open_host(const struct build *build, uint32_t i, struct hc_err *err)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%u", build->trees ? SCRATCH : IMAGE_HOST, build->trees ? i : build->mounts[i].host);
    if (build->trees) {
        struct stat st = {0};
        bool known = fstat(build->trees[i], &st) == 0, folder = S_ISDIR(st.st_mode);
        hc_cleanup_fd int file = known && !folder ? open(path, O_CREAT | O_RDONLY | O_CLOEXEC, 0600) : -1;
        if (!known || (folder ? mkdir(path, 0700) : file) < 0 ||
            hc_move_mount(build->trees[i], "", AT_FDCWD, path, HC_MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "attaching what is to be mounted at %s",
                                 build->mounts[i].path);
    }
    int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "opening what is to be mounted at %s",
                             build->mounts[i].path);
    return fd;
}

/* Open what the policy checked: anything else than the very same inode is refused. Where the policy could only look at
 * the name, the name must lead there without a symlink. */
static int find_allowed(const struct build *build, uint32_t i, struct stat *st, struct hc_err *err)
{
    const struct cell_mount *mount = &build->mounts[i];
    hc_cleanup_fd int host = open_host(build, i, err);
    if (host < 0)
        return host;
    hc_cleanup_fd int fd = -1;
    if (mount->below[0])
        fd = hc_open_beneath(host, mount->below, O_PATH | O_CLOEXEC);
    else
        fd = HC_TAKE_FD(host);
    if (fd < 0 && errno == ELOOP) {
        hc_fail(err, HC_CLASS_REQUEST, EACCES, "a symlink is on the way to what is to be mounted at %s", mount->path);
        return hc_err_remedy(err, "name the folder by its real path");
    }
    if (fd < 0 && errno == EXDEV) {
        hc_fail(err, HC_CLASS_REQUEST, EACCES, "another file system is on the way to what is to be mounted at %s",
                mount->path);
        return hc_err_remedy(err, "the operator allows its folder under [mounts] in the configuration");
    }
    if (fd < 0 || fstat(fd, st) < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "opening what is to be mounted at %s", mount->path);
    if (mount->inode && (st->st_dev != mount->device || st->st_ino != mount->inode))
        return hc_fail(err, HC_CLASS_REQUEST, EACCES, "what is to be mounted at %s changed after it was checked",
                       mount->path);
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
        return hc_fail(err, HC_CLASS_REQUEST, EACCES,
                       "what is to be mounted at %s is neither a folder nor a regular file", mount->path);
    return HC_TAKE_FD(fd);
}

static int open_allowed(const struct build *build, uint32_t i, struct stat *st, struct hc_err *err)
{
    int fd = find_allowed(build, i, st, err);
    if (fd < 0)
        hc_err_field(err, "mounts");
    return fd;
}

int mounts_hosts(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    if (!build->own_root)
        return 0;
    for (uint32_t i = 0; i < build->spec->mount_count; i++) {
        const struct cell_mount *mount = &build->mounts[i];
        struct stat st = {0};
        hc_cleanup_fd int fd = open_allowed(build, i, &st, err);
        if (fd < 0)
            return fd;
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s", ROOT, mount->path);
        int result = make_folders(S_ISDIR(st.st_mode) ? path : ROOT, err);
        if (result == 0 && !S_ISDIR(st.st_mode)) {
            char *slash = strrchr(path, '/');
            *slash = '\0';
            result = make_folders(path, err);
            *slash = '/';
            hc_cleanup_fd int file = result < 0 ? -1 : open(path, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
            if (result == 0 && file < 0)
                result = hc_fail_errno(err, HC_CLASS_REQUEST, errno, "making %s", mount->path);
        }
        if (result == -EROFS || result == -EACCES) { /* that is a host folder, and hotcell makes nothing in one */
            hc_err_clear(err);
            hc_fail(err, HC_CLASS_REQUEST, -result, "mount %.200s: there is no such place in the mount around it",
                    mount->path);
            hc_err_field(err, "mounts");
            return hc_err_remedy(err, "make it in that host folder, or use another path");
        }
        if (result < 0)
            return result;
        hc_cleanup_fd int tree = hc_open_tree(fd, "", HC_OPEN_TREE_CLONE | HC_AT_RECURSIVE | AT_EMPTY_PATH | O_CLOEXEC);
        if (tree < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "cloning the mount for %s", mount->path);
        struct hc_mount_attr attr = {.attr_set = HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV |
                                                 (mount->read_only ? HC_MOUNT_ATTR_RDONLY : 0)};
        if (hc_mount_setattr(tree, "", AT_EMPTY_PATH | HC_AT_RECURSIVE, &attr) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "mount attributes of %s", mount->path);
        if (hc_move_mount(tree, "", AT_FDCWD, path, HC_MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "mounting %s", mount->path);
    }
    return 0;
}

int mounts_seal(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    if (!build->own_root)
        return 0;
    unsigned attributes = HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV;
    if (!(build->spec->flags & CELL_WRITABLE_ROOT))
        attributes |= HC_MOUNT_ATTR_RDONLY;
    return place_attributes(ROOT, attributes, 0, err);
}

int mounts_pivot(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    if (build->own_root) {
        if (chdir(ROOT) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering the root");
        if (hc_pivot_root(".", ".") < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "pivot_root");
        if (umount2(".", MNT_DETACH) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "detaching the old root");
        if (access(IMAGE_CELL, F_OK) == 0)
            return hc_fail(err, HC_CLASS_OURS, EIO, "the old root is still there");
    }
    if (chdir("/") < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering /");
    struct stat here, root;
    if (stat(".", &here) < 0 || stat("/", &root) < 0 || here.st_ino != root.st_ino || here.st_dev != root.st_dev)
        return hc_fail(err, HC_CLASS_OURS, EIO, "the working directory is not the root");
    return 0;
}
