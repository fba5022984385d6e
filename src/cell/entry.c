/*
 * An entry as data: made from what the warden knows, and the argument block that it comes with. The block is text from
 * outside, and is read only by the process that it is for, as the guest in its cell (or by a zygote that is being born,
 * whose block is the keeper's).
 */
#include "cell/entry.h"

#include "base/fd.h"
#include "cell/archive.h"
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A decimal number of at most six digits, and what comes after it. */
static char *read_count(char *text, const char *end, uint32_t *count)
{
    *count = 0;
    for (int digits = 0; digits < 7 && text < end; digits++, text++) {
        if (*text == '\0')
            return digits ? text + 1 : NULL;
        if (*text < '0' || *text > '9')
            return NULL;
        *count = *count * 10 + (uint32_t)(*text - '0');
    }
    return NULL;
}

/* A process that waits has nobody to carry its state. */
static char *room;

static char *map_anonymous(size_t length, int flags)
{
    char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void entry_make_room(void)
{
    room = map_anonymous(ENTRY_ROOM, MAP_POPULATE);
}

int entry_read_block(int block, struct entry_words *words, struct hc_err *err)
{
    size_t length;
    if (hc_memfd_check(block, &length) < 0 || length == 0)
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "the argument block is not a sealed memory file");
    /* A copy: the kernel shows words of a process (/proc/self/cmdline) only where no file is mapped. */
    char *text = room && length <= ENTRY_ROOM ? HC_TAKE_PTR(room) : map_anonymous(length, 0);
    if (!text || pread(block, text, length, 0) != (ssize_t)length)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "reading the argument block");
    char *at = text, *end = text + length;
    if (end[-1] == '\0' && (at = read_count(at, end, &words->argc)))
        at = read_count(at, end, &words->envc);
    size_t count = (size_t)words->argc + words->envc;
    char **list = at && words->argc && at < end ? calloc(count + 2, sizeof *list) : NULL;
    if (!list)
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "the argument block is not well-formed");
    words->cwd = at;
    words->argv = list;
    words->envp = list + words->argc + 1;
    at += strlen(at) + 1;
    for (size_t i = 0; i < count; i++) {
        if (at >= end)
            return hc_fail(err, HC_CLASS_OURS, EINVAL, "the argument block is short");
        list[i < words->argc ? i : i + 1] = at;
        at += strlen(at) + 1;
    }
    words->end = at;
    return 0;
}

int entry_unpack(int files, const char *folder, struct hc_err *err)
{
    if (chdir(folder) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "entering the working directory");
    return files >= 0 ? archive_unpack(files, err) : 0;
}

/* Whatever the errno, it is a value that does not hold: ENOENT would be a program that is not there. */
int entry_chdir(const char *cwd, struct hc_err *err)
{
    if (chdir(cwd) == 0)
        return 0;
    hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cwd \"%.200s\"", cwd);
    err->code = EINVAL;
    hc_err_field(err, "cwd");
    return hc_err_remedy(err, "make that folder first, or leave cwd out");
}

void entry_make(const struct cell_host *host, const struct cell *cell, const struct cgroup *group,
                const struct cell_job *job, struct entry *entry, struct entry_fds *fds)
{
    entry->kind = job->kind;
    entry->sweep = job->sweep;
    entry->from_root = job->files_from_root;
    entry->resize = job->resize;
    entry->shared = job->shared;
    entry->outside = 0;
    entry->may_setgroups = host->may_setgroups;
    entry->landlock = host->landlock;
    entry->controllers = host->cgroups.controllers;
    entry->limits = job->limits;
    entry->collect_limit = job->collect_limit;
    entry->witness = job->witness;
    entry->spec = cell->spec;
    memcpy(entry->mounts, cell->mounts, cell->spec.mount_count * sizeof *entry->mounts);
    *fds = (struct entry_fds){.cell = cell->pidfd,
                              .stdio = {job->input, job->output, job->error},
                              .block = job->block,
                              .files = job->files,
                              .door = job->door,
                              .report = -1,
                              .witness_door = job->witness ? cell->witness.door : -1,
                              .witness_bell = job->witness ? cell->witness.bell : -1,
                              .built = job->gate >= 0 ? cell->built : -1,
                              .gate = job->gate,
                              .group = *group};
}

bool entry_is_helper(const struct entry *entry)
{
    return entry->kind != CELL_JOB_PROGRAM && entry->kind != CELL_JOB_TERMINAL;
}

int entry_fail_full(struct hc_err *err)
{
    hc_fail(err, HC_CLASS_REQUEST, EAGAIN, "the sandbox has as many processes as limits.pids allows");
    return hc_err_remedy(err, "end some of them, or make a sandbox with more");
}

size_t entry_size(const struct entry *entry)
{
    return offsetof(struct entry, mounts) + entry->spec.mount_count * sizeof *entry->mounts;
}

/* The warden's own dispositions and mask are not the guest's business, nor are those of whoever started hotcell. By the
 * system call: C libraries do not let go of the signals that they use themselves (32 to 34). */
int entry_reset_signals(struct hc_err *err)
{
    const uint64_t standard[4] = {0}; /* struct sigaction as the kernel has it, with SIG_DFL */
    for (int number = 1; number <= 64; number++)
        if (number != SIGKILL && number != SIGSTOP &&
            syscall(SYS_rt_sigaction, number, standard, NULL, sizeof(uint64_t)) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "resetting signal %d", number);
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "signal mask");
    return 0;
}

/* A hard limit that is lower than what is asked for was set by whoever started hotcell, and stays. Of a process that
 * waits in its cell it was set by us, and cannot be raised: then it is not the one for this. */
static int set_limit(pid_t pid, int resource, rlim_t soft, rlim_t hard, struct hc_err *err)
{
    struct rlimit limit = {soft, hard}, old;
    if (prlimit(pid, resource, &limit, &old) == 0)
        return 0;
    if (pid != 0 || errno != EPERM || prlimit(pid, resource, NULL, &old) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "resource limit %d", resource);
    if (limit.rlim_max > old.rlim_max)
        limit.rlim_max = old.rlim_max;
    if (limit.rlim_cur > old.rlim_max)
        limit.rlim_cur = old.rlim_max;
    if (prlimit(pid, resource, &limit, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "resource limit %d", resource);
    return 0;
}

int entry_limit_files(pid_t pid, const struct job_limits *limits, struct hc_err *err)
{
    return set_limit(pid, RLIMIT_NOFILE, limits->files_open, limits->files_open, err);
}

int entry_limits(pid_t pid, const struct job_limits *limits, uint32_t held, struct hc_err *err)
{
    struct {
        int resource;
        rlim_t soft, hard;
    } table[] = {
        {RLIMIT_CORE, 0, 0},
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
        int result = set_limit(pid, table[i].resource, table[i].soft, table[i].hard, err);
        if (result < 0)
            return result;
    }
    return 0;
}

void entry_report_start(int report)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    struct cell_start start = {.time = (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000};
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN}; /* as wait4 will tell of it */
    for (unsigned i = 0; i < 2; i++) {
        struct rusage usage;
        if (getrusage(whose[i], &usage) < 0)
            continue;
        start.user += (uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec;
        start.system += (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec;
    }
    (void)hc_write_all(report, &start, sizeof start); /* whoever reads it has a clock as well */
}
