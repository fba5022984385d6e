/*
 * Building a cell: theory of operation.
 *
 * The warden makes the cell's control group and writes nothing to it yet, then clones one child into all new namespaces
 * (and, where there is version 2, into the group). The child waits until the warden has written its uid and gid maps.
 * Then it is root in the cell's user namespace, and carries out the list of steps below, each of which must succeed.
 * The last one execs hotcell-init, as pid 1 of the cell, without capabilities; the pipe to the warden closes by that
 * exec, which says that the cell is ready.
 *
 * The cgroup namespace is unshared by the child and not by the clone: clone3 would root it at the warden's group. The
 * network namespace, which is most of what a clone costs, may have been made beforehand (net.c): then the warden steps
 * into it and the cell inherits it. It belongs to the warden's user namespace in that case, so that the cell has even
 * less to say about it. The warden stays there, for it may not go back to the host's; it has no socket of that network,
 * and every later cell gets a namespace of its own by its clone.
 */
#include "cell/build.h"

#include "base/fd.h"
#include "cell/child.h"
#include "cell/net.h"
#include "kernel/caps.h"
#include "kernel/place.h"
#include "kernel/sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int join_group(void *plan, struct hc_err *err)
{
    return cgroup_join(((struct build *)plan)->group, err);
}

static int wait_for_maps(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    char byte;
    ssize_t count;
    do
        count = read(build->go, &byte, 1);
    while (count < 0 && errno == EINTR);
    if (count != 1)
        return hc_fail(err, HC_CLASS_OURS, EPIPE, "the warden went away");
    if (setresgid(build->uid, build->uid, build->uid) < 0 || setresuid(build->uid, build->uid, build->uid) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "becoming uid %u", (unsigned)build->uid);
    return 0;
}

static int own_names(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    if (unshare(CLONE_NEWCGROUP) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "cgroup namespace");
    if (sethostname(build->spec->hostname, strlen(build->spec->hostname)) < 0 || setdomainname("", 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "hostname");
    return 0;
}

static int raise_loopback(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    return build->net_made ? 0 : net_raise_loopback(err);
}

/* A job may have come early. It is told that it can enter the namespaces, which in a cell with a root of its own is
 * when that root is in place; and that the file system is whole. The third and last word is pid 1's. */
static int tell_job(const struct build *build, const char *bytes, struct hc_err *err)
{
    int result = hc_write_all(build->built, bytes, strlen(bytes));
    return result < 0 ? hc_fail_errno(err, HC_CLASS_OURS, -result, "telling the first job") : 0;
}

static int say_named(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    return build->own_root ? 0 : tell_job(build, "n", err);
}

static int say_built(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    return tell_job(build, build->own_root ? "nb" : "b", err);
}

static int close_fds(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "opening /dev/null");
    for (int fd = 0; fd < 3; fd++)
        if (dup2(null, fd) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "redirecting fd %d", fd);
    /* WITNESS_DOOR_FD and so on, to INIT_LOOKUPS_FD */
    int *keep[] = {&build->report,       &build->init,  &build->witness.door, &build->witness.bell,
                   &build->witness.book, &build->built, &build->lookups};
    enum { KEPT = sizeof keep / sizeof *keep };
    int result = child_keep_fds(3, keep, KEPT, err);
    for (int i = 2; i < KEPT && result == 0; i++)
        if (*keep[i] >= 0 && fcntl(*keep[i], F_SETFD, 0) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "keeping an fd");
    return result;
}

static int drop_privileges(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "core limit");
    int result = hc_become(build->uid, build->uid, build->host->may_setgroups, err);
    if (result < 0)
        return result;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    return 0;
}

static int exec_init(void *plan, struct hc_err *err)
{
    struct build *build = plan;
    char *argv[] = {"hotcell-init", NULL}, *envp[] = {NULL};
    syscall(SYS_execveat, build->init, "", argv, envp, AT_EMPTY_PATH);
    return hc_fail_errno(err, HC_CLASS_OURS, errno, "exec");
}

/* What needs no uid comes before the maps, which the warden writes meanwhile. */
static const struct child_step steps[] = {
    {"joining the control group", join_group},
    {"naming the cell", own_names},
    {"saying so", say_named},
    {"raising the loopback", raise_loopback},
    {"mounting /proc", mounts_proc_early},
    {"waiting for the id maps", wait_for_maps},
    {"mounting the scratch space", mounts_scratch},
    {"mounting the root", mounts_root},
    {"mirroring the host's layout", mounts_top},
    {"mounting /usr", mounts_usr},
    {"mounting /etc", mounts_etc},
    {"mounting /dev", mounts_dev},
    {"mounting /proc", mounts_proc},
    {"mounting the working directory", mounts_work},
    {"mounting host folders", mounts_hosts},
    {"sealing the root", mounts_seal},
    {"changing the root", mounts_pivot},
    {"saying so", say_built},
    {"closing fds", close_fds},
    {"dropping privileges", drop_privileges},
    {"starting init", exec_init},
};

/* ---- the warden's side ---- */

static int write_map(pid_t pid, const char *file, unsigned first, unsigned second, bool many, struct hc_err *err)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    if (many)
        snprintf(text, sizeof text, "0 %u 1\n%d %u 1\n", first, GUEST_UID, second);
    else
        snprintf(text, sizeof text, "%d 0 1\n", GUEST_UID);
    int result = hc_write_file_at(AT_FDCWD, path, text);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "writing %s of the cell", file);
    return 0;
}

void cell_init(struct cell *cell)
{
    memset(cell, 0, sizeof *cell);
    cgroup_init(&cell->group);
    cell->pidfd = cell->report = cell->built = -1;
    witness_init(&cell->witness);
}

static void close_pair(const int *pair)
{
    hc_close(pair[0]);
    hc_close(pair[1]);
}

static int start_child(const struct cell_host *host, struct cell *cell, int door, const struct cell_parts *parts,
                       int *go, struct hc_err *err)
{
    int report[2] = {-1, -1}, gate[2] = {-1, -1}, built[2] = {-1, -1};
    if (pipe2(report, O_CLOEXEC) < 0 || pipe2(gate, O_CLOEXEC) < 0 || pipe2(built, O_CLOEXEC) < 0) {
        int code = errno;
        close_pair(report);
        close_pair(gate);
        return hc_fail_errno(err, HC_CLASS_OURS, code, "making pipes");
    }
    struct build build = {.host = host,
                          .spec = &cell->spec,
                          .mounts = cell->mounts,
                          .trees = parts->trees,
                          .group = &cell->group,
                          .go = gate[0],
                          .report = report[1],
                          .built = built[1],
                          .init = host->init_fd,
                          .lookups = parts->lookups,
                          .witness = {door, cell->witness.bell, cell->witness.book},
                          .uid = host->many_uids ? 0 : GUEST_UID};
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
    build.own_root = cell->spec.flags & CELL_WRITABLE_ROOT || cell->spec.mount_count ||
                     strcmp(cell->spec.work_dir, "/workspace") != 0;
    build.net_made = host->spare_net >= 0 && setns(host->spare_net, CLONE_NEWNET) == 0;
    if (!build.net_made)
        flags |= CLONE_NEWNET;
    cell->pid = hc_clone(flags, cgroup_clone_fd(&cell->group), &cell->pidfd);
    if (cell->pid == 0) {
        close(gate[1]);
        child_run(steps, sizeof steps / sizeof *steps, &build, &build.report);
        _exit(125);
    }
    int code = errno;
    if (cell->pid > 0 && !host->many_cells) { /* a server builds ahead, and nobody waits */
        cpu_set_t allowed;
        hc_place_note(&allowed);
        hc_place_elsewhere(cell->pid, &allowed);
    }
    hc_close(report[1]);
    hc_close(gate[0]);
    hc_close(built[1]);
    if (cell->pid < 0) {
        hc_close(report[0]);
        hc_close(gate[1]);
        hc_close(built[0]);
        cell->pid = 0;
        return hc_fail_errno(err, HC_CLASS_HOST, code, "cloning into new namespaces");
    }
    cell->report = report[0];
    cell->built = built[0];
    *go = gate[1];
    return 0;
}

int cell_begin(const struct cell_host *host, const struct cell_spec *spec, const struct cell_parts *parts,
               unsigned slot, const char *name, struct cell *cell, struct hc_err *err)
{
    cell_init(cell);
    cell->spec = *spec;
    if (spec->mount_count)
        memcpy(cell->mounts, parts->mounts, spec->mount_count * sizeof *parts->mounts);
    cell->slot = slot;
    int result = cgroup_create(&host->cgroups, name, &cell->group, err);
    if (result < 0)
        return result;
    hc_cleanup_fd int go = -1, door = -1;
    if (host->witness)
        result = witness_make(&cell->witness, &door, err);
    if (result == 0)
        result = start_child(host, cell, door, parts, &go, err);
    if (result < 0) {
        witness_close(&cell->witness);
        cgroup_remove(&host->cgroups, &cell->group);
        return result;
    }
    unsigned first = 1 + 2 * slot;
    result = write_map(cell->pid, "uid_map", first, first + 1, host->many_uids, err);
    if (result == 0)
        result = write_map(cell->pid, "gid_map", first, first + 1, host->many_uids, err);
    /* Without its byte the child ends by itself, and the warden reaps it like any cell that failed. */
    if (result == 0)
        result = hc_write_all(go, "g", 1);
    return result;
}

void cell_kill(const struct cell *cell)
{
    if (cell->pidfd >= 0) /* first: pid 1 may be dying on another processor while the group's file is opened */
        hc_pidfd_signal(cell->pidfd, SIGKILL);
    cgroup_kill(&cell->group);
}

/* The pidfd tells only when the pid namespace is empty (pid_namespaces(7)), and that may take a while: before it the
 * kernel's flags of the process do (the ninth field of /proc/PID/stat, PF_EXITING). */
bool cell_is_ending(const struct cell *cell)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)cell->pid);
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (count <= 0)
        return false;
    text[count] = '\0';
    const char *rest = strrchr(text, ')');          /* after its name, which is any text, */
    for (int field = 2; rest && field < 9; field++) /* and before the ninth */
        rest = strchr(rest + 1, ' ');
    return rest && (strtoul(rest, NULL, 10) & 0x4 /* PF_EXITING */);
}
