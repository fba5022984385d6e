/*
 * One job: from the fork that enters the cell to the facts about its end. Every fact is the kernel's: the exit status
 * comes from waitid on the pidfd, the counters from the job's own control group. Why it was ended is what the warden
 * itself decided, or a counter that rose.
 */
#include "base/fd.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { OOM_CHECKS = 100, OOM_CHECK_US = 2000, CPU_CHECK_LEAST_US = 2000 };

struct held_job *job_new(struct held_cell *cell, uint64_t id, const struct job_spec *spec, int *fds, size_t count)
{
    struct held_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->cell = cell;
    job->id = id;
    job->spec = *spec;
    job->pidfd = job->report = job->oom = -1;
    for (size_t i = 0; i < 5; i++)
        job->fds[i] = i < count ? HC_TAKE_FD(fds[i]) : -1;
    job->next = cell->jobs;
    cell->jobs = job;
    return job;
}

static void close_fds(struct held_job *job)
{
    for (size_t i = 0; i < 5; i++)
        job->fds[i] = hc_close(job->fds[i]);
}

static void job_free(struct held_job *job)
{
    for (struct held_job **at = &job->cell->jobs; *at; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            break;
        }
    hc_watch_remove(job->report_watch);
    hc_watch_remove(job->exit_watch);
    hc_watch_remove(job->oom_watch);
    hc_timer_remove(job->deadline);
    hc_timer_remove(job->cpu_timer);
    hc_timer_remove(job->oom_timer);
    hc_close(job->pidfd);
    hc_close(job->report);
    hc_close(job->oom);
    close_fds(job);
    free(job);
}

void job_refuse(struct held_job *job, const struct hc_err *err)
{
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = job->cell->id, .job = job->id, .err = *err};
    message.facts.end = JOB_NOT_STARTED;
    message.facts.exit_code = -1;
    warden_say(job->cell->warden, &message);
    job_free(job);
}

void job_end(struct held_job *job, enum job_end reason)
{
    if (job->end == JOB_EXITED)
        job->end = reason;
    cell_kill(&job->cell->cell);
    if (job->group && job->group != &job->cell->cell.group)
        cgroup_kill(job->group);
}

/* ---- facts ---- */

static uint64_t microseconds(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

static uint64_t less(uint64_t value, uint64_t other)
{
    return value > other ? value - other : 0;
}

static void gather(struct held_job *job, const siginfo_t *info, const struct rusage *usage, struct job_facts *facts)
{
    const struct cgroup_base *base = &job->cell->warden->host.cgroups;
    struct cgroup_stats stats;
    cgroup_stats(base, job->group, &stats);
    facts->wall = hc_now() - (job->exec_at ? job->exec_at : job->begun);
    facts->started_at = job->exec_at;
    facts->exit_code = info->si_code == CLD_EXITED ? info->si_status : -1;
    facts->signal = info->si_code == CLD_EXITED ? 0 : info->si_status;
    facts->cpu = microseconds(&usage->ru_utime) + microseconds(&usage->ru_stime);
    facts->user = microseconds(&usage->ru_utime);
    facts->system = microseconds(&usage->ru_stime);
    facts->memory_peak = (uint64_t)usage->ru_maxrss * 1024;
    if (stats.counted & CGROUP_HAS_CPU) {
        facts->counted |= ISOLATION_CPU;
        facts->cpu = less(stats.cpu, job->before.cpu);
        facts->user = less(stats.user, job->before.user);
        facts->system = less(stats.system, job->before.system);
    }
    facts->cpu_throttled = less(stats.throttled, job->before.throttled);
    if (stats.counted & CGROUP_HAS_MEMORY) {
        facts->counted |= ISOLATION_MEMORY;
        facts->memory_peak = stats.memory_peak;
    }
    if (stats.counted & CGROUP_HAS_PIDS) {
        facts->counted |= ISOLATION_PIDS;
        /* The first group holds pid 1 of the cell as well, which is ours. */
        facts->pids_peak = less(stats.pids_peak, job->group == &job->cell->cell.group ? 1 : 0);
    }
    /* Without a controller RLIMIT_CPU stands in, for each process: the signal is its, and wait4 says that the time was
     * used. */
    uint64_t cpu_time = job->spec.limits.cpu_time;
    if (cpu_time && !(base->controllers & CGROUP_HAS_CPU) && job->end == JOB_EXITED &&
        facts->cpu + 200000 >= cpu_time && (facts->signal == SIGXCPU || facts->signal == SIGKILL))
        job->end = JOB_CPU_TIME;
    facts->oom_kills = stats.oom_kills;
    facts->pids_denied = stats.pids_denied;
    /* Proven by the counter, also when the process that the kernel chose was not the main one. */
    facts->end = job->end == JOB_EXITED && stats.oom_kills ? JOB_OUT_OF_MEMORY : job->end;
}

/* ---- events ---- */

/* The child's pipe: end of file when it has exec'ed, an error when it could not. */
static void read_report(struct held_job *job)
{
    if (job->report < 0)
        return;
    struct hc_err err;
    ssize_t count = hc_read_full(job->report, &err, sizeof err);
    if (count == (ssize_t)sizeof err && err.code > 0) {
        err.field[sizeof err.field - 1] = err.message[sizeof err.message - 1] = err.remedy[sizeof err.remedy - 1] =
            '\0';
        job->err = err;
    } else if (count == 0 && job->spec.kind == JOB_PROGRAM) {
        job->exec_at = hc_now();
    }
    hc_watch_remove(job->report_watch);
    job->report_watch = NULL;
    job->report = hc_close(job->report);
}

static void on_deadline(struct hc_loop *loop, void *data);

static void on_report(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)fd, (void)events;
    struct held_job *job = data;
    read_report(job);
    if (job->err.code)
        return; /* its end follows at once */
    if (job->deadline &&
        job->exec_at) { /* the program has its whole time: entering the cell and unpacking files was ours */
        hc_timer_remove(job->deadline);
        job->deadline = hc_loop_timer(loop, job->exec_at + job->spec.limits.wall, on_deadline, job);
        if (!job->deadline)
            job_end(job, JOB_TIMED_OUT);
    }
    struct warden_message message = {.type = WARDEN_JOB_STARTED, .cell = job->cell->id, .job = job->id};
    message.facts.started_at = job->exec_at;
    warden_say(job->cell->warden, &message);
}

static void on_job_exit(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct held_job *job = data;
    siginfo_t info = {0};
    struct rusage usage = {0};
    if (syscall(SYS_waitid, 3 /* P_PIDFD */, fd, &info, WEXITED | WNOHANG, &usage) < 0 || info.si_pid == 0)
        return;
    read_report(job);
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = job->cell->id, .job = job->id};
    gather(job, &info, &usage, &message.facts);
    if (job->err.code) {
        message.err = job->err;
        message.facts.end = JOB_NOT_STARTED;
    } else if (job->spec.kind == JOB_PROGRAM && !job->exec_at && message.facts.end == JOB_EXITED) {
        hc_fail(&message.err, HC_CLASS_OURS, EIO, "the job ended before its program started");
        message.facts.end = JOB_NOT_STARTED;
    }
    struct held_cell *cell = job->cell;
    bool last = job->spec.last;
    message.job_spec.last = last;
    message.job_spec.final = job->spec.final;
    warden_say(cell->warden, &message);
    if (job->spec.final)
        _exit(0); /* as pid 1: the kernel ends the cell, and our parent hears of us when nothing is left of it */
    job_free(job);
    if (last)
        supervise_destroy(cell->warden, cell->id);
    else
        supervise_check_gone(cell);
}

static void on_deadline(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct held_job *job = data;
    job->deadline = NULL;
    job_end(job, JOB_TIMED_OUT);
}

/* CPU time of the whole job, not of one process: look, and look again no sooner than it could be used up. */
static void on_cpu_timer(struct hc_loop *loop, void *data)
{
    struct held_job *job = data;
    job->cpu_timer = NULL;
    struct cgroup_stats stats = {0};
    cgroup_cpu(&job->cell->warden->host.cgroups, job->group, &stats);
    uint64_t used = less(stats.cpu, job->before.cpu), limit = job->spec.limits.cpu_time;
    if (used >= limit) {
        job_end(job, JOB_CPU_TIME);
        return;
    }
    uint64_t milli = job->spec.limits.cpu_milli;
    if (!milli)
        milli = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) * 1000;
    uint64_t wait = (limit - used) * 1000 / milli;
    if (wait < CPU_CHECK_LEAST_US)
        wait = CPU_CHECK_LEAST_US;
    job->cpu_timer = hc_loop_timer(loop, hc_now() + wait, on_cpu_timer, job);
    if (!job->cpu_timer)
        job_end(job, JOB_CPU_TIME);
}

/* Version 1 says "out of memory" before it has chosen whom to end, and ends one process only: wait for the counter,
 * then end the rest. */
static void on_oom_timer(struct hc_loop *loop, void *data)
{
    struct held_job *job = data;
    job->oom_timer = NULL;
    struct cgroup_stats stats;
    cgroup_stats(&job->cell->warden->host.cgroups, job->group, &stats);
    if (stats.oom_kills)
        job_end(job, JOB_OUT_OF_MEMORY);
    else if (++job->oom_checks < OOM_CHECKS)
        job->oom_timer = hc_loop_timer(loop, hc_now() + OOM_CHECK_US, on_oom_timer, job);
}

static void on_oom(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)events;
    struct held_job *job = data;
    uint64_t count;
    if (read(fd, &count, sizeof count) != sizeof count)
        return;
    job->oom_checks = 0;
    if (!job->oom_timer)
        on_oom_timer(loop, job);
}

/* ---- start ---- */

static int choose_group(struct held_job *job, struct hc_err *err)
{
    struct held_cell *cell = job->cell;
    const struct cgroup_base *base = &cell->warden->host.cgroups;
    struct cgroup_limits limits = {.memory = job->spec.limits.memory,
                                   .swap = job->spec.limits.swap,
                                   .cpu_milli = job->spec.limits.cpu_milli,
                                   .cpu_shares = job->spec.limits.cpu_shares,
                                   .pids = job->spec.limits.pids};
    if (!cell->used) {
        cell->used = true;
        job->group = &cell->cell.group;
        limits.pids++; /* pid 1 of the cell is in there */
    } else {
        if (cell->spare_count == CELL_MAX_JOBS)
            return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "too many jobs in one cell");
        struct cgroup *group = &cell->spare[cell->spare_count];
        char name[32];
        snprintf(name, sizeof name, "%.20s.%u", cell->cell.group.name, cell->spare_count + 1);
        int result = cgroup_create(base, name, group, err);
        if (result < 0)
            return result;
        cell->spare_count++;
        job->group = group;
    }
    int result = cgroup_limit(base, job->group, &limits, err);
    if (result == 0 && job->spec.final) /* alone in its base, which is what competes with other hotcells */
        result = cgroup_weigh(base, limits.cpu_shares, err);
    if (result < 0)
        return result;
    if (job->group == &cell->cell.group) /* its builder was counted there */
        cgroup_cpu(base, job->group, &job->before);
    job->oom = cgroup_oom_fd(base, job->group);
    if (job->oom < -1)
        return hc_fail_errno(err, HC_CLASS_HOST, -job->oom, "watching the memory of the job");
    return 0;
}

static int watch(struct held_job *job, struct hc_err *err)
{
    struct hc_loop *loop = job->cell->warden->loop;
    const struct job_limits *limits = &job->spec.limits;
    job->report_watch = hc_loop_watch(loop, job->report, EPOLLIN, on_report, job);
    job->exit_watch = hc_loop_watch(loop, job->pidfd, EPOLLIN, on_job_exit, job);
    bool good = job->report_watch && job->exit_watch;
    if (good && job->oom >= 0)
        good = (job->oom_watch = hc_loop_watch(loop, job->oom, EPOLLIN, on_oom, job)) != NULL;
    if (good && limits->wall)
        good = (job->deadline = hc_loop_timer(loop, job->begun + limits->wall, on_deadline, job)) != NULL;
    if (good && limits->cpu_time) {
        struct cgroup_stats stats = {0};
        cgroup_cpu(&job->cell->warden->host.cgroups, job->group, &stats);
        if (stats.counted & CGROUP_HAS_CPU)
            good = (job->cpu_timer = hc_loop_timer(loop, hc_now() + CPU_CHECK_LEAST_US, on_cpu_timer, job)) != NULL;
    }
    return good ? 0 : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

void job_begin(struct held_job *job)
{
    struct warden *warden = job->cell->warden;
    struct hc_err err = {0};
    int result = choose_group(job, &err);
    if (result == 0) {
        struct cell_job entry = {.kind = job->spec.kind == JOB_COLLECT ? CELL_JOB_COLLECT : CELL_JOB_PROGRAM,
                                 .sweep = job->spec.sweep,
                                 .argc = job->spec.argc,
                                 .envc = job->spec.envc,
                                 .limits = job->spec.limits,
                                 .collect_limit = job->spec.collect_limit,
                                 .input = job->fds[0],
                                 .output = job->fds[1],
                                 .error = job->fds[2],
                                 .block = job->fds[3],
                                 .files = job->fds[4]};
        job->begun = hc_now();
        result =
            cell_enter(&warden->host, &job->cell->cell, job->group, &entry, &job->pid, &job->pidfd, &job->report, &err);
    }
    close_fds(job);
    if (result < 0) {
        job_refuse(job, &err);
        return;
    }
    job->running = true;
    if (watch(job, &err) == 0)
        return;
    /* It runs and cannot be watched: nothing is left but to end it, and its warden with it. */
    cell_kill(&job->cell->cell);
    _exit(125);
}
