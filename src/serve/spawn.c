/*
 * The gateway's process: a uid and namespaces of its own, a root in which there is /usr to run from, the state folder
 * and the languages, and nothing else; no network but the sockets that it is given; no privileges and no way to any.
 * What it may call and open is narrowed further by itself (gateway/seal.c), once it has read what it needs.
 */
#include "serve/internal.h"

#include "base/fd.h"
#include "cell/child.h"
#include "cell/place.h"
#include "kernel/caps.h"
#include "kernel/sys.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT "/tmp" /* where the new root is put together; hidden by it, in our own namespace */

enum { SEALED = HC_MOUNT_ATTR_RDONLY | HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV };

struct birth {
    const struct spawn *spawn;
    int control, program, report;
    int trees[SERVE_MAX_LANGUAGES + 3]; /* state, /usr, /proc/self, languages: opened before ROOT is covered */
};

/* Without privileges a user namespace gives the others; its one uid is ours. */
static int own_namespaces(void *plan, struct hc_err *err)
{
    struct birth *birth = plan;
    int flags = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(flags | (birth->spawn->uid ? 0 : CLONE_NEWUSER)) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making namespaces");
    if (birth->spawn->uid)
        return 0;
    char text[64];
    snprintf(text, sizeof text, "%u %u 1\n", (unsigned)uid, (unsigned)uid);
    int result = hc_write_file_at(AT_FDCWD, "/proc/self/setgroups", "deny");
    if (result == 0)
        result = hc_write_file_at(AT_FDCWD, "/proc/self/uid_map", text);
    snprintf(text, sizeof text, "%u %u 1\n", (unsigned)gid, (unsigned)gid);
    if (result == 0)
        result = hc_write_file_at(AT_FDCWD, "/proc/self/gid_map", text);
    return result < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -result, "mapping the own uid") : 0;
}

static int open_parts(void *plan, struct hc_err *err)
{
    struct birth *birth = plan;
    const struct words *languages = birth->spawn->languages;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making mounts private");
    const char *paths[SERVE_MAX_LANGUAGES + 3] = {birth->spawn->state->folder, "/usr", "/proc/self"};
    for (size_t i = 0; i < languages->count; i++)
        paths[3 + i] = languages->item[i];
    for (size_t i = 0; i < 3 + languages->count; i++) {
        birth->trees[i] = hc_open_tree(AT_FDCWD, paths[i], HC_OPEN_TREE_CLONE | HC_AT_RECURSIVE | O_CLOEXEC);
        if (birth->trees[i] < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening %s", paths[i]);
    }
    return 0;
}

static int place_tree(int tree, const char *path, unsigned attributes, struct hc_err *err)
{
    if (hc_move_mount(tree, "", AT_FDCWD, path, HC_MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "placing %s", path);
    return place_attributes(path, attributes, HC_AT_RECURSIVE, err);
}

/* /bin, /lib … as on the host: links into /usr, without which no program finds its loader. */
static int place_links(struct hc_err *err)
{
    static const char *const names[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char from[32], to[64], target[256];
        snprintf(from, sizeof from, "/%s", names[i]);
        snprintf(to, sizeof to, ROOT "/%s", names[i]);
        ssize_t length = readlink(from, target, sizeof target - 1);
        int result = 0;
        if (length > 0) {
            target[length] = '\0';
            result = symlink(target, to) < 0 ? hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", to) : 0;
        } else if (errno == EINVAL) {
            result = place_folder(to, 0755, err);
            if (result == 0)
                result = place_bind(from, to, err);
            if (result == 0)
                result = place_attributes(to, SEALED, HC_AT_RECURSIVE, err);
        }
        if (result < 0)
            return result;
    }
    return 0;
}

/* The stdin of runs that have none. */
static int place_null(struct hc_err *err)
{
    hc_cleanup_fd int fd = open(ROOT "/dev/null", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making /dev/null");
    return place_bind("/dev/null", ROOT "/dev/null", err);
}

/* Where Debian's links from /usr/bin to the chosen tool pass: without it they seem broken. */
static int place_alternatives(struct hc_err *err)
{
    static const char path[] = "/etc/alternatives";
    if (access(path, F_OK) < 0)
        return 0;
    int result = place_folder(ROOT "/etc", 0755, err);
    if (result == 0)
        result = place_folder(ROOT "/etc/alternatives", 0755, err);
    if (result == 0)
        result = place_bind(path, ROOT "/etc/alternatives", err);
    return result < 0 ? result : place_attributes(ROOT "/etc/alternatives", SEALED, HC_AT_RECURSIVE, err);
}

/* What is prepared for compilers is the keeper's alone, also where the gateway has no uid of its own. */
static int seal_caches(struct hc_err *err)
{
    static const char path[] = ROOT SERVE_STATE "/cache";
    if (access(path, F_OK) < 0)
        return 0;
    int result = place_bind(path, path, err);
    return result < 0 ? result : place_attributes(path, SEALED, 0, err);
}

static int build_root(void *plan, struct hc_err *err)
{
    struct birth *birth = plan;
    static const char *const folders[] = {ROOT "/usr",  ROOT SERVE_STATE,  ROOT SERVE_LANGUAGES,
                                          ROOT "/proc", ROOT "/proc/self", ROOT "/dev"};
    int result = 0;
    if (mount("hotcell", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m,nr_inodes=64") < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "mounting a tmpfs");
    for (size_t i = 0; i < sizeof folders / sizeof *folders && result == 0; i++)
        result = place_folder(folders[i], 0755, err);
    if (result == 0)
        result = place_links(err);
    if (result == 0)
        result = place_tree(birth->trees[0], ROOT SERVE_STATE,
                            HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV | HC_MOUNT_ATTR_NOEXEC, err);
    if (result == 0)
        result = seal_caches(err);
    if (result == 0)
        result = place_tree(birth->trees[1], ROOT "/usr", SEALED, err);
    if (result == 0)
        result = place_tree(birth->trees[2], ROOT "/proc/self", SEALED, err);
    if (result == 0)
        result = place_null(err);
    if (result == 0)
        result = place_alternatives(err);
    for (size_t i = 0; i < birth->spawn->languages->count && result == 0; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s%s/%zu", ROOT, SERVE_LANGUAGES, i);
        result = place_folder(path, 0755, err);
        if (result == 0)
            result = place_tree(birth->trees[3 + i], path, SEALED, err);
    }
    return result;
}

static int enter_root(void *plan, struct hc_err *err)
{
    (void)plan;
    if (chdir(ROOT) < 0 || hc_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "changing the root");
    return place_attributes("/", SEALED, 0, err);
}

/* Its own stdin and stdout are nothing; stderr is where it logs. */
static int keep_fds(void *plan, struct hc_err *err)
{
    struct birth *birth = plan;
    int *keep[] = {&birth->control, &birth->program, &birth->report};
    int result = child_keep_fds(SERVE_CONTROL_FD, keep, 3, err);
    if (result < 0)
        return result;
    if (fcntl(birth->control, F_SETFD, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "keeping the control socket");
    return 0;
}

static int drop_privileges(void *plan, struct hc_err *err)
{
    struct birth *birth = plan;
    struct rlimit none = {0, 0};
    bool own = birth->spawn->uid != 0;
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "core limit");
    int result = hc_become(own ? birth->spawn->uid : geteuid(), own ? birth->spawn->gid : getegid(), own, err);
    if (result == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        result = hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    return result;
}

static int exec_gateway(void *plan, struct hc_err *err)
{
    struct birth *birth = plan;
    char languages[64];
    snprintf(languages, sizeof languages, "HOTCELL_LANGUAGES=" SERVE_LANGUAGES "/%zu",
             birth->spawn->languages->count - 1);
    char *argv[] = {"hotcell-gateway", NULL};
    char *envp[] = {languages, "PATH=/usr/bin:/bin", "GLIBC_TUNABLES=glibc.malloc.tcache_count=64", NULL};
    syscall(SYS_execveat, birth->program, "", argv, envp, AT_EMPTY_PATH);
    return hc_fail_errno(err, HC_CLASS_OURS, errno, "exec");
}

static const struct child_step steps[] = {
    {"making namespaces", own_namespaces},
    {"opening what it needs", open_parts},
    {"building its root", build_root},
    {"changing the root", enter_root},
    {"closing fds", keep_fds},
    {"dropping privileges", drop_privileges},
    {"starting hotcell-gateway", exec_gateway},
};

static void leave_terminal(void)
{
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, 0);
        dup2(null, 1);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

int spawn_gateway(const struct spawn *spawn, int control, pid_t *pid, int *pidfd, struct hc_err *err)
{
    char path[PATH_MAX];
    int report[2];
    snprintf(path, sizeof path, "%s/hotcell-gateway", spawn->libexec);
    hc_cleanup_fd int program = open(path, O_RDONLY | O_CLOEXEC);
    if (program < 0) {
        hc_fail_errno(err, HC_CLASS_OURS, errno, "opening %s", path);
        return hc_err_remedy(err, "reinstall hotcell, or set HOTCELL_LIBEXEC to the folder that has it");
    }
    if (pipe2(report, O_CLOEXEC) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a pipe");
    *pid = hc_clone(0, -1, pidfd);
    if (*pid == 0) {
        struct birth birth = {.spawn = spawn, .control = control, .program = program, .report = report[1]};
        leave_terminal();
        child_run(steps, sizeof steps / sizeof *steps, &birth, &birth.report);
        _exit(125);
    }
    int code = errno;
    hc_close(report[1]);
    if (*pid < 0) {
        hc_close(report[0]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "starting the gateway");
    }
    struct hc_err failure;
    ssize_t count = hc_read_full(report[0], &failure, sizeof failure);
    hc_close(report[0]);
    if (count == 0)
        return 0;
    if (count == (ssize_t)sizeof failure)
        *err = failure;
    else
        hc_fail(err, HC_CLASS_OURS, EIO, "the gateway died before it began");
    hc_err_context(err, "starting the gateway");
    return -err->code;
}
