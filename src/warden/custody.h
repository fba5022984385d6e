/*
 * Custody of a warden: its uids, its control groups, its birth in namespaces of its own, and the clearing away after it
 * has gone. Done by the keeper, with the privileges that hotcell was started with: for one run by a short-lived process
 * (keeper.h), for a server by the keeper that supervises it (serve/).
 */
#ifndef HC_WARDEN_CUSTODY_H
#define HC_WARDEN_CUSTODY_H

#include "cell/image.h"
#include "cell/spec.h"
#include "kernel/cgroup.h"
#include "warden/proto.h"
#include "warden/uids.h"
#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

struct keeper_plan {
    struct image_plan image;
    uint64_t uid_base, uid_count; /* 0: pick */
    const char *libexec;          /* the folder of hotcell-warden and hotcell-init */
};

/* What is on the disk of guests' own (the shared workspace, volumes) belongs to nobody who runs anything: the uid and
 * gid below the ranges that cells get (uids.c). */
enum { CUSTODY_STORED_UID = 0x70000000 - 1 };

struct custody {
    const struct keeper_plan *plan; /* the caller's */
    const cpu_set_t *processors;    /* for one run: where it may run; the caller's */
    /* Service: a detached mount of the volume with this number (CELL_FIRST_VOLUME and up); NULL: there are none. */
    int (*volume)(void *data, uint32_t number, struct hc_err *err);
    void *volume_data;
    struct uid_plan uids;
    bool uids_planned; /* uids is the caller's, and stays when this is cleared */
    bool service;      /* the warden outlives its clients and takes new ones: custody_give_client */
    struct cgroup_base cgroups;
    struct cgroup_keeper *groups;
    int warden;        /* its end of the first client's socket; the caller's */
    int control[2];    /* the keeper's own word to the warden: ours, its */
    int hosts[2];      /* service: where the warden asks for host folders: ours, its */
    int later[2];      /* for one run: what to let go of when everything else is done (kernel/later.h): ours, its */
    int program, init; /* hotcell-warden, hotcell-init */
    struct image_plan image;
    int host_fds[CELL_MAX_HOSTS];
    pid_t pid; /* of the warden; 0: it was never born */
};

void custody_init(struct custody *custody, const struct keeper_plan *plan);
/* Starts a warden whose client is at the other end of `socket`. What goes wrong after its birth arrives there, as a
 * HELLO with an error. On failure there may be something to clear. */
int custody_start(struct custody *custody, int socket, struct hc_err *err);
/* Service: the warden's old client, if there is one, is gone for it; this one is its client now. */
int custody_give_client(struct custody *custody, int socket);
/* Shows what is CUSTODY_STORED_UID's as the guest's of the cell with these uids. */
int custody_map(const struct custody *custody, int tree, uint32_t slot, struct hc_err *err);
/* Service: one question of the warden's is waiting on hosts[0]. 0, or -errno when the warden is gone. */
int custody_answer(struct custody *custody);
/* Closes what is the keeper's; the warden ends when it sees that. */
void custody_let_go(struct custody *custody);
/* For one run: waits until the warden has gone, and removes meanwhile what it has left already. It closes its files
 * first when it ends, and the kernel takes it and its namespaces apart for some time after that. */
void custody_see_out(struct custody *custody);
/* After the warden has been waited for: removes its control groups and closes everything. */
void custody_clear(struct custody *custody);
/* Tell the client why there is no warden. */
void custody_report(int socket, const struct hc_err *err);

#endif
