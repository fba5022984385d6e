/*
 * See runs.h. The way of a run:
 *
 *     arriving ──► queued ──► starting ──► driven ──► saving ──► ended ──► forgotten (a minute later; the store has it)
 *
 * A run that has to survive (async) arrives: it gets its place in the queue once the store has it. It starts: it is
 * driven once the store knows, so that whoever finds it after a crash never runs it a second time; where its turn comes
 * as soon as it arrives, the store has it as running from the first, which costs nothing. The others are
 * queued at once, beside the store's writing, unless the last change could not be written: then they arrive, too, so
 * that nothing is run that cannot be recorded. From any of the first three a run may go to saving: cancelled, waited
 * too long, refused by a server that stops.
 *
 * What always holds: a run that was accepted gets a record; `ended` is told once, from the loop, after the record is on
 * disk or could not be written; what waits, what runs and what is remembered are all bounded.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/size.h"
#include "gateway/run_internal.h"
#include "gateway/tenants.h"
#include "run/stock.h"
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_LONGEST = 60, GATHER_LEAST_US = 1000, GATHER_MOST_US = 10000 };

/* ---- limits ---- */

/* Many programs wait more than they compute, so there may be many more runs than processors; but not so many that all
 * of them, with the memory that they get by default, would be more than this machine has. */
uint64_t runs_concurrent(const struct runs *runs)
{
    const struct config *config = runs->gateway->config;
    if (config->server.concurrent > 0)
        return config->server.concurrent;
    uint64_t each =
        config->defaults.set[LIMIT_MEMORY] ? config->defaults.value[LIMIT_MEMORY] : limit_table[LIMIT_MEMORY].initial;
    uint64_t least = 2 * runs->processors, most = 16 * runs->processors, fit = runs->memory / 4 * 3 / each;
    return fit < least ? least : fit > most ? most : fit;
}

/* Seconds until there will probably be room. */
static unsigned retry_guess(const struct runs *runs)
{
    uint64_t turns = queue_count(runs->queue) / runs_concurrent(runs) + 1;
    uint64_t seconds = turns * runs->usual_time / 1000000 + 1;
    return seconds < RETRY_LONGEST ? (unsigned)seconds : RETRY_LONGEST;
}

static bool warden_is_there(const struct gateway *gateway)
{
    return gateway->link != NULL && link_alive(gateway->link) && !gateway->warden_silent;
}

static bool slot_is_free(const struct runs *runs)
{
    const struct gateway *gateway = runs->gateway;
    return runs->driven + runs->reserved < runs_concurrent(runs) && runs->saving < RUNS_SAVING_LIMIT &&
           warden_is_there(gateway);
}

/* ---- the table ---- */

static struct run **bucket_of(struct runs *runs, const char *id)
{
    uint32_t hash = 2166136261U;
    for (const char *c = id; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619U;
    return &runs->buckets[hash % RUNS_BUCKETS];
}

void runs_add(struct runs *runs, struct run *run)
{
    struct run **bucket = bucket_of(runs, run->row.id);
    run->chain = *bucket;
    *bucket = run;
}

void runs_remove(struct runs *runs, struct run *run)
{
    struct run **link = bucket_of(runs, run->row.id);
    while (*link != run)
        link = &(*link)->chain;
    *link = run->chain;
}

struct run *runs_find(struct runs *runs, const struct caller *caller, const char *id)
{
    struct run *run = *bucket_of(runs, id);
    while (run != NULL && strcmp(run->row.id, id) != 0)
        run = run->chain;
    return run != NULL && (caller->operator_ || strcmp(caller->tenant, run->row.tenant) == 0) ? run : NULL;
}

/* ---- recording ---- */

static void history_failure(struct run *run, int code)
{
    hc_err_clear(&run->failure);
    hc_fail_errno(&run->failure, HC_CLASS_HOST, code, "the run could not be recorded: the history cannot be written");
    hc_err_remedy(&run->failure, "ask the operator to make room on the disk of the state folder, then try again");
}

static void settle(struct run *run, int result)
{
    bool first = run->state == RUN_SAVING;
    if (first) {
        run->runs->saving--;
        run->state = RUN_ENDED;
        runs_keep(run);
        run_afford(run, run_bytes(run)); /* the store's copy is gone; now there is room for the reply's */
    }
    bool was_unsaved = run->unsaved;
    run->unsaved = result < 0;
    if (result < 0)
        history_failure(run, -result);
    else if (was_unsaved && !run->starved)
        hc_err_clear(&run->failure);
    if (first && result < 0)
        hc_log(HC_LOG_ERROR, "run id=%s %s", run->row.id, run->failure.message);
    if (first) {
        run_tell_ended(run);
        if (run->runs->driven == 0)
            sched_yield(); /* it may be waiting for this processor */
        run_log_line(run); /* after the answer: whoever reads the log may be slow */
        run_free_spent(run);
        stock_refill();
    }
}

static void on_finished(void *data, int result)
{
    struct run *run = data;
    struct runs *runs = run->runs;
    run->pending--;
    settle(run, result);
    runs_forget(runs); /* `run` may be among them */
    runs_dispatch(runs);
    runs_arm(runs);
}

static void on_no_finish(struct hc_loop *loop, void *data)
{
    (void)loop;
    on_finished(data, -ENOMEM);
}

/* Where every processor has several runs to do, and one of them has waited for us for a while, a part of that more is
 * not noticed: there is enough to go on with, and a sync for each end takes time from all. A program that sleeps has
 * not waited for us. */
static uint64_t gathering_time(const struct run *run)
{
    const struct runs *runs = run->runs;
    uint64_t took = hc_now() - run->queued_at, part = took > run->row.wall_us ? (took - run->row.wall_us) / 8 : 0;
    if (runs->driven + queue_count(runs->queue) < 4 * runs->processors || part < GATHER_LEAST_US)
        return 0;
    return part < GATHER_MOST_US ? part : GATHER_MOST_US;
}

void runs_save(struct run *run)
{
    struct runs *runs = run->runs;
    run->pending++;
    store_gather(runs->gateway->store, gathering_time(run));
    int result = run->json != NULL ? store_run_finish(runs->gateway->store, &run->row, on_finished, run) : -ENOMEM;
    /* `ended` is told from the loop alone: the caller may be in the middle of starting this very run. */
    if (result < 0 && hc_loop_timer(runs->gateway->loop, hc_now(), on_no_finish, run) == NULL)
        on_finished(run, result);
}

/* ---- its end ---- */

/* What only the cell's builder could see (a symlink or another mount on the way to a folder) is the request's
 * fault all the same, and is answered like what is known before. Its record says internal: it never ran. */
static void refuse_late(struct run *run)
{
    const struct result *result = &run->work->result;
    if (result->status != RUN_INTERNAL || result->internal.class != HC_CLASS_REQUEST || run->failure.code != 0)
        return;
    run->failure = result->internal;
    runs_audit_refusal(run->runs, run->row.tenant, &run->failure);
}

static void give_back_slot(struct run *run)
{
    run->runs->reserved -= run->reserved;
    run->reserved = false;
}

void runs_over(struct run *run)
{
    struct runs *runs = run->runs;
    if (run->state == RUN_DRIVEN) {
        uint64_t took = hc_now() - run->driven_at;
        runs->usual_time += ((int64_t)took - (int64_t)runs->usual_time) / 8;
    }
    runs->driven -= !run->placed && (run->state == RUN_STARTING || run->state == RUN_DRIVEN);
    runs->arriving -= run->state == RUN_ARRIVING;
    give_back_slot(run);
    queue_remove(runs->queue, &run->item);
    run->state = RUN_SAVING;
    runs->saving++;
    runs->held_bytes -= run->held;
    run_conclude(run);
    refuse_late(run);
    runs->finished++;
    runs->by_status[run->work->result.status]++;
    run_end_work(run);
    runs_announce_not(run);
    if (run->counted)
        tenants_run_end(runs->gateway->tenants, run->row.tenant, run->row.cpu_us);
    runs_save(run);
    runs_dispatch(runs);
    runs_arm(runs);
}

void runs_over_unrun(struct run *run, enum run_status status, const struct hc_err *err)
{
    struct result *result = &run->work->result;
    result->stages = calloc(1, sizeof *result->stages);
    if (status == RUN_KILLED && result->stages != NULL) {
        result->stage_count = 1;
        result->stages[0].facts = (struct job_facts){.end = JOB_CANCELLED, .exit_code = -1};
        const struct plan_stage *planned =
            run->work->planned && run->work->plan.stage_count > 0 ? &run->work->plan.stages[0] : NULL;
        snprintf(result->stages[0].name, sizeof result->stages[0].name, "%s", planned ? planned->name : "run");
        if (planned != NULL)
            result->stages[0].limits = planned->limits;
    }
    if (err != NULL)
        result->internal = *err;
    result_judge(result);
    runs_over(run);
}

void run_cancel(struct run *run, const char *why)
{
    if (run->cancelled || run->state >= RUN_SAVING)
        return;
    run->cancelled = true;
    snprintf(run->why, sizeof run->why, "%s", why);
    if (run->drive != NULL)
        drive_cancel(run->drive);
    else if (run->state == RUN_QUEUED)
        runs_over_unrun(run, RUN_KILLED, NULL);
    /* One that arrives or starts is ended when the store has answered. */
}

void runs_refuse(struct run *run, const char *why)
{
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_HOST, EAGAIN, "%s", why);
    hc_err_remedy(&err, "try again later");
    run->failure = err;
    runs_over_unrun(run, RUN_INTERNAL, &err);
}

/* ---- turns ---- */

static void over_unrecorded(struct run *run, int result)
{
    struct hc_err err = {0};
    hc_fail_errno(&err, HC_CLASS_HOST, -result, "the history cannot be written");
    run->failure = err;
    runs_over_unrun(run, RUN_INTERNAL, &err);
}

static void drive_it(struct run *run)
{
    run->state = RUN_DRIVEN;
    run->runs->started++;
    int result = run_drive(run);
    if (result == -EMFILE || result == -ENFILE || result == -ENOMEM) { /* passes: who asked may ask again */
        runs_refuse(run, result == -ENOMEM ? "the server is out of memory" : "the server has too many files open");
        return;
    }
    if (result < 0) {
        struct hc_err err = {0};
        hc_fail_errno(&err, hc_class_of(-result, HC_CLASS_OURS), -result, "the run could not be started");
        runs_over_unrun(run, RUN_INTERNAL, &err);
    }
}

static void on_started(void *data, int result)
{
    struct run *run = data;
    run->pending--;
    if (run->state != RUN_STARTING)
        return;
    if (result < 0) {
        over_unrecorded(run, result);
    } else if (run->cancelled) {
        runs_over_unrun(run, RUN_KILLED, NULL);
    } else if (warden_is_there(run->runs->gateway)) {
        drive_it(run);
    } else { /* once more, with the next one */
        run->runs->driven--;
        runs_line_up(run);
    }
}

static void begin(struct run *run)
{
    struct runs *runs = run->runs;
    struct store *store = runs->gateway->store;
    bool known = run->row.started_at != 0; /* the store has it as running from the first */
    runs->driven += !run->placed;
    if (!known)
        run->row.started_at = run_time_now();
    if (run->unannounced) /* it will be, as that */
        snprintf(run->row.status, sizeof run->row.status, "running");
    if (known || !run->row.keep_going) {
        drive_it(run);
        if (!known && run->state == RUN_DRIVEN && !run->unannounced)
            store_run_started(store, run->row.id, run->row.started_at, NULL, NULL);
        return;
    }
    run->state = RUN_STARTING;
    run->pending++;
    int result = store_run_started(store, run->row.id, run->row.started_at, on_started, run);
    if (result < 0)
        on_started(run, result);
}

void runs_dispatch(struct runs *runs)
{
    while (!runs->draining && slot_is_free(runs)) {
        struct run *run = (struct run *)queue_take(runs->queue);
        if (run == NULL)
            return;
        begin(run);
    }
}

/* The place was checked when it was let in. */
void runs_line_up(struct run *run)
{
    struct runs *runs = run->runs;
    run->state = RUN_QUEUED;
    if (runs->draining)
        return; /* one that survives: it is on disk, and goes on when the server is back */
    if (queue_put(runs->queue, &run->item, run->row.tenant, SIZE_MAX, hc_now()) < 0) {
        struct hc_err err = {0};
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
        runs_over_unrun(run, RUN_INTERNAL, &err);
        return;
    }
    runs_dispatch(runs);
    runs_arm(runs);
}

/* ---- its beginning ---- */

static void on_arrived(struct run *run, int result)
{
    struct runs *runs = run->runs;
    if (result < 0) {
        over_unrecorded(run, result);
        return;
    }
    if (run->cancelled) {
        runs_over_unrun(run, RUN_KILLED, NULL);
        return;
    }
    bool at_once = run->reserved || run->placed;
    give_back_slot(run);
    runs->arriving--;
    run->state = RUN_QUEUED; /* before it is told: who hears it may look */
    run_tell_accepted(run);
    if (run->state != RUN_QUEUED)
        return;
    if (at_once && warden_is_there(runs->gateway))
        begin(run);
    else
        runs_line_up(run);
}

static void on_inserted(void *data, int result)
{
    struct run *run = data;
    run->pending--;
    if (run->state == RUN_ARRIVING)
        on_arrived(run, result);
}

static int fail_full(struct runs *runs, unsigned *retry_seconds, struct hc_err *err)
{
    *retry_seconds = retry_guess(runs);
    hc_fail(err, HC_CLASS_HOST, EAGAIN, "%" PRIu64 " runs are waiting already, and there is no room for more",
            (uint64_t)queue_count(runs->queue) + runs->arriving);
    return hc_err_remedy(err, "try again in %u s", *retry_seconds);
}

static int check_room(struct runs *runs, const struct run_options *options, unsigned *retry_seconds, struct hc_err *err)
{
    const struct server_config *server = &runs->gateway->config->server;
    *retry_seconds = 1;
    if (runs->draining) {
        *retry_seconds = 5;
        hc_fail(err, HC_CLASS_HOST, EAGAIN, "the server is stopping");
        return hc_err_remedy(err, "try again when it is back");
    }
    if (options->place != NULL)
        return 0;
    bool at_once = queue_count(runs->queue) == 0 && runs->arriving + runs->driven < runs_concurrent(runs);
    size_t limit = server->queue > runs->arriving ? (size_t)(server->queue - runs->arriving) : 0;
    if (!at_once && !queue_has_room(runs->queue, options->caller.tenant, limit))
        return fail_full(runs, retry_seconds, err);
    /* Bodies of those that wait for an answer are bounded by HTTP; of the others, here. */
    if (options->keep_going && runs->held_bytes + options->request_length > server->body_total)
        return fail_full(runs, retry_seconds, err);
    return 0;
}

static int add_workspace(struct run *run, struct hc_err *err)
{
    struct plan *plan = &run->work->plan;
    int host = run->runs->gateway->workspace_host;
    if (host < 0 || plan->cell.mount_count >= CELL_MAX_MOUNTS)
        return hc_fail(err, HC_CLASS_HOST, ENOENT, "this server has no shared workspace");
    struct cell_mount *mount = &plan->mounts[plan->cell.mount_count];
    *mount = (struct cell_mount){.host = (uint32_t)host};
    snprintf(mount->path, sizeof mount->path, "%s", plan->cell.work_dir);
    plan->host_writable[plan->cell.mount_count++] = true;
    return 0;
}

/* Everything that can be known to be wrong with it. Takes the request. */
int runs_prepare(struct run *run, struct request *request, const struct run_options *options, struct hc_err *err)
{
    run->work->request = request;
    int result = plan_make(run->runs->gateway->config, request, &run->work->plan, err);
    if (result < 0)
        return result;
    run->work->planned = true;
    if (options->place != NULL)
        options->place->planned(options->place->room.data, &run->work->plan);
    if (request->stdin_open && run_input_new(run->runs->gateway->loop, &request->input, &run->work->input) < 0)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (options->shared_workspace && (result = add_workspace(run, err)) < 0)
        return result;
    if (run->work->plan.language != NULL)
        snprintf(run->row.language, sizeof run->row.language, "%s", run->work->plan.language->name);
    return 0;
}

static int give_id(struct run *run, struct hc_err *err)
{
    run->row.created_at = run_time_now();
    int result = result_id(run->row.id, sizeof run->row.id, run->row.created_at);
    return result < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -result, "making an id") : 0;
}

/* From here on it cannot be refused: it is in the table, and gets a record. */
static int admit(struct run *run, const struct run_options *options, struct hc_err *err)
{
    struct runs *runs = run->runs;
    struct store *store = runs->gateway->store;
    run->queued_at = hc_now();
    bool arrives = options->keep_going || store_status(store) < 0;
    if (run->placed || (queue_count(runs->queue) == 0 && slot_is_free(runs))) { /* line_up begins it: one change less */
        snprintf(run->row.status, sizeof run->row.status, "running");
        run->row.started_at = run->row.created_at;
        run->reserved = arrives && !run->placed;
        runs->reserved += run->reserved;
    }
    run->held = options->keep_going ? options->request_length : 0;
    if (arrives) {
        int result = run_insert(run, options->keep_going ? options->request_text : NULL, run->held, on_inserted);
        if (result < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, -result, "the history cannot be written");
    }
    runs->held_bytes += run->held;
    runs_add(runs, run);
    if (arrives) {
        run->state = RUN_ARRIVING;
        runs->arriving++;
        return 0;
    }
    runs_announce_later(run);
    if (run->placed)
        begin(run);
    else
        runs_line_up(run);
    if (runs->driven == 1)
        sched_yield(); /* the warden may be waiting for this processor */
    run_describe(run); /* while its program runs */
    if (runs->driven == 1)
        store_expect(store);
    return 0;
}

int runs_start(struct runs *runs, struct request *request, const struct run_options *options,
               const struct run_watcher *watcher, struct run **out, unsigned *retry_seconds, struct hc_err *err)
{
    int result = check_room(runs, options, retry_seconds, err);
    struct run *run = result == 0 ? run_new(runs, options) : NULL;
    if (run == NULL) {
        request_free(request);
        if (options->place != NULL)
            options->place->left(options->place->room.data);
        return result < 0 ? result : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    result = runs_prepare(run, request, options, err);
    if (result < 0)
        runs_audit_refusal(runs, options->caller.tenant, err);
    if (result == 0)
        result = give_id(run, err);
    if (result == 0 && watcher != NULL && run_watch(run, watcher) < 0)
        result = hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result == 0 && run->eyes != NULL)
        run->eyes->owner = true;
    if (result == 0) {
        result = tenants_run_begin(runs->gateway->tenants, run->row.tenant, retry_seconds, err);
        run->counted = result == 0;
        if (result == -EDQUOT && tenants_denial_is_news(runs->gateway->tenants, run->row.tenant))
            runs_audit(runs, "limit_hit", run->row.tenant, NULL, err->message);
    }
    if (result == 0)
        result = admit(run, options, err);
    if (result < 0) {
        give_back_slot(run);
        if (run->counted)
            tenants_run_end(runs->gateway->tenants, run->row.tenant, 0);
        run_free(run);
        return result;
    }
    *out = run;
    return 0;
}
