/*
 * The server: listeners, newcomers, and room for them.
 *
 * What always holds: there are never more than limits.connections connections at work, and HTTP_LINGER_COUNT that are
 * only being told goodbye; a newcomer that finds no room, or no file descriptor, is told so and does not make the loop
 * spin: a listener whose accept fails is left alone for a moment.
 */
#include "base/fd.h"
#include "gateway/http_conn.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { ACCEPTS_PER_TURN = 16 };
#define ACCEPT_PAUSE UINT64_C(100000)

/* For one that gets no connection of its own. */
#define OVERLOADED_HEAD                                                                                                \
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"              \
    "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nRetry-After: 1\r\n"
#define OVERLOADED_BODY                                                                                                \
    "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"                                      \
    "\"detail\":\"there are too many connections\",\"code\":\"overloaded\"}"

/* ---- room ---- */

static size_t at_work(const struct http_server *server)
{
    return (size_t)server->counts.connections - server->lists[HTTP_WAIT_LINGER].count;
}

static bool close_first(struct http_server *server, enum http_wait wait, uint64_t age)
{
    struct http_connection *first = server->lists[wait].first;
    if (first == NULL || hc_now() - first->since < age)
        return false;
    http_connection_close(first);
    return true;
}

/* Closes the connection that is missed least: the longest idle, or one that never said a word. */
static bool make_room(struct http_server *server)
{
    return close_first(server, HTTP_WAIT_IDLE, 0) || close_first(server, HTTP_WAIT_FIRST, HTTP_SILENCE);
}

/* ---- accepting ---- */

static void set_listening(struct http_server *server, bool on)
{
    for (struct http_listener *listener = server->listeners; listener != NULL; listener = listener->next)
        hc_watch_set(listener->watch, on ? EPOLLIN : 0);
}

static void on_pause_over(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct http_server *server = data;
    server->pause = NULL;
    if (server->spare < 0)
        server->spare = eventfd(0, EFD_CLOEXEC);
    set_listening(server, true);
}

static void pause_accepting(struct http_server *server)
{
    if (server->pause == NULL)
        server->pause = hc_loop_timer(server->loop, hc_now() + ACCEPT_PAUSE, on_pause_over, server);
    if (server->pause != NULL) /* without memory for a timer nobody would end the pause */
        set_listening(server, false);
}

static void turn_away(struct http_server *server, const struct http_listener *listener, int fd)
{
    server->counts.refused++;
    if (listener->tls == NULL) {
        char text[512];
        int length = snprintf(text, sizeof text, OVERLOADED_HEAD "Content-Length: %zu\r\n\r\n" OVERLOADED_BODY,
                              sizeof OVERLOADED_BODY - 1);
        send(fd, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(fd, SHUT_WR);
        /* Closing with the request unread would reset the connection and take back what was sent. */
        while (recv(fd, server->scratch, sizeof server->scratch, MSG_DONTWAIT) > 0)
            ;
    }
    hc_close(fd);
}

static void welcome(struct http_server *server, const struct http_listener *listener, int fd)
{
    server->counts.accepted++;
    while (at_work(server) >= server->limits.connections && make_room(server))
        ;
    bool full = at_work(server) >= server->limits.connections;
    if (full && listener->tls != NULL) { /* not worth a handshake */
        turn_away(server, listener, fd);
        return;
    }
    if (server->lists[HTTP_WAIT_LINGER].count >= HTTP_LINGER_COUNT)
        close_first(server, HTTP_WAIT_LINGER, 0);
    if (full && at_work(server) >= server->limits.connections + HTTP_LINGER_COUNT) {
        turn_away(server, listener, fd);
        return;
    }
    struct http_connection *connection = http_connection_new(server, listener, fd);
    if (connection != NULL && full)
        http_refuse(connection, 503, "there are too many connections");
}

/* There is no fd for a newcomer. Whether there is one now. */
static bool free_a_descriptor(struct http_server *server, const struct http_listener *listener)
{
    if (close_first(server, HTTP_WAIT_LINGER, 0) || make_room(server))
        return true;
    if (server->spare < 0)
        return false;
    server->spare = hc_close(server->spare);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        server->counts.accepted++;
        turn_away(server, listener, fd);
    }
    server->spare = eventfd(0, EFD_CLOEXEC);
    return false;
}

static void on_newcomers(struct hc_loop *loop, int listening, uint32_t events, void *data)
{
    (void)loop;
    (void)events;
    struct http_listener *listener = data;
    struct http_server *server = listener->server;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            welcome(server, listener, fd);
            continue;
        }
        if (errno == EAGAIN)
            return;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if ((errno == EMFILE || errno == ENFILE) && free_a_descriptor(server, listener))
            continue;
        pause_accepting(server);
        return;
    }
}

/* ---- its life ---- */

int http_server_new(struct hc_loop *loop, const struct http_limits *limits, const struct http_handlers *handlers,
                    struct http_server **out, struct hc_err *err)
{
    struct http_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "the HTTP server cannot be made");
    server->loop = loop;
    server->limits = *limits;
    server->handlers = *handlers;
    server->spare = eventfd(0, EFD_CLOEXEC);
    if (server->spare < 0) {
        int code = errno;
        free(server);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "the HTTP server cannot have a spare file descriptor");
    }
    *out = server;
    return 0;
}

int http_server_listen(struct http_server *server, int fd, enum http_listener_kind kind, struct http_tls *tls,
                       struct hc_err *err)
{
    hc_cleanup_fd int owned = fd;
    hc_cleanup_free struct http_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "the HTTP server cannot listen");
    int status = hc_set_nonblock(fd, true);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -status, "the listening socket cannot be made non-blocking");
    *listener = (struct http_listener){.next = server->listeners, .server = server, .tls = tls, .fd = fd, .kind = kind};
    listener->watch = hc_loop_watch(server->loop, fd, EPOLLIN, on_newcomers, listener);
    if (listener->watch == NULL)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "the listening socket cannot be watched");
    (void)HC_TAKE_FD(owned);
    server->listeners = HC_TAKE_PTR(listener);
    return 0;
}

void http_server_set_limits(struct http_server *server, const struct http_limits *limits)
{
    server->limits = *limits;
    http_wait_limits_changed(server);
}

static void stop_listening(struct http_server *server)
{
    while (server->listeners != NULL) {
        struct http_listener *listener = server->listeners;
        server->listeners = listener->next;
        hc_watch_remove(listener->watch);
        hc_close(listener->fd);
        free(listener);
    }
    hc_timer_remove(HC_TAKE_PTR(server->pause));
}

void http_server_stop_accepting(struct http_server *server)
{
    server->draining = true;
    stop_listening(server);
    while (close_first(server, HTTP_WAIT_IDLE, 0) || close_first(server, HTTP_WAIT_FIRST, 0))
        ;
}

void http_server_free(struct http_server *server)
{
    if (server == NULL)
        return;
    stop_listening(server);
    while (server->counts.connections > 0) /* an on_gone may reply to another, which then is in another list */
        for (enum http_wait wait = 0; wait < HTTP_WAITS; wait++)
            if (server->lists[wait].first != NULL)
                http_connection_close(server->lists[wait].first);
    hc_timer_remove(server->timer);
    hc_close(server->spare);
    free(server);
}

void http_server_counts(const struct http_server *server, struct http_counts *counts)
{
    *counts = server->counts;
}
