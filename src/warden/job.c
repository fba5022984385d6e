/*
 * One job: from the fork that enters the cell to the facts about its end. Every fact is the kernel's: the exit status
 * comes from waitid on the pidfd, the counters from the job's own control group. Why it was ended is what the warden
 * itself decided, or a counter that rose.
 */
#include "base/fd.h"
#include "kernel/later.h"
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
    job->pidfd = job->report = job->oom = job->door = job->door_inside = -1;
    if (spec->has_door) {
        count--;
        job->door_inside = HC_TAKE_FD(fds[count]);
    }
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

void job_free(struct held_job *job)
{
    warm_forget(job);
    for (struct held_job **at = &job->cell->jobs; *at; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            break;
        }
    hc_watch_remove(job->report_watch);
    hc_watch_remove(job->exit_watch);
    hc_watch_remove(job->oom_watch);
    hc_watch_remove(job->door_watch);
    hc_timer_remove(job->deadline);
    hc_timer_remove(job->cpu_timer);
    hc_timer_remove(job->oom_timer);
    lasting_forget(job);
    hc_close(job->pidfd);
    hc_close(job->report);
    hc_close(job->oom);
    hc_close(job->door);
    hc_close(job->door_inside);
    close_fds(job);
    free(job);
}

/* Of one that waits for its program the client knows nothing: it has no number, and 0 may be the client's own. */
static void tell(const struct held_job *job, const struct warden_message *message)
{
    if (!job->waiting)
        warden_say(job->cell->warden, message);
}

void job_refuse(struct held_job *job, const struct hc_err *err)
{
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = job->cell->id, .job = job->id, .err = *err};
    message.facts.end = JOB_NOT_STARTED;
    message.facts.exit_code = -1;
    tell(job, &message);
    if (job->waiting)
        primed_lost(job);
    job_free(job);
}

void job_end(struct held_job *job, enum job_end reason)
{
    if (job->end == JOB_EXITED)
        job->end = reason;
    if (job->cell->lasting) {
        lasting_end(job);
        return;
    }
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
    struct cgroup_stats stats = {0};
    if (job->cell->lasting)
        cgroup_cpu(base, job->group, &stats);
    else
        cgroup_stats(base, job->group, &stats);
    facts->wall = hc_now() - (job->exec_at ? job->exec_at : job->begun);
    facts->started_at = job->exec_at;
    facts->start = job->start;
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
    if (job->cell->lasting)
        lasting_facts(job, facts);
}

/* ---- events ---- */

/* The child's pipe: the time at which it began, and an error when it did not after all. */
static void read_report(struct held_job *job)
{
    if (job->report < 0)
        return;
    struct {
        uint64_t time;
        struct hc_err err;
    } report;
    ssize_t count = hc_read_full(job->report, &report, sizeof report);
    struct hc_err *err = &report.err;
    if (count == (ssize_t)sizeof *err) { /* it failed before it began */
        memmove(err, &report, sizeof *err);
        count = sizeof report;
    }
    if (count == (ssize_t)sizeof report && err->code > 0) {
        err->field[sizeof err->field - 1] = err->message[sizeof err->message - 1] =
            err->remedy[sizeof err->remedy - 1] = '\0';
        job->err = *err;
    } else if (count == (ssize_t)sizeof report.time &&
               (job->spec.kind == JOB_PROGRAM || job->spec.kind == JOB_TERMINAL)) {
        /* Its own clock, within what can be true: a guest has no say in it, and yet. */
        uint64_t now = hc_now();
        job->exec_at = report.time >= job->begun && report.time <= now ? report.time : now;
    }
    hc_watch_remove(job->report_watch);
    job->report_watch = NULL;
    job->report = hc_close(job->report);
}

/* The mount namespaces, ours and the cell's, outlive us for a moment: nobody has to wait while they are taken apart. */
static void leave_for_later(const struct held_cell *cell)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)cell->cell.pid);
    int fds[2] = {open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC), open(path, O_RDONLY | O_CLOEXEC)};
    if (fds[0] >= 0 && fds[1] >= 0)
        (void)hc_later_add(cell->warden->later, fds, 2); /* without it we wait as usual */
    hc_close(fds[0]);
    hc_close(fds[1]);
}

static void on_deadline(struct hc_loop *loop, void *data);

static void on_report(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)fd, (void)events;
    struct held_job *job = data;
    read_report(job);
    if (job->err.code)
        return; /* its end follows at once */
    close_fds(job);
    if (job->cell->lasting && job->exec_at)
        lasting_begun(job);
    if (job->waiting)
        pool_changed(job->cell->warden); /* the next one's turn */
    if (job->deadline &&
        job->exec_at) { /* the program has its whole time: entering the cell and unpacking files was ours */
        hc_timer_remove(job->deadline);
        job->deadline = hc_loop_timer(loop, job->exec_at + job->spec.limits.wall, on_deadline, job);
        if (!job->deadline)
            job_end(job, JOB_TIMED_OUT);
    }
    if (job->cell->verbose) {
        struct warden_message message = {.type = WARDEN_JOB_STARTED, .cell = job->cell->id, .job = job->id};
        message.facts.started_at = job->exec_at;
        message.facts.start = job->start;
        tell(job, &message);
    }
    if (job->spec.final && job->cell->warden->later >= 0)
        leave_for_later(job->cell);
}

/* A program that waited, and died before it had begun with what it was given: a cold start takes its place. */
static bool start_again(struct held_job *job)
{
    if (!job->again || job->exec_at || job->err.code || job->end != JOB_EXITED || job->cell->state != HELD_READY)
        return false;
    hc_watch_remove(job->exit_watch);
    hc_timer_remove(job->deadline);
    hc_timer_remove(job->cpu_timer);
    job->exit_watch = NULL;
    job->deadline = job->cpu_timer = NULL;
    job->pidfd = hc_close(job->pidfd);
    job->again = job->running = false;
    job_enter_cold(job);
    return true;
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
    if (start_again(job))
        return;
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
    bool last = job->spec.last, told = !job->spec.untold;
    if (cell->lasting) {
        lasting_over(job, &message);
        supervise_check_gone(cell);
        return;
    }
    if (job->waiting)
        primed_lost(job);
    message.job_spec.last = last;
    message.job_spec.final = job->spec.final;
    tell(job, &message);
    if (job->spec.final)
        _exit(0); /* as pid 1: the kernel ends the cell, and our parent hears of us when nothing is left of it */
    job_free(job);
    struct warden *warden = cell->warden;
    if (last && cell->id) /* one whose client has gone is on its way out */
        supervise_destroy(warden, cell->id, told);
    else
        supervise_check_gone(cell);
    pool_rest(warden);
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

/* The job's limits, in force for its group, and the count of what is its own from now on. */
int job_limit(struct held_job *job, struct hc_err *err)
{
    struct held_cell *cell = job->cell;
    const struct cgroup_base *base = &cell->warden->host.cgroups;
    struct cgroup_limits limits = {.memory = job->spec.limits.memory,
                                   .swap = job->spec.limits.swap,
                                   .cpu_milli = job->spec.limits.cpu_milli,
                                   .cpu_shares = job->spec.limits.cpu_shares,
                                   .pids = job->spec.limits.pids};
    if (job->group == &cell->cell.group)
        limits.pids++; /* pid 1 of the cell is in there */
    int result = cgroup_limit(base, job->group, &limits, err);
    if (result == 0 && job->spec.final) /* alone in its base, which is what competes with other hotcells */
        result = cgroup_weigh(base, limits.cpu_shares, err);
    if (result == 0 &&
        (job->group == &cell->cell.group || job->waiting)) /* its builder, or booting, was counted there */
        cgroup_cpu(base, job->group, &job->before);
    return result;
}

static int choose_group(struct held_job *job, struct hc_err *err)
{
    struct held_cell *cell = job->cell;
    const struct cgroup_base *base = &cell->warden->host.cgroups;
    if (cell->lasting)
        return lasting_group(job, err);
    if (!cell->used) {
        cell->used = true;
        job->group = &cell->cell.group;
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
    int result = job_limit(job, err);
    if (result < 0)
        return result;
    if (job->waiting)
        cgroup_background(base, job->group, true);
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
    if (!job->exit_watch) /* one that waited is watched already */
        job->exit_watch = hc_loop_watch(loop, job->pidfd, EPOLLIN, on_job_exit, job);
    bool good = job->report_watch && job->exit_watch;
    if (good && job->oom >= 0 && !job->oom_watch)
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

void job_entered(struct held_job *job)
{
    struct hc_err err = {0};
    if (!job->again)
        close_fds(job);
    job->running = true;
    if (watch(job, &err) == 0)
        return;
    /* It runs and cannot be watched: nothing is left but to end it, and its warden with it. */
    cell_kill(&job->cell->cell);
    _exit(125);
}

static struct cell_job entry_of(const struct held_job *job)
{
    static const enum cell_job_kind kinds[] = {[JOB_PROGRAM] = CELL_JOB_PROGRAM,
                                               [JOB_COLLECT] = CELL_JOB_COLLECT,
                                               [JOB_FILES] = CELL_JOB_FILES,
                                               [JOB_TERMINAL] = CELL_JOB_TERMINAL,
                                               [JOB_CONNECT] = CELL_JOB_CONNECT};
    return (struct cell_job){.kind = kinds[job->spec.kind],
                             .shared = job->cell->lasting,
                             /* what waits in the cell is not what it is to find there */
                             .sweep = job->spec.sweep || (job->cell->warm && !job->waiting),
                             .resize = job->cell->resize,
                             .limits = job->spec.limits,
                             .collect_limit = job->spec.collect_limit,
                             .input = job->fds[0],
                             .output = job->fds[1],
                             .error = job->fds[2],
                             .block = job->fds[3],
                             .files = job->fds[4],
                             .files_from_root = job->spec.has_files == JOB_FILES_ROOT,
                             .door = job->door_inside};
}

void job_enter_cold(struct held_job *job)
{
    struct held_cell *cell = job->cell;
    struct hc_err err = {0};
    struct cell_job entry = entry_of(job);
    if (job->waiting && cell->warm->spec.kind == WARM_ZYGOTE) { /* only a zygote's child can wait for a zygote's work */
        hc_fail(&err, HC_CLASS_OURS, EAGAIN, "there is no zygote");
        job_refuse(job, &err);
        return;
    }
    if (job->spec.kind == JOB_COLLECT &&
        primed_sweep(cell, job->group)) /* what waits for the next stage is no leftover */
        entry.sweep = false;
    job->start = START_COLD;
    job->report = hc_close(job->report); /* of an entry that did not come about */
    job->begun = hc_now();
    if (cell_enter(&cell->warden->host, &cell->cell, job->group, &entry, &job->pid, &job->pidfd, &job->report, &err) <
        0) {
        job_refuse(job, &err);
        return;
    }
    cell->resize = false;
    job->door_inside = hc_close(job->door_inside);
    job_entered(job);
}

void job_begin(struct held_job *job)
{
    struct hc_err err = {0};
    if (job->spec.warm && job->cell->warm && primed_begin(job))
        return;
    if (choose_group(job, &err) < 0) {
        job_refuse(job, &err);
        return;
    }
    job->begun = hc_now();
    if (job->spec.warm && job->spec.kind == JOB_PROGRAM) {
        struct cell_job entry = entry_of(job);
        if (warm_enter(job, &entry))
            return;
    }
    job_enter_cold(job);
}
