/* See speaker.h: a call, from its pipes to its outcome. */
#include "sandbox/call.h"

#include "base/fd.h"
#include "base/signame.h"
#include "run/drive.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DRAIN_READS = 64 };
#define STOP_TIME (1000000ULL) /* µs for a program to answer to SIGINT */
#define RESULTS_LIMIT (64U << 20)

/* ---- output ---- */

static void give_up(struct call *call, enum run_status why);
static void ask_to_stop(struct call *call);

void call_take_output(struct call *call, int stream, const char *bytes, size_t length)
{
    struct capture *capture = stream == 0 ? &call->outcome.out : &call->outcome.err;
    uint64_t before = capture->total;
    if (capture_add(capture, bytes, length) < 0) {
        give_up(call, RUN_INTERNAL);
        return;
    }
    if (before < capture->cap && call->events.output && !call->abandoned)
        call->events.output(call->events.data, stream, bytes,
                            capture->cap - before < length ? (size_t)(capture->cap - before) : length);
    uint64_t ceiling = (uint64_t)capture->cap * DRIVE_OUTPUT_FACTOR;
    if (before <= ceiling && capture->total > ceiling)
        give_up(call, RUN_OUTPUT_LIMIT);
}

static void close_pipe(struct call *call, int stream)
{
    hc_watch_remove(call->watch[stream]);
    call->watch[stream] = NULL;
    call->pipe[stream] = hc_close(call->pipe[stream]);
}

static bool read_pipe(struct call *call, int stream)
{
    char bytes[65536];
    ssize_t count = call->pipe[stream] < 0 ? -1 : read(call->pipe[stream], bytes, sizeof bytes);
    if (count > 0)
        call_take_output(call, stream, bytes, (size_t)count);
    else if (count == 0)
        close_pipe(call, stream);
    return count > 0;
}

static void on_readable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct call *call = data;
    read_pipe(call, fd == call->pipe[1]);
}

int call_open_pipes(struct call *call, int *fds)
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            return -errno;
        call->pipe[i] = ends[0];
        fds[i] = ends[1];
        hc_set_nonblock(ends[0], true);
        call->watch[i] =
            hc_loop_watch(sandbox_loop(call->speaker->fixture.sandbox), ends[0], EPOLLIN, on_readable, call);
        if (!call->watch[i])
            return -ENOMEM;
    }
    return 0;
}

/* ---- its end ---- */

static void finish(struct call *call)
{
    struct sandbox *sandbox = call->speaker->fixture.sandbox;
    for (int stream = 0; stream < 2; stream++) {
        for (int i = 0; i < DRAIN_READS && read_pipe(call, stream); i++)
            continue;
        hc_watch_remove(call->watch[stream]);
        if (call->pipe[stream] >= 0) /* something that it left running may write to it */
            sandbox_linger(sandbox, HC_TAKE_FD(call->pipe[stream]));
    }
    hc_timer_remove(call->timer);
    call->outcome.took = hc_now() - call->begun;
    call->speaker->call = NULL;
    if (!call->abandoned)
        call->events.ended(call->events.data, &call->outcome);
    capture_release(&call->outcome.out);
    capture_release(&call->outcome.err);
    json_decref(call->outcome.results);
    json_decref(call->outcome.error);
    free(call);
    sandbox_release(sandbox);
}

static void on_no_answer(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct call *call = data;
    call->timer = NULL;
    if (!call->asked_again) { /* the first came before the program had begun with the code, and meant nothing to it */
        call->asked_again = true;
        ask_to_stop(call);
        return;
    }
    call->killed = true;
    box_kill(&call->speaker->fixture.job, JOB_CANCELLED); /* its end comes by call_lost */
}

static void ask_to_stop(struct call *call)
{
    struct speaker *speaker = call->speaker;
    call->timer = hc_loop_timer(sandbox_loop(speaker->fixture.sandbox), hc_now() + STOP_TIME / 2, on_no_answer, call);
    if (!call->timer) {
        box_kill(&speaker->fixture.job, JOB_CANCELLED);
        return;
    }
    speaker_warn(speaker);
    box_sweep(&speaker->fixture.job, SIGINT, call->begun);
}

/* The first reason stays. */
static void give_up(struct call *call, enum run_status why)
{
    if (call->ending != RUN_COMPLETED)
        return;
    call->ending = why;
    hc_timer_remove(call->timer);
    ask_to_stop(call);
}

void call_cancel(struct call *call)
{
    give_up(call, RUN_KILLED);
}

void call_abandon(struct call *call)
{
    call->abandoned = true;
    give_up(call, RUN_KILLED);
}

/* Its program could not say anything: what the kernel says of its end. */
static json_t *error_of_end(const struct call *call, const struct warden_message *message)
{
    char text[160];
    const char *language = call->speaker->language;
    int number = message->facts.signal;
    if (message->err.code)
        snprintf(text, sizeof text, "%s ended: %.100s", language, message->err.message);
    else if (message->facts.end == JOB_OUT_OF_MEMORY)
        snprintf(text, sizeof text, "%s was ended: the sandbox had no memory left", language);
    else if (number)
        snprintf(text, sizeof text, "%s was ended by signal %d (%s)", language, number, hc_signal_name(number));
    else
        snprintf(text, sizeof text, "%s exited with %d", language, message->facts.exit_code);
    return json_pack("{s:s, s:o, s:s, s:n, s:s}", "type", "Ended", "message", hc_json_text_lossy(text), "traceback", "",
                     "line", "remedy", "make a new context: its variables are gone");
}

void call_lost(struct call *call, const struct warden_message *message)
{
    const struct job_facts *facts = &message->facts;
    struct call_outcome *outcome = &call->outcome;
    outcome->alive = false;
    outcome->signal = facts->signal;
    outcome->exit_code = facts->signal ? 128 + facts->signal : facts->exit_code;
    if (call->ending != RUN_COMPLETED)
        outcome->status = call->ending;
    else if (facts->end == JOB_OUT_OF_MEMORY)
        outcome->status = RUN_OOM;
    else if (facts->end == JOB_EXITED)
        outcome->status = outcome->exit_code == 0 ? RUN_COMPLETED : RUN_ERROR;
    else
        outcome->status = facts->end == JOB_CANCELLED ? RUN_KILLED : RUN_INTERNAL;
    if (outcome->status == RUN_TIMEOUT)
        outcome->exit_code = 124;
    if (outcome->status != RUN_COMPLETED)
        outcome->error = error_of_end(call, message);
    finish(call);
}

/* ---- frames ---- */

static json_t *clean_entry(const json_t *given, const json_t *frame)
{
    const json_t *type = json_object_get(given, "type");
    json_t *data = json_object_get(given, "data"), *of = json_object_get(frame, "of");
    if (!json_is_string(type) || !data)
        return NULL;
    json_t *entry = json_pack("{s:s, s:O}", "type", json_string_value(type), "data", data);
    if (entry && json_is_true(json_object_get(frame, "value")))
        json_object_set_new(entry, "value", json_true());
    if (entry && json_is_integer(of))
        json_object_set(entry, "of", of);
    return entry;
}

static size_t size_of(const json_t *value)
{
    return json_is_string(value) ? json_string_length(value) : 1024;
}

static void show(struct call *call, const json_t *frame)
{
    size_t index;
    const json_t *given;
    json_array_foreach(json_object_get(frame, "entries"), index, given)
    {
        json_t *entry = clean_entry(given, frame);
        if (!entry)
            continue;
        call->held += size_of(json_object_get(entry, "data"));
        bool fits = call->held <= RESULTS_LIMIT &&
                    (!call->events.holds || call->abandoned || call->events.holds(call->events.data, call->held));
        if (!fits) {
            json_decref(entry);
            give_up(call, RUN_OUTPUT_LIMIT);
            return;
        }
        if (call->events.display && !call->abandoned)
            call->events.display(call->events.data, entry);
        json_array_append_new(call->outcome.results, entry);
    }
}

static void done(struct call *call, const json_t *frame)
{
    const char *status = json_string_value(json_object_get(frame, "status"));
    json_t *error = json_object_get(frame, "error"), *code = json_object_get(frame, "exit_code");
    struct call_outcome *outcome = &call->outcome;
    outcome->alive = !call->killed;
    outcome->exit_code = json_is_integer(code) ? (int)json_integer_value(code) : 0;
    outcome->error = json_is_object(error) ? json_incref(error) : NULL;
    if (call->ending != RUN_COMPLETED)
        outcome->status = call->ending;
    else if (status && strcmp(status, "interrupted") == 0)
        outcome->status = RUN_KILLED;
    else if ((status && strcmp(status, "error") == 0) || outcome->exit_code != 0)
        outcome->status = RUN_ERROR;
    else
        outcome->status = RUN_COMPLETED;
    if (outcome->status == RUN_TIMEOUT)
        outcome->exit_code = 124;
    else if (outcome->status == RUN_KILLED && outcome->exit_code == 0)
        outcome->exit_code = 130;
    else if (outcome->status != RUN_COMPLETED && outcome->exit_code == 0)
        outcome->exit_code = 1;
    finish(call);
}

void call_frame(struct call *call, const json_t *frame)
{
    const char *event = json_string_value(json_object_get(frame, "event"));
    if ((uint64_t)json_integer_value(json_object_get(frame, "id")) != call->id || !event)
        return; /* of a call that is over */
    if (strcmp(event, "display") == 0)
        show(call, frame);
    else if (strcmp(event, "done") == 0)
        done(call, frame);
}

static void on_time(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct call *call = data;
    call->timer = NULL;
    give_up(call, RUN_TIMEOUT);
}

int call_arm(struct call *call, uint64_t time)
{
    if (time == 0)
        return 0;
    call->timer = hc_loop_timer(sandbox_loop(call->speaker->fixture.sandbox), call->begun + time, on_time, call);
    return call->timer ? 0 : -ENOMEM;
}
