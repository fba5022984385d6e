/*
 * See link.h. What always holds: sending never waits. The warden waits when it cannot tell its client something; if the
 * client did the same, each could wait for the other for ever. So what the socket does not take at once is kept here,
 * with fds of its own, and sent in the same order when there is room.
 */
#include "run/link.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

enum { LINK_MAX_FDS = WARDEN_KEEP_MAX };

struct unsent {
    struct unsent *next;
    struct warden_message message;
    int fds[LINK_MAX_FDS];
    size_t count;
};

struct link {
    struct hc_loop *loop;
    struct hc_watch *watch;
    int socket;
    bool dead;
    uint64_t last_cell;
    struct link_owner *owners;
    struct unsent *first, **last;
    void (*hello)(void *data, const struct warden_message *message);
    void (*gone)(void *data);
    void (*pool)(void *data, const struct pool_facts *facts);
    void (*held)(void *data, const struct warden_message *message, int *fds, size_t count);
    void *data;
};

static void unsent_free(struct unsent *unsent)
{
    for (size_t i = 0; i < unsent->count; i++)
        hc_close(unsent->fds[i]);
    free(unsent);
}

static void forget_unsent(struct link *link)
{
    while (link->first) {
        struct unsent *unsent = link->first;
        link->first = unsent->next;
        unsent_free(unsent);
    }
    link->last = &link->first;
}

static void tell_owners(struct link *link, int code)
{
    link->dead = true;
    hc_watch_remove(link->watch);
    link->watch = NULL;
    forget_unsent(link);
    while (link->owners) {
        struct link_owner *owner = link->owners;
        link->owners = owner->next;
        owner->gone(owner, code);
    }
}

/* After this the link may be freed: `gone` is its owner's moment to make another. */
static void die(struct link *link, int code)
{
    tell_owners(link, code);
    if (link->gone)
        link->gone(link->data);
}

static bool sent_or_lost(int result)
{
    /* A warden that is gone has left its reason, or its end of file, to be read. */
    return result == 0 || result == -EPIPE || result == -ECONNRESET;
}

/* 0, or the error that ends the link. */
static int send_unsent(struct link *link)
{
    while (link->first) {
        struct unsent *unsent = link->first;
        int result =
            hc_try_send_fds(link->socket, &unsent->message, sizeof unsent->message, unsent->fds, unsent->count);
        if (result == -EAGAIN)
            return 0;
        if (!sent_or_lost(result))
            return result;
        link->first = unsent->next;
        unsent_free(unsent);
    }
    link->last = &link->first;
    hc_watch_set(link->watch, EPOLLIN);
    return 0;
}

static void receive(struct link *link)
{
    struct warden_message message;
    int fds[WARDEN_KEEP_MAX];
    size_t count = 0;
    ssize_t size = hc_recv_fds(link->socket, &message, sizeof message, fds, WARDEN_KEEP_MAX, &count);
    /* A reset is reported once, before what was sent before it: unix(7). */
    if (size == -EAGAIN || size == -EINTR || size == -ECONNRESET)
        return;
    if (size != (ssize_t)sizeof message || message.protocol != WARDEN_PROTOCOL) {
        for (size_t i = 0; size > 0 && i < count; i++)
            hc_close(fds[i]);
        die(link, size < 0 ? (int)-size : EPIPE);
        return;
    }
    if (message.type == WARDEN_HELD && link->held) {
        link->held(link->data, &message, fds, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
    if (message.type == WARDEN_HELLO) {
        if (link->hello)
            link->hello(link->data, &message);
        return;
    }
    if (message.type == WARDEN_POOL) {
        if (link->pool)
            link->pool(link->data, &message.pool);
        return;
    }
    /* What has no owner is about a cell that is going, and whose owner did not wait for that. */
    struct link_owner *owner = link->owners;
    while (owner && owner->cell != message.cell)
        owner = owner->next;
    if (owner)
        owner->message(owner, &message);
}

static void on_socket(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd;
    struct link *link = data;
    if ((events & EPOLLOUT) && link->first) {
        int result = send_unsent(link);
        if (result < 0) {
            die(link, -result);
            return;
        }
    }
    if (events & ~(uint32_t)EPOLLOUT)
        receive(link);
}

struct link *link_new(struct hc_loop *loop, int socket, void (*hello)(void *data, const struct warden_message *message),
                      void (*gone)(void *data), void *data)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    *link = (struct link){.loop = loop, .socket = socket, .hello = hello, .gone = gone, .data = data};
    link->last = &link->first;
    link->watch = hc_loop_watch(loop, socket, EPOLLIN, on_socket, link);
    if (!link->watch) {
        free(link);
        return NULL;
    }
    return link;
}

void link_on_pool(struct link *link, void (*pool)(void *data, const struct pool_facts *facts))
{
    link->pool = pool;
}

void link_free(struct link *link)
{
    if (!link)
        return;
    tell_owners(link, ECANCELED);
    hc_close(link->socket);
    free(link);
}

bool link_alive(const struct link *link)
{
    return !link->dead;
}

struct hc_loop *link_loop(const struct link *link)
{
    return link->loop;
}

void link_add(struct link *link, struct link_owner *owner)
{
    owner->cell = ++link->last_cell;
    owner->next = link->owners;
    link->owners = owner;
}

void link_add_as(struct link *link, struct link_owner *owner, uint64_t cell)
{
    owner->cell = cell;
    owner->next = link->owners;
    link->owners = owner;
}

int link_ask_held(struct link *link,
                  void (*held)(void *data, const struct warden_message *message, int *fds, size_t count))
{
    struct link_owner nobody = {.cell = 0};
    struct warden_message message = {.type = WARDEN_HELD};
    link->held = held;
    return link_send(link, &nobody, &message, NULL, 0);
}

void link_remove(struct link *link, struct link_owner *owner)
{
    for (struct link_owner **at = &link->owners; *at; at = &(*at)->next)
        if (*at == owner) {
            *at = owner->next;
            return;
        }
}

/* Behind what waits already, so that the order stays. */
static int keep_for_later(struct link *link, const struct warden_message *message, const int *fds, size_t count)
{
    if (count > LINK_MAX_FDS)
        return -E2BIG;
    struct unsent *unsent = calloc(1, sizeof *unsent);
    if (!unsent)
        return -ENOMEM;
    unsent->message = *message;
    for (; unsent->count < count; unsent->count++) {
        unsent->fds[unsent->count] = fcntl(fds[unsent->count], F_DUPFD_CLOEXEC, 3);
        if (unsent->fds[unsent->count] < 0) {
            int code = errno;
            unsent_free(unsent);
            return -code;
        }
    }
    if (!link->first)
        hc_watch_set(link->watch, EPOLLIN | EPOLLOUT);
    *link->last = unsent;
    link->last = &unsent->next;
    return 0;
}

int link_send(struct link *link, const struct link_owner *owner, struct warden_message *message, const int *fds,
              size_t count)
{
    if (link->dead)
        return 0;
    message->protocol = WARDEN_PROTOCOL;
    message->cell = owner->cell;
    int result = link->first ? -EAGAIN : hc_try_send_fds(link->socket, message, sizeof *message, fds, count);
    if (result == -EAGAIN)
        return keep_for_later(link, message, fds, count);
    return sent_or_lost(result) ? 0 : result;
}
