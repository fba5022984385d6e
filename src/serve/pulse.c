/*
 * Whether the keeper's two children still answer. One that hangs (a bug, a stopped process, a disk that does not come
 * back) is as bad as one that is dead, and nobody else would notice: it is killed, and then replaced as a dead one is.
 *
 * What always holds: time is counted in beats of the keeper's own timer, never read from a clock. A machine that was
 * suspended, or so busy that the keeper itself did not run, is one beat late, however long that was; so only a child
 * that stays silent while the keeper runs is taken for hung. A warden waits for a gateway that does not read
 * (warden_say), so its silence counts from when the gateway answers.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/size.h"
#include "kernel/sys.h"
#include "serve/internal.h"
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>

enum {
    BEATS = 5,        /* unanswered, and it hangs */
    START_BEATS = 60, /* the same for a gateway that is not ready yet: it may have a large database to recover */
    SHORTEST = 100000 /* µs between two beats */
};

static uint64_t beat_time(const struct keeper_server *server)
{
    uint64_t time = server->config->server.hang_time / BEATS;
    return time < SHORTEST ? SHORTEST : time;
}

/* A silent one is not asked again: the question waits in its socket. */
static bool beat(struct pulse *pulse, int socket, const void *question, size_t length)
{
    if (pulse->asked)
        return ++pulse->missed >= (pulse->known ? BEATS : START_BEATS);
    int result = hc_try_send_fds(socket, question, length, NULL, 0);
    pulse->asked = result == 0 || result == -EAGAIN;
    return false;
}

void pulse_heard(struct pulse *pulse)
{
    *pulse = (struct pulse){.known = true};
}

static void end_hung(const struct keeper_server *server, const char *name, int pidfd)
{
    char time[32];
    hc_log(HC_LOG_ERROR, "the %s has not answered for %s; ending it", name,
           hc_format_duration(server->config->server.hang_time, time, sizeof time));
    hc_pidfd_signal(pidfd, SIGKILL);
}

/* Readiness is the gateway's to tell, and it cannot know. */
static void tell_silence(struct keeper_server *server)
{
    bool silent = server->warden_pulse.missed > 0;
    if (server->control < 0 || !server->gateway_pulse.known || silent == server->told_silent)
        return;
    struct serve_message message = {.protocol = SERVE_PROTOCOL, .type = SERVE_SILENT, .silent = silent};
    if (hc_try_send_fds(server->control, &message, sizeof message, NULL, 0) == 0)
        server->told_silent = silent;
}

static void on_beat(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct keeper_server *server = data;
    const struct serve_message gateway_ping = {.protocol = SERVE_PROTOCOL, .type = SERVE_PING};
    const struct warden_message warden_ping = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_PING};
    server->pulse_timer = NULL;
    if (server->draining || server->config->server.hang_time == 0)
        return; /* a drain has a deadline of its own */
    if (server->control >= 0 && beat(&server->gateway_pulse, server->control, &gateway_ping, sizeof gateway_ping))
        end_hung(server, "gateway", server->gateway_pidfd);
    if (server->gateway_pulse.missed > 0)
        server->warden_pulse.missed = server->warden_pulse.missed > 0;
    else if (server->warden_pidfd >= 0 &&
             beat(&server->warden_pulse, server->custody.control[0], &warden_ping, sizeof warden_ping))
        end_hung(server, "warden", server->warden_pidfd);
    tell_silence(server);
    pulse_start(server);
}

void pulse_start(struct keeper_server *server)
{
    if (server->config->server.hang_time > 0 && !server->pulse_timer)
        server->pulse_timer = hc_loop_timer(server->loop, hc_now() + beat_time(server), on_beat, server);
}

static void on_warden_answer(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct keeper_server *server = data;
    struct warden_message message;
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &message, sizeof message, NULL, 0, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    if (size == (ssize_t)sizeof message && message.type == WARDEN_PING) {
        pulse_heard(&server->warden_pulse);
        tell_silence(server);
        return;
    }
    hc_watch_remove(server->answer_watch); /* it is going; its pidfd will tell */
    server->answer_watch = NULL;
}

int pulse_watch_warden(struct keeper_server *server)
{
    server->warden_pulse = (struct pulse){.known = true}; /* it has nothing to recover */
    server->answer_watch = hc_loop_watch(server->loop, server->custody.control[0], EPOLLIN, on_warden_answer, server);
    return server->answer_watch ? 0 : -errno;
}
