/*
 * The keeper: theory of operation.
 *
 * keeper_start forks. The child is the keeper: in a session of its own, so that a terminal's Ctrl-C is for the client
 * alone, and with none of the client's fds. It makes the control groups and clones one child into new user, mount and
 * pid namespaces (and into the warden's leaf of the version 2 tree, without which it could not place jobs); writes that
 * child's id maps; and the child builds the image and execs hotcell-warden. Then the keeper waits. The warden ends when
 * its client's socket closes, and with it every cell; the keeper removes the control groups and ends too. So whoever is
 * killed, there is somebody left to clear up; and if nobody is, the next keeper does it.
 */
#include "warden/keeper.h"

#include "base/fd.h"
#include "cell/net.h"
#include "kernel/cgroup.h"
#include "kernel/sys.h"
#include "warden/hosts.h"
#include "warden/uids.h"
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct start {
    const struct keeper_plan *plan;
    struct uid_plan uids;
    struct cgroup_base cgroups;
    struct cgroup_keeper *groups;
    int client, warden; /* the two ends of the socket */
    int setup[2];       /* the keeper's own word to the warden: ours, its */
    int program, init;  /* hotcell-warden, hotcell-init */
    struct image_plan image;
    int hosts[CELL_MAX_HOSTS];
};

static int open_programs(struct start *start, struct hc_err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/hotcell-warden", start->plan->libexec);
    start->program = open(path, O_RDONLY | O_CLOEXEC);
    if (start->program >= 0) {
        snprintf(path, sizeof path, "%s/hotcell-init", start->plan->libexec);
        start->init = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (start->init < 0) {
        hc_fail_errno(err, HC_CLASS_OURS, errno, "opening %s", path);
        return hc_err_remedy(err, "reinstall hotcell, or set HOTCELL_LIBEXEC to the folder that has it");
    }
    return 0;
}

/* From an fd of a folder one can climb, by "..", to the root of the host. So the warden gets each base as a mount of
 * its own, which has no above. */
static int detach_groups(const struct start *start, int *trees, struct hc_err *err)
{
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        trees[slot] = -1;
        if (start->cgroups.dir[slot] < 0)
            continue;
        char link[32], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", start->cgroups.dir[slot]);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length < 0 ? 0 : length] = '\0';
        trees[slot] = hc_open_tree(AT_FDCWD, path, HC_OPEN_TREE_CLONE | O_CLOEXEC);
        struct stat here, there;
        if (trees[slot] < 0 || fstat(trees[slot], &here) < 0 || fstat(start->cgroups.dir[slot], &there) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "detaching the control group %s", path);
        if (here.st_dev != there.st_dev || here.st_ino != there.st_ino)
            return hc_fail(err, HC_CLASS_HOST, EIO, "%s is not our control group", path);
    }
    return 0;
}

/* By their numbers (proto.h), and nothing else. */
static int place_fds(const struct start *start, const int *trees, struct hc_err *err)
{
    int wanted[WARDEN_FIRST_FREE_FD + 1];
    for (int fd = 0; fd <= WARDEN_FIRST_FREE_FD; fd++)
        wanted[fd] = -1;
    wanted[WARDEN_CLIENT_FD] = start->warden;
    wanted[WARDEN_SETUP_FD] = start->setup[1];
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        wanted[WARDEN_CGROUP_FD + slot] = trees[slot];
    wanted[WARDEN_FIRST_FREE_FD] = start->program;
    for (int fd = 3; fd <= WARDEN_FIRST_FREE_FD; fd++) /* out of each other's way first */
        if (wanted[fd] >= 0 && (wanted[fd] = fcntl(wanted[fd], F_DUPFD_CLOEXEC, WARDEN_FIRST_FREE_FD + 1)) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "moving fds");
    for (int fd = 3; fd <= WARDEN_FIRST_FREE_FD; fd++) {
        if (wanted[fd] < 0)
            close(fd);
        else if (dup3(wanted[fd], fd, fd == WARDEN_FIRST_FREE_FD ? O_CLOEXEC : 0) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "placing fds");
    }
    if (hc_close_range(WARDEN_FIRST_FREE_FD + 1, ~0U, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "closing fds");
    return 0;
}

/* In the new namespaces. Returns only when it failed. */
static int become_warden(struct start *start, int gate, struct hc_err *err)
{
    char byte;
    if (read(gate, &byte, 1) != 1)
        return hc_fail(err, HC_CLASS_OURS, EPIPE, "the keeper went away");
    if (start->uids.source != UIDS_SINGLE && setgroups(0, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "leaving supplementary groups");
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "becoming root of the user namespace");
    /* The caller's session keyring stays the caller's. A kernel without keyrings has none to inherit. */
    if (syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL) < 0 && errno != ENOSYS)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "leaving the session keyring");
    int trees[CGROUP_SLOTS];
    int result = detach_groups(start, trees, err);
    if (result == 0)
        result = image_build(&start->image, err);
    if (result < 0)
        return result;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    result = place_fds(start, trees, err);
    if (result < 0)
        return result;
    char *argv[] = {"hotcell-warden", NULL}, *envp[] = {NULL};
    syscall(SYS_execveat, WARDEN_FIRST_FREE_FD, "", argv, envp, AT_EMPTY_PATH);
    return hc_fail_errno(err, HC_CLASS_OURS, errno, "starting hotcell-warden");
}

static void report(int socket, const struct hc_err *err)
{
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_HELLO, .err = *err};
    hc_send_fds(socket, &message, sizeof message, NULL, 0);
}

static int send_setup(const struct start *start, int spare_net, struct hc_err *err)
{
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_SETUP};
    message.setup.cgroup_mode = start->cgroups.mode;
    message.setup.cgroup_controllers = start->cgroups.controllers;
    message.setup.many_uids = start->uids.count >= 3;
    message.setup.may_setgroups = start->uids.source != UIDS_SINGLE;
    /* Not an error: what HELLO tells the client about limits that cannot be held here. */
    snprintf(message.err.message, sizeof message.err.message, "%s", start->cgroups.why);
    snprintf(message.err.remedy, sizeof message.err.remedy, "%s", start->cgroups.remedy);
    int fds[2] = {start->init};
    size_t count = 1;
    if (spare_net >= 0)
        fds[count++] = spare_net;
    message.setup.spare_net = spare_net >= 0;
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        if (start->cgroups.dir[slot] >= 0)
            message.setup.cgroup_slots |= 1u << slot;
    int result = hc_send_fds(start->setup[0], &message, sizeof message, fds, count);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "sending the warden its setup");
    return 0;
}

/* The kernel counts what a user namespace uses (inotify instances, pending signals, keys, …) against whoever made it.
 * That must not be the host's root, whose share a guest could use up: it is made as the warden's own uid. The
 * capabilities are kept, because some systems let only root make user namespaces, and because the control group is
 * root's to place a process in. */
static int wear_uid(uid_t uid, struct hc_err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    if (seteuid(uid) < 0 || syscall(SYS_capget, &header, sets) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "becoming uid %u for a moment", (unsigned)uid);
    for (int i = 0; i < 2; i++)
        sets[i].effective = sets[i].permitted;
    if (syscall(SYS_capset, &header, sets) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "keeping capabilities");
    return 0;
}

static int clone_warden(struct start *start, pid_t *pid, struct hc_err *err)
{
    int gate[2], pidfd = -1;
    if (pipe2(gate, O_CLOEXEC) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a pipe");
    bool range = start->uids.source == UIDS_RANGE;
    int result = range ? wear_uid((uid_t)start->uids.uid_base, err) : 0;
    if (result < 0)
        return result;
    *pid = hc_clone(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, cgroup_warden_fd(start->groups), &pidfd);
    if (*pid == 0) {
        struct hc_err failure = {0};
        close(gate[1]);
        become_warden(start, gate[0], &failure);
        report(start->warden, &failure);
        _exit(125);
    }
    int code = errno;
    if (range && seteuid(0) < 0)
        result = hc_fail_errno(err, HC_CLASS_HOST, errno, "becoming root again");
    hc_close(gate[0]);
    if (*pid < 0) {
        hc_fail_errno(err, HC_CLASS_HOST, code, "making a user namespace");
        result =
            hc_err_remedy(err, "allow them: sysctl -w user.max_user_namespaces=10000 (and, on some systems, "
                               "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0)");
    }
    if (result == 0)
        result = uids_map(&start->uids, *pid, err);
    if (result == 0)
        result = hc_write_all(gate[1], "g", 1);
    hc_close(gate[1]); /* without its byte the child ends by itself */
    if (result == 0) {
        hc_cleanup_fd int spare_net = net_make(pidfd);
        result = send_setup(start, spare_net, err);
    }
    hc_close(pidfd);
    return result;
}

static int prepare(struct start *start, struct hc_err *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, start->setup) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    int result = open_programs(start, err);
    if (result == 0)
        result = uids_plan(start->plan->uid_base, start->plan->uid_count, &start->uids, err);
    bool range = start->uids.source == UIDS_RANGE;
    start->image = start->plan->image;
    if (result == 0 && range && start->image.host_count && start->image.host_count <= CELL_MAX_HOSTS) {
        result = hosts_open(&start->image, &start->uids, start->hosts, err);
        start->image.host_fds = start->hosts;
    }
    if (result < 0)
        return result;
    return cgroup_base_open(&start->cgroups, range ? (uid_t)start->uids.uid_base : (uid_t)-1,
                            range ? (gid_t)start->uids.gid_base : (gid_t)-1, &start->groups, err);
}

/* Nothing of the client's: not its terminal, its pipes, its signals. */
static void leave_client(struct start *start)
{
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    int ends[2] = {fcntl(start->client, F_DUPFD_CLOEXEC, 5), fcntl(start->warden, F_DUPFD_CLOEXEC, 5)};
    start->client = dup3(ends[0], 3, O_CLOEXEC);
    start->warden = dup3(ends[1], 4, O_CLOEXEC);
    hc_close_range(5, ~0U, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);             /* what is made for guests must be theirs to enter */
    personality(PER_LINUX); /* not the caller's: setarch -R would take address randomisation from every guest */
    /* A caller's real-time priority is not for guests, nor can such a process join a CPU group. */
    struct sched_param ordinary = {0};
    if (sched_getscheduler(0) != SCHED_OTHER)
        sched_setscheduler(0, SCHED_OTHER, &ordinary);
    if (chdir("/") < 0)
        _exit(125);
}

static _Noreturn void keep(struct start *start)
{
    struct hc_err err = {0};
    pid_t pid = 0;
    leave_client(start);
    int result = prepare(start, &err);
    if (result == 0)
        result = clone_warden(start, &pid, &err);
    if (result < 0)
        report(start->warden, &err);
    /* From here on only the warden and the client hold the socket, so that each sees the other go. */
    hc_close(start->client);
    hc_close(start->warden);
    hc_close(start->setup[0]);
    hc_close(start->setup[1]);
    if (pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    cgroup_base_close(&start->cgroups, start->groups);
    _exit(0);
}

int keeper_start(const struct keeper_plan *plan, struct keeper *keeper, struct hc_err *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    struct start start = {
        .plan = plan, .client = ends[0], .warden = ends[1], .setup = {-1, -1}, .program = -1, .init = -1};
    cgroup_base_init(&start.cgroups);
    keeper->pid = fork();
    if (keeper->pid == 0)
        keep(&start);
    int code = errno;
    hc_close(ends[1]);
    if (keeper->pid < 0) {
        hc_close(ends[0]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "starting the keeper");
    }
    keeper->socket = ends[0];
    return 0;
}

void keeper_stop(struct keeper *keeper)
{
    keeper->socket = hc_close(keeper->socket);
    if (keeper->pid > 0)
        while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    keeper->pid = 0;
}

uint64_t keeper_uid_range(const struct keeper_plan *plan, char *text, size_t size)
{
    struct uid_plan uids;
    struct hc_err err = {0};
    if (uids_plan(plan->uid_base, plan->uid_count, &uids, &err) < 0) {
        snprintf(text, size, "%s", err.message);
        return 0;
    }
    static const char *const sources[] = {"a range of our own", "from /etc/subuid",
                                          "only your own uid: guests and pid 1 of a cell share it"};
    if (uids.source == UIDS_SINGLE)
        snprintf(text, size, "%s", sources[uids.source]);
    else
        snprintf(text, size, "%llu uids from %llu, %s", (unsigned long long)uids.count,
                 (unsigned long long)uids.uid_base, sources[uids.source]);
    hc_close(uids.lock);
    return uids.count;
}
