/* The warden's own state. Included by the warden alone. */
#ifndef HC_WARDEN_WARDEN_H
#define HC_WARDEN_WARDEN_H

#include "base/loop.h"
#include "cell/cell.h"
#include "warden/proto.h"
#include <signal.h>

struct rusage;

enum {
    CELL_MAX_JOBS = 64,
    ANSWER_FIRST_US =
        3000, /* after a program's end: whoever waits for its answer goes before what is only to be cleared */
};

/* Cells that wait to be asked for: pool.c. */
struct pool {
    struct pool_spec spec;
    uint32_t target; /* how many are to wait, between spec.least and spec.most */
    uint64_t hits, misses, missed_at;
    uint64_t not_before; /* one could not be built: no other until then */
    uint64_t refill_at;
    uint32_t room; /* how many cells may wait in all, primed ones among them */
    struct hc_timer *refill, *decay, *tell;
};

struct warden {
    struct hc_loop *loop;
    int client; /* the socket; -1 once the client is gone */
    struct hc_watch *client_watch, *control_watch;
    bool service; /* it lives on without a client, until the keeper goes */
    int later;    /* takes what is to be let go of in the background, or -1 */
    int hosts;    /* where to ask the keeper for host folders, or -1: they are in our root */
    struct cell_host host;
    uint32_t isolation; /* the layers that hold here */
    struct warden_message hello;
    bool greeted; /* the client has had it */
    struct held_cell *cells;
    struct pool pool;
    struct warm *warm; /* what may be started ahead: warm.c */
    struct hc_timer *look, *mend;
    uint64_t next_name;
    bool closing;
};

enum held_state { HELD_BUILDING, HELD_READY, HELD_DYING, HELD_DEAD /* one that lasted: until its client has heard */ };
enum held_place { /* whose a cell is */
                  PLACE_CLIENT,
                  PLACE_POOL,   /* nobody's yet */
                  PLACE_PRIMED, /* nobody's yet, and programs wait in it: primed.c */
};

/* The group of one job of a cell that lasts. It may outlive the job: what that left running is still in it. */
struct inner {
    struct inner *next;
    struct cgroup group;
    uint64_t job;
    uint64_t witness;     /* its number in the book, once the job is over */
    struct reported told; /* and what its client knows */
};

struct kept { /* for a client */
    int fd[WARDEN_KEEP_MAX];
    size_t count;
};

struct held_cell {
    struct held_cell *next;
    struct warden *warden;
    uint64_t id; /* the client's number; 0: it has none */
    struct cell cell;
    enum held_state state;
    enum held_place place;
    struct warm *warm; /* whose programs wait in it, or waited */
    uint64_t born;
    bool verbose; /* the client wants to know how it gets on */
    bool broken;  /* a program that waited in it has ended */
    bool resize;  /* its next job is to give the scratch space the size in its spec */
    bool alone;   /* its last program is over, and nobody is in it but pid 1 */
    bool lasting, frozen;
    struct job_limits limits; /* of all jobs together, where it lasts */
    struct inner *inners;
    uint64_t next_inner;
    uint64_t last_witness; /* the last number in its book */
    struct kept kept;
    struct hc_err why; /* it died by itself */
    struct held_job *jobs;
    bool used;                          /* cell.group has had its job */
    bool wanted;                        /* the client waits for CELL_GONE */
    bool reaped;                        /* init has been waited for */
    struct cgroup spare[CELL_MAX_JOBS]; /* groups of later jobs, kept until the cell is gone */
    unsigned spare_count;
    struct hc_watch *report_watch, *exit_watch, *word_watch;
    struct hc_timer *remove_timer, *retire_timer, *slow_timer;
};

struct held_job {
    struct held_job *next;
    struct held_cell *cell;
    uint64_t id;
    struct job_spec spec;
    int fds[5];          /* until it is started: stdin, stdout, stderr, block, files */
    struct inner *inner; /* in a cell that lasts */
    struct kept kept;
    bool over; /* it has ended, and its client has not heard: facts has how */
    struct job_facts facts;
    unsigned sweeps;
    int sweep_signal;
    uint64_t sweep_since;
    uint64_t early; /* bit n: signal n + 1 came before there was a program to send it to */
    struct cgroup *group;
    struct cgroup_stats before;
    uint64_t witness; /* its number in the cell's book, or 0 */
    pid_t pid;
    int pidfd, report, oom;
    struct cell_start own; /* as it was when the program began */
    struct {
        struct cell_start start;
        struct hc_err err;
    } said; /* what has come through `report`, as far as it has */
    size_t said_length;
    int gate; /* of one that came while its cell was being built: where it is told that its limits hold; or -1 */
    bool running;
    bool waiting;            /* primed: it has no program yet */
    bool again;              /* it was given its program, and starts cold if it dies before it has begun */
    bool at_door;            /* primed: and is ready for one */
    int door, door_inside;   /* primed: our end, and its own until it is started */
    unsigned first_stage;    /* primed: which stage it is for */
    struct pending *pending; /* a zygote was asked to start it, and has not answered */
    enum job_start start;
    enum job_end end;
    struct hc_err err;
    uint64_t begun, exec_at;
    unsigned oom_checks;
    struct hc_watch *report_watch, *exit_watch, *oom_watch, *door_watch;
    struct hc_timer *deadline, *cpu_timer, *oom_timer, *sweep_timer;
};

/* An interpreter that may be started ahead: defined by the keeper, started when it is wanted. */
struct warm {
    struct warm *next;
    struct warden *warden;
    struct warm_spec spec;
    int blocks[WARM_MAX_STAGES];
    bool wanted;            /* somebody has asked for it, or it is eager */
    uint64_t used;          /* when it was asked for last */
    uint64_t not_before;    /* it failed: no other until then */
    struct zygote *zygotes; /* the newest first */
    uint32_t target;        /* primed: how many are to wait */
    uint64_t missed;        /* primed: when none was there */
};

/* supervise.c */
struct held_cell *supervise_find(struct warden *warden, uint64_t id);
/* The fds stay the caller's. */
void supervise_new_cell(struct warden *warden, const struct warden_message *message, const int *fds, size_t count);
void supervise_destroy(struct warden *warden, uint64_t id, bool told); /* told: the client hears when it is gone */
void supervise_retire(
    struct held_cell *cell); /* the same, a moment later: nobody waits for it, and only pid 1 is in it */
/* Takes the fds. */
void supervise_start(struct warden *warden, uint64_t id, uint64_t job_id, const struct job_spec *spec, int *fds,
                     size_t count);
void supervise_kill(struct warden *warden, uint64_t id, uint64_t job_id, enum job_end reason);
/* The client's cells, or all there are. */
void supervise_end(struct warden *warden, bool all);
/* A cell for nobody yet. NULL: there is none, and err says why. */
struct held_cell *supervise_build(struct warden *warden, const struct cell_spec *spec, enum held_place place,
                                  struct hc_err *err);
void supervise_drop(struct held_cell *cell); /* nobody needs it any more */
/* To be called whenever a job of a dying cell has ended: the last one lets the cell go (and be freed). */
void supervise_check_gone(struct held_cell *cell);
/* Who tells us that a cell is there: its builder; or a job that came early and has begun its program, so that we are
 * woken once for both. The builder is heard as well when that takes long. */
void supervise_heed_builder(struct held_cell *cell);
void supervise_heed_job(struct held_cell *cell);
void supervise_built(struct held_cell *cell); /* its builder has ended, well or not */
/* Its pid 1 is dying, as a job has found out: it goes now, not only when the kernel has let go of pid 1. */
void supervise_lost(struct held_cell *cell);
int supervise_lost_error(struct hc_err *err); /* what is said of it, and of its jobs */

/* job.c */
/* Its cell is ready. */
void job_begin(struct held_job *job);
/* Its cell is being built, and it is the first: what need not wait for the cell is done meanwhile (cell/enter.c). */
void job_begin_early(struct held_job *job);
void job_refuse(struct held_job *job, const struct hc_err *err); /* never started: tell the client, free it */
void job_end(struct held_job *job, enum job_end reason);         /* ends the cell; the first reason stays */
/* It is in its cell: from now on it is watched. */
void job_entered(struct held_job *job);
void job_free(struct held_job *job);
void job_enter_cold(struct held_job *job); /* what a zygote did not start */
struct held_job *job_new(struct held_cell *cell, uint64_t id, const struct job_spec *spec, int *fds, size_t count);

void job_close_fds(struct held_job *job);
/* What has come through the child's pipe. True when that is all: its other end is closed, or there can be no more. */
bool job_hear_report(struct held_job *job);
void job_read_report(struct held_job *job); /* when it began; or job->err, where it did not after all */
/* A program that waited, and died before it had begun with what it was given: a cold start takes its place. */
bool job_start_again(struct held_job *job);
void job_tell(const struct held_job *job, const struct warden_message *message);

/* job_exit.c */
void job_on_exit(struct hc_loop *loop, int fd, uint32_t events, void *data); /* its pidfd is readable */
/* It is about to make exit_group(2) with this code, by the kernel's word (cell/witness.h). */
bool job_last_word(struct held_job *job, int code); /* false: it is to go on, and its real end will tell */

/* job_group.c */
int job_choose_group(struct held_job *job, struct hc_err *err); /* job->group */
int job_limit_group(struct held_job *job, struct hc_err *err);  /* its limits are in force, where they are its own */
int job_limit(struct held_job *job, bool background, struct hc_err *err);

/* job_facts.c */
void job_gather(struct held_job *job, const siginfo_t *info, const struct rusage *usage, struct job_facts *facts);

/* lasting.c */
/* It is the client's now, and ready: its limits are put in force. */
int lasting_begin(struct held_cell *cell, struct hc_err *err);
int lasting_group(struct held_job *job, struct hc_err *err); /* a group for it: job->group */
void lasting_begun(struct held_job *job); /* its program is there: signals that came before it are sent */
void lasting_facts(struct held_job *job, struct job_facts *facts);
void lasting_end(struct held_job *job); /* its processes, and no others of the cell */
/* It has ended: remembered until the client has heard. What it left running stays. */
void lasting_over(struct held_job *job, const struct warden_message *message);
/* Messages of the client's. Takes the fds. */
void lasting_message(struct warden *warden, const struct warden_message *message, int *fds, size_t count);
void lasting_clear(struct held_cell *cell);   /* groups of jobs in which nobody is any more */
void lasting_late(struct held_cell *cell);    /* calls that were refused to what jobs had left running */
void lasting_forget(struct held_job *job);    /* what belongs to a job that is freed */
void lasting_release(struct held_cell *cell); /* and to a cell */

/* pool.c */
void pool_configure(struct warden *warden, const struct pool_spec *spec);
/* A cell of that shape that is there already, or nearly. NULL: there is none. */
struct held_cell *pool_take(struct warden *warden, const struct cell_spec *spec);
void pool_changed(struct warden *warden); /* a cell of it was built or has gone: build the next, tell the client */
/* Programs of a client's run, in other cells than this. */
bool pool_busy(const struct warden *warden, const struct held_cell *but);
void pool_rest(struct warden *warden);   /* a program has ended: there may be time now */
void pool_failed(struct warden *warden); /* one could not be built */
bool pool_fits(const struct cell_spec *have, const struct cell_spec *want); /* but for the disk */
void pool_measure(struct warden *warden);                                   /* at the start: how much may wait */
bool pool_has_room(const struct warden *warden);
void pool_end(struct warden *warden);

/* warm.c */
void warm_define(struct warden *warden, const struct warm_spec *spec, int *blocks, size_t count); /* takes them */
struct warm *warm_find(struct warden *warden, uint64_t id);
bool warm_serves(const struct warm *warm); /* it has a zygote that can be asked */
/* Ask a zygote to start a job. False: there is none, and it must start cold. */
bool warm_enter(struct held_job *job, const struct cell_job *entry);
void warm_forget(struct held_job *job); /* it is going, and nobody waits for the zygote's answer any more */
void warm_count(const struct warden *warden, struct pool_facts *facts);
void warm_end(struct warden *warden);

/* stray.c */
/* A child of ours in the cell whose pid 1 is `cell`, and that we do not know of: a pidfd; -1: there is none. */
int stray_find(const struct warden *warden, pid_t cell, pid_t *pid);
void stray_end(struct warden *warden, int pidfd); /* takes it */

/* primed.c */
bool primed_ready(const struct held_cell *cell); /* every program that is to wait in it does */
struct held_cell *primed_take(struct warden *warden, uint64_t id, const struct cell_spec *spec);
/* Gives a job to the program that waits for it, and frees it. False: there is none, and it must start cold. */
bool primed_begin(struct held_job *job);
void primed_refill(struct warden *warden); /* start those that are missing */
void primed_look(struct warm *warm);       /* how many are needed now; which are too old */
void primed_built(struct held_cell *cell);
/* Where something waits: ends what else runs in the cell, but for one group (which nobody could be born into
 * any more, once it was ended). False: nothing waits, and nothing was done. */
bool primed_sweep(struct held_cell *cell, const struct cgroup *but);
void primed_lost(struct held_job *job); /* one that waited has ended */

/* main.c */
void warden_say(struct warden *warden, const struct warden_message *message);
void warden_hand(struct warden *warden, const struct warden_message *message, const int *fds, size_t count);
void warden_check_done(struct warden *warden);

#endif
