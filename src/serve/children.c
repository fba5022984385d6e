/*
 * The keeper's two children: started, watched, waited for, started again. What always holds: the listening sockets and
 * the uids are the keeper's and outlive both; a warden is started only when the groups of the one before are cleared.
 */
#include "base/fd.h"
#include "base/log.h"
#include "kernel/sys.h"
#include "serve/internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RESTART_PAUSE = 300000 };

/* ---- the warden ---- */

static void on_warden_gone(struct hc_loop *loop, int fd, uint32_t events, void *data);

static void on_host_wanted(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct keeper_server *server = data;
    if (custody_answer(&server->custody) < 0) { /* it is going; its pidfd will tell */
        hc_watch_remove(server->hosts_watch);
        server->hosts_watch = NULL;
    }
}

int warden_start(struct keeper_server *server, struct hc_err *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    custody_init(&server->custody, &server->plan);
    server->custody.service = true;
    server->custody.volume = volumes_mount;
    server->custody.volume_data = server;
    server->custody.uids = server->uids;
    server->custody.uids_planned = true;
    warm_files_open(server);
    int result = custody_start(&server->custody, ends[1], err);
    hc_close(ends[1]);
    if (result == 0) {
        server->warden_pidfd = (int)syscall(SYS_pidfd_open, server->custody.pid, 0);
        if (server->warden_pidfd >= 0)
            server->warden_watch = hc_loop_watch(server->loop, server->warden_pidfd, EPOLLIN, on_warden_gone, server);
        server->hosts_watch = hc_loop_watch(server->loop, server->custody.hosts[0], EPOLLIN, on_host_wanted, server);
        if (!server->warden_watch || !server->hosts_watch || pulse_watch_warden(server) < 0)
            result = hc_fail_errno(err, HC_CLASS_OURS, errno, "watching the warden");
    }
    if (result < 0) {
        hc_close(ends[0]);
        return result;
    }
    hc_close(server->gateway_socket);
    server->gateway_socket = ends[0];
    warm_tell(server);
    return 0;
}

void warden_end(struct keeper_server *server)
{
    hc_watch_remove(server->warden_watch);
    hc_watch_remove(server->hosts_watch);
    hc_watch_remove(server->answer_watch);
    server->warden_watch = server->hosts_watch = server->answer_watch = NULL;
    /* Nobody needs it any more, and one that hangs would be waited for for ever. Its cells end with it. */
    if (server->warden_pidfd >= 0)
        hc_pidfd_signal(server->warden_pidfd, SIGKILL);
    server->warden_pidfd = hc_close(server->warden_pidfd);
    custody_let_go(&server->custody);
    server->gateway_socket = hc_close(server->gateway_socket);
    if (server->custody.pid > 0)
        while (waitpid(server->custody.pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    custody_clear(&server->custody);
}

int gateway_tell(struct keeper_server *server, uint32_t type, int fd)
{
    struct serve_message message = {.protocol = SERVE_PROTOCOL, .type = type};
    return hc_try_send_fds(server->control, &message, sizeof message, &fd, fd >= 0 ? 1 : 0);
}

static void give_up(struct keeper_server *server, const struct hc_err *err)
{
    server->failure = *err;
    server->ended = true;
}

/* The cells are gone with it. */
static void on_warden_gone(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct keeper_server *server = data;
    struct hc_err err = {0};
    warden_end(server);
    if (server->draining)
        return;
    hc_log(HC_LOG_ERROR, "the warden died; all cells ended with it; starting another");
    if (warden_start(server, &err) < 0) {
        give_up(server, &err);
        return;
    }
    if (server->control >= 0 && gateway_tell(server, SERVE_WARDEN, server->gateway_socket) == 0)
        server->gateway_socket = hc_close(server->gateway_socket);
}

/* ---- the gateway ---- */

/* The warden takes one client after another: a new gateway is a new client. */
static int new_client(struct keeper_server *server, struct hc_err *err)
{
    int ends[2];
    if (server->gateway_socket >= 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    int result = custody_give_client(&server->custody, ends[1]);
    hc_close(ends[1]);
    if (result < 0 && result != -EPIPE && result != -ECONNRESET) {
        hc_close(ends[0]);
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "telling the warden of its client");
    }
    server->gateway_socket = ends[0];
    return 0;
}

static int send_setup(struct keeper_server *server, struct hc_err *err)
{
    const struct server_config *config = &server->config->server;
    struct serve_message message = {.protocol = SERVE_PROTOCOL, .type = SERVE_SETUP, .restarts = server->restarts};
    int fds[HC_MAX_FDS];
    size_t count = 0;
    hc_cleanup_fd int bundle = bundle_config(server->config, &server->hosts, server->languages.count);
    hc_cleanup_fd int certificate = -1, key = -1, audit = -1, audit_socket = -1;
    if (bundle < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -bundle, "handing over the configuration");
    fds[count++] = server->gateway_socket;
    fds[count++] = bundle;
    int result = audit_give(server, &audit, &audit_socket, err);
    if (result < 0)
        return result;
    fds[count++] = audit;
    fds[count++] = audit_socket;
    if (config->tls_certificate[0]) {
        certificate = bundle_file(config->tls_certificate);
        key = bundle_file(config->tls_key);
        if (certificate < 0 || key < 0) {
            hc_fail_errno(err, HC_CLASS_REQUEST, certificate < 0 ? -certificate : -key, "reading %s",
                          certificate < 0 ? config->tls_certificate : config->tls_key);
            return hc_err_field(err, "server.tls_%s", certificate < 0 ? "certificate" : "key");
        }
        fds[count++] = certificate;
        fds[count++] = key;
        message.tls = 1;
    }
    for (size_t i = 0; i < server->listeners.count; i++) {
        fds[count++] = server->listeners.item[i].fd;
        message.listener_unix |= (uint32_t)server->listeners.item[i].is_unix << i;
        snprintf(message.listener_source[i], sizeof message.listener_source[i], "%s", server->listeners.item[i].source);
        message.listener_tls |= (uint32_t)server->listeners.item[i].is_tls << i;
    }
    message.listener_count = (uint32_t)server->listeners.count;
    message.language_count = (uint32_t)server->languages.count;
    message.workspace_host = server->hosts.workspace;
    message.volume_count = server->volumes.count;
    message.volume_bytes = server->volumes.bytes;
    result = hc_send_fds(server->control, &message, sizeof message, fds, count);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "setting up the gateway");
    server->gateway_socket = hc_close(server->gateway_socket);
    return 0;
}

static void on_gateway_gone(struct hc_loop *loop, int fd, uint32_t events, void *data);

int gateway_start(struct keeper_server *server, struct hc_err *err)
{
    int ends[2];
    int result = new_client(server, err);
    if (result < 0)
        return result;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    server->control = ends[0];
    bool range = server->uids.source == UIDS_RANGE && server->uids.count >= 4;
    struct spawn spawn = {.libexec = server->libexec,
                          .state = &server->state,
                          .languages = &server->languages,
                          .uid = range ? (uid_t)(server->uids.uid_base + server->uids.count - 1) : 0,
                          .gid = range ? (gid_t)(server->uids.gid_base + server->uids.count - 1) : 0};
    result = state_give(&server->state, spawn.uid, spawn.gid, err);
    if (result == 0)
        result = spawn_gateway(&spawn, ends[1], &server->gateway, &server->gateway_pidfd, err);
    hc_close(ends[1]);
    if (result < 0)
        return result;
    server->gateway_started = hc_now();
    server->gateway_watch = hc_loop_watch(server->loop, server->gateway_pidfd, EPOLLIN, on_gateway_gone, server);
    server->control_watch = hc_loop_watch(server->loop, server->control, EPOLLIN, server->on_control, server);
    if (!server->gateway_watch || !server->control_watch)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "watching the gateway");
    return send_setup(server, err);
}

void gateway_forget(struct keeper_server *server, int *status)
{
    hc_watch_remove(server->gateway_watch);
    hc_watch_remove(server->control_watch);
    server->gateway_watch = server->control_watch = NULL;
    audit_forget(server);
    if (server->gateway > 0)
        while (waitpid(server->gateway, status, 0) < 0 && errno == EINTR)
            continue;
    server->gateway = 0;
    server->gateway_pulse = (struct pulse){0};
    server->told_silent = false;
    server->gateway_pidfd = hc_close(server->gateway_pidfd);
    server->control = hc_close(server->control);
}

static void restart_gateway(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct keeper_server *server = data;
    struct hc_err err = {0};
    server->restart_timer = NULL;
    server->restarts++;
    if (gateway_start(server, &err) < 0)
        give_up(server, &err);
}

/* Once is an accident and is put right at once; one that dies as soon as it is born is given a moment. */
static void on_gateway_gone(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)fd, (void)events;
    struct keeper_server *server = data;
    int status = 0;
    gateway_forget(server, &status);
    if (server->draining || !server->ready) {
        if (!server->draining && !server->failure.code)
            hc_fail(&server->failure, HC_CLASS_OURS, EIO, "the gateway ended before it was ready (status %#x)", status);
        server->ended = true;
        return;
    }
    hc_log(HC_LOG_ERROR, "the gateway died (%s %d); starting another", WIFSIGNALED(status) ? "signal" : "exit status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    uint64_t now = hc_now();
    bool soon = now - server->gateway_started < 2 * (uint64_t)RESTART_PAUSE;
    server->restart_timer = hc_loop_timer(loop, now + (soon ? RESTART_PAUSE : 0), restart_gateway, server);
    if (!server->restart_timer)
        hc_fail(&server->failure, HC_CLASS_OURS, ENOMEM, "out of memory"), server->ended = true;
}
