/*
 * The runs of a server over time: deadlines, forgetting, what happens when the warden, the server itself, or the one
 * before it stops. What always holds: there is one timer, and only while time can change something.
 */
#include "base/log.h"
#include "base/size.h"
#include "gateway/run_internal.h"
#include "gateway/tenants.h"
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#define TICK_BUSY 200000ULL /* µs between looks at deadlines while something waits for one */
#define TICK_IDLE 5000000ULL

/* ---- those that are over ---- */

void runs_keep(struct run *run)
{
    struct runs *runs = run->runs;
    run->ended_at = hc_now();
    run->previous = runs->newest;
    if (runs->newest != NULL)
        runs->newest->next = run;
    else
        runs->oldest = run;
    runs->newest = run;
    runs->kept_bytes += run_bytes(run);
}

static void forget(struct run *run)
{
    struct runs *runs = run->runs;
    if (run->previous != NULL)
        run->previous->next = run->next;
    else
        runs->oldest = run->next;
    if (run->next != NULL)
        run->next->previous = run->previous;
    else
        runs->newest = run->previous;
    runs->kept_bytes -= run_bytes(run);
    if (run->unsaved)
        hc_log(HC_LOG_ERROR, "run id=%s was never recorded: %s", run->row.id, run->failure.message);
    runs_remove(runs, run);
    run_free(run);
}

/* What someone looks at, or the store still works on, stays. */
static bool may_be_forgotten(const struct run *run)
{
    return run->eyes == NULL && run->holders == 0 && run->telling == 0 && run->pending == 0;
}

void runs_forget(struct runs *runs)
{
    uint64_t now = hc_now();
    bool any = runs->oldest != NULL;
    for (struct run *run = runs->oldest, *next; run != NULL; run = next) {
        next = run->next;
        bool full = runs->kept_bytes > RUNS_KEEP_BYTES;
        bool old = now - run->ended_at >= RUNS_KEEP_TIME && !run->unsaved;
        if (!full && !old && !run->unsaved)
            break;
        if ((full || old) && may_be_forgotten(run))
            forget(run);
    }
    if (any && runs->oldest == NULL) { /* a server that rests gives back what it needed when it was busy */
        store_rest(runs->gateway->store);
        malloc_trim(0);
    }
}

void runs_make_room(struct runs *runs)
{
    for (struct run *run = runs->oldest, *next; run != NULL; run = next) {
        next = run->next;
        if (may_be_forgotten(run) && !run->unsaved)
            forget(run);
    }
}

static void save_again(struct runs *runs)
{
    for (struct run *run = runs->oldest; run != NULL; run = run->next)
        if (run->unsaved && run->pending == 0 && run->json != NULL)
            runs_save(run);
}

/* ---- time ---- */

static void expire(struct runs *runs, uint64_t now)
{
    uint64_t longest = runs->gateway->config->server.queue_time;
    for (struct run *run; now > longest && (run = (struct run *)queue_expired(runs->queue, now - longest)) != NULL;) {
        char time[32], why[80];
        snprintf(why, sizeof why, "its turn did not come within %s", hc_format_duration(longest, time, sizeof time));
        runs_refuse(run, why);
    }
}

static void each_run(struct runs *runs, void (*visit)(struct run *run))
{
    for (size_t i = 0; i < RUNS_BUCKETS; i++)
        for (struct run *run = runs->buckets[i], *next; run != NULL; run = next) {
            next = run->chain; /* visiting does not free */
            visit(run);
        }
}

static void end_for_stop(struct run *run)
{
    if (run->drive == NULL || run->cancelled)
        return;
    run->stopped = true;
    run_cancel(run, "the server stopped");
}

static void on_tick(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct runs *runs = data;
    uint64_t now = hc_now();
    runs->timer = NULL;
    if (runs->left)
        runs_recover(runs);
    expire(runs, now);
    if (runs->draining && now >= runs->drain_deadline)
        each_run(runs, end_for_stop);
    save_again(runs);
    runs_forget(runs);
    runs_dispatch(runs);
    runs_arm(runs);
}

void runs_arm(struct runs *runs)
{
    bool busy = queue_count(runs->queue) > 0 || (runs->draining && runs->driven > 0);
    if (!busy && runs->oldest == NULL && !runs->left)
        return;
    uint64_t when = hc_now() + (busy ? TICK_BUSY : TICK_IDLE);
    if (runs->timer != NULL && runs->timer_at <= when)
        return;
    hc_timer_remove(runs->timer);
    runs->timer = hc_loop_timer(runs->gateway->loop, when, on_tick, runs);
    runs->timer_at = when;
}

/* ---- the server's life ---- */

int runs_new(struct gateway *gateway, struct runs **out, struct hc_err *err)
{
    struct runs *runs = calloc(1, sizeof *runs);
    if (runs != NULL) {
        runs->queue = queue_new();
        runs->compiled = compile_cache_new();
    }
    if (runs == NULL || runs->queue == NULL || runs->compiled == NULL) {
        runs_free(runs);
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    cpu_set_t set;
    struct sysinfo machine;
    if (sysinfo(&machine) == 0)
        runs->memory = (uint64_t)machine.totalram * machine.mem_unit;
    runs->processors = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
    runs->usual_time = 100000;
    runs->gateway = gateway;
    *out = runs;
    return 0;
}

void runs_free(struct runs *runs)
{
    if (runs == NULL)
        return;
    hc_timer_remove(runs->timer);
    hc_timer_remove(runs->announce_timer);
    for (size_t i = 0; i < RUNS_BUCKETS; i++)
        for (struct run *run = runs->buckets[i], *next; run != NULL; run = next) {
            next = run->chain;
            queue_remove(runs->queue, &run->item);
            run_free(run);
        }
    if (runs->queue != NULL)
        queue_free(runs->queue);
    compile_cache_free(runs->compiled);
    free(runs);
}

void runs_warden_up(struct runs *runs)
{
    runs_dispatch(runs);
}

static void fail_driven(struct run *run)
{
    if (run->drive == NULL)
        return;
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_OURS, EPIPE, "the warden died, and every cell with it");
    hc_err_remedy(&err, "run it again");
    drive_fail(run->drive, &err);
}

/* The link has told its drives already, or will when it is freed; this is for what it missed. */
void runs_warden_down(struct runs *runs)
{
    each_run(runs, fail_driven);
}

static void stop_waiting(struct run *run)
{
    if (run->state != RUN_QUEUED)
        return;
    queue_remove(run->runs->queue, &run->item);
    if (!run->row.keep_going)
        runs_refuse(run, "the server is stopping");
}

void runs_drain(struct runs *runs, uint64_t deadline)
{
    runs->draining = true;
    runs->drain_deadline = deadline;
    each_run(runs, stop_waiting);
    runs_arm(runs);
}

bool runs_idle(const struct runs *runs)
{
    return runs->driven == 0 && runs->saving == 0 && runs->arriving == 0;
}

void runs_counts(const struct runs *runs, struct runs_counts *counts)
{
    *counts = (struct runs_counts){
        .queued = queue_count(runs->queue) + runs->arriving,
        .running = runs->driven,
        .concurrent_limit = runs_concurrent(runs),
        .queue_limit = runs->gateway->config->server.queue,
        .started = runs->started,
        .finished = runs->finished,
    };
    memcpy(counts->by_status, runs->by_status, sizeof counts->by_status);
    struct compile_cache_stats compiled;
    compile_cache_stats(runs->compiled, &compiled);
    counts->compiled_entries = compiled.entries;
    counts->compiled_bytes = compiled.bytes;
    counts->compiled_hits = compiled.hits;
    counts->compiled_misses = compiled.misses;
}

/* ---- after a restart ---- */

static int go_on(struct run *run, const struct run_row *row, struct hc_err *err)
{
    struct run_options options = {.keep_going = true, .kind = row->kind};
    struct request *request = request_new();
    if (request == NULL)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    int result = request_from_json(request, row->request, row->request_length, err);
    if (result == 0)
        result = run_unwrap(run->runs->gateway, request, err);
    if (result < 0) {
        request_free(request);
        return result;
    }
    return runs_prepare(run, request, &options, err);
}

/* Its record has the metadata of what was asked, as all have; the rest of a request is not told. */
static void remember_metadata(struct run *run, const struct run_row *row)
{
    if (run->work->request != NULL || row->request == NULL || (run->work->request = request_new()) == NULL)
        return;
    request_from_json(run->work->request, row->request, row->request_length, NULL); /* as far as it can be read */
}

static int recover_row(void *data, const struct run_row *row)
{
    struct runs *runs = data;
    const struct caller anyone = {.operator_ = true};
    if (runs_find(runs, &anyone, row->id) != NULL)
        return 0; /* this gateway's own, where the store could not be read when it started */
    struct run_options options = {.keep_going = row->keep_going, .kind = row->kind};
    snprintf(options.caller.tenant, sizeof options.caller.tenant, "%s", row->tenant);
    struct run *run = run_new(runs, &options);
    if (run == NULL)
        return -ENOMEM;
    memcpy(run->row.id, row->id, sizeof run->row.id);
    memcpy(run->row.language, row->language, sizeof run->row.language);
    run->row.created_at = row->created_at;
    run->row.started_at = row->started_at;
    run->queued_at = hc_now();
    runs_add(runs, run);
    struct hc_err err = {0};
    bool waits = row->keep_going && row->request != NULL && strcmp(row->status, "queued") == 0;
    if (!waits)
        hc_fail(&err, HC_CLASS_OURS, ECANCELED, "the server stopped unexpectedly while this was %s", row->status);
    if (waits && go_on(run, row, &err) == 0) {
        unsigned retry;
        run->held = row->request_length;
        runs->held_bytes += run->held;
        run->counted = tenants_run_begin(runs->gateway->tenants, run->row.tenant, &retry, &err) == 0;
        runs_line_up(run);
        return 0;
    }
    remember_metadata(run, row);
    run->state = RUN_QUEUED;
    runs_over_unrun(run, RUN_INTERNAL, &err);
    return 0;
}

/* A disk that is full when a gateway starts may hold what was accepted in the journal alone: then it is tried again. */
void runs_recover(struct runs *runs)
{
    int result = store_run_unfinished(runs->gateway->store, recover_row, runs);
    if (result < 0 && !runs->left)
        hc_log(HC_LOG_ERROR, "reading the runs that were left: %s", strerror(-result));
    runs->left = result < 0;
    runs_arm(runs);
}
