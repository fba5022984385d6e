/*
 * Primed programs: interpreters that cannot be forked, booted and sealed in a cell of their own, each waiting to be
 * given its one program (cell/warm.h). To the kernel they are ordinary jobs of the guest, in groups of their own, from
 * their exec on; what they wait for comes through a socket that is closed when it has. A cell may have one for each
 * stage. It is taken whole, used once and destroyed, as any other.
 *
 * They boot one at a time and give way to all others, and are as many as were missed lately, within their bounds. One
 * that has waited too long is replaced, or, when nobody asked for any meanwhile, not.
 */
#include "base/fd.h"
#include "cell/warm.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    FAILED_PAUSE_US = 10000000,
    PRIMED_BOOT_US = 60000000, /* how long one may take until it waits at its door */
    FEWEST_FDS = 64,
};

/* ---- booting ---- */

static void on_word(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct held_cell *cell = data;
    struct witness_last last;
    bool gone;
    if (!witness_hear(fd, &last, &gone)) {
        if (gone) {
            hc_watch_remove(cell->word_watch);
            cell->word_watch = NULL;
        }
        return;
    }
    struct held_job *job = cell->jobs;
    while (job && job->witness != last.job)
        job = job->next;
    if (!job || !job_last_word(job, last.code))
        witness_refuse(fd, last.job);
}

/* Programs of zygotes say their last word (warm_preload.c). Without it their end is heard of a little later. */
static void listen_for_words(struct held_cell *cell)
{
    if (cell->cell.witness.door >= 0 && !cell->word_watch)
        cell->word_watch = hc_loop_watch(cell->warden->loop, cell->cell.witness.door, EPOLLIN, on_word, cell);
}

static void on_door(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct held_job *job = data;
    struct warm_word word;
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &word, sizeof word, NULL, 0, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    hc_watch_remove(job->door_watch);
    job->door_watch = NULL;
    job->at_door = size == (ssize_t)sizeof word;
    /* A zygote's child has one thread, which waits from here on: what it has used until now is not its program's. */
    if (job->at_door && job->cell->warm->spec.kind == WARM_ZYGOTE) {
        cgroup_cpu(&job->cell->warden->host.cgroups, job->group, &job->before);
        listen_for_words(job->cell);
    }
    pool_changed(job->cell->warden);
}

/* One program, started as any job is, with a door. It has no client yet, so nobody hears of it. */
static int start_waiting(struct held_cell *cell, unsigned stage, struct hc_err *err)
{
    struct warm *warm = cell->warm;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int fds[4] = {null, fcntl(null, F_DUPFD_CLOEXEC, 3), fcntl(null, F_DUPFD_CLOEXEC, 3),
                  fcntl(warm->blocks[stage], F_DUPFD_CLOEXEC, 3)};
    struct job_spec spec = {.kind = JOB_PROGRAM, .stage = stage, .limits = warm->spec.limits};
    spec.warm = warm->spec.kind == WARM_ZYGOTE ? warm->spec.id : 0;
    spec.limits.wall = spec.limits.cpu_time = 0;
    struct held_job *job =
        fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0 && fds[3] >= 0 ? job_new(cell, 0, &spec, fds, 4) : NULL;
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
    if (!job) {
        hc_close(ends[0]);
        hc_close(ends[1]);
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    hc_set_nonblock(ends[0], true);
    job->waiting = true;
    job->first_stage = stage;
    job->door = ends[0];
    job->door_inside = ends[1];
    job->door_watch = hc_loop_watch(cell->warden->loop, job->door, EPOLLIN, on_door, job);
    job_begin(job); /* frees it when it could not be started: then primed_lost was told */
    return 0;
}

void primed_built(struct held_cell *cell)
{
    struct hc_err err = {0};
    /* Of several, each has a group of its own, for one must be ended while pid 1 and the other stay. */
    cell->used = cell->warm->spec.stages > 1;
    for (unsigned stage = 0; stage < cell->warm->spec.stages && cell->state == HELD_READY; stage++)
        if (start_waiting(cell, stage, &err) < 0) {
            cell->warm->not_before = hc_now() + FAILED_PAUSE_US;
            supervise_drop(cell);
            return;
        }
}

static void on_mend(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct warden *warden = data;
    struct held_cell *next;
    warden->mend = NULL;
    for (struct held_cell *cell = warden->cells; cell; cell = next) {
        next = cell->next;
        if (cell->broken && cell->place == PLACE_PRIMED && cell->state != HELD_DYING)
            supervise_drop(cell);
    }
}

/* Its cell is of no more use. It goes a moment later: who tells us of it may be in the middle of something. */
void primed_lost(struct held_job *job)
{
    struct held_cell *cell = job->cell;
    struct warden *warden = cell->warden;
    if (cell->place != PLACE_PRIMED || cell->state == HELD_DYING)
        return; /* taken: what it was for starts cold */
    cell->warm->not_before = hc_now() + FAILED_PAUSE_US;
    cell->broken = true;
    if (!warden->mend)
        warden->mend = hc_loop_timer(warden->loop, hc_now(), on_mend, warden);
}

/* ---- how many ---- */

/* It has said so in both ways: what is in its pipe would else be taken for its program's. */
static bool can_begin(const struct held_job *job)
{
    return job->at_door && job->report < 0;
}

bool primed_ready(const struct held_cell *cell)
{
    unsigned waiting = 0;
    for (const struct held_job *job = cell->jobs; job; job = job->next)
        waiting += can_begin(job);
    return cell->state == HELD_READY && !cell->broken && waiting == cell->warm->spec.stages;
}

/* What takes a second to boot does not keep waiting what takes a millisecond. */
static bool one_boots(const struct warden *warden, uint32_t kind)
{
    for (const struct held_cell *cell = warden->cells; cell; cell = cell->next)
        if (cell->place == PLACE_PRIMED && cell->state != HELD_DYING && cell->warm->spec.kind == kind &&
            !primed_ready(cell))
            return true;
    return false;
}

static uint32_t count_waiting(const struct warm *warm)
{
    uint32_t count = 0;
    for (const struct held_cell *cell = warm->warden->cells; cell; cell = cell->next)
        count += cell->place == PLACE_PRIMED && cell->warm == warm && cell->state != HELD_DYING;
    return count;
}

static void start_cell(struct warm *warm)
{
    struct warden *warden = warm->warden;
    struct hc_err err = {0};
    if (warden->pool.spec.most == 0 || !pool_has_room(warden))
        return; /* without a pool nobody has said what an ordinary cell is */
    struct held_cell *cell = supervise_build(warden, &warden->pool.spec.cell, PLACE_PRIMED, &err);
    if (!cell) {
        warm->not_before = hc_now() + FAILED_PAUSE_US;
        return;
    }
    cell->warm = warm;
    cgroup_background(&warden->host.cgroups, &cell->cell.group, true);
}

void primed_refill(struct warden *warden)
{
    if (warden->closing)
        return;
    uint64_t now = hc_now();
    for (struct warm *warm = warden->warm; warm; warm = warm->next)
        if (warm->wanted && now >= warm->not_before && count_waiting(warm) < warm->target &&
            (warm->spec.kind == WARM_PRIMED || warm_serves(warm)) && !one_boots(warden, warm->spec.kind))
            start_cell(warm);
}

void primed_look(struct warm *warm)
{
    struct held_cell *next;
    if (!warm->wanted)
        warm->target = 0;
    else if (warm->target > warm->spec.least && hc_now() - warm->missed >= warm->spec.age)
        warm->target--;
    uint32_t count = count_waiting(warm);
    for (struct held_cell *cell = warm->warden->cells; cell; cell = next) {
        next = cell->next;
        if (cell->place != PLACE_PRIMED || cell->warm != warm || cell->state == HELD_DYING)
            continue;
        uint64_t age = hc_now() - cell->born;
        if (count > warm->target || age >= warm->spec.age || (age >= PRIMED_BOOT_US && !primed_ready(cell))) {
            supervise_drop(cell);
            count--;
        }
    }
    pool_changed(warm->warden);
}

/* ---- use ---- */

static void wanted(struct warm *warm, bool missed)
{
    warm->wanted = true;
    warm->used = hc_now();
    if (missed)
        warm->missed = warm->used;
    if (warm->target < warm->spec.least)
        warm->target = warm->spec.least;
    else if (missed && warm->target < warm->spec.most)
        warm->target++;
}

struct held_cell *primed_take(struct warden *warden, uint64_t id, const struct cell_spec *spec)
{
    struct warm *warm = warm_find(warden, id);
    if (!warm || !pool_fits(&warden->pool.spec.cell, spec) || spec->disk != warden->pool.spec.cell.disk ||
        spec->inodes != warden->pool.spec.cell.inodes)
        return NULL; /* nobody who waits could change the size of its disk */
    struct held_cell *found = NULL;
    for (struct held_cell *cell = warden->cells; cell; cell = cell->next)
        if (cell->place == PLACE_PRIMED && cell->warm == warm && primed_ready(cell))
            found = cell; /* the oldest is the last */
    wanted(warm, !found);
    if (found)
        found->place = PLACE_CLIENT; /* its programs get their weight with their limits */
    pool_changed(warden);
    return found;
}

/* What earlier stages left running. Their groups are their own. */
static void sweep(struct held_cell *cell, const struct cgroup *but)
{
    for (unsigned i = 0; i < cell->spare_count; i++) {
        bool waits = &cell->spare[i] == but;
        for (const struct held_job *job = cell->jobs; job; job = job->next)
            waits = waits || (job->group == &cell->spare[i] && job->waiting);
        if (!waits)
            cgroup_kill(&cell->spare[i]);
    }
}

bool primed_sweep(struct held_cell *cell, const struct cgroup *but)
{
    const struct held_job *job = cell->jobs;
    while (job && !job->waiting)
        job = job->next;
    if (job)
        sweep(cell, but);
    return job != NULL;
}

static int send_program(struct held_job *waiting, const struct held_job *job, int *report)
{
    struct warm_program program = {.has_files = job->fds[4] >= 0, .from_root = job->spec.has_files == JOB_FILES_ROOT};
    /* The last word spares whoever waits a tenth of a millisecond, and the processors nothing. */
    program.last_word = job->spec.last && job->spec.untold && !pool_busy(job->cell->warden, job->cell);
    int ends[2];
    memcpy(program.work_dir, job->cell->cell.spec.work_dir, sizeof program.work_dir);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    int fds[6] = {ends[1], job->fds[0], job->fds[1], job->fds[2], job->fds[3], job->fds[4]};
    int result = hc_try_send_fds(waiting->door, &program, sizeof program, fds, program.has_files ? 6 : 5);
    hc_close(ends[1]);
    if (result < 0)
        hc_close(ends[0]);
    else
        *report = ends[0];
    return result;
}

/* The run's own limits, where they are not those that it has waited with. Most are. *background: it still has the
 * weight of one that waits, and no limit depends on it. */
static int give_limits(struct held_job *waiting, const struct job_limits *before, bool *background, struct hc_err *err)
{
    const struct cgroup_base *base = &waiting->cell->warden->host.cgroups;
    const struct job_limits *now = &waiting->spec.limits;
    bool group = now->memory == before->memory && now->swap == before->swap && now->cpu_milli == before->cpu_milli &&
                 now->cpu_shares == before->cpu_shares && now->pids == before->pids;
    bool process = group && base->controllers == CGROUP_HAS_ALL && now->files_open == before->files_open &&
                   now->file_size == before->file_size;
    int result = 0;
    *background = group && now->cpu_shares == CGROUP_ORDINARY_SHARES;
    if (*background) {
        if (waiting->cell->warm->spec.kind !=
            WARM_ZYGOTE) /* an engine with threads of its own goes on while it waits */
            cgroup_cpu(base, waiting->group, &waiting->before);
    } else {
        result = job_limit(waiting, false, err);
    }
    if (result == 0 && !process)
        result = entry_limits(waiting->pid, now, base->controllers, err);
    return result < 0 || process ? result : entry_limit_files(waiting->pid, now, err);
}

bool primed_begin(struct held_job *job)
{
    struct held_cell *cell = job->cell;
    struct held_job *waiting = cell->jobs;
    while (waiting && !(can_begin(waiting) && waiting->first_stage == job->spec.stage))
        waiting = waiting->next;
    /* What comes through the door needs fds beside those that an interpreter has open. */
    if (!waiting || !cell->warm || job->spec.warm != cell->warm->spec.id || job->spec.limits.files_open < FEWEST_FDS)
        return false;
    if (job->spec.sweep)
        sweep(cell, waiting->group);
    struct hc_err err = {0};
    struct job_spec before = waiting->spec;
    waiting->spec = job->spec;
    int report = -1;
    bool background = false;
    uint64_t begun = hc_now(); /* before the program can hear of it, and run on another processor */
    if (give_limits(waiting, &before.limits, &background, &err) < 0 || send_program(waiting, job, &report) < 0) {
        waiting->spec = before;
        return false; /* an entry of its own meets the same trouble and says so */
    }
    if (background) /* while it wakes up */
        cgroup_background(&cell->warden->host.cgroups, waiting->group, false);
    waiting->waiting = waiting->at_door = false;
    waiting->door = hc_close(waiting->door);
    waiting->id = job->id;
    waiting->start = cell->warm->spec.kind == WARM_ZYGOTE ? START_WARM : START_PRIMED;
    waiting->begun = begun;
    waiting->exec_at = 0;
    waiting->report = report;
    /* Should it die at its door, these are for a cold start. */
    memcpy(waiting->fds, job->fds, sizeof waiting->fds);
    for (size_t i = 0; i < sizeof job->fds / sizeof *job->fds; i++)
        job->fds[i] = -1;
    waiting->again = true;
    job_free(job);
    job_entered(waiting);
    return true;
}
