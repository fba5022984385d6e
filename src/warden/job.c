/*
 * One job: from the fork that enters the cell to its end, which the kernel tells by its pidfd. What is known of it then
 * is in job_facts.c, its control group and limits in job_group.c, its end in job_exit.c.
 */
#include "base/fd.h"
#include "kernel/later.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <poll.h>
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
    job->pidfd = job->report = job->oom = job->gate = job->door = job->door_inside = -1;
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

void job_close_fds(struct held_job *job)
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
    hc_close(job->gate);
    hc_close(job->door);
    hc_close(job->door_inside);
    job_close_fds(job);
    free(job);
}

/* Of one that waits for its program the client knows nothing: it has no number, and 0 may be the client's own. */
void job_tell(const struct held_job *job, const struct warden_message *message)
{
    if (!job->waiting)
        warden_say(job->cell->warden, message);
}

void job_refuse(struct held_job *job, const struct hc_err *err)
{
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = job->cell->id, .job = job->id, .err = *err};
    message.facts.end = JOB_NOT_STARTED;
    message.facts.exit_code = -1;
    job_tell(job, &message);
    if (job->waiting)
        primed_lost(job);
    job_free(job);
}

static void watch_exit(struct held_job *job);

void job_end(struct held_job *job, enum job_end reason)
{
    if (job->end == JOB_EXITED)
        job->end = reason;
    watch_exit(job);
    if (job->cell->lasting) {
        lasting_end(job);
        return;
    }
    cell_kill(&job->cell->cell);
    if (job->group && job->group != &job->cell->cell.group)
        cgroup_kill(job->group);
}

/* ---- events ---- */

/* What has come through the child's pipe. True when that is all: its other end is closed, or there can be no more. It
 * is never waited for: the child may be stopped between the time and its exec, by its own share of the CPU for
 * instance. */
bool job_hear_report(struct held_job *job)
{
    while (job->report >= 0 && job->said_length < sizeof job->said) {
        ssize_t count = read(job->report, (char *)&job->said + job->said_length, sizeof job->said - job->said_length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count == 0 || errno != EAGAIN;
        job->said_length += (size_t)count;
    }
    return true;
}

/* The time at which it began, and an error when it did not after all. */
void job_read_report(struct held_job *job)
{
    if (job->report < 0)
        return;
    struct hc_err *err = &job->said.err;
    size_t length = job->said_length;
    if (length == sizeof *err) { /* it failed before it began */
        memmove(err, &job->said, sizeof *err);
        length = sizeof job->said;
    }
    if (length == sizeof job->said && err->code > 0) {
        err->field[sizeof err->field - 1] = err->message[sizeof err->message - 1] =
            err->remedy[sizeof err->remedy - 1] = '\0';
        job->err = *err;
    } else if (length == sizeof job->said.start && (job->spec.kind == JOB_PROGRAM || job->spec.kind == JOB_TERMINAL)) {
        /* Its own clock, within what can be true: a guest has no say in it, and yet. */
        uint64_t now = hc_now();
        uint64_t time = job->said.start.time;
        job->exec_at = time < job->begun ? job->begun : time > now ? now : time;
        job->own = job->said.start;
    }
    hc_watch_remove(job->report_watch);
    job->report_watch = NULL;
    job->report = hc_close(job->report);
    job->said_length = 0;
}

/* The mount namespaces, ours and the cell's, and the detached mounts of the control groups outlive us for a moment:
 * nobody has to wait while they are taken apart. */
static void leave_for_later(const struct held_cell *cell)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)cell->cell.pid);
    int fds[2 + CGROUP_SLOTS] = {open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC), open(path, O_RDONLY | O_CLOEXEC)};
    size_t count = 2;
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        if (cell->warden->host.cgroups.dir[slot] >= 0)
            fds[count++] = cell->warden->host.cgroups.dir[slot];
    if (fds[0] >= 0 && fds[1] >= 0)
        (void)hc_later_add(cell->warden->later, fds, count); /* without it we wait as usual */
    hc_close(fds[0]);
    hc_close(fds[1]);
}

static void on_deadline(struct hc_loop *loop, void *data);

/* It has, once a job has a program: pid 1 has said that it runs. Whatever else may be, nobody is waited for. */
static bool builder_has_ended(const struct held_cell *cell)
{
    struct pollfd report = {.fd = cell->cell.report, .events = POLLIN};
    return poll(&report, 1, 0) > 0;
}

static void on_report(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)fd, (void)events;
    struct held_job *job = data;
    if (!job_hear_report(job))
        return;
    if (job->gate >= 0 && job->cell->state == HELD_BUILDING) {
        if (job->said_length == sizeof job->said.start && builder_has_ended(job->cell)) /* it has a program */
            supervise_built(job->cell);
        else /* it failed: perhaps because the builder has */
            supervise_heed_builder(job->cell);
    }
    job_read_report(job);
    if (job->err.code)
        return; /* its end follows at once */
    job_close_fds(job);
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
        job_tell(job, &message);
    }
    if (job->spec.final && job->cell->warden->later >= 0)
        leave_for_later(job->cell);
    if (job->spec.last || job->spec.final || job->waiting) /* there is time now */
        cgroup_prepare_stats(&job->cell->warden->host.cgroups, job->group);
}

/* A program that waited, and died before it had begun with what it was given: a cold start takes its place. */
bool job_start_again(struct held_job *job)
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
    uint64_t used = stats.cpu > job->before.cpu ? stats.cpu - job->before.cpu : 0, limit = job->spec.limits.cpu_time;
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

/* It runs and cannot be watched: nothing is left but to end it, and its warden with it. */
static _Noreturn void give_up(const struct held_job *job)
{
    cell_kill(&job->cell->cell);
    _exit(125);
}

static void watch_exit(struct held_job *job)
{
    if (!job->running || job->exit_watch) /* one that waited is watched already */
        return;
    job->exit_watch = hc_loop_watch(job->cell->warden->loop, job->pidfd, EPOLLIN, job_on_exit, job);
    if (!job->exit_watch)
        give_up(job);
}

static void watch_process(struct held_job *job)
{
    /* Its end is told, which is all that is waited for; what comes before would wake us for nothing. */
    job->report_watch = hc_loop_watch(job->cell->warden->loop, job->report, 0, on_report, job);
    if (!job->report_watch)
        give_up(job);
    watch_exit(job);
}

static bool watch_limits(struct held_job *job)
{
    struct hc_loop *loop = job->cell->warden->loop;
    const struct job_limits *limits = &job->spec.limits;
    bool good = true;
    if (job->oom >= 0 && !job->oom_watch)
        good = (job->oom_watch = hc_loop_watch(loop, job->oom, EPOLLIN, on_oom, job)) != NULL;
    if (good && limits->wall)
        good = (job->deadline = hc_loop_timer(loop, job->begun + limits->wall, on_deadline, job)) != NULL;
    if (good && limits->cpu_time) {
        struct cgroup_stats stats = {0};
        cgroup_cpu(&job->cell->warden->host.cgroups, job->group, &stats);
        if (stats.counted & CGROUP_HAS_CPU)
            good = (job->cpu_timer = hc_loop_timer(loop, hc_now() + CPU_CHECK_LEAST_US, on_cpu_timer, job)) != NULL;
    }
    return good;
}

void job_entered(struct held_job *job)
{
    if (!job->again)
        job_close_fds(job);
    job->running = true;
    watch_process(job);
    if (!watch_limits(job))
        give_up(job);
}

/* Helpers run code of ours alone, which makes no such call. */
static uint64_t next_witness(struct held_job *job)
{
    bool guest = job->spec.kind == JOB_PROGRAM || job->spec.kind == JOB_TERMINAL;
    return guest && job->cell->cell.witness.door >= 0 ? ++job->cell->last_witness : 0;
}

static struct cell_job entry_of(struct held_job *job)
{
    job->witness = next_witness(job);
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
                             .witness = job->witness,
                             .door = job->door_inside,
                             .gate = -1};
}

static int enter(struct held_job *job, const struct cell_job *entry, struct hc_err *err)
{
    struct held_cell *cell = job->cell;
    job->start = START_COLD;
    job->report = hc_close(job->report); /* of an entry that did not come about */
    job->said_length = 0;
    job->begun = hc_now();
    int result =
        cell_enter(&cell->warden->host, &cell->cell, job->group, entry, &job->pid, &job->pidfd, &job->report, err);
    if (result == 0)
        cell->resize = false;
    return result;
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
    if (enter(job, &entry, &err) < 0) {
        bool lost = cell->lasting && cell_is_ending(&cell->cell);
        if (lost) /* what the kernel says of its namespaces (EPERM, ENOMEM) is true, and no help */
            supervise_lost_error(&err);
        job_refuse(job, &err);
        if (lost)
            supervise_lost(cell);
        return;
    }
    job->door_inside = hc_close(job->door_inside);
    job_entered(job);
}

/* What is started otherwise, has a group that is not there yet, or changes what is mounted, waits for its cell. */
static bool fits_early(const struct held_job *job)
{
    const struct held_cell *cell = job->cell;
    return cell->state == HELD_BUILDING && cell->place == PLACE_CLIENT && !cell->lasting && !cell->used &&
           !cell->resize && !cell->warm && job->spec.kind == JOB_PROGRAM && !job->spec.sweep &&
           !(job->spec.warm && cell->warden->warm);
}

void job_begin_early(struct held_job *job)
{
    struct hc_err err = {0};
    int gate[2];
    if (!fits_early(job) || pipe2(gate, O_CLOEXEC) < 0)
        return;
    struct cell_job entry = entry_of(job);
    entry.gate = gate[0];
    job->gate = gate[1];
    int result = job_choose_group(job, &err);
    if (result == 0)
        result = enter(job, &entry, &err);
    hc_close(gate[0]);
    if (result < 0) { /* its builder may have failed; if not, the job is tried again when the cell is ready */
        job->gate = hc_close(job->gate);
        job->cell->used = false;
        job->group = NULL;
        return;
    }
    job_close_fds(job);
    job->running = true;
    watch_process(job);
    supervise_heed_job(job->cell);
    int limited = job_limit_group(job, &err);
    if (limited == 0)
        limited = hc_write_all(job->gate, "g", 1); /* fails where it is gone already: its end is on its way */
    if (limited < 0 && err.code) {                 /* in its cell, where it is told by its end */
        job->err = err;
        job_end(job, JOB_SHUTDOWN);
    }
}

/* One that came early, and whose cell is ready. Its time begins now, or has just begun; what was used before is not
 * its own. */
static void let_go_on(struct held_job *job)
{
    cgroup_cpu(&job->cell->warden->host.cgroups, job->group, &job->before);
    if (job->said_length == 0)
        job->begun = hc_now();
    watch_exit(job);
    if (!watch_limits(job))
        give_up(job);
    job->gate = hc_close(job->gate);
}

void job_begin(struct held_job *job)
{
    struct hc_err err = {0};
    if (job->gate >= 0) {
        let_go_on(job);
        return;
    }
    if (job->spec.warm && job->cell->warm && primed_begin(job))
        return;
    if (job_choose_group(job, &err) < 0 || job_limit_group(job, &err) < 0) {
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
