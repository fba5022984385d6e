/*
 * Driving a run: sends a plan's stages (and then its tests) to a warden one after another, carries stdin, stdout and
 * stderr, and makes the result from what the warden reports. Any number of drives share a loop and a link.
 */
#ifndef HC_RUN_DRIVE_H
#define HC_RUN_DRIVE_H

#include "run/link.h"
#include "run/plan.h"
#include "run/result.h"
#include "run/snapshot.h"

enum { DRIVE_OUTPUT_FACTOR = 16, DRIVE_COLLECT_LIMIT = 64 << 20 };

struct drive;

/* A first stage that need not be run again: what it left when it was, and what it wrote. */
struct drive_kept {
    struct snapshot files;
    struct capture output;
};

struct drive_events { /* any may be NULL */
    void *data;
    /* A stage begins; after the last one, the tests go on in the same row of numbers, each with its own name. */
    void (*stage)(void *data, size_t index, const char *name);
    /* Output as it arrives, up to the cap of each stream. Other than 0 ends the run. */
    int (*output)(void *data, size_t stage, int stream, const char *bytes, size_t length);
    /* Bytes of files are about to be held in memory: collected ones, or what stages leave for tests. False: they may
     * not be, and whoever says so ends the run. */
    bool (*holds)(void *data, size_t length);
    /* Before `ended`: what the first stage left and wrote, where that was asked for and went well. Who wants the files
     * takes the fd. */
    void (*kept)(void *data, struct snapshot *files, const struct capture *output);
    /* Every process of the program is dead, and the warden goes, with what is left of the last cell. */
    void (*emptied)(void *data);
    /* It is over; the result is filled and judged but for id, isolation, language and timing. The drive is gone after.
     */
    void (*ended)(void *data);
};

/* A cell that is there already, has others in it, and stays: sandboxes. Jobs are numbered as the drive numbers them. */
struct drive_room {
    void *data;
    /* Takes nothing: fds stay the drive's. 0 or -errno. Messages: JOB_START, JOB_KILL. */
    int (*send)(void *data, struct warden_message *message, const int *fds, size_t count);
    /* Something that a job left running may still hold this pipe. Takes it; NULL: it is closed. */
    void (*linger)(void *data, int fd);
};

struct drive_options {
    const struct drive_room *room; /* where it is to be; NULL: a cell of its own. Lives until `ended` */
    int input;                     /* fd to feed stdin from, or -1: the request's own */
    uint32_t required;             /* the layers that must hold: the warden makes no cell otherwise */
    bool final;                    /* the warden is not needed after this run */
    bool alone;                    /* its cell is made for it, while a processor waits: what its language looks up */
    uint64_t quiet;                /* µs for which nobody need hear of output */
    const struct drive_kept *kept; /* the first stage is not run: this stands for it. Copied by drive_start; or NULL */
    uint64_t keep; /* what the first stage leaves is told, if it is no more bytes than that; 0: is not */
    bool passes;   /* output is told, all of it, and not kept: it has no limit */
    struct drive_events events;
};

/* What it is asked is sent at once, also before the warden has said HELLO: it reads it when it is up. `plan`, `result`
 * live until `ended`, which is never called from inside this. 0, or -errno: nothing was started. */
int drive_start(struct link *link, const struct plan *plan, const struct drive_options *options, struct result *result,
                struct drive **out);
void drive_cancel(struct drive *drive); /* ends it; `ended` follows with status killed */
/* What the warden said of a job in a room, and that there is no room any more. */
void drive_room_message(struct drive *drive, const struct warden_message *message);
void drive_room_gone(struct drive *drive, const struct hc_err *why);
/* Ends it with this failure as the result's `internal` (a greeting that refuses the run): `ended` follows. */
void drive_fail(struct drive *drive, const struct hc_err *err);

#endif
