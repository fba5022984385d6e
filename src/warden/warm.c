/*
 * Zygotes: booted interpreters that the warden asks for children (cell/warm.h). A zygote is the warden's own child, in
 * its namespaces and with its rights, and runs nothing but its language's driver. Requests and answers go in order, any
 * number at a time. One that dies, hangs or refuses costs nobody a run: what it was asked for starts cold. It is
 * replaced after so many forks and so much time, by another that is booted while it still serves.
 */
#include "cell/warm.h"
#include "base/fd.h"
#include "cell/image.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    BOOT_US = 60000000,        /* how long one may take until it waits at its door */
    ANSWER_US = 5000000,       /* how long it may take to answer */
    FAILED_PAUSE_US = 5000000, /* after one failed */
    MAX_PENDING = 128,
    LOOK_US = 30000000, /* how often to look for what is too old, at most */
};

enum zygote_state { ZYGOTE_BOOTING, ZYGOTE_READY, ZYGOTE_LEAVING };

struct pending { /* a request that was sent and not answered */
    struct pending *next;
    struct held_job *job; /* NULL: it does not want it any more */
    pid_t cell;           /* pid 1 of its cell */
};

struct zygote {
    struct zygote *next;
    struct warm *warm;
    enum zygote_state state;
    pid_t pid;
    int pidfd, door;
    uint32_t forks;
    uint64_t born;
    struct pending *first, **last;
    uint32_t pending;
    struct hc_watch *door_watch, *exit_watch;
    struct hc_timer *timer; /* it boots, or has not answered */
};

static void zygote_start(struct warm *warm);
static void started(struct zygote *zygote, const struct warm_word *word, int pidfd);

/* ---- birth ---- */

struct birth {
    int door, block, report;
    struct entry_words words;
};

/* An overlay of its own, as a cell has one: what children have mapped from it is nobody's file on the host. And folders
 * to write to, which a program has as well: modules that are loaded ahead look for one (matplotlib). No child sees
 * them.
 */
static int own_places(const char *folder, struct hc_err *err)
{
    static const char options[] = "mode=0755,size=16m,nr_inodes=1024";
    if (unshare(CLONE_NEWNS) < 0 || mount("usr", "/usr", "overlay", MS_NOSUID | MS_NODEV | MS_RDONLY,
                                          "lowerdir=" IMAGE_EMPTY ":/usr,userxattr") < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "overlay");
    if (mount("tmp", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 ||
        (strcmp(folder, "/") != 0 && mount("work", folder, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0))
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "tmpfs");
    return 0;
}

/* 1 and 2 are pipes, as a program's are: interpreters look at what they have when they start. Nobody reads them. */
static int place_fds(struct birth *birth, struct hc_err *err)
{
    int ends[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || pipe2(ends, O_CLOEXEC) < 0 || dup2(null, 0) < 0 || dup2(ends[1], 1) < 0 || dup2(ends[1], 2) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "placing fds");
    int door = fcntl(birth->door, F_DUPFD_CLOEXEC, 10), block = fcntl(birth->block, F_DUPFD_CLOEXEC, 10),
        reader = fcntl(ends[0], F_DUPFD, 10);
    if (door < 0 || block < 0 || reader < 0 || dup2(door, WARM_DOOR_FD) < 0 || dup3(block, 4, O_CLOEXEC) < 0 ||
        dup2(reader, 5) < 0 || hc_close_range(6, ~0U, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "placing fds");
    birth->block = 4;
    return 0;
}

static _Noreturn void become_zygote(struct birth *birth)
{
    struct hc_err err = {0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && entry_reset_signals(&err) == 0 &&
        place_fds(birth, &err) == 0 && entry_read_block(birth->block, &birth->words, &err) == 0 &&
        own_places(birth->words.cwd, &err) == 0 && chdir(birth->words.cwd) == 0)
        execve(birth->words.argv[0], birth->words.argv, birth->words.envp);
    _exit(125);
}

/* ---- the end of one ---- */

static struct held_job *next_pending(struct zygote *zygote)
{
    struct pending *pending = zygote->first;
    struct held_job *job = pending->job;
    zygote->first = pending->next;
    if (!zygote->first)
        zygote->last = &zygote->first;
    zygote->pending--;
    free(pending);
    if (job)
        job->pending = NULL;
    return job;
}

static void zygote_free(struct zygote *zygote)
{
    for (struct zygote **at = &zygote->warm->zygotes; *at; at = &(*at)->next)
        if (*at == zygote) {
            *at = zygote->next;
            break;
        }
    hc_watch_remove(zygote->door_watch);
    hc_watch_remove(zygote->exit_watch);
    hc_timer_remove(zygote->timer);
    hc_close(zygote->door);
    hc_close(zygote->pidfd);
    free(zygote);
}

/* It takes no more requests. What it was asked for and has not answered is looked after when it has ended. */
static void zygote_leave(struct zygote *zygote, bool kill)
{
    zygote->state = ZYGOTE_LEAVING;
    hc_watch_remove(zygote->door_watch);
    hc_timer_remove(zygote->timer);
    zygote->door_watch = NULL;
    zygote->timer = NULL;
    if (kill)
        hc_pidfd_signal(zygote->pidfd, SIGKILL);
    else
        shutdown(zygote->door, SHUT_WR); /* its end of file */
    pool_changed(zygote->warm->warden);
}

static void zygote_fail(struct zygote *zygote)
{
    struct warm *warm = zygote->warm;
    warm->not_before = hc_now() + FAILED_PAUSE_US;
    zygote_leave(zygote, true);
}

/* It has ended. Its last words are heard first. Then, as it works in order, it can have made a child for the first
 * request that is left, and for no other: that child is the job. The rest start cold. */
static void settle(struct zygote *zygote)
{
    struct warden *warden = zygote->warm->warden;
    struct warm_word word;
    int fd = -1;
    size_t count = 0;
    while (zygote->first && hc_recv_fds(zygote->door, &word, sizeof word, &fd, 1, &count) == (ssize_t)sizeof word)
        started(zygote, &word, count ? fd : -1);
    for (bool may = true; zygote->first; may = false) {
        fd = may ? stray_find(warden, zygote->first->cell, &word.pid) : -1;
        word.code = fd >= 0 ? 0 : ECHILD;
        started(zygote, &word, fd);
    }
}

static void on_zygote_exit(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct zygote *zygote = data;
    struct warm *warm = zygote->warm;
    siginfo_t info = {0};
    if (syscall(SYS_waitid, 3 /* P_PIDFD */, fd, &info, WEXITED | WNOHANG, NULL) < 0 || info.si_pid == 0)
        return;
    bool died = zygote->state == ZYGOTE_READY, booting = zygote->state == ZYGOTE_BOOTING;
    if (booting)
        warm->not_before = hc_now() + FAILED_PAUSE_US;
    if (zygote->state != ZYGOTE_LEAVING)
        zygote_leave(zygote, false);
    settle(zygote);
    zygote_free(zygote);
    if (died && !warm->zygotes && !warm->warden->closing)
        zygote_start(warm);
}

static void on_late(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct zygote *zygote = data;
    zygote->timer = NULL;
    zygote_fail(zygote);
}

/* ---- its words ---- */

static void started(struct zygote *zygote, const struct warm_word *word, int pidfd)
{
    struct held_job *job = next_pending(zygote);
    hc_timer_remove(zygote->timer);
    zygote->timer = NULL;
    if (zygote->first) {
        zygote->timer = hc_loop_timer(zygote->warm->warden->loop, hc_now() + ANSWER_US, on_late, zygote);
    }
    if (pidfd < 0 || word->code) {
        hc_close(pidfd);
        if (job)
            job_enter_cold(job);
    } else if (!job) {
        stray_end(zygote->warm->warden, pidfd);
    } else {
        job->pid = word->pid;
        job->pidfd = pidfd;
        job->start = START_WARM;
        job->cell->resize = false;
        job->door_inside = hc_close(job->door_inside);
        job_entered(job);
    }
}

/* The newest that waits serves; those before it leave when they have answered. */
static void retire_older(struct zygote *zygote)
{
    struct zygote *next;
    for (struct zygote *other = zygote->next; other; other = next) {
        next = other->next;
        if (other->state == ZYGOTE_READY && !other->first)
            zygote_leave(other, false);
    }
}

static void on_door(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct zygote *zygote = data;
    struct warm_word word = {0};
    int fds[1] = {-1};
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &word, sizeof word, fds, 1, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    if (size != (ssize_t)sizeof word || (zygote->state == ZYGOTE_READY && !zygote->first)) {
        hc_close(fds[0]);
        zygote_fail(zygote);
        return;
    }
    if (zygote->state == ZYGOTE_BOOTING) {
        hc_close(fds[0]);
        hc_timer_remove(zygote->timer);
        zygote->timer = NULL;
        zygote->state = ZYGOTE_READY;
        pool_changed(zygote->warm->warden);
    } else {
        started(zygote, &word, fds[0]);
    }
    retire_older(zygote->warm->zygotes->state == ZYGOTE_READY ? zygote->warm->zygotes : zygote);
}

/* ---- starting and asking ---- */

static void zygote_start(struct warm *warm)
{
    struct warden *warden = warm->warden;
    int ends[2];
    if (warden->closing || warden->pool.room == 0 || hc_now() < warm->not_before)
        return;
    struct zygote *zygote = calloc(1, sizeof *zygote);
    if (!zygote || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        free(zygote);
        return;
    }
    zygote->warm = warm;
    zygote->door = ends[0];
    zygote->last = &zygote->first;
    zygote->born = hc_now();
    zygote->pid = hc_clone(0, -1, &zygote->pidfd);
    if (zygote->pid == 0) {
        struct birth birth = {.door = ends[1], .block = warm->blocks[0]};
        become_zygote(&birth);
    }
    hc_close(ends[1]);
    if (zygote->pid < 0) {
        hc_close(ends[0]);
        free(zygote);
        warm->not_before = hc_now() + FAILED_PAUSE_US;
        return;
    }
    zygote->next = warm->zygotes;
    warm->zygotes = zygote;
    hc_set_nonblock(zygote->door, true);
    zygote->door_watch = hc_loop_watch(warden->loop, zygote->door, EPOLLIN, on_door, zygote);
    zygote->exit_watch = hc_loop_watch(warden->loop, zygote->pidfd, EPOLLIN, on_zygote_exit, zygote);
    zygote->timer = hc_loop_timer(warden->loop, hc_now() + BOOT_US, on_late, zygote);
    if (!zygote->door_watch || !zygote->exit_watch)
        _exit(125); /* a child that cannot be watched */
}

bool warm_serves(const struct warm *warm)
{
    const struct zygote *zygote = warm->zygotes;
    while (zygote && zygote->state != ZYGOTE_READY)
        zygote = zygote->next;
    return zygote != NULL;
}

struct warm *warm_find(struct warden *warden, uint64_t id)
{
    struct warm *warm = warden->warm;
    while (warm && warm->spec.id != id)
        warm = warm->next;
    return warm;
}

/* The one that serves; and another is started where there is none, or it has served long enough. */
static struct zygote *choose(struct warm *warm)
{
    struct zygote *zygote = warm->zygotes;
    bool booting = zygote && zygote->state == ZYGOTE_BOOTING;
    while (zygote && zygote->state != ZYGOTE_READY)
        zygote = zygote->next;
    bool old = zygote && (zygote->forks >= warm->spec.forks || hc_now() - zygote->born >= warm->spec.age);
    if ((!zygote || old) && !booting)
        zygote_start(warm);
    return zygote && zygote->pending < MAX_PENDING ? zygote : NULL;
}

static int send_request(struct zygote *zygote, struct held_job *job, const struct cell_job *entry)
{
    struct warden *warden = job->cell->warden;
    struct warm_request request;
    struct entry_fds source;
    int report[2], fds[HC_MAX_FDS];
    size_t count = 6;
    if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    entry_make(&warden->host, &job->cell->cell, job->group, entry, &request.entry, &source);
    request.groups = 0;
    request.has_files = source.files >= 0;
    request.has_door = source.door >= 0;
    fds[0] = source.cell;
    fds[1] = report[1];
    memcpy(fds + 2, source.stdio, sizeof source.stdio);
    fds[5] = source.block;
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        if (source.group.dir[slot] >= 0) {
            request.groups |= 1u << slot;
            fds[count++] = source.group.dir[slot];
        }
    if (source.files >= 0)
        fds[count++] = source.files;
    if (source.door >= 0)
        fds[count++] = source.door;
    if (request.entry.witness) {
        fds[count++] = source.witness_door;
        fds[count++] = source.witness_bell;
    }
    int result = hc_try_send_fds(zygote->door, &request,
                                 offsetof(struct warm_request, entry) + entry_size(&request.entry), fds, count);
    hc_close(report[1]);
    if (result < 0)
        hc_close(report[0]);
    else
        job->report = report[0];
    return result;
}

bool warm_enter(struct held_job *job, const struct cell_job *entry)
{
    struct warden *warden = job->cell->warden;
    struct warm *warm = warm_find(warden, job->spec.warm);
    if (!warm || warm->spec.kind != WARM_ZYGOTE)
        return false;
    warm->wanted = true;
    warm->used = hc_now();
    struct zygote *zygote = choose(warm);
    struct pending *pending = zygote ? calloc(1, sizeof *pending) : NULL;
    if (!pending || send_request(zygote, job, entry) < 0) {
        free(pending);
        return false;
    }
    pending->job = job;
    pending->cell = job->cell->cell.pid;
    job->pending = pending;
    *zygote->last = pending;
    zygote->last = &pending->next;
    zygote->pending++;
    zygote->forks++;
    if (!zygote->timer)
        zygote->timer = hc_loop_timer(warden->loop, hc_now() + ANSWER_US, on_late, zygote);
    return true;
}

void warm_forget(struct held_job *job)
{
    if (job->pending)
        job->pending->job = NULL;
    job->pending = NULL;
}

/* ---- age ---- */

/* What nobody has asked for in all its time is ended; what is in use is replaced. */
static void look_at_zygotes(struct warm *warm, bool idle)
{
    bool old = false, booting = warm->zygotes && warm->zygotes->state == ZYGOTE_BOOTING;
    struct zygote *next;
    for (struct zygote *zygote = warm->zygotes; zygote; zygote = next) {
        next = zygote->next;
        old = old || (zygote->state == ZYGOTE_READY && hc_now() - zygote->born >= warm->spec.age);
        if (idle && zygote->state == ZYGOTE_READY && !zygote->first)
            zygote_leave(zygote, false);
    }
    if (!idle && warm->wanted && !booting && (old || !warm->zygotes))
        zygote_start(warm);
}

static void on_look(struct hc_loop *loop, void *data)
{
    struct warden *warden = data;
    uint64_t pause = LOOK_US;
    for (struct warm *warm = warden->warm; warm; warm = warm->next) {
        bool idle = !warm->spec.eager && hc_now() - warm->used >= warm->spec.age;
        if (idle)
            warm->wanted = false;
        if (warm->spec.kind == WARM_ZYGOTE)
            look_at_zygotes(warm, idle);
        primed_look(warm);
        if (warm->spec.age / 2 < pause)
            pause = warm->spec.age / 2;
    }
    warden->look = warden->closing ? NULL : hc_loop_timer(loop, hc_now() + pause, on_look, warden);
}

/* ---- definitions ---- */

void warm_define(struct warden *warden, const struct warm_spec *spec, int *blocks, size_t count)
{
    struct hc_err err = {0};
    struct warm *warm = NULL;
    bool good =
        spec->id && spec->age >= 1000000 && spec->stages >= 1 && spec->stages <= WARM_MAX_STAGES &&
        count == spec->stages && (spec->kind == WARM_PRIMED || (spec->kind == WARM_ZYGOTE && spec->stages == 1)) &&
        !warm_find(warden, spec->id) && (spec->kind == WARM_ZYGOTE || job_limits_check(&spec->limits, &err) == 0);
    /* Two programs in one cell need a way to end one of them and all that it has started. */
    if (good && spec->stages > 1 && warden->host.cgroups.dir[CGROUP_UNIFIED] < 0)
        good = false;
    if (good)
        warm = calloc(1, sizeof *warm);
    for (size_t i = 0; i < count && !warm; i++)
        hc_close(blocks[i]);
    if (!warm)
        return;
    warm->warden = warden;
    warm->spec = *spec;
    memcpy(warm->blocks, blocks, count * sizeof *blocks);
    warm->wanted = spec->eager;
    warm->used = hc_now();
    warm->target = spec->eager ? spec->least : 0;
    warm->next = warden->warm;
    warden->warm = warm;
    if (!warden->look)
        warden->look = hc_loop_timer(warden->loop, hc_now() + (spec->age / 2 < LOOK_US ? spec->age / 2 : LOOK_US),
                                     on_look, warden);
    if (spec->eager && spec->kind == WARM_ZYGOTE)
        zygote_start(warm);
    else if (spec->eager)
        pool_changed(warden);
}

void warm_count(const struct warden *warden, struct pool_facts *facts)
{
    for (const struct warm *warm = warden->warm; warm; warm = warm->next)
        for (const struct zygote *zygote = warm->zygotes; zygote; zygote = zygote->next)
            facts->zygotes += zygote->state == ZYGOTE_READY;
    for (const struct held_cell *cell = warden->cells; cell; cell = cell->next)
        facts->primed += cell->place == PLACE_PRIMED && primed_ready(cell);
}

void warm_end(struct warden *warden)
{
    for (struct warm *warm = warden->warm; warm; warm = warm->next)
        for (struct zygote *zygote = warm->zygotes; zygote; zygote = zygote->next)
            if (zygote->state != ZYGOTE_LEAVING)
                zygote_leave(zygote, true);
}
