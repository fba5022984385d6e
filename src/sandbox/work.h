/*
 * Detached jobs: programs that go on in a sandbox while nobody waits for them, also when the gateway dies. What they
 * write is in a log (log.h) that outlives it; who watches hears of it as it comes.
 */
#ifndef HC_SANDBOX_WORK_H
#define HC_SANDBOX_WORK_H

#include "run/result.h"
#include "sandbox/log.h"
#include "sandbox/sandbox.h"

enum { WORK_REMEMBERED = 100 }; /* that have ended, of one sandbox */

struct work_watcher { /* embedded in whoever watches */
    struct work_watcher *next;
    void (*written)(struct work_watcher *watcher); /* there is more in the log */
    void (*ended)(struct work_watcher *watcher);   /* it is over; nothing more is told */
};

struct work {
    struct fixture fixture;
    char *name;    /* or NULL */
    char *command; /* for people: the words, or the code's language */
    char *metadata;
    char *rubbish; /* the file of its code, removed when it has ended; or NULL */
    struct job_log *log;
    int pipe[2], input; /* our ends of stdout and stderr; of stdin, where it is open: else -1 */
    struct hc_watch *watch[2];
    bool over;
    struct run_stage stage; /* its facts and status, once it is over */
    int64_t ended_at;
    struct work_watcher *watchers;
    unsigned readers; /* who still looks at it, though it has ended: it is not forgotten */
    struct limits limits;
};

/* Starts it: `plan` has one stage. `input`: it may be written to later. 0 or -errno. */
int work_start(struct sandbox *sandbox, const struct plan *plan, const char *name, bool input, struct work **out,
               struct hc_err *err);
/* By its id, or the newest with that name. NULL: there is none. */
struct work *work_find(const struct sandbox *sandbox, const char *id);
void work_watch(struct work *work, struct work_watcher *watcher);
void work_unwatch(struct work *work, struct work_watcher *watcher);
void work_kill(struct work *work);              /* with all that it started, also what it left running */
int work_signal(struct work *work, int number); /* -ESRCH: it is over */
/* Writes as much as fits: the count, -EAGAIN, or -EPIPE. */
ssize_t work_write(struct work *work, const char *data, size_t length);
void work_end_input(struct work *work);
/* {"id","name","state","command","started_at","ended_at","exit_code"}; and all of docs/SANDBOXES.md's job. */
json_t *work_json(const struct work *work);

#endif
