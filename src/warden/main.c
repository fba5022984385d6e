/*
 * hotcell-warden: owns the cells. It was exec'ed by the keeper's child inside a user namespace of hotcell's own, as
 * root there and nobody outside, with the root that image.c built, as pid 1 of a pid namespace: when it dies, for
 * whatever reason, the kernel ends every cell. It reads fixed-size messages from fd 3 and never text from outside. When
 * its client goes away, it ends all cells, then itself; or, as a service, waits for the next one, which the keeper
 * sends, and ends when the keeper does.
 */
#include "base/fd.h"
#include "kernel/landlock.h"
#include "kernel/seccomp.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>

void warden_say(struct warden *warden, const struct warden_message *message)
{
    warden_hand(warden, message, NULL, 0);
}

/* Before anything else is said. */
static void greet(struct warden *warden)
{
    struct warden_message hello = warden->hello;
    warden->greeted = true;
    warden_say(warden, &hello);
}

void warden_hand(struct warden *warden, const struct warden_message *message, const int *fds, size_t count)
{
    if (!warden->greeted)
        greet(warden);
    if (warden->client < 0 || (message->cell == 0 && message->type != WARDEN_HELLO && message->type != WARDEN_POOL &&
                               message->type != WARDEN_HELD))
        return;
    struct warden_message copy = *message;
    copy.protocol = WARDEN_PROTOCOL;
    int result = hc_send_fds(warden->client, &copy, sizeof copy, fds, count);
    /* A client that is gone is noticed by its end of file. One that cannot be told must not wait for ever: our end is
     * its end of file. */
    if (result < 0 && result != -EPIPE && result != -ECONNRESET)
        _exit(1);
}

void warden_check_done(struct warden *warden)
{
    if (warden->closing && !warden->cells)
        exit(0);
}

static void on_client(struct hc_loop *loop, int fd, uint32_t events, void *data);

static void drop_client(struct warden *warden)
{
    hc_watch_remove(warden->client_watch);
    warden->client_watch = NULL;
    warden->client = hc_close(warden->client);
    for (struct held_cell *cell = warden->cells; cell; cell = cell->next)
        if (!cell->lasting || warden->closing)
            cell->id = 0; /* the next client's numbers are its own */
    supervise_end(warden, warden->closing);
}

static void close_down(struct warden *warden)
{
    if (!warden->closing) {
        warden->closing = true;
        warm_end(warden);
        pool_end(warden);
        drop_client(warden);
    }
}

static void lose_client(struct warden *warden)
{
    if (warden->service)
        drop_client(warden);
    else
        close_down(warden);
}

/* The cells of the client before are on their way out; their last words go to nobody. */
static void take_client(struct warden *warden, int socket)
{
    drop_client(warden);
    warden->client = socket;
    greet(warden);
    warden->client_watch = hc_loop_watch(warden->loop, socket, EPOLLIN, on_client, warden);
    if (!warden->client_watch)
        _exit(1);
}

static void dispatch(struct warden *warden, const struct warden_message *message, int *fds, size_t count)
{
    size_t used = 0;
    switch (message->type) {
    case WARDEN_CELL_NEW:
        supervise_new_cell(warden, message, fds, count);
        break;
    case WARDEN_CELL_DESTROY:
        supervise_destroy(warden, message->cell, true);
        break;
    case WARDEN_JOB_START:
        supervise_start(warden, message->cell, message->job, &message->job_spec, fds, count);
        used = count;
        break;
    case WARDEN_JOB_KILL:
        supervise_kill(warden, message->cell, message->job, message->reason);
        break;
    case WARDEN_HELD:
    case WARDEN_KEEP:
    case WARDEN_CELL_USAGE:
    case WARDEN_CELL_FREEZE:
    case WARDEN_JOB_SIGNAL:
    case WARDEN_JOB_SWEEP:
    case WARDEN_JOB_FORGET:
        lasting_message(warden, message, fds, count);
        used = count;
        break;
    default: /* not for us: a client that is confused is a client that is gone */
        lose_client(warden);
    }
    for (size_t i = used; i < count; i++)
        hc_close(fds[i]);
}

static void on_client(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct warden *warden = data;
    struct warden_message message;
    int fds[HC_MAX_FDS];
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &message, sizeof message, fds, HC_MAX_FDS, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    if (size == (ssize_t)sizeof message && message.protocol == WARDEN_PROTOCOL) {
        dispatch(warden, &message, fds, count);
        return;
    }
    if (size > 0)
        for (size_t i = 0; i < count; i++)
            hc_close(fds[i]);
    lose_client(warden);
}

/* A service's keeper: a new client, a question whether we are there, or the end. */
static void on_control(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct warden *warden = data;
    struct warden_message message;
    int fds[HC_MAX_FDS];
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &message, sizeof message, fds, HC_MAX_FDS, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    if (size == (ssize_t)sizeof message && message.type == WARDEN_CLIENT && count == 1 && !warden->closing) {
        take_client(warden, fds[0]);
        return;
    }
    if (size == (ssize_t)sizeof message && message.type == WARDEN_PING && count == 0) {
        hc_try_send_fds(fd, &message, sizeof message, NULL, 0);
        return;
    }
    if (size == (ssize_t)sizeof message && message.type == WARDEN_POOL && count == 0) {
        pool_configure(warden, &message.pool_spec);
        return;
    }
    if (size == (ssize_t)sizeof message && message.type == WARDEN_WARM && !warden->closing) {
        warm_define(warden, &message.warm_spec, fds, count);
        return;
    }
    for (size_t i = 0; size > 0 && i < count; i++)
        hc_close(fds[i]);
    hc_watch_remove(warden->control_watch);
    warden->control_watch = NULL;
    close_down(warden);
}

/* The keeper's first message: what we have been given. */
static int receive_setup(struct warden *warden, struct hc_err *err)
{
    struct warden_message message; /* its err is no error, but a remark to pass on */
    int fds[HC_MAX_FDS];
    size_t count = 0;
    ssize_t size = hc_recv_fds(WARDEN_SETUP_FD, &message, sizeof message, fds, HC_MAX_FDS, &count);
    if (size != (ssize_t)sizeof message || message.type != WARDEN_SETUP || message.protocol != WARDEN_PROTOCOL ||
        count < 1)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the warden's setup message is not well-formed");
    struct cgroup_base *base = &warden->host.cgroups;
    cgroup_base_init(base);
    base->mode = message.setup.cgroup_mode;
    base->controllers = message.setup.cgroup_controllers;
    memcpy(base->ready, message.setup.cgroup_ready, sizeof base->ready);
    base->ready[sizeof base->ready - 1] = '\0';
    warden->host.init_fd = fds[0];
    size_t next = 1;
    warden->host.spare_net = message.setup.spare_net && next < count ? fds[next++] : -1;
    warden->service = message.setup.service;
    if (next < count)
        *(warden->service ? &warden->hosts : &warden->later) = fds[next++];
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        if (message.setup.cgroup_slots & 1u << slot) {
            base->dir[slot] = WARDEN_CGROUP_FD + slot;
            fcntl(base->dir[slot], F_SETFD, FD_CLOEXEC);
        }
    warden->host.many_uids = message.setup.many_uids;
    warden->host.may_setgroups = message.setup.may_setgroups;
    *err = message.err;
    return 0;
}

static uint32_t layers(const struct warden *warden)
{
    uint32_t bits = ISOLATION_USER | ISOLATION_MOUNT | ISOLATION_PID | ISOLATION_NET | ISOLATION_IPC | ISOLATION_UTS |
                    ISOLATION_CGROUP;
    uint32_t controllers = warden->host.cgroups.controllers;
    if (controllers & CGROUP_HAS_MEMORY)
        bits |= ISOLATION_MEMORY;
    if (controllers & CGROUP_HAS_CPU)
        bits |= ISOLATION_CPU;
    if (controllers & CGROUP_HAS_PIDS)
        bits |= ISOLATION_PIDS;
    if (hc_seccomp_probe(NULL) == 0)
        bits |= ISOLATION_SECCOMP;
    if (warden->host.landlock)
        bits |= ISOLATION_LANDLOCK;
    return bits;
}

int main(void)
{
    struct warden warden = {.client = WARDEN_CLIENT_FD, .hosts = -1, .later = -1};
    struct hc_err err = {0};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGPIPE, SIG_IGN);
    fcntl(WARDEN_CLIENT_FD, F_SETFD, FD_CLOEXEC);
    fcntl(WARDEN_SETUP_FD, F_SETFD, FD_CLOEXEC);
    pool_measure(&warden);
    warden.host.landlock = hc_landlock_abi() > 0;
    warden.host.pid_namespace = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    warden.loop = hc_loop_new();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || warden.host.pid_namespace < 0 || !warden.loop)
        hc_fail_errno(&err, HC_CLASS_OURS, errno, "starting the warden");
    else
        receive_setup(&warden, &err);
    warden.hello = (struct warden_message){.type = WARDEN_HELLO, .err = err};
    if (!err.code)
        warden.hello.isolation = warden.isolation = layers(&warden);
    /* Where nobody reads an audit log nothing is reported, and a cold start does not pay for it. */
    if (!err.code && warden.service)
        warden.hello.witness = warden.host.witness = hc_seccomp_probe_reporting();
    warden.host.many_cells = warden.service;
    warden.hello.setup.cgroup_mode = warden.host.cgroups.mode;
    if (err.code) {
        greet(&warden);
        return 1;
    }
    warden.client_watch = hc_loop_watch(warden.loop, WARDEN_CLIENT_FD, EPOLLIN, on_client, &warden);
    if (warden.service)
        warden.control_watch = hc_loop_watch(warden.loop, WARDEN_SETUP_FD, EPOLLIN, on_control, &warden);
    if (!warden.client_watch || (warden.service && !warden.control_watch))
        return 1;
    /* A greeting wakes the client, who has sent its cell and its program already: those are begun first. */
    int result = 0;
    for (int i = 0; i < 2 && result >= 0; i++)
        result = hc_loop_turn(warden.loop, 0);
    if (!warden.greeted)
        greet(&warden);
    while (result >= 0 || result == -EINTR)
        result = hc_loop_turn(warden.loop, -1);
    return 1;
}
