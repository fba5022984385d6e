/* See box.h. */
#include "sandbox/box.h"

#include "base/fd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct box {
    struct link *link;
    struct link_owner owner;
    struct box_events events;
    struct box_job *jobs;
    struct box_answer *asked, **last;
    uint64_t next_job;
    uint64_t file_size; /* of what its jobs write, at least; 0: as each job's limits say */
    bool destroyed;
};

static struct box *box_of(struct link_owner *owner)
{
    return (struct box *)((char *)owner - offsetof(struct box, owner));
}

static int send(struct box *box, struct warden_message *message, const int *fds, size_t count)
{
    return link_send(box->link, &box->owner, message, fds, count);
}

/* ---- ends ---- */

static struct box_job *take_job(struct box *box, uint64_t number)
{
    for (struct box_job **at = &box->jobs; *at; at = &(*at)->next)
        if ((*at)->number == number) {
            struct box_job *job = *at;
            *at = job->next;
            return job;
        }
    return NULL;
}

static void tell_calls(const struct box *box, const struct warden_message *message)
{
    if (box->events.calls && reported_any(&message->facts.calls))
        box->events.calls(box->events.data, message->job, &message->facts.calls);
}

static void job_ended(struct box *box, const struct warden_message *message)
{
    struct warden_message heard = {.type = WARDEN_JOB_FORGET, .job = message->job};
    struct box_job *job = take_job(box, message->job);
    (void)send(box, &heard, NULL, 0);
    if (!job || !job->reports)
        tell_calls(box, message);
    if (job)
        job->ended(job, message);
}

static void forget_asked(struct box *box)
{
    while (box->asked) {
        struct box_answer *answer = box->asked;
        box->asked = answer->next;
        free(answer);
    }
    box->last = &box->asked;
}

static void box_free(struct box *box)
{
    forget_asked(box);
    free(box);
}

static void answer(struct box *box, const struct warden_message *message)
{
    struct box_answer *first = box->asked;
    if (!first)
        return;
    box->asked = first->next;
    if (!box->asked)
        box->last = &box->asked;
    if (first->answered)
        first->answered(first->data, message);
    free(first);
}

/* Its jobs have ended with it: they are told first, while there still is a box. */
static void over(struct box *box, const struct hc_err *why)
{
    while (box->jobs) {
        struct warden_message message = {.type = WARDEN_JOB_ENDED, .job = box->jobs->number, .err = *why};
        message.facts.end = JOB_NOT_STARTED;
        message.facts.exit_code = -1;
        struct box_job *job = take_job(box, message.job);
        job->ended(job, &message);
    }
    while (box->asked) {
        struct warden_message message = {.err = *why};
        answer(box, &message);
    }
    struct box_events events = box->events;
    struct hc_err reason = *why;
    if (box->destroyed)
        hc_err_clear(&reason);
    box_free(box);
    events.gone(events.data, &reason);
}

/* ---- what the warden says ---- */

static void on_message(struct link_owner *owner, const struct warden_message *message)
{
    struct box *box = box_of(owner);
    struct hc_err why = message->err;
    switch (message->type) {
    case WARDEN_CELL_READY:
        if (box->events.ready)
            box->events.ready(box->events.data);
        break;
    case WARDEN_JOB_STARTED:
        for (struct box_job *job = box->jobs; job; job = job->next)
            if (job->number == message->job) {
                if (job->started)
                    job->started(job, message);
                break;
            }
        break;
    case WARDEN_JOB_ENDED:
        job_ended(box, message);
        break;
    case WARDEN_JOB_CALLS:
        tell_calls(box, message);
        break;
    case WARDEN_CELL_USAGE:
    case WARDEN_CELL_FREEZE:
        answer(box, message);
        break;
    case WARDEN_CELL_GONE:
        if (!box->destroyed) { /* it died; the warden remembers it until we say that we know */
            struct warden_message heard = {.type = WARDEN_CELL_DESTROY};
            (void)send(box, &heard, NULL, 0);
            if (!why.code)
                hc_fail(&why, HC_CLASS_OURS, EIO, "the cell has gone");
        }
        link_remove(box->link, owner);
        over(box, &why);
        break;
    case WARDEN_CELL_FAILED:
        link_remove(box->link, owner);
        over(box, &why);
        break;
    default:
        break;
    }
}

static void on_gone(struct link_owner *owner, int code)
{
    struct hc_err why = {0};
    hc_fail_errno(&why, HC_CLASS_OURS, code ? code : EPIPE, "the warden died, and all sandboxes with it");
    over(box_of(owner), &why);
}

/* ---- making ---- */

static struct box *new_box(struct link *link, const struct box_events *events)
{
    struct box *box = calloc(1, sizeof *box);
    if (!box)
        return NULL;
    *box = (struct box){.link = link, .events = *events, .next_job = 1};
    box->owner.message = on_message;
    box->owner.gone = on_gone;
    box->last = &box->asked;
    return box;
}

int box_new(struct link *link, const struct cell_spec *spec, const struct cell_mount *mounts,
            const struct job_limits *limits, uint32_t required, const struct box_events *events, struct box **out)
{
    uint64_t number;
    if (!link || !link_alive(link))
        return -EPIPE;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return -EIO;
    hc_cleanup_fd int list = -1;
    if (spec->mount_count) {
        list = hc_memfd_sealed("hotcell-mounts", mounts, spec->mount_count * sizeof *mounts);
        if (list < 0)
            return list;
    }
    struct box *box = new_box(link, events);
    if (!box)
        return -ENOMEM;
    link_add_as(link, &box->owner, number | WARDEN_LASTING);
    struct warden_message message = {.type = WARDEN_CELL_NEW,
                                     .cell_spec = *spec,
                                     .cell_limits = *limits,
                                     .isolation = required,
                                     .lasting = 1,
                                     .verbose = 1};
    int result = send(box, &message, &list, list >= 0 ? 1 : 0);
    if (result < 0) {
        link_remove(link, &box->owner);
        box_free(box);
        return result;
    }
    *out = box;
    return 0;
}

struct box *box_adopt(struct link *link, const struct warden_message *message, const struct box_events *events)
{
    struct box *box = new_box(link, events);
    if (box)
        link_add_as(link, &box->owner, message->cell);
    return box;
}

void box_adopt_job(struct box *box, struct box_job *job, uint64_t number)
{
    job->box = box;
    job->number = number;
    job->next = box->jobs;
    box->jobs = job;
    if (number >= box->next_job)
        box->next_job = number + 1;
}

void box_over(struct box *box, const struct warden_message *message)
{
    job_ended(box, message);
}

void box_destroy(struct box *box)
{
    if (box->destroyed)
        return;
    box->destroyed = true;
    struct warden_message message = {.type = WARDEN_CELL_DESTROY};
    (void)send(box, &message, NULL, 0); /* a warden that cannot be told is gone, and tells */
}

void box_drop(struct box *box)
{
    if (link_alive(box->link))
        link_remove(box->link, &box->owner);
    box_free(box);
}

/* ---- jobs ---- */

void box_allow_files(struct box *box, uint64_t size)
{
    box->file_size = size;
}

int box_start(struct box *box, struct box_job *job, const struct job_spec *spec, const int *fds, size_t count)
{
    struct warden_message message = {.type = WARDEN_JOB_START, .job = box->next_job, .job_spec = *spec};
    if (message.job_spec.limits.file_size < box->file_size)
        message.job_spec.limits.file_size = box->file_size;
    int result = send(box, &message, fds, count);
    if (result < 0)
        return result;
    box_adopt_job(box, job, box->next_job);
    return 0;
}

void box_kill(struct box_job *job, enum job_end reason)
{
    struct warden_message message = {.type = WARDEN_JOB_KILL, .job = job->number, .reason = reason};
    (void)send(job->box, &message, NULL, 0);
}

void box_signal(struct box *box, uint64_t job, int number)
{
    struct warden_message message = {.type = WARDEN_JOB_SIGNAL, .job = job, .signal = number};
    (void)send(box, &message, NULL, 0);
}

void box_sweep(struct box_job *job, int number, uint64_t since)
{
    struct warden_message message = {.type = WARDEN_JOB_SWEEP, .job = job->number, .signal = number, .since = since};
    (void)send(job->box, &message, NULL, 0);
}

int box_keep(struct box *box, const struct box_job *job, const int *fds, size_t count)
{
    struct warden_message message = {.type = WARDEN_KEEP, .job = job ? job->number : 0};
    return send(box, &message, fds, count);
}

/* ---- questions ---- */

static int ask(struct box *box, struct warden_message *message,
               void (*answered)(void *data, const struct warden_message *message), void *data)
{
    struct box_answer *wanted = calloc(1, sizeof *wanted);
    if (!wanted)
        return -ENOMEM;
    *wanted = (struct box_answer){.data = data, .answered = answered};
    int result = send(box, message, NULL, 0);
    if (result < 0) {
        free(wanted);
        return result;
    }
    *box->last = wanted;
    box->last = &wanted->next;
    return 0;
}

int box_ask_usage(struct box *box, void (*answered)(void *data, const struct warden_message *message), void *data)
{
    struct warden_message message = {.type = WARDEN_CELL_USAGE};
    return ask(box, &message, answered, data);
}

int box_freeze(struct box *box, bool on, void (*answered)(void *data, const struct warden_message *message), void *data)
{
    struct warden_message message = {.type = WARDEN_CELL_FREEZE, .on = on};
    return ask(box, &message, answered, data);
}

void box_unask(struct box *box, const void *data)
{
    for (struct box_answer *wanted = box->asked; wanted; wanted = wanted->next)
        if (wanted->data == data)
            wanted->answered = NULL;
}
