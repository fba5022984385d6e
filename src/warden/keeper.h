/*
 * The keeper: what happens with the privileges that hotcell was started with. It chooses a uid range, makes the control
 * groups, starts the warden in a user namespace of its own, and stays, only to clear away when the warden has gone. It
 * reads nothing from outside. This is the keeper of one engine; a server has one of its own (serve/).
 */
#ifndef HC_WARDEN_KEEPER_H
#define HC_WARDEN_KEEPER_H

#include "warden/custody.h"
#include <stdint.h>
#include <sys/types.h>

struct keeper {
    pid_t pid;
    int socket; /* to the warden, once it says HELLO */
    int alone;  /* a byte in it says that the keeper needs nobody to wait for it */
};

/* Forks the keeper and returns at once; what went wrong arrives as a HELLO message with an error. */
int keeper_start(const struct keeper_plan *plan, struct keeper *keeper, struct hc_err *err);
/* Closes the socket, which ends all cells, and waits until everything is cleared away. */
void keeper_stop(struct keeper *keeper);
/* The same for a process that ends now, when every guest is known to be dead: what is left is empty control groups and
 * the keeper itself. Waits only where the keeper must not be left alone. */
void keeper_leave(struct keeper *keeper);

/* What this process can have in the way of uids: for the doctor. `text` says it in words. Returns the number of uids.
 */
uint64_t keeper_uid_range(const struct keeper_plan *plan, char *text, size_t size);

#endif
