/*
 * All sandboxes of a server: the list, its clock, and how a new gateway finds what the one before it had. The warden
 * tells each cell, then each of its jobs; what a cell's memory file says decides what they are.
 */
#include "base/fd.h"
#include "base/log.h"
#include "run/result.h"
#include "sandbox/internal.h"
#include "sandbox/kinds.h"
#include "sandbox/order.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { STATE_LIMIT = 64 << 20, STATE_DEPTH = 64 };
#define FAILED_STAYS (3600 * 1000000ULL)
#define LOOK_LEAST (1000000ULL)

/* ---- the list ---- */

static int make_secret(struct sandbox *sandbox)
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -EIO;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(sandbox->secret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

struct sandbox *sandbox_new(struct sandboxes *all, const char *tenant)
{
    struct sandbox *sandbox = calloc(1, sizeof *sandbox);
    if (!sandbox)
        return NULL;
    sandbox->all = all;
    sandbox->plan.files = sandbox->files = sandbox->fill_head = -1;
    sandbox->created_at = sandbox->used_at = sandbox_wall_clock();
    sandbox->created_clock = sandbox->used_clock = hc_now();
    snprintf(sandbox->tenant, sizeof sandbox->tenant, "%s", tenant);
    if (result_id_of("sbx_", sandbox->id, sizeof sandbox->id, sandbox->created_at) < 0 || make_secret(sandbox) < 0) {
        free(sandbox);
        return NULL;
    }
    return sandbox;
}

static void arm(struct sandboxes *all);

void sandboxes_add(struct sandbox *sandbox)
{
    sandbox->next = sandbox->all->first;
    sandbox->all->first = sandbox;
    arm(sandbox->all);
}

void sandboxes_remove(struct sandbox *sandbox)
{
    for (struct sandbox **at = &sandbox->all->first; *at; at = &(*at)->next)
        if (*at == sandbox) {
            *at = sandbox->next;
            break;
        }
    if (sandbox->all->adopting == sandbox)
        sandbox->all->adopting = NULL;
    sandbox->removed = true;
    if (sandbox->holds == 0)
        sandbox_free(sandbox);
}

size_t sandboxes_count(const struct sandboxes *all, const char *tenant)
{
    size_t count = 0;
    for (const struct sandbox *sandbox = all->first; sandbox; sandbox = sandbox->next)
        count += sandbox->state != SANDBOX_STOPPING && sandbox->state != SANDBOX_FAILED &&
                 (!tenant || strcmp(tenant, sandbox->tenant) == 0);
    return count;
}

struct sandbox *sandboxes_first(const struct sandboxes *all)
{
    return all->first;
}

struct sandbox *sandboxes_find(const struct sandboxes *all, const char *tenant, const char *id)
{
    struct sandbox *sandbox = all->first;
    while (sandbox && (strcmp(sandbox->id, id) != 0 || sandbox->state == SANDBOX_STOPPING ||
                       (tenant && strcmp(tenant, sandbox->tenant) != 0)))
        sandbox = sandbox->next;
    return sandbox;
}

/* ---- the clock ---- */

/* Why it is to go now; NULL: it is not. */
static const char *overdue(const struct sandbox *sandbox, uint64_t now)
{
    if (sandbox->state == SANDBOX_FAILED)
        return now - sandbox->failed_clock >= FAILED_STAYS ? "it failed an hour ago" : NULL;
    if (sandbox->max_lifetime && now - sandbox->created_clock >= sandbox->max_lifetime)
        return "its lifetime is over";
    if (sandbox->idle_timeout && sandbox_idle(sandbox) && sandbox->state != SANDBOX_PAUSED &&
        now - sandbox->used_clock >= sandbox->idle_timeout)
        return "nobody has used it";
    return NULL;
}

static void on_look(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct sandboxes *all = data;
    uint64_t now = hc_now();
    struct sandbox *next;
    all->timer = NULL;
    for (struct sandbox *sandbox = all->first; sandbox; sandbox = next) {
        next = sandbox->next;
        const char *why = sandbox->state == SANDBOX_STOPPING ? NULL : overdue(sandbox, now);
        if (why)
            sandbox_delete(sandbox, "sandbox_expired", why);
    }
    arm(all);
}

/* No later than the first that could be due, and at least as often as is configured. */
static void arm(struct sandboxes *all)
{
    uint64_t pause = all->config && all->config->sandboxes.cleanup_interval ? all->config->sandboxes.cleanup_interval
                                                                            : 300 * 1000000ULL;
    for (const struct sandbox *sandbox = all->first; sandbox; sandbox = sandbox->next) {
        if (sandbox->idle_timeout && sandbox->idle_timeout < pause)
            pause = sandbox->idle_timeout;
        if (sandbox->max_lifetime && sandbox->max_lifetime < pause)
            pause = sandbox->max_lifetime;
    }
    pause = pause / 2 > LOOK_LEAST ? pause / 2 : LOOK_LEAST;
    hc_timer_remove(all->timer);
    all->timer = all->first ? hc_loop_timer(all->loop, hc_now() + pause, on_look, all) : NULL;
}

/* ---- finding what lives on ---- */

static json_t *read_state(const int *fds, size_t count)
{
    char *text hc_cleanup_free = NULL;
    size_t length;
    json_t *state = NULL;
    if (count < 1 || lseek(fds[0], 0, SEEK_SET) < 0 || hc_read_all(fds[0], STATE_LIMIT, &text, &length) < 0 ||
        hc_json_read(text, length, STATE_DEPTH, &state, NULL) < 0)
        return NULL;
    return state;
}

static int restore(struct sandbox *sandbox, const json_t *state, struct hc_err *err)
{
    const char *id = json_string_value(json_object_get(state, "id"));
    const char *tenant = json_string_value(json_object_get(state, "tenant"));
    const char *order = json_string_value(json_object_get(state, "order"));
    const char *secret = json_string_value(json_object_get(state, "secret"));
    if (!id || !tenant || !order || !secret)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "its state is not well-formed");
    snprintf(sandbox->id, sizeof sandbox->id, "%s", id);
    snprintf(sandbox->tenant, sizeof sandbox->tenant, "%s", tenant);
    snprintf(sandbox->secret, sizeof sandbox->secret, "%s", secret);
    sandbox->created_at = json_integer_value(json_object_get(state, "created_at"));
    sandbox->recovered = (unsigned)json_integer_value(json_object_get(state, "recovered"));
    sandbox->skipped = (uint64_t)json_integer_value(json_object_get(state, "skipped"));
    sandbox->file_size = (uint64_t)json_integer_value(json_object_get(state, "file_size"));
    int64_t age = sandbox_wall_clock() - sandbox->created_at;
    sandbox->created_clock -= age > 0 && (uint64_t)age < sandbox->created_clock ? (uint64_t)age : 0;
    sandbox->order = strdup(order);
    if (!sandbox->order)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    return order_read(sandbox, sandbox->all->config, order, strlen(order), err);
}

static void adopt_cell(struct sandboxes *all, const struct warden_message *message, int *fds, size_t count)
{
    struct hc_err err = {0};
    struct box_events events;
    json_decref(all->adopting_state);
    all->adopting = NULL;
    all->adopting_state = read_state(fds, count);
    struct sandbox *sandbox = sandbox_new(all, "");
    if (!sandbox)
        return;
    int result = all->adopting_state ? restore(sandbox, all->adopting_state, &err)
                                     : hc_fail(&err, HC_CLASS_OURS, EPROTO, "it was still being made");
    sandbox->box = box_adopt(all->link, message, sandbox_events(sandbox, &events));
    if (!sandbox->box) {
        sandbox_free(sandbox);
        return;
    }
    box_allow_files(sandbox->box, sandbox->file_size);
    sandboxes_add(sandbox);
    if (count > 1)
        sandbox->files = HC_TAKE_FD(fds[1]);
    sandbox->state = message->on ? SANDBOX_PAUSED : SANDBOX_RUNNING;
    all->adopting = sandbox;
    if (message->over) { /* it died while nobody looked; the warden waits for us to know */
        sandbox->why = message->err;
        if (!sandbox->why.code)
            hc_fail(&sandbox->why, HC_CLASS_OURS, EIO, "its cell died");
        struct box *box = sandbox->box;
        box_destroy(box);
    } else if (result < 0) {
        hc_log(HC_LOG_WARNING, "a sandbox is ended: %s", err.message);
        sandbox_delete(sandbox, "sandbox_deleted", err.message);
    }
}

/* Jobs that nobody can go on with: answers that a gateway that is gone owed to somebody. */
static void on_orphan_ended(struct box_job *job, const struct warden_message *message)
{
    (void)message;
    free(job);
}

static void end_orphan(struct sandbox *sandbox, const struct warden_message *message)
{
    struct box_job *job = calloc(1, sizeof *job);
    if (!job)
        return;
    job->ended = on_orphan_ended;
    box_adopt_job(sandbox->box, job, message->job);
    box_kill(job, JOB_CANCELLED);
}

static const json_t *saved_fixture(const struct sandboxes *all, uint64_t job)
{
    size_t index;
    const json_t *saved;
    json_array_foreach(json_object_get(all->adopting_state, "fixtures"), index,
                       saved) if ((uint64_t)json_integer_value(json_object_get(saved, "job")) == job) return saved;
    return NULL;
}

static void adopt_job(struct sandboxes *all, const struct warden_message *message, int *fds, size_t count)
{
    struct sandbox *sandbox = all->adopting;
    if (!sandbox || !sandbox->box)
        return;
    const json_t *saved = saved_fixture(all, message->job);
    const struct fixture_kind *kind = fixture_kind_find(json_string_value(json_object_get(saved, "kind")));
    struct fixture *fixture =
        kind && sandbox->state != SANDBOX_STOPPING ? kind->restore(sandbox, saved, message, fds, count) : NULL;
    if (!fixture) {
        if (message->over)
            box_over(sandbox->box, message);
        else
            end_orphan(sandbox, message);
        return;
    }
    snprintf(fixture->id, sizeof fixture->id, "%s", json_string_value(json_object_get(saved, "id")));
    fixture->created_at = json_integer_value(json_object_get(saved, "created_at"));
    fixture_add(fixture, sandbox, kind, NULL);
    fixture->running = true;
    box_adopt_job(sandbox->box, &fixture->job, message->job);
    if (message->over)
        box_over(sandbox->box, message);
}

void sandboxes_held(struct sandboxes *all, const struct warden_message *message, int *fds, size_t count)
{
    if (message->cell == 0) {
        json_decref(all->adopting_state);
        all->adopting_state = NULL;
        all->adopting = NULL;
        all->listed = true;
    } else if (message->job == 0) {
        adopt_cell(all, message, fds, count);
    } else {
        adopt_job(all, message, fds, count);
    }
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
}

/* ---- life ---- */

struct sandboxes *sandboxes_new(struct hc_loop *loop, const struct sandboxes_events *events)
{
    struct sandboxes *all = calloc(1, sizeof *all);
    if (all)
        *all = (struct sandboxes){.loop = loop, .events = *events};
    return all;
}

static void tell_end(struct sandbox *sandbox)
{
    bool told = sandbox->state == SANDBOX_STOPPING || (sandbox->state == SANDBOX_CREATING && !sandbox->recovered);
    sandbox->state = SANDBOX_STOPPING;
    if (!told)
        sandbox_tell(sandbox, "sandbox_deleted", "the server stopped");
}

void sandboxes_free(struct sandboxes *all)
{
    if (!all)
        return;
    hc_timer_remove(all->timer);
    if (all->events.stopping && all->events.stopping(all->events.data))
        for (struct sandbox *sandbox = all->first; sandbox; sandbox = sandbox->next)
            tell_end(sandbox);
    while (all->first) {
        struct sandbox *sandbox = all->first;
        all->first = sandbox->next;
        sandbox_free(sandbox);
    }
    json_decref(all->adopting_state);
    free(all);
}

void sandboxes_configure(struct sandboxes *all, const struct config *config)
{
    all->config = config;
    arm(all);
}

int sandboxes_attach(struct sandboxes *all, struct link *link, uint32_t required)
{
    all->link = link;
    all->required = required;
    all->listed = false;
    return 0;
}

bool sandboxes_ready(const struct sandboxes *all)
{
    return all->listed;
}
