/*
 * The end of a job: by the kernel's word that its process has ended (job_on_exit), or is about to end (job_last_word).
 * What is known of it then is in job_facts.c.
 */
#include "kernel/sys.h"
#include "warden/warden.h"
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { SEE_OFF_MS = 5 };

/* Before the client may say that nothing of the program is left: pid 1 of the cell, which is ours, is alone in its
 * group, and goes with us. Or, where others are there or nobody counts them: the kernel lets pid 1 go when the whole
 * pid namespace is empty. */
static void see_cell_empty(const struct held_cell *cell, bool alone)
{
    siginfo_t info;
    if (alone)
        return;
    while (!cell->reaped && syscall(SYS_waitid, 3 /* P_PIDFD */, cell->cell.pidfd, &info, WEXITED, NULL) < 0 &&
           errno == EINTR)
        continue;
}

/* The client has heard all and ends. It has the processors to itself until it has, or for as long as that may take at
 * most: taking our namespaces apart keeps both of two busy. */
static void see_client_off(const struct warden *warden)
{
    struct pollfd link = {.fd = warden->client, .events = 0}; /* its end is told all the same */
    (void)poll(&link, 1, SEE_OFF_MS);
}

/* Nobody else is in the cell but pid 1: the kernel counts `count` processes, of which those that we know of are one. */
static bool is_alone(const struct held_job *job, unsigned count)
{
    const struct held_cell *cell = job->cell;
    return job->group == &cell->cell.group && cell->spare_count == 0 &&
           cgroup_has_at_most(&cell->warden->host.cgroups, job->group, count);
}

/* The kernel killed it, or did not let it in, because pid 1 of its cell died. Pid 1 is there until we have waited for
 * the job. */
static bool was_lost(const struct held_job *job, const struct job_facts *facts)
{
    return job->cell->lasting && job->end == JOB_EXITED && facts->end != JOB_OUT_OF_MEMORY &&
           (facts->signal == SIGKILL || job->err.code) && cell_is_ending(&job->cell->cell);
}

/* It is over, and goes with its cell: until then nothing more may come of it. Its process is yet to be waited for where
 * it has only said its last word: job_on_exit. */
static void job_settle(struct held_job *job, bool reaped)
{
    job->over = true;
    job->running = false;
    if (reaped) {
        hc_watch_remove(job->exit_watch);
        job->exit_watch = NULL;
    }
    hc_watch_remove(job->oom_watch);
    job->oom_watch = NULL;
    hc_timer_remove(job->deadline);
    hc_timer_remove(job->cpu_timer);
    hc_timer_remove(job->oom_timer);
    job->deadline = job->cpu_timer = job->oom_timer = NULL;
}

static void retire(struct held_job *job, bool reaped)
{
    struct held_cell *cell = job->cell;
    struct warden *warden = cell->warden;
    job_settle(job, reaped);
    cell->alone = true;
    supervise_retire(cell);
    pool_rest(warden);
}

/* What is known of it is all there is to know: it is the last of its cell, runs, and nobody else is in there whose
 * doings would count, nor has the kernel ended anybody. Anything else is told by its real end. */
bool job_last_word(struct held_job *job, int code)
{
    struct held_cell *cell = job->cell;
    if (!job->running || job->over || job->waiting || job->end != JOB_EXITED || cell->lasting || !cell->id ||
        cell->state != HELD_READY || !job->spec.last || !job->spec.untold || !job_hear_report(job))
        return false;
    job_read_report(job);
    if (!job->exec_at || job->err.code || !is_alone(job, 2))
        return false;
    job_close_fds(job);
    siginfo_t info = {.si_code = CLD_EXITED};
    info.si_status = code & 0xff; /* as the kernel takes it */
    struct rusage usage = {0};
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = cell->id, .job = job->id};
    job_gather(job, &info, &usage, &message.facts);
    uint32_t counted = ISOLATION_CPU | ISOLATION_MEMORY | ISOLATION_PIDS;
    if (message.facts.end != JOB_EXITED || (message.facts.counted & counted) != counted)
        return false;
    message.job_spec.last = true;
    job_tell(job, &message);
    retire(job, false);
    return true;
}

void job_on_exit(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct held_job *job = data;
    /* How one that came early ended is told once it is known what became of its cell: that may be the reason. */
    if (job->gate >= 0 && job->cell->state == HELD_BUILDING) {
        hc_watch_remove(job->exit_watch);
        job->exit_watch = NULL;
        return;
    }
    siginfo_t info = {0};
    struct rusage usage = {0};
    if (syscall(SYS_waitid, 3 /* P_PIDFD */, fd, &info, WEXITED | WNOHANG, &usage) < 0 || info.si_pid == 0)
        return;
    if (job->over) { /* its end was told when it said its last word */
        hc_watch_remove(job->exit_watch);
        job->exit_watch = NULL;
        return;
    }
    job_hear_report(job);
    job_read_report(job);
    if (job_start_again(job))
        return;
    job_close_fds(
        job); /* kept for a second start: whoever reads its output waits for the end of it, and we are part of it */
    bool last = job->spec.last, told = !job->spec.untold;
    bool alone = (job->spec.final || (last && !told)) && is_alone(job, 1);
    if (job->spec.final && !alone) /* what is left of the cell dies while we see what there was */
        cell_kill(&job->cell->cell);
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = job->cell->id, .job = job->id};
    job_gather(job, &info, &usage, &message.facts);
    if (job->err.code) {
        message.err = job->err;
        message.facts.end = JOB_NOT_STARTED;
    } else if (job->spec.kind == JOB_PROGRAM && !job->exec_at && message.facts.end == JOB_EXITED) {
        hc_fail(&message.err, HC_CLASS_OURS, EIO, "the job ended before its program started");
        message.facts.end = JOB_NOT_STARTED;
    }
    struct held_cell *cell = job->cell;
    if (was_lost(job, &message.facts)) {
        supervise_lost_error(&message.err);
        message.facts.end = JOB_NOT_STARTED;
    }
    if (cell->lasting) {
        lasting_over(job, &message);
        supervise_check_gone(cell);
        return;
    }
    if (job->waiting)
        primed_lost(job);
    message.job_spec.last = last;
    message.job_spec.final = job->spec.final;
    if (job->spec.final)
        see_cell_empty(job->cell, alone);
    job_tell(job, &message);
    if (job->spec.final) {
        if (alone)
            see_client_off(cell->warden);
        _exit(0); /* our parent hears of us when nothing is left of us and our namespaces */
    }
    struct warden *warden = cell->warden;
    if (alone && cell->id && cell->state == HELD_READY) { /* the client has all that it waited for */
        retire(job, true);
        return;
    }
    job_free(job);
    if (last && cell->id) /* one whose client has gone is on its way out */
        supervise_destroy(warden, cell->id, told);
    else
        supervise_check_gone(cell);
    pool_rest(warden);
}
