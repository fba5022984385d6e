/*
 * Runs of the server, from the request to the record: admitted, queued (fair turns between tenants, bounded), driven
 * through the warden, recorded, told to whoever waits. Every run that was accepted ends with a record, whatever
 * happens.
 */
#ifndef HC_GATEWAY_RUNS_H
#define HC_GATEWAY_RUNS_H

#include "gateway/gateway.h"
#include "run/drive.h"
#include "run/request.h"
#include "run/result.h"

struct run;

/* What a run tells, in this order. All are called from the loop; `data` is the watcher's. */
struct run_watcher {
    void *data;
    void (*accepted)(void *data, struct run *run); /* it has an id and is on disk as queued */
    void (*stage)(void *data, struct run *run, const char *name, size_t index);
    void (*output)(void *data, struct run *run, int stream, const char *bytes, size_t length, uint64_t offset);
    /* The result is on disk; json is its text. Look at run_failure first: where that is not NULL, the run never had its
     * turn, or could not be recorded (json is NULL then), and whoever asked gets the failure as an answer. */
    void (*ended)(void *data, struct run *run, const char *json);
};

/* A sandbox in which a run is to be, rather than in a cell of its own: it does not wait for a turn, because the sandbox
 * has had its own. Lives until `left` was called, once, when the run needs it no more, also when it was refused. */
struct run_place {
    char sandbox[40];       /* its id, for the record */
    struct drive_room room; /* room.data is for `driven` and `left` as well */
    void (*planned)(void *data, const struct plan *plan);
    void (*driven)(void *data, struct drive *drive);
    void (*left)(void *data);
};

struct run_options {
    struct run_place *place; /* NULL: a cell of its own */
    struct caller caller;
    bool keep_going;       /* nobody has to wait for it: async */
    bool shared_workspace; /* /execute: the persistent folder is /workspace */
    const char *kind;      /* "run" or "execute", for the history */
    const char
        *request_text; /* the JSON as it came, kept until the run has ended, so that a queued async run survives */
    size_t request_length;
};

int runs_new(struct gateway *gateway, struct runs **out, struct hc_err *err);
void runs_free(struct runs *runs); /* after the link is gone, and the store closed: no drive or change is under way */
/* Plans it and puts it in the queue. Takes `request`. On failure nothing was started: err says why, with -EAGAIN and a
 * remedy when the queue is full (`*retry_seconds` is set), -EDQUOT when the tenant's quota is used up. */
int runs_start(struct runs *runs, struct request *request, const struct run_options *options,
               const struct run_watcher *watcher, struct run **out, unsigned *retry_seconds, struct hc_err *err);
/* One that is not yet forgotten: queued, running, or ended less than a minute ago. NULL: ask the store. */
struct run *runs_find(struct runs *runs, const struct caller *caller, const char *id);
/* More eyes on one run. `from` fields of the events are the watcher's own affair: what was already said is in run_log.
 */
int run_watch(struct run *run, const struct run_watcher *watcher);
/* No more is told to it. Where it is the watcher that the run was started with, and the run is not keep_going: ends it.
 */
void run_unwatch(struct run *run, void *data);
void run_cancel(struct run *run, const char *why); /* status killed */
const char *run_id(const struct run *run);
const char *run_result_json(const struct run *run); /* NULL until it has ended */
bool run_has_ended(const struct run *run);          /* also without a result */
/* Why it ended without having run, or without a record; NULL otherwise. Code EAGAIN: 503 with Retry-After. */
const struct hc_err *run_failure(const struct run *run);
/* {"id","status":"queued"|"running","language","async","created_at","queue_ms"}: what is known before it has ended.
 * malloc'ed; NULL: out of memory. */
char *run_state_json(const struct run *run);
/* What a stream has shown so far in stage `index`, for a reader that comes late: at most the output cap of bytes. */
const char *run_log(const struct run *run, size_t index, int stream, size_t *length);
size_t run_stage_count(const struct run *run); /* begun so far */
const char *run_stage_name(const struct run *run, size_t index);

/* Life of the server. */
void runs_recover(struct runs *runs);     /* at start: queued ones go on, others are recorded as internal */
void runs_warden_up(struct runs *runs);   /* gateway->link is there (again) */
void runs_warden_down(struct runs *runs); /* all that ran end as internal; the queue waits */
void runs_drain(struct runs *runs, uint64_t deadline); /* queued ones are refused, running ones go on until then */
bool runs_idle(const struct runs *runs);
struct runs_counts {
    uint64_t queued, running, concurrent_limit, queue_limit;
    uint64_t started, finished; /* since the start */
    uint64_t by_status[RUN_INTERNAL + 1];
    uint64_t compiled_entries, compiled_bytes, compiled_hits, compiled_misses; /* gateway/compile_cache.h */
};
void runs_counts(const struct runs *runs, struct runs_counts *counts);

/* An entry of the audit log about what a tenant did; `run` may be NULL. A flood of them must not become a flood of disk
 * writes: past a rate they are counted, and the next entry says how many were left out. */
void runs_audit(struct runs *runs, const char *event, const char *tenant, const char *run, const char *reason);
/* blocked_call, with the names and counts of what was refused; nothing if that is none. run, sandbox, job: or NULL. */
void runs_audit_calls(struct runs *runs, const char *tenant, const char *run, const char *sandbox, const char *job,
                      const struct reported *calls);
/* The same for a request that was refused with this error: mount_denied or request_refused. */
void runs_audit_refusal(struct runs *runs, const char *tenant, const struct hc_err *err);
/* For a run that failed, or an error of runs_start: 503 or 429 with Retry-After, or what reply_error makes of it. */
void runs_reply_failure(struct http_request *request, const struct hc_err *err, unsigned retry_seconds);

#endif
