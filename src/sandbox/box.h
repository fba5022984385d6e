/*
 * A box: one cell that lasts (warden/lasting.c), as its client has it. It is made or found again, has any number of
 * jobs side by side, can be frozen and asked what it uses, and ends when somebody says so or when it dies.
 *
 * Who owns what: the box is its maker's until `gone` was called, which comes exactly once, from the loop. A job is
 * embedded in whoever started it, and is the box's from box_start until `ended` was called, which comes exactly once,
 * also when the box goes.
 */
#ifndef HC_SANDBOX_BOX_H
#define HC_SANDBOX_BOX_H

#include "run/link.h"

struct box;

struct box_events {
    void *data;
    void (*ready)(void *data);                          /* after box_new; not after box_adopt */
    void (*gone)(void *data, const struct hc_err *why); /* code 0: as asked. The box is freed after it */
    /* Calls that were refused and are reported; number: of the job, which has ended or is about to. May be NULL */
    void (*calls)(void *data, uint64_t number, const struct reported *calls);
};

struct box_job {
    struct box_job *next;
    struct box *box;
    uint64_t number; /* given by box_start; never 0 */
    void *data;
    bool reports; /* whoever has it tells of its refused calls: `calls` does not */
    void (*started)(struct box_job *job, const struct warden_message *message); /* may be NULL */
    /* facts, or err with JOB_NOT_STARTED. It is no job of the box's any more. */
    void (*ended)(struct box_job *job, const struct warden_message *message);
};

/* `fds`: those of JOB_START, in its order, which stay the caller's. 0, or -errno: nothing was started. */
int box_new(struct link *link, const struct cell_spec *spec, const struct cell_mount *mounts,
            const struct job_limits *limits, uint32_t required, const struct box_events *events, struct box **out);
/* One that is there already: from a WARDEN_HELD message. */
struct box *box_adopt(struct link *link, const struct warden_message *message, const struct box_events *events);
/* A job that is there already; `number` as it was. */
void box_adopt_job(struct box *box, struct box_job *job, uint64_t number);
/* It had ended already: as if the warden had just said so. */
void box_over(struct box *box, const struct warden_message *message);
void box_destroy(struct box *box); /* `gone` follows */
/* The link is there no more, and nobody is told: at the end of the program. */
void box_drop(struct box *box);

/* Its jobs may write files of that size, whatever their own limits say: in a volume the limit is the volume's. */
void box_allow_files(struct box *box, uint64_t size);
int box_start(struct box *box, struct box_job *job, const struct job_spec *spec, const int *fds, size_t count);
void box_kill(struct box_job *job, enum job_end reason); /* with all its descendants; `ended` follows */
void box_signal(struct box *box, uint64_t job, int number);
/* Ends all of it that began since then (CLOCK_MONOTONIC µs) but its main process, which then gets the signal. */
void box_sweep(struct box_job *job, int number, uint64_t since);
/* Leaves fds with the warden, for who comes after us. `job` NULL: of the box. They stay the caller's. */
int box_keep(struct box *box, const struct box_job *job, const int *fds, size_t count);

/* Answered once, from the loop, in the order of asking; with an error when the box goes before. */
struct box_answer {
    struct box_answer *next;
    void *data;
    void (*answered)(void *data, const struct warden_message *message);
};
/* Both take the answer, which is freed after it was called; -errno: nothing was asked. */
int box_ask_usage(struct box *box, void (*answered)(void *data, const struct warden_message *message), void *data);
int box_freeze(struct box *box, bool on, void (*answered)(void *data, const struct warden_message *message),
               void *data);
/* No answer is wanted any more by whoever has this data. */
void box_unask(struct box *box, const void *data);

#endif
