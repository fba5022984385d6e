/*
 * The line to a warden: one socket, shared by all runs on a loop. It reads the warden's messages and gives each to the
 * cell's owner. When the warden goes away, every owner is told once.
 */
#ifndef HC_RUN_LINK_H
#define HC_RUN_LINK_H

#include "base/loop.h"
#include "warden/proto.h"
#include <stdbool.h>
#include <stddef.h>

struct link;

struct link_owner { /* of one cell; embedded in whoever owns it */
    struct link_owner *next;
    uint64_t cell; /* given by link_add */
    void (*message)(struct link_owner *owner, const struct warden_message *message);
    void (*gone)(struct link_owner *owner, int code); /* the warden died; the owner has been removed from the link */
};

/* Takes the socket. `hello` is called with the greeting (its err.code is not 0 when the warden could not start), `gone`
 * after all owners were told. Both may be NULL. NULL: errno. */
struct link *link_new(struct hc_loop *loop, int socket, void (*hello)(void *data, const struct warden_message *message),
                      void (*gone)(void *data), void *data);
/* Of a service's warden: `pool` is called with the state of its pool, whenever that has changed. */
void link_on_pool(struct link *link, void (*pool)(void *data, const struct pool_facts *facts));
void link_free(struct link *link); /* closes the socket; owners are told */
bool link_alive(const struct link *link);
struct hc_loop *link_loop(const struct link *link);
void link_add(struct link *link, struct link_owner *owner); /* gives it a cell number */
/* One that has a number: of a cell that lasts. */
void link_add_as(struct link *link, struct link_owner *owner, uint64_t cell);
/* Asks what lasting cells there are. `held` is called for each message of the answer, with fds that it takes; the last
 * one has no cell. */
int link_ask_held(struct link *link,
                  void (*held)(void *data, const struct warden_message *message, int *fds, size_t count));
void link_remove(struct link *link, struct link_owner *owner);
/* protocol and cell are filled in. 0, or -errno; a warden that is gone is reported through `gone`, and this returns 0.
 */
int link_send(struct link *link, const struct link_owner *owner, struct warden_message *message, const int *fds,
              size_t count);

#endif
