/*
 * Sandboxes: cells that live on under an id, and what is in them. One struct sandboxes for a server: it makes them,
 * finds them, ends the idle and the old, and takes them over from a gateway that died.
 *
 * What lives in a sandbox besides its cell (detached jobs, shells, interpreters, terminals) is a *fixture*: it has one
 * job of the box's, may leave fds with the warden, and can write down in JSON what it needs to be found again. All
 * that is kept in a memory file that the warden holds (sandbox_save), so a new gateway has it, and nobody else.
 *
 * What always holds: a sandbox that was acknowledged is in the list until it was deleted, has expired, or has failed an
 * hour ago; every change of its state is told once (`changed`).
 */
#ifndef HC_SANDBOX_SANDBOX_H
#define HC_SANDBOX_SANDBOX_H

#include "run/config.h"
#include "run/plan.h"
#include "run/volume.h"
#include "sandbox/box.h"
#include "text/json.h"
#include <errno.h>

struct sandboxes;
struct sandbox;
struct fixture;

enum sandbox_state { SANDBOX_CREATING, SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_FAILED, SANDBOX_STOPPING };
const char *sandbox_state_word(enum sandbox_state state);

/* ---- what is in a sandbox ---- */

struct fixture_kind {
    const char *word; /* "job", "session", "context", "terminal" */
    /* What it must remember: an object, or NULL where it has nothing to remember and is ended with its gateway. */
    json_t *(*save)(const struct fixture *fixture);
    /* From what was saved, with the fds that were kept, which it takes. NULL: it cannot go on, and its job is ended. If
     * the job is over (held->over) it hears of that by job.ended right after. */
    struct fixture *(*restore)(struct sandbox *sandbox, const json_t *saved, const struct warden_message *held,
                               int *fds, size_t count);
    void (*free)(struct fixture *fixture); /* it is in no list any more, and its job has ended */
};

struct fixture { /* embedded, first */
    struct fixture *next;
    const struct fixture_kind *kind;
    struct sandbox *sandbox;
    struct box_job job;
    bool running; /* the box has its job */
    char id[40];
    int64_t created_at; /* µs since the epoch */
};

/* Into its sandbox's list. The id is made from the word: "job_", "ctx_". */
int fixture_add(struct fixture *fixture, struct sandbox *sandbox, const struct fixture_kind *kind, const char *word);
void fixture_remove(struct fixture *fixture); /* out of it; and freed, by its kind */
struct fixture *fixture_find(const struct sandbox *sandbox, const struct fixture_kind *kind, const char *id);
size_t fixture_count(const struct sandbox *sandbox, const char *word);

/* ---- one ---- */

/* A folder that outlives it, by its name. */
struct sandbox_volume {
    struct sandbox *sandbox;
    char name[VOLUME_NAME_SIZE];
    uint32_t mount; /* which of the plan's mounts it is */
    bool waits;     /* it is being opened */
};

struct sandbox_waiter { /* embedded in whoever waits for the end of its cell */
    struct sandbox_waiter *next;
    void (*over)(struct sandbox_waiter *waiter); /* its state says what became of it; in no list any more */
};

struct sandbox {
    struct sandbox *next;
    struct sandboxes *all;
    char id[40], tenant[64];
    char secret[40]; /* with which links to it are signed */
    enum sandbox_state state;
    struct hc_err why; /* of one that failed */
    struct box *box;   /* NULL: it failed, or is not there yet */
    char *order;       /* what it was asked for with, as JSON text */
    struct request *request;
    struct plan plan;     /* its cell, environment and first files; the one stage has its limits */
    struct limits limits; /* of all jobs together; timeout and output: of each */
    struct sandbox_volume *volumes;
    size_t volume_count;
    uint64_t file_size;          /* how large a file may be in the largest of them; 0: they do not matter */
    int64_t created_at, used_at; /* µs since the epoch */
    uint64_t used_clock, created_clock, failed_clock;
    uint64_t idle_timeout, max_lifetime; /* µs; 0: none */
    bool recover;
    unsigned recovered;      /* how often it was made anew */
    int files;               /* of one that recovers: its working directory as a tar, sealed; or -1 */
    uint64_t skipped;        /* what those files are without */
    uint64_t lost;           /* when it was last made anew: that, and what did not fit */
    int fill_head;           /* what the filler says, while it is at work; or -1 */
    bool packed;             /* and nobody has used it since */
    struct packing *packing; /* recover.c: one that is being made */
    struct hc_timer *pack_timer;
    struct sandbox_waiter *waiters;
    unsigned holds; /* somebody is using it right now */
    bool removed;   /* it is in no list any more, and freed with the last of them */
    struct fixture *fixtures;
    struct box_job filler; /* unpacks its first files */
    bool filling;
    void *creator; /* whom to tell that it is ready, or not */
    void (*created)(void *data, struct sandbox *sandbox, const struct hc_err *err);
};

struct hc_loop *sandbox_loop(const struct sandbox *sandbox);
/* RFC 3339, UTC, with milliseconds. `text` has at least 40 bytes; returned for convenience. */
const char *sandbox_time_text(int64_t when, char *text, size_t size);
/* NULL, and err: it cannot be used now (paused, failed, stopping), as a conflict. */
struct box *sandbox_box(struct sandbox *sandbox, struct hc_err *err);
/* Tells of calls that were refused to a job of which the box did not tell (box_job.reports). */
void sandbox_calls(const struct sandbox *sandbox, const struct reported *calls);
void sandbox_used(struct sandbox *sandbox);    /* somebody did something with it */
void sandbox_hold(struct sandbox *sandbox);    /* it is not idle until it is released as often */
void sandbox_release(struct sandbox *sandbox); /* it may be gone after this */
void sandbox_stay(struct sandbox *sandbox);    /* as hold, of somebody who only looks: its idle time goes on */
void sandbox_leave(struct sandbox *sandbox);   /* as release */
/* For who has met SANDBOX_LOST, the code of a job's error: pid 1 of the cell is dying, and its end is told soon. */
enum { SANDBOX_LOST = EOWNERDEAD };
void sandbox_await(struct sandbox *sandbox, struct sandbox_waiter *waiter);
void sandbox_unawait(struct sandbox *sandbox, const struct sandbox_waiter *waiter);
/* Reads what comes by a pipe that something in the sandbox still holds, and forgets it. Takes the fd. */
void sandbox_linger(struct sandbox *sandbox, int fd);
void sandbox_save(struct sandbox *sandbox); /* for the next gateway; what cannot be kept is logged */
bool sandbox_idle(const struct sandbox *sandbox);
/* When it will be ended if nobody uses it, µs since the epoch; 0: never. */
int64_t sandbox_expires(const struct sandbox *sandbox);
/* The object of docs/SANDBOXES.md, without usage and isolation. NULL: out of memory. */
json_t *sandbox_json(const struct sandbox *sandbox);
/* It is there, or may be again, and has that volume of its tenant's. */
bool sandbox_has_volume(const struct sandbox *sandbox, const char *tenant, const char *name);
/* The environment of a program in it: the cell's, the sandbox's, then `more` (K=V). 0 or -ENOMEM. */
int sandbox_env(const struct sandbox *sandbox, const struct words *more, struct words *env);

/* ---- all of them ---- */

struct sandboxes_events {
    void *data;
    /* event: sandbox_created, _paused, _resumed, _failed, _recovered, _deleted, _expired. why may be NULL. */
    void (*changed)(void *data, const struct sandbox *sandbox, const char *event, const char *why);
    /* Asked at the end: the server stops, and all of them with it. Otherwise the next gateway takes them over. */
    bool (*stopping)(void *data);
    /* Calls that were refused and are reported (kernel/reported.h). job: the id of what made them, or NULL. */
    void (*calls)(void *data, const struct sandbox *sandbox, const char *job, const struct reported *calls);
    /* Opens a volume of the tenant's for a cell that is about to be made: sandbox_volume_opened is called, once, from
     * the loop. 0, or -errno with err. NULL: there are none. */
    int (*open_volume)(void *data, const char *tenant, const char *name, struct sandbox_volume *volume,
                       struct hc_err *err);
    void (*forget_volume)(void *data, struct sandbox_volume *volume); /* it is not to be called any more */
};
/* `host`: the number by which the cell can have it; `size`: bytes. err NULL: it is open. */
void sandbox_volume_opened(struct sandbox_volume *volume, uint32_t host, uint64_t size, const struct hc_err *err);

struct sandboxes *sandboxes_new(struct hc_loop *loop, const struct sandboxes_events *events); /* NULL: no memory */
void sandboxes_free(struct sandboxes *all);
/* A new configuration is in force; also the first one. It stays the caller's and outlives this. */
void sandboxes_configure(struct sandboxes *all, const struct config *config);
/* The warden is there: what lives on is asked for. `ready` is called when the list is whole. */
int sandboxes_attach(struct sandboxes *all, struct link *link, uint32_t required);
bool sandboxes_ready(const struct sandboxes *all);                       /* the list is whole */
size_t sandboxes_count(const struct sandboxes *all, const char *tenant); /* NULL: all */
struct sandbox *sandboxes_first(const struct sandboxes *all);            /* newest first, by next */
struct sandbox *sandboxes_find(const struct sandboxes *all, const char *tenant, const char *id); /* tenant NULL: any */
/* The link's messages about lasting cells: for link_ask_held. */
void sandboxes_held(struct sandboxes *all, const struct warden_message *message, int *fds, size_t count);

/* Makes one. `created` is called once, from the loop, when it is running (or has failed, with err; it is gone then). 0,
 * or -errno with err: nothing was made; -EDQUOT: there are too many. */
int sandbox_create(struct sandboxes *all, const char *tenant, const char *order, size_t length,
                   void (*created)(void *data, struct sandbox *sandbox, const struct hc_err *err), void *creator,
                   struct sandbox **out, struct hc_err *err);
void sandbox_unwatch(struct sandbox *sandbox); /* who made it has gone: it goes as well, unless it is there already */
void sandbox_delete(struct sandbox *sandbox, const char *event, const char *why);
/* `done` as in box_freeze, with the state changed before it is called. */
int sandbox_pause(struct sandbox *sandbox, bool on, void (*done)(void *data, const struct warden_message *message),
                  void *data, struct hc_err *err);
/* One that failed, and that is to be made anew: as sandbox_create, under the same id. */
int sandbox_recover(struct sandbox *sandbox,
                    void (*created)(void *data, struct sandbox *sandbox, const struct hc_err *err), void *creator,
                    struct hc_err *err);

#endif
