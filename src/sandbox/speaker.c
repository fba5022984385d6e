/* See speaker.h: the program, its door, and what the next gateway finds of it. call.c has the calls. */
#include "sandbox/speaker.h"

#include "base/buf.h"
#include "base/fd.h"
#include "run/block.h"
#include "sandbox/call.h"
#include "sandbox/kinds.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_LIMIT = 64 << 20, FRAME_DEPTH = 64, FRAME_HEAD = 4 };

static struct speaker *speaker_of(const struct fixture *fixture)
{
    return (struct speaker *)fixture;
}

const char *speaker_state_word(const struct speaker *speaker)
{
    static const char *const words[] = {
        [SPEAKER_STARTING] = "starting", [SPEAKER_IDLE] = "idle", [SPEAKER_BUSY] = "busy", [SPEAKER_ENDED] = "ended"};
    return words[speaker->state];
}

/* ---- its own pipes ---- */

static void on_pipe(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct speaker *speaker = data;
    int stream = fd == speaker->pipe[1];
    char bytes[65536];
    ssize_t count = read(fd, bytes, sizeof bytes);
    if (count > 0 && speaker->call && !speaker->takes_fds)
        call_take_output(speaker->call, stream, bytes, (size_t)count);
    if (count == 0) {
        hc_watch_remove(speaker->pipe_watch[stream]);
        speaker->pipe_watch[stream] = NULL;
    }
}

/* What is there already, before a call is over or begins. */
static void drain(struct speaker *speaker)
{
    char bytes[65536];
    ssize_t count;
    for (int stream = 0; stream < 2; stream++)
        for (int i = 0;
             i < 64 && speaker->pipe_watch[stream] && (count = read(speaker->pipe[stream], bytes, sizeof bytes)) > 0;
             i++)
            if (speaker->call && !speaker->takes_fds)
                call_take_output(speaker->call, stream, bytes, (size_t)count);
}

/* ---- frames ---- */

static void told_started(struct speaker *speaker, const struct hc_err *err)
{
    void (*started)(void *, struct speaker *, const struct hc_err *) = speaker->started;
    void *starter = speaker->starter;
    speaker->started = NULL;
    speaker->starter = NULL;
    if (started)
        started(starter, speaker, err);
}

/* It has said so through its door, and the warden, how it was started: either may come first. */
static void see_ready(struct speaker *speaker)
{
    if (speaker->state != SPEAKER_STARTING || !speaker->has_said || !speaker->has_begun)
        return;
    speaker->state = SPEAKER_IDLE;
    sandbox_save(speaker->fixture.sandbox);
    told_started(speaker, NULL);
}

static void ready(struct speaker *speaker, const json_t *frame)
{
    const char *version = json_string_value(json_object_get(frame, "version"));
    if (speaker->state != SPEAKER_STARTING || speaker->has_said)
        return;
    snprintf(speaker->version, sizeof speaker->version, "%s", version ? version : "");
    speaker->takes_fds = json_is_true(json_object_get(frame, "fds"));
    speaker->has_said = true;
    see_ready(speaker);
}

static void hear(struct speaker *speaker, const char *text, size_t length)
{
    hc_cleanup_json json_t *frame = NULL;
    if (hc_json_read(text, length, FRAME_DEPTH, &frame, NULL) < 0 || !json_is_object(frame))
        return; /* a guest that writes to its own door: it has only itself to blame */
    const char *event = json_string_value(json_object_get(frame, "event"));
    if (event && strcmp(event, "ready") == 0)
        ready(speaker, frame);
    else if (speaker->call) {
        if (!speaker->takes_fds) /* what it wrote before it said so */
            drain(speaker);
        call_frame(speaker->call, frame);
        if (!speaker->call && speaker->state == SPEAKER_BUSY)
            speaker->state = SPEAKER_IDLE;
    }
}

static uint32_t frame_length(const struct hc_buf *buf)
{
    const unsigned char *head = (const unsigned char *)buf->data;
    return head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
}

/* Whole frames, one after another. False: what comes makes no sense. */
static bool take_frames(struct speaker *speaker)
{
    struct hc_buf *buf = speaker->frame;
    size_t at = 0;
    while (buf->length - at >= FRAME_HEAD) {
        struct hc_buf rest = {.data = buf->data + at};
        size_t length = frame_length(&rest);
        if (length > FRAME_LIMIT)
            return false;
        if (buf->length - at - FRAME_HEAD < length)
            break;
        hear(speaker, buf->data + at + FRAME_HEAD, length);
        at += FRAME_HEAD + length;
    }
    if (at == buf->length) {
        hc_buf_release(buf);
        *buf = HC_BUF_INIT(FRAME_LIMIT + FRAME_HEAD + 65536);
    } else if (at > 0) {
        memmove(buf->data, buf->data + at, buf->length - at);
        buf->length -= at;
        buf->data[buf->length] = '\0';
    }
    return true;
}

static void stop_listening(struct speaker *speaker)
{
    hc_watch_remove(speaker->door_watch);
    speaker->door_watch = NULL;
}

/* As much as the program takes; it may be a guest that reads nothing at all, and is not waited for. */
static void send_rest(struct speaker *speaker)
{
    while (speaker->unsent_at < speaker->unsent_length) {
        ssize_t more = send(speaker->door, speaker->unsent + speaker->unsent_at,
                            speaker->unsent_length - speaker->unsent_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0 && errno == EAGAIN) {
            hc_watch_set(speaker->door_watch, EPOLLIN | EPOLLOUT);
            return;
        }
        if (more < 0)
            break; /* its end is told otherwise */
        speaker->unsent_at += (size_t)more;
    }
    free(HC_TAKE_PTR(speaker->unsent));
    speaker->unsent_at = speaker->unsent_length = 0;
    hc_watch_set(speaker->door_watch, EPOLLIN);
}

static void on_door(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    struct speaker *speaker = data;
    char bytes[65536];
    if (events & EPOLLOUT)
        send_rest(speaker);
    if (!(events & ~(uint32_t)EPOLLOUT))
        return;
    ssize_t count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    /* Closed by the program (it became another, by exec, say), or nonsense: what is left is to wait for its end. */
    if (count <= 0 || hc_buf_add(speaker->frame, bytes, (size_t)count) < 0) {
        stop_listening(speaker);
        if (count > 0)
            speaker_end(speaker);
        return;
    }
    speaker->watchers++; /* a call that ends in here may be the last to need it */
    bool good = take_frames(speaker);
    speaker->watchers--;
    if (!good) {
        stop_listening(speaker);
        speaker_end(speaker);
    }
}

/* ---- both ---- */

static int listen_to(struct speaker *speaker)
{
    struct hc_loop *loop = sandbox_loop(speaker->fixture.sandbox);
    speaker->frame = malloc(sizeof *speaker->frame);
    if (!speaker->frame)
        return -ENOMEM;
    *speaker->frame = HC_BUF_INIT(FRAME_LIMIT + FRAME_HEAD + 65536);
    speaker->door_watch = hc_loop_watch(loop, speaker->door, EPOLLIN, on_door, speaker);
    for (int i = 0; i < 2; i++) {
        hc_set_nonblock(speaker->pipe[i], true);
        speaker->pipe_watch[i] = hc_loop_watch(loop, speaker->pipe[i], EPOLLIN, on_pipe, speaker);
    }
    return speaker->door_watch && speaker->pipe_watch[0] && speaker->pipe_watch[1] ? 0 : -ENOMEM;
}

/* ---- its end ---- */

static void on_ended(struct box_job *job, const struct warden_message *message)
{
    struct speaker *speaker = job->data;
    struct sandbox *sandbox = speaker->fixture.sandbox;
    struct hc_err err = message->err;
    speaker->fixture.running = false;
    bool starting = speaker->state == SPEAKER_STARTING;
    speaker->state = SPEAKER_ENDED;
    if (speaker->call) {
        drain(speaker);
        call_lost(speaker->call, message);
    }
    if (starting) {
        if (!err.code)
            hc_fail(&err, HC_CLASS_HOST, EIO, "%s ended before it was ready, with exit code %d", speaker->language,
                    message->facts.signal ? 128 + message->facts.signal : message->facts.exit_code);
        told_started(speaker, &err);
    }
    fixture_remove(&speaker->fixture);
    if (sandbox->box && sandbox->state == SANDBOX_RUNNING)
        sandbox_save(sandbox);
}

static void on_started(struct box_job *job, const struct warden_message *message)
{
    struct speaker *speaker = job->data;
    speaker->start = message->facts.start;
    speaker->has_begun = true;
    see_ready(speaker);
}

static void speaker_free(struct fixture *fixture)
{
    struct speaker *speaker = speaker_of(fixture);
    stop_listening(speaker);
    for (int i = 0; i < 2; i++) {
        hc_watch_remove(speaker->pipe_watch[i]);
        hc_close(speaker->pipe[i]);
    }
    hc_close(speaker->door);
    if (speaker->frame)
        hc_buf_release(speaker->frame);
    free(speaker->frame);
    free(speaker->unsent);
    free(speaker->name);
    free(speaker->language);
    free(speaker);
}

void speaker_end(struct speaker *speaker)
{
    if (speaker->fixture.running)
        box_kill(&speaker->fixture.job, JOB_CANCELLED);
}

void speaker_warn(struct speaker *speaker)
{
    box_signal(speaker->fixture.sandbox->box, speaker->fixture.job.number, SIGURG);
}

/* To the whole of its process group, as a terminal would. */
void speaker_interrupt(struct speaker *speaker)
{
    if (!speaker->call || !speaker->fixture.running)
        return;
    speaker_warn(speaker);
    box_signal(speaker->fixture.sandbox->box, speaker->fixture.job.number, SIGINT);
}

/* ---- for the next gateway ---- */

static json_t *speaker_save(const struct fixture *fixture)
{
    const struct speaker *speaker = speaker_of(fixture);
    if (speaker->state == SPEAKER_STARTING)
        return NULL;
    return json_pack("{s:s?, s:s, s:s, s:b, s:i, s:I}", "name", speaker->name, "language", speaker->language, "version",
                     speaker->version, "fds", speaker->takes_fds, "start", (int)speaker->start, "calls",
                     (json_int_t)speaker->calls);
}

static struct fixture *speaker_restore(struct sandbox *sandbox, const json_t *saved, const struct warden_message *held,
                                       int *fds, size_t count)
{
    const char *name = json_string_value(json_object_get(saved, "name"));
    const char *language = json_string_value(json_object_get(saved, "language"));
    const char *version = json_string_value(json_object_get(saved, "version"));
    struct speaker *speaker = count == 3 && language && !held->over ? calloc(1, sizeof *speaker) : NULL;
    if (!speaker)
        return NULL;
    speaker->fixture.sandbox = sandbox;
    speaker->fixture.job = (struct box_job){.data = speaker, .started = on_started, .ended = on_ended};
    speaker->state = SPEAKER_IDLE;
    speaker->name = name ? strdup(name) : NULL;
    speaker->language = strdup(language);
    snprintf(speaker->version, sizeof speaker->version, "%s", version ? version : "");
    speaker->takes_fds = json_is_true(json_object_get(saved, "fds"));
    speaker->start = (uint32_t)json_integer_value(json_object_get(saved, "start"));
    speaker->calls = (uint64_t)json_integer_value(json_object_get(saved, "calls"));
    speaker->used_at = sandbox_wall_clock();
    speaker->door = HC_TAKE_FD(fds[0]);
    speaker->pipe[0] = HC_TAKE_FD(fds[1]);
    speaker->pipe[1] = HC_TAKE_FD(fds[2]);
    if (!speaker->language || listen_to(speaker) < 0) {
        speaker_free(&speaker->fixture);
        return NULL;
    }
    return &speaker->fixture;
}

const struct fixture_kind session_kind = {
    .word = "session", .save = speaker_save, .restore = speaker_restore, .free = speaker_free};
const struct fixture_kind context_kind = {
    .word = "context", .save = speaker_save, .restore = speaker_restore, .free = speaker_free};

/* ---- its beginning ---- */

static int start(struct speaker *speaker, const struct speaker_plan *plan)
{
    struct sandbox *sandbox = speaker->fixture.sandbox;
    int door[2], ends[2], fds[4] = {-1, -1, -1, -1}, result = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, door) < 0)
        return -errno;
    speaker->door = door[0];
    fds[0] = door[1]; /* the program's stdin: see languages/README.md */
    for (int i = 0; i < 2 && result == 0; i++) {
        result = pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
        speaker->pipe[i] = result == 0 ? ends[0] : -1;
        fds[1 + i] = result == 0 ? ends[1] : -1;
    }
    if (result == 0)
        result = listen_to(speaker);
    if (result == 0)
        result = fds[3] = argument_block(plan->cwd, plan->argv, plan->env);
    struct job_spec spec = {.kind = JOB_PROGRAM, .warm = plan->warm};
    plan_job_limits(&sandbox->limits, &spec.limits);
    spec.limits.wall = spec.limits.cpu_time = 0;
    if (result >= 0)
        result = box_start(sandbox->box, &speaker->fixture.job, &spec, fds, 4);
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
    int kept[3] = {speaker->door, speaker->pipe[0], speaker->pipe[1]};
    return result < 0 ? result : box_keep(sandbox->box, &speaker->fixture.job, kept, 3);
}

int speaker_start(struct sandbox *sandbox, const struct fixture_kind *kind, const struct speaker_plan *plan,
                  void (*started)(void *data, struct speaker *speaker, const struct hc_err *err), void *starter,
                  struct speaker **out, struct hc_err *err)
{
    if (!sandbox_box(sandbox, err))
        return -err->code;
    struct speaker *speaker = calloc(1, sizeof *speaker);
    if (!speaker)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    speaker->door = speaker->pipe[0] = speaker->pipe[1] = -1;
    speaker->fixture.job = (struct box_job){.data = speaker, .started = on_started, .ended = on_ended};
    speaker->name = plan->name ? strdup(plan->name) : NULL;
    speaker->language = strdup(plan->language);
    speaker->used_at = sandbox_wall_clock();
    int result = speaker->language && (speaker->name || !plan->name)
                     ? fixture_add(&speaker->fixture, sandbox, kind, kind == &session_kind ? "ses_" : "ctx_")
                     : -ENOMEM;
    if (result < 0) {
        speaker_free(&speaker->fixture);
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "starting %s", plan->language);
    }
    result = start(speaker, plan);
    if (result < 0) {
        fixture_remove(&speaker->fixture);
        return hc_fail_errno(err, hc_class_of(-result, HC_CLASS_OURS), -result, "starting %s", plan->language);
    }
    speaker->fixture.running = true;
    speaker->started = started;
    speaker->starter = starter;
    sandbox_used(sandbox);
    *out = speaker;
    return 0;
}

struct speaker *speaker_find(const struct sandbox *sandbox, const struct fixture_kind *kind, const char *id_or_name)
{
    for (struct fixture *fixture = sandbox->fixtures; fixture; fixture = fixture->next) {
        struct speaker *speaker = speaker_of(fixture);
        if (fixture->kind == kind && fixture->running &&
            (strcmp(fixture->id, id_or_name) == 0 || (speaker->name && strcmp(speaker->name, id_or_name) == 0)))
            return speaker;
    }
    return NULL;
}

/* ---- calls ---- */

static int send_frame(struct speaker *speaker, const json_t *frame, const int *fds, size_t count)
{
    hc_cleanup_free char *text = hc_json_write(frame, false);
    size_t length = text ? strlen(text) : 0;
    if (!text)
        return -ENOMEM;
    if (length > FRAME_LIMIT)
        return -E2BIG;
    unsigned char head[FRAME_HEAD] = {(unsigned char)length, (unsigned char)(length >> 8),
                                      (unsigned char)(length >> 16), (unsigned char)(length >> 24)};
    if (!speaker->door_watch || speaker->unsent)
        return -EPIPE;
    int result = hc_try_send_fds(speaker->door, head, sizeof head, fds, count);
    if (result < 0)
        return result;
    speaker->unsent = HC_TAKE_PTR(text);
    speaker->unsent_length = length;
    send_rest(speaker);
    return 0;
}

static int send_with_fds(struct call *call, const char *code, size_t code_length, const char *input,
                         size_t input_length)
{
    int fds[4] = {-1, -1, -1, -1};
    hc_cleanup_json json_t *frame = json_pack("{s:s, s:I}", "op", "execute", "id", (json_int_t)call->id);
    int result = frame ? call_open_pipes(call, fds + 2) : -ENOMEM;
    if (result == 0)
        result = fds[0] = hc_memfd_sealed("code", code, code_length);
    if (result >= 0)
        result = fds[1] =
            input_length ? hc_memfd_sealed("stdin", input, input_length) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (result >= 0) {
        lseek(fds[0], 0, SEEK_SET);
        lseek(fds[1], 0, SEEK_SET);
        result = send_frame(call->speaker, frame, fds, 4);
    }
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
    return result;
}

static int send_as_text(struct call *call, const char *code, size_t code_length, const char *input, size_t input_length)
{
    hc_cleanup_json json_t *frame =
        json_pack("{s:s, s:I, s:o, s:o}", "op", "execute", "id", (json_int_t)call->id, "code",
                  json_stringn(code, code_length), "stdin", json_stringn(input, input_length));
    drain(call->speaker); /* what came meanwhile is nobody's */
    return frame ? send_frame(call->speaker, frame, NULL, 0) : -EILSEQ;
}

int speaker_call(struct speaker *speaker, const char *code, size_t code_length, const char *input, size_t input_length,
                 uint64_t time, size_t cap, const struct call_events *events, struct call **out, struct hc_err *err)
{
    if (speaker->state != SPEAKER_IDLE || speaker->call) {
        hc_fail(err, HC_CLASS_REQUEST, EBUSY, "%s is %s", speaker->name ? speaker->name : speaker->fixture.id,
                speaker_state_word(speaker));
        return hc_err_remedy(err, "wait until its call is over, or interrupt it");
    }
    struct call *call = calloc(1, sizeof *call);
    json_t *results = json_array();
    if (!call || !results) {
        free(call);
        json_decref(results);
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    /* Its time begins before the program hears of it: what that starts at once must not be older than the call, or it
     * would be left alone when the call is ended. */
    uint64_t now = hc_now();
    *call = (struct call){.speaker = speaker, .id = now, .begun = now, .events = *events, .pipe = {-1, -1}};
    call->outcome.results = results;
    capture_init(&call->outcome.out, cap);
    capture_init(&call->outcome.err, cap);
    int result = speaker->takes_fds ? send_with_fds(call, code, code_length, input, input_length)
                                    : send_as_text(call, code, code_length, input, input_length);
    if (result >= 0)
        result = call_arm(call, time);
    if (result < 0) {
        for (int i = 0; i < 2; i++) {
            hc_watch_remove(call->watch[i]);
            hc_close(call->pipe[i]);
        }
        json_decref(results);
        free(call);
        return hc_fail_errno(err, result == -EILSEQ ? HC_CLASS_REQUEST : HC_CLASS_HOST, -result,
                             "handing the code to %s", speaker->language);
    }
    speaker->call = call;
    speaker->state = SPEAKER_BUSY;
    speaker->calls++;
    speaker->used_at = sandbox_wall_clock();
    sandbox_hold(speaker->fixture.sandbox);
    *out = call;
    return 0;
}
