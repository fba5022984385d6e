/* A connection to a port that something in a sandbox listens on, made from inside: there is no other way there. */
#ifndef HC_SANDBOX_CONNECT_H
#define HC_SANDBOX_CONNECT_H

#include "sandbox/sandbox.h"

struct connecting;

/* `done` is called once, from the loop, with a stream socket that does not block, which it takes; or with an error
 * (HC_CLASS_PROGRAM: nothing listens there). 0, or -errno and err: nothing was begun. */
int connect_start(struct sandbox *sandbox, unsigned port, void (*done)(void *data, int fd, const struct hc_err *err),
                  void *data, struct connecting **out, struct hc_err *err);
void connect_drop(struct connecting *connecting); /* nothing more is told */

#endif
