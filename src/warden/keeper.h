/*
 * The keeper: what happens with the privileges that hotcell was started with. It chooses a uid range, makes the control
 * groups, starts the warden in a user namespace of its own, and stays, only to clear away when the warden has gone. It
 * reads nothing from outside.
 */
#ifndef HC_WARDEN_KEEPER_H
#define HC_WARDEN_KEEPER_H

#include "cell/image.h"
#include "warden/proto.h"
#include <stdint.h>
#include <sys/types.h>

struct keeper_plan {
    struct image_plan image;
    uint64_t uid_base, uid_count; /* 0: pick */
    const char *libexec;          /* the folder of hotcell-warden and hotcell-init */
};

struct keeper {
    pid_t pid;
    int socket; /* to the warden, once it says HELLO */
};

/* Forks the keeper and returns at once; what went wrong arrives as a HELLO message with an error. */
int keeper_start(const struct keeper_plan *plan, struct keeper *keeper, struct hc_err *err);
/* Closes the socket, which ends all cells, and waits until everything is cleared away. */
void keeper_stop(struct keeper *keeper);

/* What this process can have in the way of uids: for the doctor. `text` says it in words. Returns the number of uids.
 */
uint64_t keeper_uid_range(const struct keeper_plan *plan, char *text, size_t size);

#endif
