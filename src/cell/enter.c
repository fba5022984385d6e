/*
 * Entering a cell: theory of operation.
 *
 * A process cannot move into a pid namespace; only its children can be born there. So the warden sets the namespace for
 * its next child, forks once, and sets it back. The child is thus in the cell's pid namespace, with the warden as its
 * parent (which therefore learns its end from the kernel), and in the job's version 2 group. Everything else it does to
 * itself, in the order of the list below: it joins the version 1 groups while it still may, then the cell's other
 * namespaces, closes every fd that is not the job's, sets limits, becomes the guest, and puts Landlock and, last, the
 * system call filter in force. Only then does it open what the client sent (arguments, files): by then it is the guest,
 * and can do no more than the guest could.
 *
 * The child holds a copy of the warden's memory until it execs. There is no secret in it, and nobody can look: a
 * process that changed its uid is not dumpable.
 */
#include "cell/cell.h"

#include "base/fd.h"
#include "cell/archive.h"
#include "cell/child.h"
#include "kernel/caps.h"
#include "kernel/landlock.h"
#include "kernel/seccomp.h"
#include "kernel/sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct enter {
    const struct cell_host *host;
    const struct cell *cell;
    const struct cgroup *group;
    struct cell_job job;
    int report;
    char *cwd, **argv, **envp; /* in the mapped argument block */
};

static int join_group(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    /* When the whole machine runs out of memory, guests go first. The value is inherited. */
    int result = hc_write_file_at(AT_FDCWD, "/proc/self/oom_score_adj", "500");
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "oom_score_adj");
    return cgroup_join(enter->group, err);
}

static int join_namespaces(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    if (setns(enter->cell->pidfd, flags) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "setns");
    if (getpid() == 1)
        return hc_fail(err, HC_CLASS_OURS, EIO, "the job became pid 1");
    return 0;
}

static int place_fds(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int stdio[] = {enter->job.input, enter->job.output, enter->job.error};
    for (int i = 0; i < 3; i++) { /* above 2 first: one of them may be 0, 1 or 2 already */
        stdio[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 3);
        if (stdio[i] < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "moving stdio");
    }
    for (int i = 0; i < 3; i++)
        if (dup2(stdio[i], i) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "placing fd %d", i);
    int *keep[] = {&enter->report, &enter->job.block, &enter->job.files};
    return child_keep_fds(3, keep, 3, err);
}

static int set_limits(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    const struct job_limits *limits = &enter->job.limits;
    uint32_t held = enter->host->cgroups.controllers;
    struct {
        int resource;
        rlim_t soft, hard;
    } table[] = {
        {RLIMIT_CORE, 0, 0},
        {RLIMIT_NOFILE, limits->files_open, limits->files_open},
        {RLIMIT_FSIZE, limits->file_size, limits->file_size},
        {RLIMIT_STACK, 8 << 20, 64 << 20},
        {RLIMIT_MEMLOCK, 64 << 10, 64 << 10},
        {RLIMIT_MSGQUEUE, 64 << 10, 64 << 10},
        {RLIMIT_SIGPENDING, 1024, 1024},
        {RLIMIT_RTPRIO, 0, 0},
        {RLIMIT_NICE, 0, 0},
        /* Without the controllers these are what is left: per process, and not proof of anything. The result says so.
         */
        {held & CGROUP_HAS_MEMORY ? -1 : (int)RLIMIT_DATA, limits->memory, limits->memory},
        {held & CGROUP_HAS_PIDS ? -1 : (int)RLIMIT_NPROC, limits->pids, limits->pids},
        {limits->cpu_time && !(held & CGROUP_HAS_CPU) ? (int)RLIMIT_CPU : -1, (limits->cpu_time + 999999) / 1000000,
         (limits->cpu_time + 999999) / 1000000 + 1},
    };
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].resource < 0)
            continue;
        struct rlimit limit = {table[i].soft, table[i].hard}, old;
        if (getrlimit(table[i].resource, &old) == 0 && old.rlim_max < limit.rlim_max) { /* lower than asked is fine */
            limit.rlim_max = old.rlim_max;
            if (limit.rlim_cur > old.rlim_max)
                limit.rlim_cur = old.rlim_max;
        }
        if (setrlimit(table[i].resource, &limit) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "resource limit %d", table[i].resource);
    }
    umask(022);
    if (getpriority(PRIO_PROCESS, 0) < 0 &&
        setpriority(PRIO_PROCESS, 0, 0) < 0) /* a favoured caller's guests are not favoured */
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "setpriority");
    if (setsid() < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "setsid");
    return 0;
}

/* The warden's own dispositions and mask are not the guest's business. */
static int reset_signals(void *plan, struct hc_err *err)
{
    (void)plan;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int number = 1; number < 65; number++)
        if (number != SIGKILL && number != SIGSTOP)
            sigaction(number, &standard, NULL);
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "signal mask");
    return 0;
}

static int become_guest(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int result = hc_become(GUEST_UID, GUEST_UID, enter->host->may_setgroups, err);
    if (result < 0)
        return result;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    return 0;
}

static int restrict_files(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    if (!enter->host->landlock)
        return 0; /* stated in the isolation level, and refused unless allowed */
    const struct cell_spec *spec = &enter->cell->spec;
    bool writable = spec->flags & CELL_WRITABLE_ROOT;
    struct landlock_path paths[8 + CELL_MAX_MOUNTS] = {
        {"/", writable ? LANDLOCK_WRITE : LANDLOCK_READ},
        {spec->work_dir, LANDLOCK_WRITE},
        {"/tmp", LANDLOCK_WRITE},
        {"/dev", LANDLOCK_DEVICE},
        {"/dev/shm", LANDLOCK_WRITE},
        {"/proc", LANDLOCK_DEVICE},
    };
    size_t count = 6;
    for (uint32_t i = 0; i < spec->mount_count; i++)
        if (!enter->cell->mounts[i].read_only)
            paths[count++] = (struct landlock_path){enter->cell->mounts[i].path, LANDLOCK_WRITE};
    return hc_landlock_restrict(paths, count, err);
}

static int filter_calls(void *plan, struct hc_err *err)
{
    (void)plan;
    return hc_seccomp_load(err);
}

static int sweep_cell(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    /* Everyone but pid 1 and ourselves. A fork under way meets the pending signal and does not happen. */
    if (enter->job.sweep && kill(-1, SIGKILL) < 0 && errno != ESRCH)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "ending earlier processes");
    return 0;
}

static int read_block(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    size_t length;
    if (hc_memfd_check(enter->job.block, &length) < 0 || length == 0)
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "the argument block is not a sealed memory file");
    char *text = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, enter->job.block, 0);
    if (text == MAP_FAILED)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "mapping the argument block");
    size_t words = (size_t)enter->job.argc + enter->job.envc;
    char **list = calloc(words + 2, sizeof *list);
    if (!list || enter->job.argc == 0 || text[length - 1] != '\0')
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "the argument block is not well-formed");
    enter->cwd = text;
    char *at = text + strlen(text) + 1, *end = text + length;
    enter->argv = list;
    enter->envp = list + enter->job.argc + 1;
    for (size_t i = 0; i < words; i++) {
        if (at >= end)
            return hc_fail(err, HC_CLASS_OURS, EINVAL, "the argument block is short");
        list[i < enter->job.argc ? i : i + 1] = at;
        at += strlen(at) + 1;
    }
    return 0;
}

static int unpack_files(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    if (chdir(enter->cell->spec.work_dir) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering the working directory");
    if (enter->job.files >= 0) {
        int result = archive_unpack(enter->job.files, err);
        if (result < 0)
            return result;
    }
    if (chdir(enter->cwd) < 0) {
        hc_fail_errno(err, HC_CLASS_REQUEST, errno, "entering %s", enter->cwd);
        return hc_err_field(err, "cwd");
    }
    return 0;
}

/* ---- exec, as a shell would find it ---- */

static void try_exec(struct enter *enter, const char *path)
{
    execve(path, enter->argv, enter->envp);
    if (errno != ENOEXEC)
        return;
    /* A script without a first line that says what runs it: a shell does. */
    char **list = calloc(enter->job.argc + 2, sizeof *list);
    if (!list)
        return;
    list[0] = "sh";
    list[1] = (char *)path;
    for (uint32_t i = 1; i < enter->job.argc; i++)
        list[i + 1] = enter->argv[i];
    execve("/bin/sh", list, enter->envp);
    errno = ENOEXEC;
}

static int search_path(struct enter *enter, const char *name)
{
    const char *path = "/usr/local/bin:/usr/bin:/bin";
    for (char **env = enter->envp; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            path = *env + 5;
    int code = ENOENT;
    while (*path) {
        size_t length = strcspn(path, ":");
        char full[4096];
        int size = snprintf(full, sizeof full, "%.*s/%s", length ? (int)length : 1, length ? path : ".", name);
        if (size > 0 && (size_t)size < sizeof full) {
            try_exec(enter, full);
            if (errno != ENOENT && errno != ENOTDIR)
                code = errno;
        }
        path += length + (path[length] == ':');
    }
    return code;
}

static int exec_program(struct enter *enter, struct hc_err *err)
{
    const char *name = enter->argv[0];
    int code = ENOENT;
    if (strchr(name, '/')) {
        try_exec(enter, name);
        code = errno;
    } else if (*name) {
        code = search_path(enter, name);
    }
    const char *what = code == ENOENT   ? "no such program in the cell"
                       : code == EACCES ? "not executable in the cell"
                                        : strerror(code);
    return hc_fail(err, HC_CLASS_PROGRAM, code, "%s: %s", name, what);
}

static int run_job(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    if (enter->job.kind == CELL_JOB_PROGRAM)
        return exec_program(enter, err);
    int result = archive_collect(1, enter->argv, enter->job.argc, enter->job.collect_limit, err);
    if (result < 0)
        return result;
    _exit(0);
}

static const struct child_step steps[] = {
    {"joining the control group", join_group},
    {"entering the cell", join_namespaces},
    {"placing fds", place_fds},
    {"setting limits", set_limits},
    {"resetting signals", reset_signals},
    {"becoming the guest", become_guest},
    {"restricting files", restrict_files},
    {"filtering system calls", filter_calls},
    {"sweeping the cell", sweep_cell},
    {"reading arguments", read_block},
    {"unpacking files", unpack_files},
};

int cell_enter(const struct cell_host *host, const struct cell *cell, const struct cgroup *group,
               const struct cell_job *job, pid_t *pid, int *pidfd, int *report, struct hc_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a pipe");
    struct enter enter = {.host = host, .cell = cell, .group = group, .job = *job, .report = ends[1]};
    if (setns(cell->pidfd, CLONE_NEWPID) < 0) {
        int code = errno;
        hc_close(ends[0]);
        hc_close(ends[1]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "choosing the cell's pid namespace");
    }
    *pid = hc_clone(0, cgroup_clone_fd(group), pidfd);
    if (*pid == 0) {
        struct hc_err failure = {0};
        child_run(steps, sizeof steps / sizeof *steps, &enter, enter.report);
        run_job(&enter, &failure);
        child_die(enter.report, &failure);
    }
    int code = errno;
    hc_close(ends[1]);
    /* A warden whose children are born in a guest's namespace is of no more use: it must not go on. */
    if (setns(host->pid_namespace, CLONE_NEWPID) < 0)
        _exit(125);
    if (*pid < 0) {
        hc_close(ends[0]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "starting a process in the cell");
    }
    *report = ends[0];
    return 0;
}
