/*
 * One run: who watches it, what it has shown, and its drive. What always holds: a watcher hears what it hears in order
 * and exactly once, may take itself away or end the run from inside any call, and a run is not freed while it is
 * telling.
 */
#include "gateway/run_internal.h"

#include "base/fd.h"
#include "base/size.h"
#include "gateway/languages.h"
#include "gateway/tenants.h"
#include "text/json.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL_WORK = 64 * 1024,
    QUIET_US = 15000, /* most programs have ended by then, and are read once */
};

struct run *run_new(struct runs *runs, const struct run_options *options)
{
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL || (run->work = malloc(sizeof *run->work)) == NULL) {
        free(run);
        return NULL;
    }
    memset(run->work, 0, offsetof(struct run_work, plan.mounts));
    run->runs = runs;
    run->work->plan.files = -1;
    run->row.exit_code = -1;
    run->row.keep_going = options->keep_going;
    run->work->place = options->place;
    run->placed = options->place != NULL;
    snprintf(run->row.tenant, sizeof run->row.tenant, "%s", options->caller.tenant);
    snprintf(run->row.kind, sizeof run->row.kind, "%s", options->kind != NULL ? options->kind : "run");
    snprintf(run->row.status, sizeof run->row.status, "queued");
    return run;
}

/* What is large is counted, and must not be there a moment longer. */
static bool is_small(const struct run *run)
{
    const struct request *request = run->spent->request;
    size_t bytes = run->row.result_length + run->row.log_length;
    if (request != NULL)
        bytes += request->code.length + request->input.length;
    for (size_t i = 0; request != NULL && i < request->file_count; i++)
        bytes += request->files[i].content.length;
    return bytes < SMALL_WORK && run->spent->result.file_count == 0;
}

void run_end_work(struct run *run)
{
    if (run->work == NULL)
        return;
    run->spent = HC_TAKE_PTR(run->work);
    if (run->spent->place != NULL)
        run->spent->place->left(run->spent->place->room.data);
    if (!is_small(run))
        run_free_spent(run);
}

void run_free_spent(struct run *run)
{
    struct run_work *work = HC_TAKE_PTR(run->spent);
    if (work == NULL)
        return;
    run_input_free(work->input);
    result_release(&work->result);
    if (work->planned)
        plan_release(&work->plan);
    request_free(work->request);
    free(work);
}

void run_free(struct run *run)
{
    for (size_t i = 0; i < run->shown_count; i++) {
        hc_buf_release(&run->shown[i].stream[0]);
        hc_buf_release(&run->shown[i].stream[1]);
    }
    free(run->shown);
    for (struct run_eye *eye = run->eyes, *next; eye != NULL; eye = next) {
        next = eye->next;
        free(eye);
    }
    run_end_work(run);
    run_free_spent(run);
    budget_hold(&run->runs->gateway->results, &run->memory, 0);
    free(run->shape);
    free(run->json);
    free(run->log);
    free(run);
}

/* ---- watchers ---- */

int run_watch(struct run *run, const struct run_watcher *watcher)
{
    struct run_eye *eye = calloc(1, sizeof *eye);
    if (eye == NULL)
        return -ENOMEM;
    eye->watcher = *watcher;
    struct run_eye **end = &run->eyes;
    while (*end != NULL)
        end = &(*end)->next;
    *end = eye;
    return 0;
}

static void sweep_blind(struct run *run)
{
    for (struct run_eye **link = &run->eyes; *link != NULL;) {
        struct run_eye *eye = *link;
        if (eye->blind) {
            *link = eye->next;
            free(eye);
        } else {
            link = &eye->next;
        }
    }
}

void run_unwatch(struct run *run, void *data)
{
    bool owner = false;
    for (struct run_eye *eye = run->eyes; eye != NULL; eye = eye->next) {
        if (eye->watcher.data != data || eye->blind)
            continue;
        eye->blind = true;
        owner |= eye->owner;
    }
    if (run->telling == 0)
        sweep_blind(run);
    if (owner && !run->row.keep_going)
        run_cancel(run, "the client left");
}

#define TELL(run, function, ...)                                                                                       \
    do {                                                                                                               \
        (run)->telling++;                                                                                              \
        for (struct run_eye *eye = (run)->eyes; eye != NULL; eye = eye->next)                                          \
            if (!eye->blind && eye->watcher.function != NULL)                                                          \
                eye->watcher.function(eye->watcher.data, run, ##__VA_ARGS__);                                          \
        if (--(run)->telling == 0)                                                                                     \
            sweep_blind(run);                                                                                          \
    } while (0)

void run_tell_accepted(struct run *run)
{
    TELL(run, accepted);
}

/* After it nobody has to hear more. */
void run_tell_ended(struct run *run)
{
    TELL(run, ended, run->failure.code != 0 && run->unsaved ? NULL : run->json);
    for (struct run_eye *eye = run->eyes; eye != NULL; eye = eye->next)
        eye->blind = true;
    if (run->telling == 0)
        sweep_blind(run);
}

void run_hold(struct run *run)
{
    run->holders++;
}

void run_release(struct run *run)
{
    run->holders--;
}

/* ---- its memory ---- */

bool run_afford(struct run *run, uint64_t bytes)
{
    struct budget *budget = &run->runs->gateway->results;
    if (budget_hold(budget, &run->memory, bytes))
        return true;
    runs_make_room(run->runs);
    return budget_hold(budget, &run->memory, bytes);
}

void run_starve(struct run *run)
{
    char size[32];
    if (run->starved)
        return;
    run->starved = true;
    hc_err_clear(&run->failure);
    hc_fail(&run->failure, HC_CLASS_HOST, EAGAIN, "the memory that this server has for results (%s) is used up",
            hc_format_size(run->runs->gateway->results.limit, size, sizeof size));
    hc_err_remedy(&run->failure, "try again later, or with less output and fewer files to collect");
    if (run->drive != NULL)
        drive_fail(run->drive, &run->failure);
}

/* ---- the drive ---- */

/* What a byte of output takes: once in its capture, half once more past the cap, and once as what was shown. */
#define OUTPUT_COST(length) ((length) + (length) + (length) / 2)

static void on_stage(void *data, size_t index, const char *name)
{
    struct run *run = data;
    if (index != run->shown_count)
        return;
    struct run_shown *grown = reallocarray(run->shown, run->shown_count + 1, sizeof *grown);
    if (grown == NULL) {
        run_cancel(run, "the server is out of memory");
        return;
    }
    run->shown = grown;
    struct run_shown *shown = &grown[run->shown_count++];
    size_t cap = run->work->plan.output_cap > 0 ? (size_t)run->work->plan.output_cap : 1;
    *shown = (struct run_shown){.stream = {HC_BUF_INIT(cap), HC_BUF_INIT(cap)}};
    snprintf(shown->name, sizeof shown->name, "%s", name);
    TELL(run, stage, shown->name, index);
}

static int on_output(void *data, size_t stage, int stream, const char *bytes, size_t length)
{
    struct run *run = data;
    int index = stream == 2; /* the streams have the numbers of their fds */
    if (run->starved || !run_afford(run, run->memory + OUTPUT_COST(length))) {
        run_starve(run);
        return 0;
    }
    /* What a stage's leftovers write while the next one runs is in the result, and is not told: readers have moved on.
     */
    if (stage + 1 != run->shown_count)
        return 0;
    struct hc_buf *shown = &run->shown[stage].stream[index];
    uint64_t offset = shown->length;
    if (length > shown->ceiling - shown->length)
        length = shown->ceiling - shown->length;
    if (length == 0)
        return 0;
    if (hc_buf_add(shown, bytes, length) < 0)
        return hc_buf_status(shown);
    TELL(run, output, stream, bytes, length, offset);
    return 0;
}

static bool on_holds(void *data, size_t length)
{
    struct run *run = data;
    if (!run->starved && run_afford(run, run->memory + length))
        return true;
    run_starve(run);
    return false;
}

static void on_kept(void *data, struct snapshot *files, const struct capture *output)
{
    struct run *run = data;
    struct runs *runs = run->runs;
    compile_cache_add(runs->compiled, run->row.tenant, &run->work->compile_key, files, output,
                      runs->gateway->config->compile_cache_size);
}

/* Whether its compile was done before, or should be kept. With tests what it leaves is collected anyway. */
static void look_for_compile(struct run *run, struct drive_options *options)
{
    struct runs *runs = run->runs;
    const struct plan *plan = &run->work->plan;
    uint64_t size = runs->gateway->config->compile_cache_size;
    compile_cache_trim(runs->compiled, size);
    if (size == 0 || !tenants_may_cache(runs->gateway->tenants, run->row.tenant) ||
        !compile_cache_key(plan, run->row.tenant, &run->work->compile_key))
        return;
    options->kept = compile_cache_find(runs->compiled, run->row.tenant, &run->work->compile_key);
    if (options->kept == NULL && (compile_cache_seen(runs->compiled, &run->work->compile_key) || plan->test_count > 0))
        options->keep = compile_cache_entry_limit(size);
    if (options->keep > 0 && !run_afford(run, run->memory + options->keep))
        options->keep = 0;
}

static void on_ended(void *data)
{
    struct run *run = data;
    run->drive = NULL;
    runs_over(run);
}

/* Somebody wants output as it comes. Who asks for that later, soon gets it. */
static bool is_heard(const struct run *run)
{
    for (const struct run_eye *eye = run->eyes; eye != NULL; eye = eye->next)
        if (eye->watcher.output != NULL)
            return true;
    return false;
}

int run_drive(struct run *run)
{
    const struct gateway *gateway = run->runs->gateway;
    struct drive_options options = {
        .input = run_input_fd(run->work->input),
        .required = gateway->config->allow_weak ? 0 : ISOLATION_ALL,
        .quiet = is_heard(run) ? 0 : QUIET_US,
        .events = {.data = run,
                   .stage = on_stage,
                   .output = on_output,
                   .holds = on_holds,
                   .kept = on_kept,
                   .ended = on_ended},
    };
    struct run_place *place = run->work->place;
    if (place != NULL)
        options.room = &place->room;
    else
        look_for_compile(run, &options);
    if (run->work->plan.language != NULL && options.kept == NULL)
        catalogue_used(gateway->catalogue, run->work->plan.language);
    run->driven_at = hc_now();
    int result = drive_start(gateway->link, &run->work->plan, &options, &run->work->result, &run->drive);
    if (result == 0 && place != NULL)
        place->driven(place->room.data, run->drive);
    return result;
}

/* ---- what it has shown ---- */

const char *run_log(const struct run *run, size_t index, int stream, size_t *length)
{
    const struct hc_buf *shown = &run->shown[index].stream[stream == 2];
    *length = shown->length;
    return shown->data != NULL ? shown->data : "";
}

size_t run_stage_count(const struct run *run)
{
    return run->shown_count;
}

const char *run_stage_name(const struct run *run, size_t index)
{
    return run->shown[index].name;
}

static void shown_stage(void *data, size_t index, struct events_stage *out)
{
    const struct run *run = data;
    *out = (struct events_stage){.name = run->shown[index].name};
    for (int i = 0; i < 2; i++)
        out->bytes[i] = run_log(run, index, i + 1, &out->length[i]);
}

void run_shown_source(struct run *run, struct events_source *source)
{
    *source = (struct events_source){.id = run->row.id,
                                     .stage_count = run->shown_count,
                                     .over = run->state == RUN_ENDED,
                                     .data = run,
                                     .stage = shown_stage};
}

size_t run_bytes(const struct run *run)
{
    size_t bytes = sizeof *run + run->row.result_length + run->row.log_length;
    for (size_t i = 0; i < run->shown_count; i++)
        bytes += sizeof run->shown[i] + run->shown[i].stream[0].capacity + run->shown[i].stream[1].capacity;
    return bytes;
}

/* ---- about it ---- */

const char *run_id(const struct run *run)
{
    return run->row.id;
}

bool run_has_ended(const struct run *run)
{
    return run->state == RUN_ENDED;
}

const char *run_result_json(const struct run *run)
{
    return run->state == RUN_ENDED && !run->unsaved ? run->json : NULL;
}

const struct hc_err *run_failure(const struct run *run)
{
    return run->state == RUN_ENDED && run->failure.code != 0 ? &run->failure : NULL;
}

char *run_state_json(const struct run *run)
{
    char at[32];
    bool driven = run->state > RUN_QUEUED;
    uint64_t waited = (driven && run->driven_at > 0 ? run->driven_at : hc_now()) - run->queued_at;
    hc_cleanup_json json_t *object = json_pack(
        "{s:s, s:s, s:o, s:b, s:s, s:f}", "id", run->row.id, "status", driven ? "running" : "queued", "language",
        run->row.language[0] != '\0' ? json_string(run->row.language) : json_null(), "async", run->row.keep_going,
        "created_at", run_time_text(run->row.created_at, at, sizeof at), "queue_ms", (double)waited / 1000);
    return object != NULL ? hc_json_write(object, false) : NULL;
}
