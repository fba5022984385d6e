/*
 * Building a cell: theory of operation.
 *
 * The warden makes the cell's control group and writes nothing to it yet, then clones one child into all new namespaces (and, where there is
 * version 2, into the group). The child waits until the warden has written its uid and gid maps. Then it is root in the cell's user namespace,
 * and carries out the list of steps below, each of which must succeed. The last one execs hotcell-init, as pid 1 of the cell, without
 * capabilities; the pipe to the warden closes by that exec, which says that the cell is ready.
 *
 * The mounts are made below /cell in the child's own copy of the warden's root (image.h), so their sources are right beside it; pivot_root
 * and a detach then leave nothing of that root.
 *
 * The cgroup namespace is unshared by the child and not by the clone: clone3 would root it at the warden's group. The network namespace, which is
 * most of what a clone costs, may have been made beforehand (net.c): then the warden steps into it and the cell
 * inherits it. It belongs to the warden's user namespace in that case, so that the cell has even less to say about it. The warden stays there, for it
 * may not go back to the host's; it has no socket of that network, and every later cell gets a namespace of its own by its clone.
 */
#include "cell/cell.h"

#include "base/fd.h"
#include "cell/child.h"
#include "cell/net.h"
#include "kernel/caps.h"
#include "kernel/sys.h"
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define ROOT "/cell"
#define SCRATCH "/scratch"

struct build {
    const struct cell_host *host;
    const struct cell_spec *spec;
    const struct cell_mount *mounts;
    const struct cgroup *group;
    int go;     /* end of the warden's pipe: one byte once the maps are written */
    int report;
    int init;
    uid_t uid;  /* of init, in the cell */
    bool net_made; /* the network namespace was made beforehand, its loopback up */
};

static int join_group(void *plan, struct hc_err *err) { return cgroup_join(((struct build *)plan)->group, err); }

static int wait_for_maps(void *plan, struct hc_err *err) {
    struct build *build = plan;
    char byte;
    ssize_t count;
    do count = read(build->go, &byte, 1);
    while (count < 0 && errno == EINTR);
    if (count != 1) return hc_fail(err, HC_CLASS_OURS, EPIPE, "the warden went away");
    if (setresgid(build->uid, build->uid, build->uid) < 0 || setresuid(build->uid, build->uid, build->uid) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "becoming uid %u", (unsigned)build->uid);
    return 0;
}

static int own_names(void *plan, struct hc_err *err) {
    struct build *build = plan;
    if (unshare(CLONE_NEWCGROUP) < 0) return hc_fail_errno(err, HC_CLASS_HOST, errno, "cgroup namespace");
    if (sethostname(build->spec->hostname, strlen(build->spec->hostname)) < 0 || setdomainname("", 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "hostname");
    return 0;
}

static int raise_loopback(void *plan, struct hc_err *err) {
    struct build *build = plan;
    return build->net_made ? 0 : net_raise_loopback(err);
}

/* ---- mounts ---- */

static int make_folder(const char *path, mode_t mode, struct hc_err *err) {
    if (mkdir(path, mode) < 0 && errno != EEXIST) return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", path);
    return 0;
}

/* With its parents; `path` begins with ROOT. */
static int make_folders(const char *path, struct hc_err *err) {
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%s/", path);
    for (char *slash = strchr(text + sizeof ROOT, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int result = make_folder(text, 0755, err);
        if (result < 0) return result;
        *slash = '/';
    }
    return 0;
}

static int bind_to(const char *from, const char *to, struct hc_err *err) {
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "binding %s", from);
    return 0;
}

static int set_attributes(const char *path, unsigned attributes, unsigned flags, struct hc_err *err) {
    struct hc_mount_attr attr = {.attr_set = attributes};
    if (hc_mount_setattr(AT_FDCWD, path, flags, &attr) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "mount attributes of %s", path);
    return 0;
}

/* The folders that a writable root gives to the guest, below /usr: enough to install into. Everything else there can be replaced but not
 * changed in place, for its owner does not exist in the cell. */
static const char *const writable_usr[] = {"bin",         "sbin",        "lib",        "share",     "include",
                                           "local",       "local/bin",   "local/sbin", "local/lib", "local/share",
                                           "local/include", "local/etc", "src",        "games"};

static int mount_scratch(void *plan, struct hc_err *err) {
    struct build *build = plan;
    char options[128];
    snprintf(options, sizeof options, "mode=0755,size=%" PRIu64 ",nr_inodes=%" PRIu64, build->spec->disk,
             build->spec->inodes + 8);
    if (mount("scratch", SCRATCH, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "tmpfs");
    static const struct {
        const char *path;
        mode_t mode;
    } folders[] = {{SCRATCH "/work", 0755}, {SCRATCH "/tmp", 01777}, {SCRATCH "/shm", 01777}, {SCRATCH "/tmp/.hotcell", 0755}};
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        int result = make_folder(folders[i].path, 0700, err);
        if (result < 0) return result;
        if (chmod(folders[i].path, folders[i].mode) < 0 || chown(folders[i].path, GUEST_UID, GUEST_UID) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", folders[i].path);
    }
    return 0;
}

static int mount_root(void *plan, struct hc_err *err) {
    struct build *build = plan;
    bool writable = build->spec->flags & CELL_WRITABLE_ROOT;
    char options[96];
    snprintf(options, sizeof options, "mode=0755,size=%s,nr_inodes=512", writable ? "16m" : "256k");
    if (mount("root", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "tmpfs");
    static const char *const folders[] = {"usr", "etc", "dev", "proc", "tmp", "run", "var", "root", "home", "opt", "srv", "mnt"};
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", ROOT, folders[i]);
        int result = make_folder(path, 0755, err);
        if (result < 0) return result;
    }
    static const char *const own[] = {"", "/run", "/var", "/opt", "/srv", "/home", "/root", "/mnt"};
    for (unsigned i = 0; writable && i < sizeof own / sizeof *own; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s%s", ROOT, own[i]);
        if (chown(path, GUEST_UID, GUEST_UID) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", path);
    }
    if (symlink("/tmp", ROOT "/var/tmp") < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "making /var/tmp");
    return 0;
}

/* The host's layout: /bin and its like are symlinks into /usr, or folders bound beside it. */
static int mirror_top(void *plan, struct hc_err *err) {
    (void)plan;
    static const char *const names[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char target[PATH_MAX], to[64];
        snprintf(to, sizeof to, "%s%s", ROOT, names[i]);
        ssize_t length = readlink(names[i], target, sizeof target - 1);
        if (length < 0 && errno == ENOENT) continue;
        if (length < 0) {
            int result = make_folder(to, 0755, err);
            if (result == 0) result = bind_to(names[i], to, err);
            if (result < 0) return result;
            continue;
        }
        target[length] = '\0';
        if (symlink(target, to) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", names[i]);
    }
    return 0;
}

static int prepare_upper(struct hc_err *err) {
    static const char *const layers[] = {SCRATCH "/upper", SCRATCH "/upper/usr", SCRATCH "/upper/work"};
    for (unsigned i = 0; i < sizeof layers / sizeof *layers; i++) {
        int result = make_folder(layers[i], 0755, err);
        if (result < 0) return result;
    }
    for (int i = -1; i < (int)(sizeof writable_usr / sizeof *writable_usr); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/upper/usr/%s", SCRATCH, i < 0 ? "" : writable_usr[i]);
        int result = make_folder(path, 0755, err);
        if (result < 0) return result;
        if (chown(path, GUEST_UID, GUEST_UID) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", path);
    }
    return 0;
}

/* An overlay of the cell's own even where nothing is writable, so that file locks and inode numbers are not shared between cells. */
static int mount_usr(void *plan, struct hc_err *err) {
    struct build *build = plan;
    bool writable = build->spec->flags & CELL_WRITABLE_ROOT;
    const char *options = "lowerdir=/usr:/empty,userxattr";
    if (writable) {
        int result = prepare_upper(err);
        if (result < 0) return result;
        options = "lowerdir=/usr,upperdir=" SCRATCH "/upper/usr,workdir=" SCRATCH "/upper/work,userxattr";
    }
    if (mount("usr", ROOT "/usr", "overlay", MS_NOSUID | MS_NODEV | (writable ? 0 : MS_RDONLY), options) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "overlay");
    return 0;
}

/* A made-up file or link, as the guest's own. */
static int copy_etc_entry(const char *from, const char *to, bool link, struct hc_err *err) {
    char text[4096];
    if (link) {
        ssize_t length = readlink(from, text, sizeof text - 1);
        if (length < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "reading %s", from);
        text[length] = '\0';
        if (symlink(text, to) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", to);
    } else {
        ssize_t length = hc_read_file_at(AT_FDCWD, from, text, sizeof text);
        hc_cleanup_fd int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (length < 0 || fd < 0) return hc_fail(err, HC_CLASS_OURS, EIO, "copying %s", from);
        int result = hc_write_all(fd, text, (size_t)length);
        if (result < 0) return hc_fail_errno(err, HC_CLASS_OURS, -result, "writing %s", to);
    }
    if (lchown(to, GUEST_UID, GUEST_UID) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving %s to the guest", to);
    return 0;
}

/* A writable /etc: what is made up is copied, and what the image has from the host is bound, read-only. (Not an overlay: the kernel takes no lower
 * layer with mounts in it that are locked.) */
static int build_writable_etc(struct hc_err *err) {
    struct stat base, st;
    DIR *list = opendir("/image/etc");
    if (!list || fstat(dirfd(list), &base) < 0) {
        if (list) closedir(list);
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "reading /image/etc");
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(list));) {
        if (entry->d_name[0] == '.' || fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
        char from[PATH_MAX], to[PATH_MAX];
        snprintf(from, sizeof from, "/image/etc/%s", entry->d_name);
        snprintf(to, sizeof to, "%s/etc/%s", ROOT, entry->d_name);
        bool ours = st.st_dev == base.st_dev;
        if (ours && !S_ISDIR(st.st_mode)) {
            result = copy_etc_entry(from, to, S_ISLNK(st.st_mode), err);
            continue;
        }
        if (S_ISDIR(st.st_mode)) {
            result = make_folder(to, 0755, err);
        } else {
            hc_cleanup_fd int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            if (fd < 0) result = hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", to);
        }
        if (result == 0) result = bind_to(from, to, err);
    }
    closedir(list);
    if (result == 0 && chown(ROOT "/etc", GUEST_UID, GUEST_UID) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "giving /etc to the guest");
    return result;
}

static int mount_etc(void *plan, struct hc_err *err) {
    struct build *build = plan;
    if (build->spec->flags & CELL_WRITABLE_ROOT) return build_writable_etc(err);
    return bind_to("/image/etc", ROOT "/etc", err);
}

static int mount_dev(void *plan, struct hc_err *err) {
    struct build *build = plan;
    int result = bind_to("/image/dev", ROOT "/dev", err);
    if (result == 0) result = bind_to(SCRATCH "/shm", ROOT "/dev/shm", err);
    if (result == 0 && (build->spec->flags & CELL_TERMINAL) &&
        mount("devpts", ROOT "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620") < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "devpts");
    return result;
}

/* World-readable files that tell of the host, of what it does, or of other cells. What only real root may read needs no cover: nobody in a
 * cell is that. What merely says how the kernel was built (crypto, filesystems) stays. */
static const char *const masked[] = {
    "acpi",       "asound",    "buddyinfo", "bus",        "cmdline",  "config.gz",  "consoles", "diskstats",
    "driver",     "dynamic_debug", "fb",    "fs",         "interrupts", "iomem",    "ioports",  "irq",
    "kallsyms",   "key-users", "keys",      "locks",      "mdstat",   "modules",    "mtrr",     "partitions",
    "pressure",   "sched_debug", "schedstat", "scsi",     "softirqs", "swaps",      "tty",      "vmstat",
    "zoneinfo",   "sys/kernel/random/boot_id",
};

static int mount_proc(void *plan, struct hc_err *err) {
    (void)plan;
    if (mount("proc", ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "proc");
    for (unsigned i = 0; i < sizeof masked / sizeof *masked; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/proc/%s", ROOT, masked[i]);
        if (mount("/image/dev/null", path, NULL, MS_BIND, NULL) == 0) continue;
        if (errno == ENOENT) continue;
        if (errno == ENOTDIR && mount("/empty", path, NULL, MS_BIND, NULL) == 0) continue;
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "masking /proc/%s", masked[i]);
    }
    if (mount(ROOT "/proc/sys", ROOT "/proc/sys", NULL, MS_BIND | MS_REC, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "binding /proc/sys");
    return set_attributes(ROOT "/proc/sys", HC_MOUNT_ATTR_RDONLY, HC_AT_RECURSIVE, err);
}

static int mount_work(void *plan, struct hc_err *err) {
    struct build *build = plan;
    const char *work = build->spec->work_dir;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", ROOT, work);
    int result = make_folders(path, err);
    if (result == 0) result = bind_to(SCRATCH "/work", path, err);
    if (result == 0) result = bind_to(SCRATCH "/tmp", ROOT "/tmp", err);
    if (result < 0) return result;
    static const char *const names[] = {"/workspace", "/sandbox"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s", ROOT, names[i]);
        if (symlink(work, path) < 0 && errno != EEXIST) return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", names[i]);
    }
    return 0;
}

/* Open what the policy checked: anything else than the very same inode is refused. */
static int open_allowed(const struct cell_mount *mount, struct stat *st, struct hc_err *err) {
    char path[32];
    snprintf(path, sizeof path, "/host/%u", mount->host);
    hc_cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, st) < 0) return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "opening what is to be mounted at %s", mount->path);
    if (st->st_dev != mount->device || st->st_ino != mount->inode)
        return hc_fail(err, HC_CLASS_REQUEST, EACCES, "what is to be mounted at %s changed after it was checked", mount->path);
    return HC_TAKE_FD(fd);
}

static int mount_hosts(void *plan, struct hc_err *err) {
    struct build *build = plan;
    for (uint32_t i = 0; i < build->spec->mount_count; i++) {
        const struct cell_mount *mount = &build->mounts[i];
        struct stat st;
        hc_cleanup_fd int fd = open_allowed(mount, &st, err);
        if (fd < 0) return fd;
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s", ROOT, mount->path);
        int result = make_folders(S_ISDIR(st.st_mode) ? path : ROOT, err);
        if (result == 0 && !S_ISDIR(st.st_mode)) {
            char *slash = strrchr(path, '/');
            *slash = '\0';
            result = make_folders(path, err);
            *slash = '/';
            hc_cleanup_fd int file = result < 0 ? -1 : open(path, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
            if (result == 0 && file < 0) result = hc_fail_errno(err, HC_CLASS_REQUEST, errno, "making %s", mount->path);
        }
        if (result < 0) return result;
        hc_cleanup_fd int tree = hc_open_tree(fd, "", HC_OPEN_TREE_CLONE | HC_AT_RECURSIVE | AT_EMPTY_PATH | O_CLOEXEC);
        if (tree < 0) return hc_fail_errno(err, HC_CLASS_HOST, errno, "cloning the mount for %s", mount->path);
        struct hc_mount_attr attr = {.attr_set = HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV |
                                                 (mount->read_only ? HC_MOUNT_ATTR_RDONLY : 0)};
        if (hc_mount_setattr(tree, "", AT_EMPTY_PATH | HC_AT_RECURSIVE, &attr) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "mount attributes of %s", mount->path);
        if (hc_move_mount(tree, "", AT_FDCWD, path, HC_MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "mounting %s", mount->path);
    }
    return 0;
}

static int seal_root(void *plan, struct hc_err *err) {
    struct build *build = plan;
    unsigned attributes = HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV;
    if (!(build->spec->flags & CELL_WRITABLE_ROOT)) attributes |= HC_MOUNT_ATTR_RDONLY;
    return set_attributes(ROOT, attributes, 0, err);
}

static int pivot(void *plan, struct hc_err *err) {
    (void)plan;
    if (chdir(ROOT) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering the root");
    if (hc_pivot_root(".", ".") < 0) return hc_fail_errno(err, HC_CLASS_HOST, errno, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0) return hc_fail_errno(err, HC_CLASS_HOST, errno, "detaching the old root");
    if (chdir("/") < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering /");
    struct stat here, root;
    if (stat(".", &here) < 0 || stat("/", &root) < 0 || here.st_ino != root.st_ino || here.st_dev != root.st_dev)
        return hc_fail(err, HC_CLASS_OURS, EIO, "the working directory is not the new root");
    /* What hides below the mount points of the old root must not show through. */
    if (access("/image", F_OK) == 0 || access("/host", F_OK) == 0)
        return hc_fail(err, HC_CLASS_OURS, EIO, "the old root is still there");
    return 0;
}

static int close_fds(void *plan, struct hc_err *err) {
    struct build *build = plan;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "opening /dev/null");
    for (int fd = 0; fd < 3; fd++)
        if (dup2(null, fd) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "redirecting fd %d", fd);
    int *keep[] = {&build->report, &build->init};
    return child_keep_fds(3, keep, 2, err);
}

static int drop_privileges(void *plan, struct hc_err *err) {
    struct build *build = plan;
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "core limit");
    int result = hc_become(build->uid, build->uid, build->host->may_setgroups, err);
    if (result < 0) return result;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) return hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    return 0;
}

static int exec_init(void *plan, struct hc_err *err) {
    struct build *build = plan;
    char *argv[] = {"hotcell-init", NULL}, *envp[] = {NULL};
    syscall(SYS_execveat, build->init, "", argv, envp, AT_EMPTY_PATH);
    return hc_fail_errno(err, HC_CLASS_OURS, errno, "exec");
}

static const struct child_step steps[] = {
    {"joining the control group", join_group},
    {"waiting for the id maps", wait_for_maps},
    {"naming the cell", own_names},
    {"raising the loopback", raise_loopback},
    {"mounting the scratch space", mount_scratch},
    {"mounting the root", mount_root},
    {"mirroring the host's layout", mirror_top},
    {"mounting /usr", mount_usr},
    {"mounting /etc", mount_etc},
    {"mounting /dev", mount_dev},
    {"mounting /proc", mount_proc},
    {"mounting the working directory", mount_work},
    {"mounting host folders", mount_hosts},
    {"sealing the root", seal_root},
    {"changing the root", pivot},
    {"closing fds", close_fds},
    {"dropping privileges", drop_privileges},
    {"starting init", exec_init},
};

/* ---- the warden's side ---- */

static int write_map(pid_t pid, const char *file, unsigned first, unsigned second, bool many, struct hc_err *err) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    if (many)
        snprintf(text, sizeof text, "0 %u 1\n%d %u 1\n", first, GUEST_UID, second);
    else
        snprintf(text, sizeof text, "%d 0 1\n", GUEST_UID);
    int result = hc_write_file_at(AT_FDCWD, path, text);
    if (result < 0) return hc_fail_errno(err, HC_CLASS_HOST, -result, "writing %s of the cell", file);
    return 0;
}

void cell_init(struct cell *cell) {
    memset(cell, 0, sizeof *cell);
    cgroup_init(&cell->group);
    cell->pidfd = cell->report = -1;
}

static int start_child(const struct cell_host *host, struct cell *cell, int *go, struct hc_err *err) {
    int report[2] = {-1, -1}, gate[2] = {-1, -1};
    if (pipe2(report, O_CLOEXEC) < 0 || pipe2(gate, O_CLOEXEC) < 0) {
        int code = errno;
        hc_close(report[0]);
        hc_close(report[1]);
        return hc_fail_errno(err, HC_CLASS_OURS, code, "making pipes");
    }
    struct build build = {.host = host,
                          .spec = &cell->spec,
                          .mounts = cell->mounts,
                          .group = &cell->group,
                          .go = gate[0],
                          .report = report[1],
                          .init = host->init_fd,
                          .uid = host->many_uids ? 0 : GUEST_UID};
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
    build.net_made = host->spare_net >= 0 && setns(host->spare_net, CLONE_NEWNET) == 0;
    if (!build.net_made) flags |= CLONE_NEWNET;
    cell->pid = hc_clone(flags, cgroup_clone_fd(&cell->group), &cell->pidfd);
    if (cell->pid == 0) {
        close(gate[1]);
        child_run(steps, sizeof steps / sizeof *steps, &build, build.report);
        _exit(125);
    }
    int code = errno;
    hc_close(report[1]);
    hc_close(gate[0]);
    if (cell->pid < 0) {
        hc_close(report[0]);
        hc_close(gate[1]);
        cell->pid = 0;
        return hc_fail_errno(err, HC_CLASS_HOST, code, "cloning into new namespaces");
    }
    cell->report = report[0];
    *go = gate[1];
    return 0;
}

int cell_begin(const struct cell_host *host, const struct cell_spec *spec, const struct cell_mount *mounts, unsigned slot,
               const char *name, struct cell *cell, struct hc_err *err) {
    cell_init(cell);
    cell->spec = *spec;
    if (spec->mount_count) memcpy(cell->mounts, mounts, spec->mount_count * sizeof *mounts);
    cell->slot = slot;
    int result = cgroup_create(&host->cgroups, name, &cell->group, err);
    if (result < 0) return result;
    hc_cleanup_fd int go = -1;
    result = start_child(host, cell, &go, err);
    if (result < 0) {
        cgroup_remove(&host->cgroups, &cell->group);
        return result;
    }
    unsigned first = 1 + 2 * slot;
    result = write_map(cell->pid, "uid_map", first, first + 1, host->many_uids, err);
    if (result == 0) result = write_map(cell->pid, "gid_map", first, first + 1, host->many_uids, err);
    /* Without its byte the child ends by itself, and the warden reaps it like any cell that failed. */
    if (result == 0) result = hc_write_all(go, "g", 1);
    return result;
}

void cell_kill(const struct cell *cell) {
    cgroup_kill(&cell->group);
    if (cell->pidfd >= 0) hc_pidfd_signal(cell->pidfd, SIGKILL);
}
