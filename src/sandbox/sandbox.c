/* See sandbox.h: one sandbox, from its order to its end. sandboxes.c has all of them. */
#include "sandbox/sandbox.h"

#include "base/fd.h"
#include "base/log.h"
#include "run/block.h"
#include "run/plan_internal.h"
#include "sandbox/errand.h"
#include "sandbox/internal.h"
#include "sandbox/kinds.h"
#include "sandbox/order.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILL_TIME = 30 * 1000000 };

const char *sandbox_state_word(enum sandbox_state state)
{
    static const char *const words[] = {[SANDBOX_CREATING] = "creating",
                                        [SANDBOX_RUNNING] = "running",
                                        [SANDBOX_PAUSED] = "paused",
                                        [SANDBOX_FAILED] = "failed",
                                        [SANDBOX_STOPPING] = "stopping"};
    return words[state];
}

void sandbox_tell(const struct sandbox *sandbox, const char *event, const char *why)
{
    const struct sandboxes_events *events = &sandbox->all->events;
    if (events->changed)
        events->changed(events->data, sandbox, event, why);
}

/* ---- use ---- */

struct box *sandbox_box(struct sandbox *sandbox, struct hc_err *err)
{
    if (sandbox->state == SANDBOX_RUNNING)
        return sandbox->box;
    hc_fail(err, HC_CLASS_REQUEST, EBUSY, "the sandbox is %s%s%s", sandbox_state_word(sandbox->state),
            sandbox->why.code ? ": " : "", sandbox->why.message);
    if (sandbox->state == SANDBOX_PAUSED)
        hc_err_remedy(err, "resume it first");
    else if (sandbox->state == SANDBOX_FAILED)
        hc_err_remedy(err, "delete it and make a new one; with \"recover\": true that happens by itself");
    return NULL;
}

void sandbox_used(struct sandbox *sandbox)
{
    sandbox->used_clock = hc_now();
    sandbox->used_at = sandbox_wall_clock();
}

void sandbox_stay(struct sandbox *sandbox)
{
    sandbox->holds++;
}

void sandbox_leave(struct sandbox *sandbox)
{
    sandbox->holds--;
    if (sandbox->removed && sandbox->holds == 0)
        sandbox_free(sandbox);
    else if (sandbox->holds == 0)
        recover_later(sandbox);
}

void sandbox_hold(struct sandbox *sandbox)
{
    sandbox->packed = false;
    sandbox_used(sandbox);
    sandbox_stay(sandbox);
}

void sandbox_release(struct sandbox *sandbox)
{
    sandbox_used(sandbox);
    sandbox_leave(sandbox);
}

/* A shell or an interpreter that waits is idle: only jobs and calls (which hold it) are work. */
bool sandbox_idle(const struct sandbox *sandbox)
{
    return sandbox->holds == 0 && fixture_count(sandbox, work_kind.word) == 0;
}

int64_t sandbox_expires(const struct sandbox *sandbox)
{
    int64_t idle = sandbox->idle_timeout ? sandbox->used_at + (int64_t)sandbox->idle_timeout : 0;
    int64_t life = sandbox->max_lifetime ? sandbox->created_at + (int64_t)sandbox->max_lifetime : 0;
    if (!sandbox_idle(sandbox) || sandbox->state == SANDBOX_PAUSED)
        idle = 0;
    return idle && life ? (idle < life ? idle : life) : idle ? idle : life;
}

int sandbox_env(const struct sandbox *sandbox, const struct words *more, struct words *env)
{
    int result = 0;
    for (size_t i = 0; i < sandbox->plan.env.count && result == 0; i++)
        result = plan_set_env(env, sandbox->plan.env.item[i]);
    for (size_t i = 0; more && i < more->count && result == 0; i++)
        result = plan_set_env(env, more->item[i]);
    return result;
}

/* ---- what the next gateway finds ---- */

static json_t *state_of(const struct sandbox *sandbox)
{
    json_t *list = json_array();
    for (const struct fixture *fixture = sandbox->fixtures; fixture; fixture = fixture->next) {
        json_t *saved = fixture->running ? fixture->kind->save(fixture) : NULL;
        if (!saved)
            continue;
        json_object_set_new(saved, "kind", json_string(fixture->kind->word));
        json_object_set_new(saved, "job", json_integer((json_int_t)fixture->job.number));
        json_object_set_new(saved, "id", json_string(fixture->id));
        json_object_set_new(saved, "created_at", json_integer(fixture->created_at));
        json_array_append_new(list, saved);
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "id", sandbox->id, "tenant", sandbox->tenant,
                     "secret", sandbox->secret, "order", sandbox->order, "created_at", (json_int_t)sandbox->created_at,
                     "used_at", (json_int_t)sandbox->used_at, "recovered", (json_int_t)sandbox->recovered, "skipped",
                     (json_int_t)sandbox->skipped, "file_size", (json_int_t)sandbox->file_size, "fixtures", list);
}

void sandbox_save(struct sandbox *sandbox)
{
    if (!sandbox->box)
        return;
    hc_cleanup_json json_t *state = state_of(sandbox);
    hc_cleanup_free char *text = state ? hc_json_write(state, false) : NULL;
    hc_cleanup_fd int fd = text ? hc_memfd_sealed("hotcell-sandbox", text, strlen(text)) : -ENOMEM;
    int fds[2] = {fd, sandbox->files};
    int result = fd < 0 ? fd : box_keep(sandbox->box, NULL, fds, sandbox->files >= 0 ? 2 : 1);
    if (result < 0)
        hc_log(HC_LOG_WARNING, "sandbox %s: its state could not be kept: %s", sandbox->id, strerror(-result));
}

/* ---- its beginning ---- */

static void told_created(struct sandbox *sandbox, const struct hc_err *err)
{
    void (*created)(void *, struct sandbox *, const struct hc_err *) = sandbox->created;
    void *creator = sandbox->creator;
    sandbox->created = NULL;
    sandbox->creator = NULL;
    if (created)
        created(creator, sandbox, err);
}

static void running(struct sandbox *sandbox)
{
    char lost[96];
    snprintf(lost, sizeof lost, "%" PRIu64 " of the files in its working directory could not be kept", sandbox->lost);
    sandbox->state = SANDBOX_RUNNING;
    sandbox_used(sandbox);
    sandbox_save(sandbox);
    sandbox_tell(sandbox, sandbox->recovered ? "sandbox_recovered" : "sandbox_created", sandbox->lost ? lost : NULL);
    told_created(sandbox, NULL);
}

static void on_filled(struct box_job *job, const struct warden_message *message)
{
    struct sandbox *sandbox = job->data;
    sandbox->filling = false;
    recover_told(sandbox);
    if (sandbox->state != SANDBOX_CREATING)
        return;
    if (message->facts.end == JOB_EXITED && message->facts.exit_code == 0) {
        running(sandbox);
        return;
    }
    sandbox->why = message->err;
    if (!sandbox->why.code)
        hc_fail(&sandbox->why, HC_CLASS_REQUEST, ENOSPC, "its files could not be unpacked");
    box_destroy(sandbox->box); /* and then it is told */
}

/* A helper that does next to nothing, so that what every job does first is done: the files, the size of the disk. Of
 * one that is made anew it unpacks what the one before had. */
static int fill(struct sandbox *sandbox)
{
    struct words argv = {0};
    bool again = sandbox->files >= 0 && lseek(sandbox->files, 0, SEEK_SET) == 0;
    bool first = !again && sandbox->plan.files >= 0;
    struct job_spec spec = {.kind = JOB_FILES, .has_files = first ? JOB_FILES_WORK : JOB_FILES_NONE};
    plan_job_limits(&sandbox->limits, &spec.limits);
    spec.limits.wall = FILL_TIME;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int head = again ? recover_listen(sandbox) : -1; /* without it nobody hears how much did not fit */
    int fds[5] = {again ? sandbox->files : null, null, head >= 0 ? head : null, -1, first ? sandbox->plan.files : -1};
    int result = null < 0 ? -errno : words_add(&argv, again ? "unpack" : "disk");
    if (result == 0 && again)
        result = errand_word(&argv, "path", sandbox->plan.cell.work_dir);
    if (result == 0 && again)
        result = errand_word(&argv, "recover", "true");
    if (result == 0)
        result = fds[3] = argument_block(sandbox->plan.cell.work_dir, &argv, &sandbox->plan.env);
    sandbox->filler = (struct box_job){.data = sandbox, .ended = on_filled};
    if (result >= 0)
        result = box_start(sandbox->box, &sandbox->filler, &spec, fds, fds[4] >= 0 ? 5 : 4);
    hc_close(null);
    hc_close(head);
    hc_close(fds[3]);
    words_release(&argv);
    sandbox->filling = result >= 0;
    return result < 0 ? result : 0;
}

static void on_ready(void *data)
{
    struct sandbox *sandbox = data;
    if (sandbox->state != SANDBOX_CREATING)
        return;
    if (sandbox->plan.files < 0 && sandbox->files < 0) {
        running(sandbox);
        return;
    }
    int result = fill(sandbox);
    if (result < 0) {
        hc_fail_errno(&sandbox->why, HC_CLASS_OURS, -result, "its files could not be unpacked");
        box_destroy(sandbox->box);
    }
}

/* ---- its end ---- */

void sandbox_free(struct sandbox *sandbox)
{
    while (sandbox->fixtures)
        fixture_remove(sandbox->fixtures);
    recover_release(sandbox);
    sandbox_volumes_forget(sandbox);
    free(sandbox->volumes);
    if (sandbox->box)
        box_drop(sandbox->box);
    if (sandbox->request)
        plan_release(&sandbox->plan);
    request_free(sandbox->request);
    free(sandbox->order);
    free(sandbox);
}

void sandbox_await(struct sandbox *sandbox, struct sandbox_waiter *waiter)
{
    waiter->next = sandbox->waiters;
    sandbox->waiters = waiter;
}

void sandbox_unawait(struct sandbox *sandbox, const struct sandbox_waiter *waiter)
{
    for (struct sandbox_waiter **at = &sandbox->waiters; *at; at = &(*at)->next)
        if (*at == waiter) {
            *at = waiter->next;
            return;
        }
}

static void tell_waiters(struct sandbox *sandbox)
{
    while (sandbox->waiters) {
        struct sandbox_waiter *first = sandbox->waiters;
        sandbox->waiters = first->next;
        first->over(first);
    }
}

static void on_box_gone(void *data, const struct hc_err *why)
{
    struct sandbox *sandbox = data;
    sandbox->box = NULL;
    bool was_creating = sandbox->state == SANDBOX_CREATING;
    if (why->code && !sandbox->why.code)
        sandbox->why = *why;
    if (was_creating && !sandbox->why.code)
        hc_fail(&sandbox->why, HC_CLASS_OURS, EIO, "the cell has gone");
    if (was_creating)
        told_created(sandbox, &sandbox->why);
    /* One that was there once stays to say what became of it. */
    if (sandbox->state == SANDBOX_STOPPING || (was_creating && !sandbox->recovered)) {
        tell_waiters(sandbox);
        sandboxes_remove(sandbox);
        return;
    }
    sandbox->state = SANDBOX_FAILED; /* what its jobs wrote can still be read */
    sandbox->failed_clock = hc_now();
    sandbox_tell(sandbox, "sandbox_failed", sandbox->why.message);
    tell_waiters(sandbox); /* the first of them may have it made anew */
}

void sandbox_calls(const struct sandbox *sandbox, const struct reported *calls)
{
    const struct sandboxes_events *events = &sandbox->all->events;
    if (events->calls && reported_any(calls))
        events->calls(events->data, sandbox, NULL, calls);
}

static void on_calls(void *data, uint64_t number, const struct reported *calls)
{
    const struct sandbox *sandbox = data;
    const struct sandboxes_events *events = &sandbox->all->events;
    const struct fixture *fixture = sandbox->fixtures;
    while (fixture && fixture->job.number != number)
        fixture = fixture->next;
    if (events->calls)
        events->calls(events->data, sandbox, fixture ? fixture->id : NULL, calls);
}

const struct box_events *sandbox_events(struct sandbox *sandbox, struct box_events *events)
{
    *events = (struct box_events){.data = sandbox, .ready = on_ready, .gone = on_box_gone, .calls = on_calls};
    return events;
}

static int begin(struct sandbox *sandbox, struct hc_err *err)
{
    struct sandboxes *all = sandbox->all;
    struct job_limits limits;
    struct box_events events;
    plan_job_limits(&sandbox->limits, &limits);
    limits.wall = limits.cpu_time = 0;
    int result = all->link && all->listed ? box_new(all->link, &sandbox->plan.cell, sandbox->plan.mounts, &limits,
                                                    all->required, sandbox_events(sandbox, &events), &sandbox->box)
                                          : -EAGAIN;
    if (result == 0) {
        box_allow_files(sandbox->box, sandbox->file_size);
        return 0;
    }
    hc_fail(err, HC_CLASS_HOST, EAGAIN, "the sandbox cannot be made now: %s",
            result == -EAGAIN || result == -EPIPE ? "the server is starting" : strerror(-result));
    return hc_err_remedy(err, "try again in a second");
}

void sandbox_begun(struct sandbox *sandbox, const struct hc_err *err)
{
    struct hc_err failure = {0};
    if (!err && begin(sandbox, &failure) == 0)
        return;
    on_box_gone(sandbox, err ? err : &failure);
}

/* With its volumes first, if it has some. */
static int begin_all(struct sandbox *sandbox, struct hc_err *err)
{
    return sandbox->volume_count ? sandbox_volumes_open(sandbox, err) : begin(sandbox, err);
}

static int check_count(const struct sandboxes *all, const char *tenant, struct hc_err *err)
{
    const struct sandboxes_config *settings = &all->config->sandboxes;
    uint64_t own = settings->max_per_tenant ? settings->max_per_tenant : settings->max;
    bool full = sandboxes_count(all, NULL) >= settings->max;
    if (!full && sandboxes_count(all, tenant) < own)
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EDQUOT, "there are %llu sandboxes already, which is the most that %s may have",
            (unsigned long long)(full ? settings->max : own), full ? "this server" : "one tenant");
    hc_err_field(err, full ? "sandboxes.max" : "sandboxes.max_per_tenant");
    return hc_err_remedy(err, "delete one that is not needed any more");
}

int sandbox_create(struct sandboxes *all, const char *tenant, const char *order, size_t length,
                   void (*created)(void *data, struct sandbox *sandbox, const struct hc_err *err), void *creator,
                   struct sandbox **out, struct hc_err *err)
{
    int result = check_count(all, tenant, err);
    struct sandbox *sandbox = result == 0 ? sandbox_new(all, tenant) : NULL;
    if (!sandbox)
        return result < 0 ? result : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    sandbox->order = strndup(order, length);
    result = sandbox->order ? order_read(sandbox, all->config, order, length, err)
                            : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result == 0)
        result = begin_all(sandbox, err);
    if (result < 0) {
        sandbox_free(sandbox);
        return result;
    }
    sandbox->created = created;
    sandbox->creator = creator;
    sandboxes_add(sandbox);
    *out = sandbox;
    return 0;
}

int sandbox_recover(struct sandbox *sandbox,
                    void (*created)(void *data, struct sandbox *sandbox, const struct hc_err *err), void *creator,
                    struct hc_err *err)
{
    /* Read again: the memory file of its first files is where it was, but policy may have changed. */
    int result = order_read(sandbox, sandbox->all->config, sandbox->order, strlen(sandbox->order), err);
    if (result == 0)
        result = begin_all(sandbox, err);
    if (result < 0)
        return result;
    sandbox->recovered++;
    sandbox->lost = 0;
    sandbox->state = SANDBOX_CREATING;
    hc_err_clear(&sandbox->why);
    sandbox->created = created;
    sandbox->creator = creator;
    return 0;
}

void sandbox_unwatch(struct sandbox *sandbox)
{
    sandbox->created = NULL;
    sandbox->creator = NULL;
    if (sandbox->state == SANDBOX_CREATING && !sandbox->recovered)
        sandbox_delete(sandbox, "sandbox_deleted", "its client left before it was there");
}

void sandbox_delete(struct sandbox *sandbox, const char *event, const char *why)
{
    if (sandbox->state == SANDBOX_STOPPING)
        return;
    bool failed = !sandbox->box;
    sandbox->state = SANDBOX_STOPPING;
    sandbox_tell(sandbox, event, why);
    if (failed && sandbox->created) { /* its volumes were still being opened */
        struct hc_err err = {0};
        hc_fail(&err, HC_CLASS_HOST, EAGAIN, "the sandbox was ended before it was there");
        told_created(sandbox, &err);
    }
    if (failed)
        sandboxes_remove(sandbox);
    else
        box_destroy(sandbox->box);
}

/* ---- pause ---- */

struct pausing {
    struct sandbox *sandbox;
    void (*done)(void *data, const struct warden_message *message);
    void *data;
};

static void on_frozen(void *data, const struct warden_message *message)
{
    struct pausing pausing = *(struct pausing *)data;
    struct sandbox *sandbox = pausing.sandbox;
    free(data);
    if (!message->err.code && (sandbox->state == SANDBOX_RUNNING || sandbox->state == SANDBOX_PAUSED)) {
        enum sandbox_state before = sandbox->state;
        sandbox->state = message->on ? SANDBOX_PAUSED : SANDBOX_RUNNING;
        if (before != sandbox->state)
            sandbox_tell(sandbox, message->on ? "sandbox_paused" : "sandbox_resumed", NULL);
        sandbox_used(sandbox);
    }
    pausing.done(pausing.data, message);
}

int sandbox_pause(struct sandbox *sandbox, bool on, void (*done)(void *data, const struct warden_message *message),
                  void *data, struct hc_err *err)
{
    if (sandbox->state != SANDBOX_RUNNING && sandbox->state != SANDBOX_PAUSED) {
        sandbox_box(sandbox, err);
        return -EBUSY;
    }
    struct pausing *pausing = malloc(sizeof *pausing);
    if (!pausing)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    *pausing = (struct pausing){sandbox, done, data};
    int result = box_freeze(sandbox->box, on, on_frozen, pausing);
    if (result < 0) {
        free(pausing);
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "asking the warden");
    }
    return 0;
}
