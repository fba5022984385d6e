/*
 * Entering a cell: theory of operation.
 *
 * A process cannot move into a pid namespace; only its children can be born there. So the warden sets the namespace for
 * its next child, forks once, and sets it back. The child is thus in the cell's pid namespace, with the warden as its
 * parent (which therefore learns its end from the kernel), and in the job's version 2 group. Everything else it does to
 * itself, in the order of the list below: it joins the version 1 groups while it still may, closes every fd that is not
 * the job's, sets limits, enters the cell's other namespaces, becomes the guest, and puts Landlock and, last, the
 * system call filter in force. Only then does it open what the client sent (arguments, files): by then it is the guest,
 * and can do no more than the guest could.
 *
 * The first job of a cell that nobody had ready is forked while the cell is being built, so that two processors have
 * something to do. It waits, each time for a byte: before it enters, until the cell's namespaces are there (the builder
 * says so; sooner it would find the warden's control group namespace in place of the cell's); as the guest, before it
 * restricts itself to files, until all of them are mounted; and, sealed, before it opens what the client sent, until
 * the limits are in force (the warden says so) and pid 1 runs (pid 1 does). Whoever ought to say so and dies has closed
 * its end of a pipe, and the job ends.
 *
 * The child holds a copy of the warden's memory until it execs. There is no secret in it, and nobody can look: a
 * process that changed its uid is not dumpable.
 */
#include "cell/entry.h"

#include "base/fd.h"
#include "cell/child.h"
#include "kernel/caps.h"
#include "kernel/landlock.h"
#include "kernel/seccomp.h"
#include "kernel/sys.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct enter {
    const struct entry *entry;
    struct entry_fds *fds;
    struct entry_words *words;
    void (*before)(const struct entry *entry); /* or NULL */
};

static int join_group(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    /* When the whole machine runs out of memory, guests go first. The value is inherited. */
    int result = hc_write_file_at(AT_FDCWD, "/proc/self/oom_score_adj", "500");
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "oom_score_adj");
    result = cgroup_join(&enter->fds->group, err);
    if (result == 0 && enter->entry->outside)
        result = cgroup_join_full(&enter->fds->group, err);
    if (result < 0 || entry_is_helper(enter->entry) || !enter->entry->shared || !cgroup_crowded(&enter->fds->group))
        return result;
    return entry_fail_full(err);
}

static int join_namespaces(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    if (setns(enter->fds->cell, flags) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "setns");
    if (getpid() == 1)
        return hc_fail(err, HC_CLASS_OURS, EIO, "the job became pid 1");
    enter->fds->cell = hc_close(enter->fds->cell);
    return 0;
}

static int wait_for_byte(int fd, const char *otherwise, struct hc_err *err)
{
    char byte;
    if (fd >= 0 && hc_read_full(fd, &byte, 1) != 1)
        return hc_fail(err, HC_CLASS_OURS, EPIPE, "%s", otherwise);
    return 0;
}

static int wait_for_namespaces(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    return wait_for_byte(enter->fds->built, "the cell was not built", err);
}

static int wait_for_builder(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    return wait_for_byte(enter->fds->built, "the cell was not built", err);
}

static int wait_for_limits(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int result = wait_for_byte(enter->fds->gate, "its limits could not be set", err);
    enter->fds->gate = hc_close(enter->fds->gate);
    return result;
}

static int wait_for_init(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int result = wait_for_byte(enter->fds->built, "pid 1 of the cell did not start", err);
    enter->fds->built = hc_close(enter->fds->built);
    return result;
}

/* A cell from the pool was built for an ordinary disk. Its scratch space belongs to its own user namespace, in which we
 * are root for the moment. */
static int resize_scratch(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    if (!enter->entry->resize)
        return 0;
    const struct cell_spec *spec = &enter->entry->spec;
    char options[96];
    snprintf(options, sizeof options, "size=%" PRIu64 ",nr_inodes=%" PRIu64, spec->disk, spec->inodes + 8);
    if (mount(NULL, "/tmp", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, options) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "tmpfs");
    return 0;
}

/* A private devpts, when the first terminal comes: before that there is nothing of terminals in a cell. */
static int mount_terminals(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    if (enter->entry->kind != CELL_JOB_TERMINAL || access("/dev/pts/ptmx", F_OK) == 0)
        return 0;
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64") < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "devpts");
    return 0;
}

static int place_fds(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int stdio[3];
    memcpy(stdio, enter->fds->stdio, sizeof stdio);
    for (int i = 0; i < 3; i++) { /* above 2 first: one of them may be 0, 1 or 2 already */
        stdio[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 3);
        if (stdio[i] < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "moving stdio");
    }
    for (int i = 0; i < 3; i++)
        if (dup2(stdio[i], i) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "placing fd %d", i);
    struct entry_fds *fds = enter->fds;
    int *keep[] = {&fds->door, &fds->report, &fds->block, &fds->files, /* the door is fd 3 */
                   &fds->cell, &fds->built,  &fds->gate,  &fds->witness_door, &fds->witness_bell};
    int result = child_keep_fds(3, keep, sizeof keep / sizeof *keep, err);
    cgroup_init(&fds->group); /* closed as well */
    return result;
}

static int set_limits(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int result = entry_limits(0, &enter->entry->limits, enter->entry->controllers, err);
    if (result < 0)
        return result;
    umask(022);
    if (getpriority(PRIO_PROCESS, 0) < 0 &&
        setpriority(PRIO_PROCESS, 0, 0) < 0) /* a favoured caller's guests are not favoured */
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "setpriority");
    if (setsid() < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "setsid");
    return 0;
}

static int reset_signals(void *plan, struct hc_err *err)
{
    (void)plan;
    return entry_reset_signals(err);
}

static int become_guest(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    int result = hc_become(GUEST_UID, GUEST_UID, enter->entry->may_setgroups, err);
    if (result < 0)
        return result;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    return 0;
}

static int restrict_files(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    if (!enter->entry->landlock)
        return 0; /* stated in the isolation level, and refused unless allowed */
    const struct cell_spec *spec = &enter->entry->spec;
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
        if (!enter->entry->mounts[i].read_only)
            paths[count++] = (struct landlock_path){enter->entry->mounts[i].path, LANDLOCK_WRITE};
    return hc_landlock_restrict(paths, count, !enter->entry->shared, err);
}

static int filter_calls(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    struct entry_fds *fds = enter->fds;
    if (!enter->entry->witness)
        return hc_seccomp_load(err);
    /* Last words are of programs that have waited at a door for what they were to do, in a cell that is never frozen.
     */
    bool may_speak = fds->door >= 0 && !enter->entry->shared;
    int listener = may_speak ? hc_seccomp_load_reporting(SECCOMP_WAIT_FIRM, NULL) : -1;
    pid_t speaker = listener >= 0 ? getpid() : 0;
    if (listener < 0 && (listener = hc_seccomp_load_reporting(SECCOMP_WAIT_ANY, err)) < 0)
        return listener;
    return witness_hand(HC_TAKE_FD(fds->witness_door), HC_TAKE_FD(fds->witness_bell), listener, enter->entry->witness,
                        speaker, err);
}

/* After the listener has been sent: the kernel refuses a message with fds to a user who has more of them on the way
 * than this limit says, and what a sandbox's earlier programs have on the way must not keep later ones from starting.
 */
static int limit_files(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    return entry_limit_files(0, &enter->entry->limits, err);
}

static int do_before(void *plan, struct hc_err *err)
{
    (void)err;
    struct enter *enter = plan;
    if (enter->before)
        enter->before(enter->entry);
    return 0;
}

static int sweep_cell(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    /* Everyone but pid 1 and ourselves. A fork under way meets the pending signal and does not happen. Landlock comes
     * after it: from inside a domain of our own the others could not be signalled, and kill(2) would not say so. */
    if (enter->entry->sweep && kill(-1, SIGKILL) < 0 && errno != ESRCH)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "ending earlier processes");
    return 0;
}

static int read_block(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    return entry_read_block(enter->fds->block, enter->words, err);
}

static int unpack_files(void *plan, struct hc_err *err)
{
    struct enter *enter = plan;
    const char *folder = enter->entry->from_root ? "/" : enter->entry->spec.work_dir;
    int result = entry_unpack(enter->fds->files, folder, err);
    enter->fds->files = hc_close(enter->fds->files);
    return result;
}

static int enter_cwd(void *plan, struct hc_err *err)
{
    return entry_chdir(((struct enter *)plan)->words->cwd, err);
}

/* ---- exec, as a shell would find it ---- */

static void try_exec(const struct entry_words *words, const char *path)
{
    execve(path, words->argv, words->envp);
    if (errno != ENOEXEC)
        return;
    /* A script without a first line that says what runs it: a shell does. */
    char **list = calloc(words->argc + 2, sizeof *list);
    if (!list)
        return;
    list[0] = "sh";
    list[1] = (char *)path;
    for (uint32_t i = 1; i < words->argc; i++)
        list[i + 1] = words->argv[i];
    execve("/bin/sh", list, words->envp);
    errno = ENOEXEC;
}

static int search_path(const struct entry_words *words, const char *name)
{
    const char *path = "/usr/local/bin:/usr/bin:/bin";
    for (char **env = words->envp; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            path = *env + 5;
    int code = ENOENT;
    while (*path) {
        size_t length = strcspn(path, ":");
        char full[4096];
        int size = snprintf(full, sizeof full, "%.*s/%s", length ? (int)length : 1, length ? path : ".", name);
        if (size > 0 && (size_t)size < sizeof full) {
            try_exec(words, full);
            if (errno != ENOENT && errno != ENOTDIR)
                code = errno;
        }
        path += length + (path[length] == ':');
    }
    return code;
}

int entry_exec(const struct entry_words *words, struct hc_err *err)
{
    const char *name = words->argv[0];
    int code = ENOENT;
    if (strchr(name, '/')) {
        try_exec(words, name);
        code = errno;
    } else if (*name) {
        code = search_path(words, name);
    }
    bool there = code == ENOENT && strchr(name, '/') && access(name, F_OK) == 0;
    const char *what = there            ? "the interpreter that it names is not in the cell"
                       : code == ENOENT ? "no such program in the cell"
                       : code == EACCES ? "not executable in the cell"
                                        : strerror(code);
    return hc_fail(err, HC_CLASS_PROGRAM, code, "%s: %s", name, what);
}

static const struct child_step steps[] = {
    {"joining the control group", join_group},
    {"placing fds", place_fds},
    {"setting limits", set_limits},
    {"resetting signals", reset_signals},
    {"waiting for the cell's namespaces", wait_for_namespaces},
    {"entering the cell", join_namespaces},
    {"sizing the scratch space", resize_scratch}, /* this and the next: never of a job that comes early */
    {"mounting terminals", mount_terminals},
    {"becoming the guest", become_guest},
    {"waiting for the cell's file system", wait_for_builder},
    {"sweeping the cell", sweep_cell},
    {"restricting files", restrict_files},
    {"preparing", do_before},
    {"filtering system calls", filter_calls},
    {"limiting open files", limit_files},
    {"waiting for its limits", wait_for_limits},
    {"reading arguments", read_block},
    {"unpacking files", unpack_files},
    {"entering the working directory", enter_cwd},
    {"waiting for pid 1", wait_for_init},
};

void entry_seal(const struct entry *entry, struct entry_fds *fds, struct entry_words *words,
                void (*before)(const struct entry *entry))
{
    struct enter enter = {.entry = entry, .fds = fds, .words = words, .before = before};
    child_run(steps, sizeof steps / sizeof *steps, &enter, &fds->report);
}
