/* What the files behind runs.h share: runs.c (the server's life), run.c (one run), run_record.c (what is written). */
#ifndef HC_GATEWAY_RUN_INTERNAL_H
#define HC_GATEWAY_RUN_INTERNAL_H

#include "gateway/compile_cache.h"
#include "gateway/events.h"
#include "gateway/queue.h"
#include "gateway/runs.h"
#include "run/drive.h"
#include "run/plan.h"
#include <jansson.h>

enum {
    RUNS_BUCKETS = 1024,
    RUNS_KEEP_BYTES = 32 << 20, /* results and logs of runs that are over, in memory */
    RUNS_SAVING_LIMIT = 256,    /* results that wait for the disk: past it nothing new is begun */
    RUNS_AUDIT_REFUSALS = 20,   /* entries a second, of what anybody can cause by asking, or by running something */
    RUNS_AUDIT_CHANGES = 100,   /* and of what has changed: the former must not hide it */
};
#define RUNS_KEEP_TIME (60 * 1000000ULL) /* µs that a run that is over is remembered */

enum run_state {
    RUN_ARRIVING, /* waits for the disk before it gets a place in the queue */
    RUN_QUEUED,
    RUN_STARTING, /* has its turn, and waits for the disk to know that */
    RUN_DRIVEN,   /* has a drive */
    RUN_SAVING,   /* over; its record is being written */
    RUN_ENDED,
};

struct run_eye { /* one watcher */
    struct run_eye *next;
    struct run_watcher watcher;
    bool owner; /* the one it was started with */
    bool blind; /* taken away while the run was telling: freed after */
};

struct run_shown { /* what one stage has shown */
    char name[32];
    struct hc_buf stream[2];
};

struct run_work { /* what a run needs until it is over */
    struct request *request;
    struct run_input *input; /* stdin_open; NULL: all of its input is in the request */
    bool planned;
    struct result result;
    struct compile_key compile_key; /* of what the drive was asked to keep */
    struct run_place *place;        /* or NULL */
    struct plan plan;               /* last: what its own last member is, nobody clears */
};

struct run {
    struct queue_item item; /* first: queue_take gives it back */
    struct runs *runs;
    struct run *chain;                       /* in its bucket */
    struct run *next, *previous;             /* among those that are over, oldest first */
    struct run *later_next, *later_previous; /* among those that the store is still to hear of: runs_announce.c */
    enum run_state state;
    struct run_row row; /* what the store has, or will have, of it */
    char *shape, *json, *log;
    bool placed;            /* it is in a sandbox, and takes no turn of others */
    bool counted;           /* by the tenant's quota */
    bool unannounced;       /* the store has not heard of it */
    bool cancelled;         /* its `ended` has to come */
    bool stopped;           /* by the end of the server */
    bool reserved;          /* a slot is free for it when it has arrived */
    bool unsaved;           /* over, and not on disk: tried again */
    bool starved;           /* there was no memory for its result */
    uint64_t memory;        /* held for it: budget.h */
    size_t pending;         /* changes that the store has not answered */
    size_t held;            /* bytes of its request */
    struct run_work *work;  /* NULL: it is over */
    struct run_work *spent; /* what it was: it goes after the answer */
    struct drive *drive;
    uint64_t queued_at, driven_at, ended_at; /* CLOCK_MONOTONIC µs */
    struct run_shown *shown;
    size_t shown_count;
    struct run_eye *eyes;
    unsigned telling;
    size_t holders; /* who may look at it still, though it has nothing more to tell */
    struct hc_err failure;
    char why[160]; /* it was cancelled */
};

struct runs {
    struct gateway *gateway;
    struct queue *queue;
    struct compile_cache *compiled;
    struct run *buckets[RUNS_BUCKETS];
    struct run *oldest, *newest; /* those that are over */
    struct run *first_later, *last_later;
    struct hc_timer *announce_timer;
    size_t kept_bytes;
    uint64_t driven, reserved, arriving, saving, held_bytes; /* driven: with those that are starting */
    uint64_t started, finished, by_status[RUN_INTERNAL + 1];
    uint64_t processors, memory; /* of this machine */
    uint64_t usual_time;         /* µs that a run takes, a moving average */
    struct hc_timer *timer;
    uint64_t timer_at;
    bool left; /* what an earlier gateway has left could not be read yet */
    bool draining;
    uint64_t drain_deadline;
    struct audit_budget {
        uint64_t second;
        unsigned count;
        uint64_t left_out;
    } refusals, changes;
};

/* ---- run.c ---- */
struct run *run_new(struct runs *runs, const struct run_options *options); /* NULL: out of memory */
void run_free(struct run *run);     /* not in any list, no drive, nothing pending */
void run_end_work(struct run *run); /* it is over: its work is spent */
void run_free_spent(struct run *run);
void run_tell_accepted(struct run *run);
void run_tell_ended(struct run *run);
int run_drive(struct run *run); /* 0, or -errno: it has no drive */
void run_shown_source(struct run *run, struct events_source *source);
size_t run_bytes(const struct run *run); /* of what it keeps when it is over */

/* ---- runs_announce.c ---- */
void runs_announce_later(struct run *run); /* queued_at is set */
void runs_announce_not(struct run *run);   /* its end says all; one that was announced: does nothing */
/* Now. `request`: its text, where it is to be begun again after a crash. 0, or -errno: `done` is not called. */
int run_insert(struct run *run, const char *request, size_t length, store_done_fn done);

/* It holds so much for its result from now on. False: there is no memory for that. */
bool run_afford(struct run *run, uint64_t bytes);
/* It ends, because there was not. */
void run_starve(struct run *run);

/* It is not forgotten while it is held. */
void run_hold(struct run *run);
void run_release(struct run *run);

/* ---- runs.c: the way of one run ---- */
uint64_t runs_concurrent(const struct runs *runs);
void runs_add(struct runs *runs, struct run *run);    /* to the table */
void runs_remove(struct runs *runs, struct run *run); /* from it */
/* Plans it. Takes the request. */
int runs_prepare(struct run *run, struct request *request, const struct run_options *options, struct hc_err *err);
void runs_line_up(struct run *run);    /* into the queue */
void runs_dispatch(struct runs *runs); /* as many begin as may */
void runs_save(struct run *run);       /* hands its record to the store */
/* Not its turn, and it will not come. Whoever waits gets a 503, the record says why. */
void runs_refuse(struct run *run, const char *why);
/* The drive has ended, or never was; the result is filled and judged. Records it, and lets the next one begin. */
void runs_over(struct run *run);
/* It ends without having run: `status` killed or internal, with `err` as the reason. */
void runs_over_unrun(struct run *run, enum run_status status, const struct hc_err *err);

/* ---- runs_life.c: the way of all ---- */
void runs_keep(struct run *run); /* it is over, and remembered for a while */
/* The old ones, and the oldest until the rest fits. */
void runs_forget(struct runs *runs);
/* Those that are over and that nobody looks at, for others that need the memory. */
void runs_make_room(struct runs *runs);
void runs_arm(struct runs *runs); /* the timer, where there is something to wait for */

/* ---- run_record.c ---- */
int64_t run_time_now(void); /* µs since the epoch */
/* RFC 3339, UTC, with milliseconds. `text` has at least 32 bytes; returned for convenience. */
const char *run_time_text(int64_t when, char *text, size_t size);
/* Gives it its shape, {"language","code_bytes","files":[{"path","size"}…],…}: what was asked, without contents. It has
 * none where there is no memory. */
void run_describe(struct run *run);
/* From the drive's result to what is recorded: fills the result's last fields, the row, json and log; counts and
 * audits it. -ENOMEM: there is no json. */
int run_conclude(struct run *run);
void run_log_line(const struct run *run); /* one for each run */
/* Code in a dictionary or a markdown fence is taken out of it. */
int run_unwrap(struct gateway *gateway, struct request *request, struct hc_err *err);

/* ---- run_errors.c ---- */
/* What the history learns from it: row.error and the shape of its code. After the result is explained. */
void run_learn(struct run *run);
/* A group as GET /v1/history/errors has it; `tenant`: also whose it is. NULL: out of memory. */
json_t *error_group_json(const struct error_group *group, bool tenant);
/* The group of a fingerprint, or null: there is none. */
json_t *run_seen(struct store *store, const char *tenant, const char *fingerprint);

/* ---- routes_runs.c ---- */
/* Starts it, and answers with its result, its events or (keep_going) its id. Takes `asked`. */
void run_answer(struct gateway *gateway, struct http_request *request, struct request *asked,
                const struct run_options *options);
/* The problem that a failure is, as text for a stream. malloc'ed; NULL: out of memory. */
char *run_failure_json(const struct hc_err *err);

/* ---- routes_events.c ---- */
struct events_reader;
/* A reader that will stream to the request, from a position on. NULL: out of memory. */
struct events_reader *events_reader_new(struct gateway *gateway, struct http_request *request,
                                        const struct events_position *position);
void events_reader_drop(struct events_reader *reader); /* one that never began */
struct run_watcher events_reader_watcher(struct events_reader *reader);
/* The run that it watches already: the stream begins. */
void events_reader_begin(struct events_reader *reader, struct run *run);

/* ---- routes_stdin.c ---- */
struct run_input;
/* `first` is what comes before all that is sent. 0 or -ENOMEM. */
int run_input_new(struct hc_loop *loop, const struct blob *first, struct run_input **out);
int run_input_fd(const struct run_input *input); /* where the drive reads; NULL: -1 */
void run_input_free(struct run_input *input);    /* after the drive; NULL is fine */

/* ---- report.c ---- */
/* The debug report of a result (its JSON text) and of what was asked (the shape's; may be NULL): as JSON, or as text in
 * markdown. `store` and `tenant` are asked whether it failed so before. malloc'ed; NULL: err. */
struct report_source {
    const char *result, *shape;
    struct store *store;
    const char *tenant;
};
char *report_make(const struct report_source *source, bool markdown, struct hc_err *err);

#endif
