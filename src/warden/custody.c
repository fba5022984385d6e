/*
 * See custody.h. Theory of operation: the control groups are made; one child is cloned into new user, mount and pid
 * namespaces (and into the warden's leaf of the version 2 tree, without which it could not place jobs); its id maps are
 * written; it builds the image and execs hotcell-warden, which finds its fds by their numbers (proto.h).
 */
#include "warden/custody.h"

#include "base/fd.h"
#include "cell/net.h"
#include "kernel/later.h"
#include "kernel/place.h"
#include "kernel/sys.h"
#include "warden/hosts.h"
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int open_program(const struct custody *custody, const char *name, struct hc_err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", custody->plan->libexec, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    hc_fail_errno(err, HC_CLASS_OURS, errno, "opening %s", path);
    return hc_err_remedy(err, "reinstall hotcell, or set HOTCELL_LIBEXEC to the folder that has it");
}

/* From an fd of a folder one can climb, by "..", to the root of the host. So the warden gets each base as a mount of
 * its own, which has no above. */
static int detach_groups(const struct custody *custody, int *trees, struct hc_err *err)
{
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        char path[PATH_MAX];
        trees[slot] = -1;
        int result = cgroup_base_path(custody->groups, slot, path, sizeof path);
        if (result == 0 && (trees[slot] = hc_open_tree(AT_FDCWD, path, HC_OPEN_TREE_CLONE | O_CLOEXEC)) < 0)
            result = -errno;
        if (result < 0 && result != -ENOENT) /* a part that could not be made is not there: the setup says so */
            return hc_fail_errno(err, HC_CLASS_HOST, -result, "detaching the control group %s", path);
        if (result == 0 && !cgroup_base_is(custody->groups, slot, trees[slot]))
            return hc_fail(err, HC_CLASS_HOST, EIO, "%s is not our control group", path);
    }
    return 0;
}

static int wait_for_keeper(int gate, struct hc_err *err)
{
    char byte;
    return read(gate, &byte, 1) == 1 ? 0 : hc_fail(err, HC_CLASS_OURS, EPIPE, "the keeper went away");
}

/* By their numbers (proto.h), and nothing else. */
static int place_fds(const struct custody *custody, const int *trees, struct hc_err *err)
{
    int wanted[WARDEN_FIRST_FREE_FD + 1];
    for (int fd = 0; fd <= WARDEN_FIRST_FREE_FD; fd++)
        wanted[fd] = -1;
    wanted[WARDEN_CLIENT_FD] = custody->warden;
    wanted[WARDEN_SETUP_FD] = custody->control[1];
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        wanted[WARDEN_CGROUP_FD + slot] = trees[slot];
    wanted[WARDEN_FIRST_FREE_FD] = custody->program;
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

/* A server's keeper stays in the terminal, with the signals and the scheduling that it was started with; nothing of
 * that is for guests. (The keeper of one engine has left all of it itself: keeper.c.) */
static int leave_keeper(struct hc_err *err)
{
    sigset_t none;
    struct sched_param ordinary = {0};
    hc_cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening /dev/null");
    sigemptyset(&none);
    if (setsid() < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "leaving the session");
    personality(PER_LINUX); /* setarch -R would take address randomisation from every guest */
    if (sched_getscheduler(0) != SCHED_OTHER && sched_setscheduler(0, SCHED_OTHER, &ordinary) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "leaving the real-time class");
    return 0;
}

/* In the new namespaces. Returns only when it failed. */
static int become_warden(struct custody *custody, int gate, struct hc_err *err)
{
    int trees[CGROUP_SLOTS];
    struct image_parts parts;
    /* What needs no uid comes before the maps, which the keeper writes meanwhile. */
    int result = image_open(&custody->image, &parts, err);
    if (result == 0)
        result = wait_for_keeper(gate, err);
    if (result < 0)
        return result;
    if (custody->uids.source != UIDS_SINGLE && setgroups(0, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "leaving supplementary groups");
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "becoming root of the user namespace");
    /* The caller's session keyring stays the caller's. A kernel without keyrings has none to inherit. */
    if (syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL) < 0 && errno != ENOSYS)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "leaving the session keyring");
    result = custody->service ? leave_keeper(err) : 0;
    if (result == 0)
        result = image_build(&custody->image, &parts, err);
    if (result == 0) /* the rest of the control groups was made meanwhile */
        result = wait_for_keeper(gate, err);
    if (result == 0)
        result = detach_groups(custody, trees, err);
    if (result == 0)
        result = image_enter(err);
    if (result < 0)
        return result;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    result = place_fds(custody, trees, err);
    if (result < 0)
        return result;
    char *argv[] = {"hotcell-warden", NULL}, *envp[] = {NULL};
    syscall(SYS_execveat, WARDEN_FIRST_FREE_FD, "", argv, envp, AT_EMPTY_PATH);
    return hc_fail_errno(err, HC_CLASS_OURS, errno, "starting hotcell-warden");
}

void custody_report(int socket, const struct hc_err *err)
{
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_HELLO, .err = *err};
    hc_send_fds(socket, &message, sizeof message, NULL, 0);
}

/* What the warden is told and given when it is up: made while it builds its root. */
static int prepare_setup(struct custody *custody, struct hc_err *err)
{
    int result = custody->service ? 0 : hc_later_open(custody->later);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "making a socket");
    custody->init = open_program(custody, "hotcell-init", err);
    return custody->init < 0 ? custody->init : 0;
}

static int send_setup(const struct custody *custody, int spare_net, struct hc_err *err)
{
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_SETUP};
    message.setup.cgroup_mode = custody->cgroups.mode;
    message.setup.cgroup_controllers = custody->cgroups.controllers;
    memcpy(message.setup.cgroup_ready, custody->cgroups.ready, sizeof message.setup.cgroup_ready);
    message.setup.many_uids = custody->uids.count >= 3;
    message.setup.may_setgroups = custody->uids.source != UIDS_SINGLE;
    /* Not an error: what HELLO tells the client about limits that cannot be held here. */
    snprintf(message.err.message, sizeof message.err.message, "%s", custody->cgroups.why);
    snprintf(message.err.remedy, sizeof message.err.remedy, "%s", custody->cgroups.remedy);
    int fds[3] = {custody->init};
    size_t count = 1;
    if (spare_net >= 0)
        fds[count++] = spare_net;
    message.setup.spare_net = spare_net >= 0;
    message.setup.service = custody->service;
    fds[count++] = custody->service ? custody->hosts[1] : custody->later[1];
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        if (custody->cgroups.dir[slot] >= 0)
            message.setup.cgroup_slots |= 1u << slot;
    int result = hc_send_fds(custody->control[0], &message, sizeof message, fds, count);
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

static int clone_warden(struct custody *custody, struct hc_err *err)
{
    int gate[2], pidfd = -1;
    if (pipe2(gate, O_CLOEXEC) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a pipe");
    bool range = custody->uids.source == UIDS_RANGE;
    int result = range ? wear_uid((uid_t)custody->uids.uid_base, err) : 0;
    if (result < 0)
        return result;
    pid_t pid = hc_clone(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, cgroup_warden_fd(custody->groups), &pidfd);
    if (pid == 0) {
        struct hc_err failure = {0};
        close(gate[1]);
        become_warden(custody, gate[0], &failure);
        custody_report(custody->warden, &failure);
        _exit(125);
    }
    int code = errno;
    if (pid > 0) {
        custody->pid = pid;
        if (custody->processors)
            hc_place_elsewhere(pid, custody->processors);
    }
    if (range && seteuid(0) < 0)
        result = hc_fail_errno(err, HC_CLASS_HOST, errno, "becoming root again");
    hc_close(gate[0]);
    if (pid < 0) {
        hc_fail_errno(err, HC_CLASS_HOST, code, "making a user namespace");
        result =
            hc_err_remedy(err, "allow them: sysctl -w user.max_user_namespaces=10000 (and, on some systems, "
                               "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0)");
    }
    if (result == 0)
        result = uids_map(&custody->uids, pid, err);
    if (result == 0)
        result = hc_write_all(gate[1], "g", 1);
    if (result == 0) {
        cgroup_base_complete(&custody->cgroups, custody->groups);
        result = hc_write_all(gate[1], "g", 1);
    }
    hc_close(gate[1]); /* without its bytes the child ends by itself */
    if (result == 0)
        result = prepare_setup(custody, err);
    if (result == 0) {
        /* Its maker has this processor, which is about to have nothing to do, and not the warden's, on which the root
         * is being built. */
        cpu_set_t allowed;
        bool held = !custody->service && hc_place_hold(&allowed);
        hc_cleanup_fd int spare_net = net_make(pidfd);
        if (held)
            hc_place_release(&allowed);
        result = send_setup(custody, spare_net, err);
    }
    hc_close(pidfd);
    return result;
}

static int prepare(struct custody *custody, struct hc_err *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, custody->control) < 0 ||
        (custody->service && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, custody->hosts) < 0))
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    custody->program = open_program(custody, "hotcell-warden", err);
    int result = custody->program < 0 ? custody->program : 0;
    if (result == 0 && !custody->uids_planned)
        result = uids_plan(custody->plan->uid_base, custody->plan->uid_count, &custody->uids, err);
    bool range = custody->uids.source == UIDS_RANGE;
    custody->image = custody->plan->image;
    custody->image.cache_fd = -1;
    /* In a service each cell gets a mount of its own, with its own uids, when it is made. */
    if (range && custody->service)
        custody->image.host_count = 0;
    if (result == 0 && range && custody->image.host_count && custody->image.host_count <= CELL_MAX_HOSTS) {
        result = hosts_open(&custody->image, &custody->uids, custody->host_fds, err);
        custody->image.host_fds = custody->host_fds;
    }
    if (result == 0 && range && custody->image.cache) {           /* its folders may be closed to the warden's uid */
        struct hc_mount_attr alone = {.propagation = MS_PRIVATE}; /* see hosts.c */
        custody->image.cache_fd = hc_open_tree(AT_FDCWD, custody->image.cache, HC_OPEN_TREE_CLONE | O_CLOEXEC);
        if (custody->image.cache_fd < 0 || hc_mount_setattr(custody->image.cache_fd, "", AT_EMPTY_PATH, &alone) < 0)
            result = hc_fail_errno(err, HC_CLASS_HOST, errno, "opening %s", custody->image.cache);
    }
    if (result < 0)
        return result;
    return cgroup_base_open(&custody->cgroups, range ? (uid_t)custody->uids.uid_base : (uid_t)-1,
                            range ? (gid_t)custody->uids.gid_base : (gid_t)-1, &custody->groups, err);
}

void custody_init(struct custody *custody, const struct keeper_plan *plan)
{
    *custody = (struct custody){.plan = plan,
                                .warden = -1,
                                .control = {-1, -1},
                                .hosts = {-1, -1},
                                .later = {-1, -1},
                                .program = -1,
                                .init = -1};
    custody->uids.lock = -1;
    for (int i = 0; i < CELL_MAX_HOSTS; i++)
        custody->host_fds[i] = -1;
    cgroup_base_init(&custody->cgroups);
}

static void close_pair(int *pair, int index)
{
    pair[index] = hc_close(pair[index]);
}

int custody_start(struct custody *custody, int socket, struct hc_err *err)
{
    custody->warden = socket;
    int result = prepare(custody, err);
    if (result == 0)
        result = clone_warden(custody, err);
    /* From here on only the warden and its client hold what is theirs, so that each sees the other go. */
    close_pair(custody->control, 1);
    close_pair(custody->hosts, 1);
    close_pair(custody->later, 1);
    custody->program = hc_close(custody->program);
    custody->init = hc_close(custody->init);
    for (int i = 0; i < CELL_MAX_HOSTS; i++)
        custody->host_fds[i] = hc_close(custody->host_fds[i]);
    if (custody->image.cache)
        custody->image.cache_fd = hc_close(custody->image.cache_fd);
    if (result < 0) /* a warden that waits for what it will not get ends by this */
        close_pair(custody->control, 0);
    else
        cgroup_base_clear_stale(custody->groups); /* nobody waits for us now */
    return result;
}

int custody_give_client(struct custody *custody, int socket)
{
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_CLIENT};
    return hc_send_fds(custody->control[0], &message, sizeof message, &socket, 1);
}

int custody_map(const struct custody *custody, int tree, uint32_t slot, struct hc_err *err)
{
    return hosts_map(tree, CUSTODY_STORED_UID, CUSTODY_STORED_UID, &custody->uids, slot, err);
}

static int open_volume(const struct custody *custody, const struct warden_message *question, struct hc_err *err)
{
    hc_cleanup_fd int tree = custody->volume(custody->volume_data, question->host, err);
    if (tree < 0)
        return tree;
    int result = custody_map(custody, tree, question->slot, err);
    return result < 0 ? result : HC_TAKE_FD(tree);
}

int custody_answer(struct custody *custody)
{
    struct warden_message message;
    size_t count = 0;
    ssize_t size = hc_recv_fds(custody->hosts[0], &message, sizeof message, NULL, 0, &count);
    if (size == -EAGAIN || size == -EINTR)
        return 0;
    if (size != (ssize_t)sizeof message || message.type != WARDEN_HOST_WANTED)
        return -EPIPE;
    struct warden_message answer = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_HOST_WANTED};
    const struct image_plan *image = &custody->plan->image;
    hc_cleanup_fd int tree = -1;
    if (message.host >= CELL_FIRST_VOLUME && custody->volume)
        tree = open_volume(custody, &message, &answer.err);
    else if (message.host >= image->host_count)
        hc_fail(&answer.err, HC_CLASS_OURS, EPROTO, "there is no host folder %u", message.host);
    else
        tree = hosts_open_one(image->host[message.host], image->host_writable[message.host], &custody->uids,
                              message.slot, &answer.err);
    return hc_send_fds(custody->hosts[0], &answer, sizeof answer, &tree, tree >= 0 ? 1 : 0);
}

void custody_let_go(struct custody *custody)
{
    close_pair(custody->control, 0);
    close_pair(custody->hosts, 0);
}

void custody_see_out(struct custody *custody)
{
    char byte;
    while (recv(custody->control[0], &byte, 1, 0) < 0 && errno == EINTR)
        continue;
    cgroup_base_empty(&custody->cgroups, custody->groups);
    if (custody->pid > 0)
        while (waitpid(custody->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
}

void custody_clear(struct custody *custody)
{
    custody_let_go(custody);
    cgroup_base_close(&custody->cgroups, custody->groups);
    if (!custody->uids_planned)
        custody->uids.lock = hc_close(custody->uids.lock);
    custody->groups = NULL;
    custody->pid = 0;
    if (custody->later[0] >= 0)
        hc_later_release(custody->later[0]);
    custody->later[0] = -1;
}
