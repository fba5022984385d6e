/*
 * Cells that last: theory of operation.
 *
 * An ordinary cell is its client's, and goes with it. A lasting one stays when the client (a gateway) dies, and the
 * next client finds it by asking (WARDEN_HELD). So that it finds more than a cell, a client may leave fds here
 * (WARDEN_KEEP): its ends of pipes and terminals, and memory files with whatever it needs to know. Nothing here reads
 * them.
 *
 * Its limits are of the cell as a whole, and written once; many jobs run in it side by side, each in a group within the
 * cell's group (kernel/cgroup_inner.c), so that one can be ended with all its descendants while the others go on. What
 * a job leaves running when its main process has ended stays, as it would on any machine, until somebody ends it or the
 * cell. The end of a job is remembered until the client says that it has heard of it, and so is the end of a cell that
 * nobody asked for: a client that dies with the news unread has lost nothing.
 */
#include "base/fd.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_TURNS = 200, SWEEP_PAUSE_US = 1000 };

static void kept_release(struct kept *kept)
{
    while (kept->count > 0)
        hc_close(kept->fd[--kept->count]);
}

/* ---- a cell's limits and its jobs' groups ---- */

int lasting_begin(struct held_cell *cell, struct hc_err *err)
{
    struct cgroup_limits limits = {.memory = cell->limits.memory,
                                   .swap = cell->limits.swap,
                                   .cpu_milli = cell->limits.cpu_milli,
                                   .cpu_shares = cell->limits.cpu_shares,
                                   .pids = cell->limits.pids + 1, /* pid 1 of the cell */
                                   .apart = true};
    return cgroup_limit(&cell->warden->host.cgroups, &cell->cell.group, &limits, err);
}

static bool in_use(const struct held_cell *cell, const struct inner *inner)
{
    for (const struct held_job *job = cell->jobs; job; job = job->next)
        if (job->inner == inner && !job->over)
            return true;
    return false;
}

/* What a job left running may have made such calls as well, after its end was told. */
static void tell_late(const struct held_cell *cell, struct inner *inner)
{
    struct warden_message message = {.type = WARDEN_JOB_CALLS, .cell = cell->id, .job = inner->job};
    struct reported now;
    witness_read(cell->cell.witness.book, inner->witness, &now);
    message.facts.calls = reported_since(&now, &inner->told);
    inner->told = now;
    if (reported_any(&message.facts.calls))
        warden_say(cell->warden, &message);
}

void lasting_late(struct held_cell *cell)
{
    for (struct inner *inner = cell->inners; inner; inner = inner->next)
        tell_late(cell, inner);
}

void lasting_clear(struct held_cell *cell)
{
    for (struct inner **at = &cell->inners; *at;) {
        struct inner *inner = *at;
        if (in_use(cell, inner) || cgroup_inner_remove(&cell->cell.group, &inner->group) < 0) {
            at = &inner->next;
            continue;
        }
        *at = inner->next;
        tell_late(cell, inner);
        for (struct held_job *job = cell->jobs; job; job = job->next)
            if (job->inner == inner) {
                job->inner = NULL;
                job->group = NULL;
            }
        free(inner);
    }
}

int lasting_group(struct held_job *job, struct hc_err *err)
{
    struct held_cell *cell = job->cell;
    const struct cgroup_base *base = &cell->warden->host.cgroups;
    lasting_clear(cell);
    struct inner *inner = calloc(1, sizeof *inner);
    if (!inner)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    char name[32];
    snprintf(name, sizeof name, "job%llu", (unsigned long long)cell->next_inner++);
    int result = cgroup_inner_create(base, &cell->cell.group, name, &inner->group, err);
    if (result < 0) {
        free(inner);
        return result;
    }
    inner->job = job->id;
    inner->next = cell->inners;
    cell->inners = inner;
    job->inner = inner;
    job->group = &inner->group;
    cgroup_stats(base, &cell->cell.group, &job->before);
    /* CPU time is the inner group's own, which begins with nothing, where there is one that counts. */
    if (inner->group.dir[CGROUP_UNIFIED] >= 0)
        job->before.cpu = job->before.user = job->before.system = 0;
    return 0;
}

/* Memory and processes are counted for the whole cell; what is the job's own comes from wait4. That the kernel ended it
 * for want of memory is proven by the cell's counter together with its own end. */
void lasting_facts(struct held_job *job, struct job_facts *facts)
{
    struct cgroup_stats stats;
    cgroup_stats(&job->cell->warden->host.cgroups, &job->cell->cell.group, &stats);
    facts->oom_kills = stats.oom_kills - job->before.oom_kills;
    facts->pids_denied = stats.pids_denied - job->before.pids_denied;
    facts->end = job->end;
    if (job->end == JOB_EXITED && facts->oom_kills && facts->signal == SIGKILL)
        facts->end = JOB_OUT_OF_MEMORY;
}

/* ---- ending ---- */

static void end_group(struct inner *inner, pid_t main)
{
    /* Without version 2 a fork may be missed, but not for ever: whoever is left is met in the next turn. */
    for (int turn = 0; turn < SWEEP_TURNS && cgroup_inner_kill(&inner->group, 0, 0) > 0; turn++)
        continue;
    if (main > 0)
        kill(-main, SIGKILL); /* the rest of what there is, where there are no groups at all */
}

void lasting_end(struct held_job *job)
{
    if (job->inner)
        end_group(job->inner, job->pid);
    if (job->pidfd >= 0)
        hc_pidfd_signal(job->pidfd, SIGKILL);
}

/* All but the main process, which is stopped meanwhile so that no fork outruns it. */
static void on_sweep(struct hc_loop *loop, void *data)
{
    struct held_job *job = data;
    job->sweep_timer = NULL;
    int met = job->inner ? cgroup_inner_kill(&job->inner->group, job->pid, job->sweep_since) : 0;
    if (met > 0 && ++job->sweeps < SWEEP_TURNS) {
        job->sweep_timer = hc_loop_timer(loop, hc_now() + SWEEP_PAUSE_US, on_sweep, job);
        if (job->sweep_timer)
            return;
    }
    if (job->inner)
        cgroup_freeze(&job->inner->group, false);
    if (job->sweep_signal)
        hc_pidfd_signal(job->pidfd, job->sweep_signal);
}

static void sweep(struct held_job *job, int number, uint64_t since)
{
    job->sweep_since = since;
    hc_timer_remove(job->sweep_timer);
    job->sweeps = 0;
    job->sweep_signal = number;
    if (job->inner)
        cgroup_freeze(&job->inner->group, true);
    on_sweep(job->cell->warden->loop, job);
}

void lasting_over(struct held_job *job, const struct warden_message *message)
{
    hc_watch_remove(job->exit_watch);
    hc_watch_remove(job->report_watch);
    hc_timer_remove(job->deadline);
    hc_timer_remove(job->cpu_timer);
    hc_timer_remove(job->sweep_timer);
    job->exit_watch = job->report_watch = NULL;
    job->deadline = job->cpu_timer = job->sweep_timer = NULL;
    job->pidfd = hc_close(job->pidfd);
    job->running = false;
    job->over = true;
    job->facts = message->facts;
    job->err = message->err;
    if (job->inner) {
        job->inner->witness = job->witness;
        job->inner->told = message->facts.calls;
    }
    if (job->inner && job->sweeps) /* its main process died in the middle of a sweep */
        cgroup_freeze(&job->inner->group, false);
    lasting_clear(job->cell);
    warden_say(job->cell->warden, message);
}

void lasting_forget(struct held_job *job)
{
    hc_timer_remove(job->sweep_timer);
    job->sweep_timer = NULL;
    kept_release(&job->kept);
}

void lasting_release(struct held_cell *cell)
{
    while (cell->jobs) /* all of them are over */
        job_free(cell->jobs);
    while (cell->inners) {
        struct inner *inner = cell->inners;
        cell->inners = inner->next;
        for (int slot = 0; slot < CGROUP_SLOTS; slot++)
            hc_close(inner->group.dir[slot]);
        free(inner);
    }
    kept_release(&cell->kept);
}

/* ---- what a client asks ---- */

static void tell_job(struct warden *warden, const struct held_job *job)
{
    struct warden_message message = {.type = WARDEN_HELD, .cell = job->cell->id, .job = job->id, .over = job->over};
    message.job_spec = job->spec;
    message.facts = job->facts;
    message.facts.started_at = job->exec_at;
    message.err = job->err;
    warden_hand(warden, &message, job->kept.fd, job->kept.count);
}

static void tell_all(struct warden *warden)
{
    for (const struct held_cell *cell = warden->cells; cell; cell = cell->next) {
        if (!cell->lasting || cell->wanted)
            continue;
        struct warden_message message = {.type = WARDEN_HELD, .cell = cell->id, .err = cell->why};
        message.over = cell->state >= HELD_DYING;
        message.on = cell->frozen;
        message.cell_spec = cell->cell.spec;
        message.cell_limits = cell->limits;
        warden_hand(warden, &message, cell->kept.fd, cell->kept.count);
        for (const struct held_job *job = cell->jobs; job; job = job->next)
            tell_job(warden, job);
    }
    struct warden_message end = {.type = WARDEN_HELD};
    warden_say(warden, &end);
}

static void answer_usage(struct held_cell *cell, struct warden_message *answer)
{
    const struct cgroup_base *base = &cell->warden->host.cgroups;
    struct cgroup_usage usage;
    struct cgroup_stats stats;
    lasting_clear(cell);
    cgroup_usage(base, &cell->cell.group, &usage);
    cgroup_stats(base, &cell->cell.group, &stats);
    answer->usage = (struct cell_usage){.memory = usage.memory,
                                        .memory_peak = usage.memory_peak,
                                        .pids = usage.pids,
                                        .cpu = usage.cpu,
                                        .oom_kills = stats.oom_kills,
                                        .frozen = cell->frozen};
    for (const struct held_job *job = cell->jobs; job; job = job->next)
        answer->usage.jobs += job->running;
}

static void freeze(struct held_cell *cell, bool on, struct warden_message *answer)
{
    int result = cell->frozen == on ? 0 : cgroup_freeze(&cell->cell.group, on);
    if (result < 0)
        hc_fail(&answer->err, HC_CLASS_HOST, -result,
                result == -EOPNOTSUPP ? "this machine cannot pause: that takes cgroup version 2"
                                      : "the sandbox cannot be paused or resumed");
    else
        cell->frozen = on;
    answer->on = cell->frozen;
}

static struct held_job *find_job(struct held_cell *cell, uint64_t id)
{
    struct held_job *job = cell->jobs;
    while (job && job->id != id)
        job = job->next;
    return job;
}

/* One that has ended may have left processes: they are its own still. */
static void signal_rest(struct held_cell *cell, uint64_t id, int number)
{
    for (struct inner *inner = cell->inners; inner; inner = inner->next)
        if (inner->job == id && number == SIGKILL)
            end_group(inner, 0);
}

static void job_message(struct held_cell *cell, const struct warden_message *message)
{
    struct held_job *job = find_job(cell, message->job);
    int number = message->signal;
    if (number < 0 || number > 64)
        return;
    if (!job || job->over)
        signal_rest(cell, message->job, message->type == WARDEN_JOB_SIGNAL ? number : 0);
    else if (message->type == WARDEN_JOB_SIGNAL && number && !job->exec_at)
        job->early |= 1ULL << (number - 1);
    else if (message->type == WARDEN_JOB_SIGNAL && job->running && number)
        kill(-job->pid, number); /* it leads a session, and is not reaped yet */
    else if (message->type == WARDEN_JOB_SWEEP && job->running)
        sweep(job, number, message->since);
    if (message->type == WARDEN_JOB_FORGET && job && job->over)
        job_free(job);
}

void lasting_begun(struct held_job *job)
{
    for (int number = 1; number <= 64; number++)
        if (job->early & 1ULL << (number - 1))
            kill(-job->pid, number);
    job->early = 0;
}

static void keep(struct held_cell *cell, const struct warden_message *message, int *fds, size_t count)
{
    struct held_job *job = message->job ? find_job(cell, message->job) : NULL;
    if ((message->job && !job) || count > WARDEN_KEEP_MAX)
        return;
    struct kept *kept = job ? &job->kept : &cell->kept;
    kept_release(kept);
    for (; kept->count < count; kept->count++)
        kept->fd[kept->count] = HC_TAKE_FD(fds[kept->count]);
}

void lasting_message(struct warden *warden, const struct warden_message *message, int *fds, size_t count)
{
    struct held_cell *cell = supervise_find(warden, message->cell);
    struct warden_message answer = {.type = message->type, .cell = message->cell, .job = message->job};
    if (message->type == WARDEN_HELD) {
        tell_all(warden);
    } else if (!cell || !cell->lasting || cell->state >= HELD_DYING) {
        hc_fail(&answer.err, HC_CLASS_OURS, ENOENT, "there is no such cell");
        if (cell && message->type == WARDEN_JOB_FORGET)
            job_message(cell, message);
        else if (message->type == WARDEN_CELL_USAGE || message->type == WARDEN_CELL_FREEZE)
            warden_say(warden, &answer);
    } else if (message->type == WARDEN_KEEP) {
        keep(cell, message, fds, count);
    } else if (message->type == WARDEN_CELL_USAGE) {
        answer_usage(cell, &answer);
        warden_say(warden, &answer);
    } else if (message->type == WARDEN_CELL_FREEZE) {
        freeze(cell, message->on, &answer);
        warden_say(warden, &answer);
    } else {
        job_message(cell, message);
    }
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
}
