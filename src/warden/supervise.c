/*
 * Supervision: theory of operation.
 *
 * A cell is BUILDING until its builder's pipe closes, then READY, and DYING from the moment that somebody wants it gone
 * or its pid 1 has died. Jobs that arrive while it is BUILDING wait. A dying cell is killed (its control groups and its
 * pid 1), its jobs end and are reported like any others, and once pid 1 has been reaped, which the kernel delays until
 * the whole pid namespace is empty, its groups are removed and the client is told. Nothing here blocks.
 *
 * A cell whose last program has ended, and in which the kernel counts nobody but its pid 1, is retired: it stays as it
 * is until the answer has had time to be sent. To take it apart makes work on every processor (an expedited grace
 * period, a network namespace), and there is nobody left in it who could do anything.
 */
#include "base/fd.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { REMOVE_AGAIN_US = 1000, SLOW_US = 50000 };

struct held_cell *supervise_find(struct warden *warden, uint64_t id)
{
    struct held_cell *cell = id ? warden->cells : NULL;
    while (cell && cell->id != id)
        cell = cell->next;
    return cell;
}

static void say_cell(struct warden *warden, uint64_t id, enum warden_type type, const struct hc_err *err)
{
    struct warden_message message = {.type = type, .cell = id};
    if (err)
        message.err = *err;
    warden_say(warden, &message);
}

/* ---- the end of a cell ---- */

static void stop_heeding(struct held_cell *cell)
{
    hc_watch_remove(cell->report_watch);
    hc_timer_remove(cell->slow_timer);
    cell->report_watch = NULL;
    cell->slow_timer = NULL;
}

static void remove_cell(struct held_cell *cell)
{
    for (struct held_cell **at = &cell->warden->cells; *at; at = &(*at)->next)
        if (*at == cell) {
            *at = cell->next;
            break;
        }
    if (cell->wanted)
        say_cell(cell->warden, cell->id, WARDEN_CELL_GONE, NULL);
    lasting_release(cell);
    free(cell);
}

static void finish(struct hc_loop *loop, void *data)
{
    struct held_cell *cell = data;
    struct warden *warden = cell->warden;
    cell->remove_timer = NULL;
    lasting_clear(cell);
    int result = cgroup_remove(&warden->host.cgroups, &cell->cell.group);
    for (unsigned i = 0; i < cell->spare_count; i++) {
        int spare = cgroup_remove(&warden->host.cgroups, &cell->spare[i]);
        if (result == 0)
            result = spare;
    }
    if (result == -EBUSY) { /* the last process is gone for us, and not yet for its group */
        cell->remove_timer = hc_loop_timer(loop, hc_now() + REMOVE_AGAIN_US, finish, cell);
        if (cell->remove_timer)
            return;
    }
    lasting_late(cell);
    cell->cell.pidfd = hc_close(cell->cell.pidfd);
    stop_heeding(cell);
    cell->cell.built = hc_close(cell->cell.built);
    cell->cell.report = hc_close(cell->cell.report);
    hc_watch_remove(cell->word_watch);
    cell->word_watch = NULL;
    witness_close(&cell->cell.witness);
    if (cell->lasting && cell->why.code && !cell->wanted && !warden->closing) {
        cell->state = HELD_DEAD; /* its client has to hear of that, also one that is not there yet */
        say_cell(warden, cell->id, WARDEN_CELL_GONE, &cell->why);
    } else {
        remove_cell(cell);
    }
    pool_changed(warden);
    warden_check_done(warden);
}

void supervise_check_gone(struct held_cell *cell)
{
    if (cell->state != HELD_DYING || !cell->reaped || cell->remove_timer)
        return;
    for (const struct held_job *job = cell->jobs; job; job = job->next)
        if (!job->over)
            return;
    finish(cell->warden->loop, cell);
}

static void let_die(struct held_cell *cell, enum job_end reason, const struct hc_err *why)
{
    cell->state = HELD_DYING;
    hc_timer_remove(cell->retire_timer);
    cell->retire_timer = NULL;
    struct held_job *next;
    for (struct held_job *job = cell->jobs; job; job = next) {
        next = job->next;
        /* One that waits after its last word goes before pid 1, whose end would send it back. */
        if (job->over && job->exit_watch)
            hc_pidfd_signal(job->pidfd, SIGKILL);
        if (job->over)
            continue;
        if (job->running)
            job_end(job, reason);
        else
            job_refuse(job, why);
    }
    if (cell->frozen) /* what is frozen dies when it is killed, but pid 1 waits for all of it */
        cgroup_freeze(&cell->cell.group, false);
    if (cell->alone)
        hc_pidfd_signal(cell->cell.pidfd, SIGKILL);
    else
        cell_kill(&cell->cell);
    for (unsigned i = 0; i < cell->spare_count; i++)
        cgroup_kill(&cell->spare[i]);
}

/* Out of memory takes pid 1 along; anything else is a fault of ours. By the code the client tells it from other errors
 * of a job: no other job can be started in this cell. */
int supervise_lost_error(struct hc_err *err)
{
    hc_err_clear(err);
    return hc_fail(err, HC_CLASS_OURS, EOWNERDEAD, "pid 1 of the cell died");
}

void supervise_lost(struct held_cell *cell)
{
    struct hc_err err = {0};
    if (cell->state != HELD_READY)
        return;
    supervise_lost_error(&err);
    cell->why = err;
    let_die(cell, JOB_EXITED, &err);
}

static void on_init_exit(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct held_cell *cell = data;
    siginfo_t info = {0};
    if (syscall(SYS_waitid, 3 /* P_PIDFD */, fd, &info, WEXITED | WNOHANG, NULL) < 0 || info.si_pid == 0)
        return;
    cell->reaped = true;
    hc_watch_remove(cell->exit_watch);
    cell->exit_watch = NULL;
    supervise_lost(cell);
    supervise_check_gone(cell);
}

/* ---- the beginning of a cell ---- */

static void fail_cell(struct held_cell *cell, const struct hc_err *err)
{
    say_cell(cell->warden, cell->id, WARDEN_CELL_FAILED, err);
    let_die(cell, JOB_SHUTDOWN, err);
    supervise_check_gone(cell);
}

static void on_built(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    supervise_built(data);
}

void supervise_heed_builder(struct held_cell *cell)
{
    stop_heeding(cell);
    if (cell->cell.report < 0)
        return;
    cell->report_watch = hc_loop_watch(cell->warden->loop, cell->cell.report, EPOLLIN, on_built, cell);
    if (!cell->report_watch)
        _exit(125); /* a cell that cannot be watched must not live; nor can we */
}

static void on_slow(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct held_cell *cell = data;
    cell->slow_timer = NULL;
    supervise_heed_builder(cell);
}

void supervise_heed_job(struct held_cell *cell)
{
    stop_heeding(cell);
    cell->slow_timer = hc_loop_timer(cell->warden->loop, hc_now() + SLOW_US, on_slow, cell);
    if (!cell->slow_timer)
        supervise_heed_builder(cell);
}

/* False: it cannot be limited, and goes. */
static bool begin_lasting(struct held_cell *cell)
{
    struct hc_err err = {0};
    if (lasting_begin(cell, &err) == 0)
        return true;
    fail_cell(cell, &err);
    return false;
}

void supervise_built(struct held_cell *cell)
{
    struct hc_err err;
    ssize_t count = hc_read_full(cell->cell.report, &err, sizeof err);
    stop_heeding(cell);
    cell->cell.report = hc_close(cell->cell.report);
    cell->cell.built = hc_close(cell->cell.built);
    if (cell->state != HELD_BUILDING)
        return;
    if (count != 0 || cell->reaped) { /* one that was killed half-way has said nothing */
        if (count != (ssize_t)sizeof err) {
            memset(&err, 0, sizeof err);
            hc_fail(&err, HC_CLASS_OURS, EIO, "the builder of the cell died");
        }
        err.field[sizeof err.field - 1] = err.message[sizeof err.message - 1] = err.remedy[sizeof err.remedy - 1] =
            '\0';
        hc_err_context(&err, "building the cell");
        if (cell->place != PLACE_CLIENT)
            pool_failed(cell->warden);
        fail_cell(cell, &err);
        return;
    }
    cell->state = HELD_READY;
    if (cell->place == PLACE_PRIMED) {
        primed_built(cell);
        return;
    }
    if (cell->place == PLACE_POOL)
        pool_changed(cell->warden);
    else if (cell->lasting && !begin_lasting(cell))
        return;
    else if (cell->verbose)
        say_cell(cell->warden, cell->id, WARDEN_CELL_READY, NULL);
    struct held_job *next;
    for (struct held_job *job = cell->jobs; job && cell->state == HELD_READY; job = next) {
        next = job->next;
        job_begin(job);
    }
}

/* Fixed-size records from a memory file that nobody can change any more. */
static int read_mounts(int fd, uint32_t count, struct cell_mount *mounts, struct hc_err *err)
{
    size_t length, wanted = count * sizeof *mounts;
    if (count > CELL_MAX_MOUNTS || hc_memfd_check(fd, &length) < 0 || length != wanted ||
        pread(fd, mounts, wanted, 0) != (ssize_t)wanted)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the cell's mounts are not well-formed");
    return 0;
}

static int check_lookups(int fd, uint32_t wanted, struct hc_err *err)
{
    size_t length;
    if (hc_memfd_check(fd, &length) < 0 || length != wanted)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the cell's lookups are not well-formed");
    return 0;
}

/* The uids of a cell are its own while it lives. The lowest free pair is taken, for host folders are mapped to the
 * first. */
static unsigned free_slot(const struct warden *warden)
{
    unsigned slot = 0;
    for (const struct held_cell *cell = warden->cells; cell;) {
        if (cell->cell.slot == slot) {
            slot++;
            cell = warden->cells;
        } else {
            cell = cell->next;
        }
    }
    return slot;
}

/* A service's keeper opens each cell's host folders for it alone, shown with the cell's own uids. It is waited for: it
 * does nothing else that takes time. */
static int ask_for_hosts(const struct warden *warden, const struct cell_mount *mounts, uint32_t count, unsigned slot,
                         int *trees, struct hc_err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        struct warden_message message = {
            .protocol = WARDEN_PROTOCOL, .type = WARDEN_HOST_WANTED, .host = mounts[i].host, .slot = slot};
        size_t received = 0;
        int result = hc_send_fds(warden->hosts, &message, sizeof message, NULL, 0);
        ssize_t size =
            result < 0 ? result : hc_recv_fds(warden->hosts, &message, sizeof message, &trees[i], 1, &received);
        if (size != (ssize_t)sizeof message || message.type != WARDEN_HOST_WANTED)
            return hc_fail(err, HC_CLASS_OURS, EPIPE, "the keeper does not answer");
        if (received != 1) {
            *err = message.err;
            return err->code ? -err->code : hc_fail(err, HC_CLASS_OURS, EPROTO, "the keeper gave no folder");
        }
    }
    return 0;
}

static int begin(struct warden *warden, struct held_cell *cell, const struct cell_spec *spec, const int *fds,
                 size_t count, struct hc_err *err)
{
    struct cell_mount mounts[CELL_MAX_MOUNTS];
    struct cell_parts parts = {.mounts = mounts, .lookups = -1};
    int result = 0;
    if (count != (size_t)(spec->mount_count > 0) + (spec->lookups > 0))
        result = hc_fail(err, HC_CLASS_OURS, EPROTO, "the cell's parts are not all there");
    if (result == 0 && spec->mount_count)
        result = read_mounts(fds[0], spec->mount_count, mounts, err);
    if (result == 0 && spec->lookups)
        result = check_lookups(parts.lookups = fds[count - 1], spec->lookups, err);
    if (result == 0)
        result = cell_spec_check(spec, mounts, err);
    if (result < 0)
        return result;
    char name[32];
    snprintf(name, sizeof name, "cell%llu", (unsigned long long)warden->next_name++);
    unsigned slot = free_slot(warden);
    int trees[CELL_MAX_MOUNTS];
    for (int i = 0; i < CELL_MAX_MOUNTS; i++)
        trees[i] = -1;
    if (warden->hosts >= 0 && warden->host.many_uids && spec->mount_count) {
        parts.trees = trees;
        result = ask_for_hosts(warden, mounts, spec->mount_count, slot, trees, err);
    }
    if (result == 0)
        result = cell_begin(&warden->host, spec, &parts, slot, name, &cell->cell, err);
    for (int i = 0; i < CELL_MAX_MOUNTS; i++)
        hc_close(trees[i]);
    if (cell->cell.pid == 0)
        return result;
    warden->host.spare_net = hc_close(warden->host.spare_net); /* it is that cell's now */
    cell->born = hc_now();
    cell->next = warden->cells;
    warden->cells = cell;
    supervise_heed_builder(cell);
    cell->exit_watch = hc_loop_watch(warden->loop, cell->cell.pidfd, EPOLLIN, on_init_exit, cell);
    if (!cell->exit_watch)
        _exit(125);
    if (result < 0)
        let_die(cell, JOB_SHUTDOWN, err);
    return result;
}

/* NULL: err says why, and there is nothing to clear that does not clear itself. */
static struct held_cell *build(struct warden *warden, const struct cell_spec *spec, const int *fds, size_t count,
                               uint64_t id, enum held_place place, struct hc_err *err)
{
    struct held_cell *cell = calloc(1, sizeof *cell);
    if (!cell) {
        hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
        return NULL;
    }
    cell->id = id;
    cell->place = place;
    cell->warden = warden;
    cell_init(&cell->cell);
    if (begin(warden, cell, spec, fds, count, err) == 0)
        return cell;
    if (cell->cell.pid == 0)
        free(cell);
    else
        cell->id = 0; /* it fails now, and goes by itself */
    return NULL;
}

struct held_cell *supervise_build(struct warden *warden, const struct cell_spec *spec, enum held_place place,
                                  struct hc_err *err)
{
    return build(warden, spec, NULL, 0, 0, place, err);
}

static void take_lasting(struct held_cell *cell, const struct warden_message *message)
{
    cell->lasting = message->lasting;
    cell->limits = message->cell_limits;
}

/* One that is there, or nearly: the client need not know the difference. */
static struct held_cell *take(struct warden *warden, const struct warden_message *message)
{
    struct held_cell *cell = NULL;
    if (message->warm && !message->lasting) /* whoever waits is in no group of its own, as a lasting cell's jobs are */
        cell = primed_take(warden, message->warm, &message->cell_spec);
    if (!cell)
        cell = pool_take(warden, &message->cell_spec);
    if (!cell)
        return NULL;
    cell->id = message->cell;
    cell->verbose = message->verbose;
    cell->place = PLACE_CLIENT;
    if (cell->cell.spec.disk != message->cell_spec.disk || cell->cell.spec.inodes != message->cell_spec.inodes)
        cell->resize = true;
    cell->cell.spec = message->cell_spec;
    take_lasting(cell, message);
    if (cell->state == HELD_READY && cell->lasting && !begin_lasting(cell))
        return cell;
    if (cell->state == HELD_READY && cell->verbose) {
        struct warden_message answer = {.type = WARDEN_CELL_READY, .cell = cell->id, .pooled = 1};
        warden_say(warden, &answer);
    }
    return cell;
}

void supervise_new_cell(struct warden *warden, const struct warden_message *message, const int *fds, size_t count)
{
    struct hc_err err = {0};
    uint64_t id = message->cell;
    if (message->isolation & ~warden->isolation) /* the client knows from the greeting what is missing */
        hc_fail(&err, HC_CLASS_HOST, EPERM, "a layer that must hold does not");
    else if (id == 0 || supervise_find(warden, id) || !(id & WARDEN_LASTING) != !message->lasting ||
             (message->lasting && job_limits_check(&message->cell_limits, &err) < 0))
        hc_fail(&err, HC_CLASS_OURS, EEXIST, "cell %llu cannot be made", (unsigned long long)id);
    else if (message->cell_spec.mount_count == 0 && cell_spec_check(&message->cell_spec, NULL, &err) == 0 &&
             take(warden, message))
        return;
    struct held_cell *cell = err.code ? NULL : build(warden, &message->cell_spec, fds, count, id, PLACE_CLIENT, &err);
    if (cell) {
        cell->verbose = message->verbose;
        take_lasting(cell, message);
        return;
    }
    say_cell(warden, id, WARDEN_CELL_FAILED, &err);
}

void supervise_destroy(struct warden *warden, uint64_t id, bool told)
{
    struct held_cell *cell = supervise_find(warden, id);
    if (!cell) {
        say_cell(warden, id, WARDEN_CELL_GONE, NULL);
        return;
    }
    cell->wanted = cell->wanted || told;
    if (cell->state == HELD_DEAD) {
        remove_cell(cell);
        return;
    }
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_OURS, ECANCELED, "the cell was destroyed");
    if (cell->state != HELD_DYING)
        let_die(cell, JOB_CANCELLED, &err);
    supervise_check_gone(cell);
}

static void on_retire(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct held_cell *cell = data;
    cell->retire_timer = NULL;
    supervise_destroy(cell->warden, cell->id, false);
}

void supervise_retire(struct held_cell *cell)
{
    if (cell->state == HELD_READY && !cell->retire_timer && !pool_busy(cell->warden, NULL))
        cell->retire_timer = hc_loop_timer(cell->warden->loop, hc_now() + ANSWER_FIRST_US, on_retire, cell);
    if (!cell->retire_timer)
        supervise_destroy(cell->warden, cell->id, false);
}

void supervise_start(struct warden *warden, uint64_t id, uint64_t job_id, const struct job_spec *spec, int *fds,
                     size_t count)
{
    struct held_cell *cell = supervise_find(warden, id);
    struct hc_err err = {0};
    int result = job_limits_check(&spec->limits, &err);
    bool lasting = cell && cell->lasting;
    size_t wanted = 4 + (spec->has_files ? 1 : 0) + (spec->has_door ? 1 : 0);
    if (result == 0 && lasting && cell->state >= HELD_DYING && cell->why.code) {
        err = cell->why;
        result = -err.code;
    } else if (result == 0 && (!cell || cell->state >= HELD_DYING))
        result = hc_fail(&err, HC_CLASS_OURS, ENOENT, "there is no such cell");
    if (result == 0 && count != wanted)
        result = hc_fail(&err, HC_CLASS_OURS, EPROTO, "a job has %zu fds, not %zu", wanted, count);
    bool door = spec->kind == JOB_TERMINAL || spec->kind == JOB_CONNECT;
    if (result == 0 && (spec->kind > (lasting ? JOB_CONNECT : JOB_COLLECT) || spec->stage >= WARM_MAX_STAGES ||
                        (lasting && (spec->last || spec->final || spec->sweep || spec->kind == JOB_COLLECT)) ||
                        (spec->has_door && !lasting) || (door && !spec->has_door)))
        result = hc_fail(&err, HC_CLASS_OURS, EPROTO, "the job is not well-formed");
    struct held_job *job = result == 0 ? job_new(cell, job_id, spec, fds, count) : NULL;
    if (result == 0 && !job)
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
    if (!job) {
        struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = id, .job = job_id, .err = err};
        message.facts.end = JOB_NOT_STARTED;
        warden_say(warden, &message);
    } else if (cell->state == HELD_READY) {
        job_begin(job);
    } else {
        job_begin_early(job);
    }
}

void supervise_kill(struct warden *warden, uint64_t id, uint64_t job_id, enum job_end reason)
{
    struct held_cell *cell = supervise_find(warden, id);
    for (struct held_job *job = cell ? cell->jobs : NULL; job; job = job->next) {
        if (job->id != job_id || job->waiting || job->over)
            continue;
        if (job->running) {
            job_end(job, reason == JOB_OUTPUT ? JOB_OUTPUT : JOB_CANCELLED);
        } else {
            struct hc_err err = {0};
            hc_fail(&err, HC_CLASS_OURS, ECANCELED, "cancelled");
            job_refuse(job, &err);
        }
        return;
    }
}

static void end_cell(struct held_cell *cell)
{
    if (cell->state == HELD_DEAD) {
        remove_cell(cell);
        return;
    }
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_OURS, ECANCELED, "hotcell is going");
    if (cell->state != HELD_DYING)
        let_die(cell, JOB_SHUTDOWN, &err);
    supervise_check_gone(cell);
}

void supervise_end(struct warden *warden, bool all)
{
    struct held_cell *next;
    for (struct held_cell *cell = warden->cells; cell; cell = next) {
        next = cell->next;
        if (all || (cell->place == PLACE_CLIENT && !cell->lasting))
            end_cell(cell);
    }
    warden_check_done(warden);
}

void supervise_drop(struct held_cell *cell)
{
    end_cell(cell);
}
