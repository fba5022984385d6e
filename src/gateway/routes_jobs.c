/*
 * Detached jobs of a sandbox over HTTP: listed, looked at and waited for, watched, written to, signalled, ended. What
 * always holds: output is told by positions in its streams, so a reader who comes back misses and repeats nothing that
 * is still remembered.
 */
#include "base/fd.h"
#include "base/signame.h"
#include "gateway/events.h"
#include "gateway/run_internal.h"
#include "gateway/sandboxes.h"
#include "sandbox/work.h"
#include "text/base64.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL: it has replied. */
static struct work *work_asked(struct gateway *gateway, struct http_request *request, const struct route_match *match,
                               struct sandbox **out)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    struct work *work = sandbox != NULL ? work_find(sandbox, route_value(match, "job")) : NULL;
    if (sandbox != NULL && work == NULL) {
        char detail[160];
        snprintf(detail, sizeof detail, "there is no job \"%.80s\" in this sandbox", route_value(match, "job"));
        reply_problem(request, 404, "not_found", detail);
    }
    *out = sandbox;
    return work;
}

/* ---- one as JSON ---- */

struct piece {
    char *text;
    size_t length;
    uint64_t from;
    bool plain; /* it is UTF-8 */
};

static json_t *piece_json(const struct piece *piece, bool plain)
{
    if (plain)
        return json_stringn(piece->text, piece->length);
    hc_cleanup_free char *encoded = hc_base64_encode(piece->text, piece->length, NULL);
    return encoded != NULL ? json_string(encoded) : json_null();
}

static json_t *result_of(const struct work *work)
{
    const struct job_facts *facts = &work->stage.facts;
    return json_pack("{s:s, s:b, s:i, s:o, s:b, s:{s:f, s:f, s:f, s:f, s:I}, s:o}", "status",
                     run_status_word(work->stage.status), "success", work->stage.status == RUN_COMPLETED, "exit_code",
                     work->stage.exit_code, "signal",
                     work->stage.signal ? json_integer(work->stage.signal) : json_null(), "timed_out",
                     work->stage.status == RUN_TIMEOUT, "usage", "wall_ms", (double)facts->wall / 1000, "cpu_ms",
                     (double)facts->cpu / 1000, "user_ms", (double)facts->user / 1000, "system_ms",
                     (double)facts->system / 1000, "memory_peak", (json_int_t)facts->memory_peak, "error",
                     work->stage.err.code ? hc_json_text_lossy(work->stage.err.message) : json_null());
}

static json_t *whole_json(const struct work *work, const uint64_t *from)
{
    struct piece pieces[2];
    static const char *const names[] = {"stdout", "stderr"};
    json_t *object = work_json(work), *truncated = json_object(), *offset = json_object();
    bool plain = true;
    for (int i = 0; i < 2; i++) {
        pieces[i] = (struct piece){.from = from[i]};
        pieces[i].text = job_log_read(work->log, i, &pieces[i].from, &pieces[i].length);
        plain = plain && pieces[i].text != NULL && hc_utf8_valid(pieces[i].text, pieces[i].length);
    }
    for (int i = 0; i < 2 && object != NULL; i++) {
        if (pieces[i].text != NULL)
            json_object_set_new(object, names[i], piece_json(&pieces[i], plain));
        json_object_set_new(truncated, names[i],
                            json_integer((json_int_t)(pieces[i].from > from[i] ? pieces[i].from - from[i] : 0)));
        json_object_set_new(offset, names[i], json_integer((json_int_t)job_log_end(work->log, i)));
        free(pieces[i].text);
    }
    if (object == NULL)
        return NULL;
    json_object_set_new(object, "output_encoding", json_string(plain ? "utf-8" : "base64"));
    json_object_set_new(object, "truncated", truncated);
    json_object_set_new(object, "offset", offset);
    json_object_set_new(object, "result", work->over ? result_of(work) : json_null());
    return object;
}

/* ---- list ---- */

void handle_job_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    json_t *list = json_array();
    for (struct fixture *fixture = sandbox->fixtures; fixture != NULL; fixture = fixture->next)
        if (strcmp(fixture->kind->word, "job") == 0)
            json_array_append_new(list, work_json((struct work *)fixture));
    sandbox_reply(request, 200, json_pack("{s:o}", "jobs", list));
}

/* ---- one, perhaps waited for ---- */

/* Neither the job nor its sandbox is forgotten while somebody stays with it. */
static void stay(struct work *work)
{
    work->readers++;
    sandbox_hold(work->fixture.sandbox);
}

static void leave(struct work *work)
{
    work->readers--;
    sandbox_release(work->fixture.sandbox);
}

struct waiting { /* request->data */
    struct work_watcher watcher;
    struct work *work;
    struct http_request *request;
    struct hc_timer *timer;
    uint64_t from[2];
};

static void answer_waiting(struct waiting *waiting)
{
    struct http_request *request = waiting->request;
    request->on_gone = NULL;
    hc_timer_remove(waiting->timer);
    json_t *object = whole_json(waiting->work, waiting->from);
    leave(waiting->work);
    free(waiting);
    sandbox_reply(request, 200, object);
}

static void on_waited(struct work_watcher *watcher)
{
    answer_waiting((struct waiting *)watcher);
}

static void on_written(struct work_watcher *watcher)
{
    (void)watcher;
}

static void on_time(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct waiting *waiting = data;
    waiting->timer = NULL;
    work_unwatch(waiting->work, &waiting->watcher);
    answer_waiting(waiting);
}

static void on_waiting_gone(struct http_request *request)
{
    struct waiting *waiting = request->data;
    work_unwatch(waiting->work, &waiting->watcher);
    hc_timer_remove(waiting->timer);
    leave(waiting->work);
    free(waiting);
}

/* A number in the query; false: it has replied. */
static bool query_number(struct http_request *request, const char *name, double most, double *value)
{
    char text[32], *end = text, detail[160];
    int found = http_query_value(request, name, text, sizeof text);
    *value = found > 0 ? strtod(text, &end) : 0;
    if (found == 0 || (found > 0 && end != text && *end == '\0' && *value >= 0 && *value <= most))
        return true;
    snprintf(detail, sizeof detail, "%s must be a number from 0 to %.0f%s%s%s", name, most,
             found > 0 ? "; found \"" : ", given once", found > 0 ? text : "", found > 0 ? "\"" : "");
    reply_problem(request, 400, "invalid_request", detail);
    return false;
}

void handle_job_get(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char *const known[] = {"wait", "stdout_from", "stderr_from", NULL};
    struct sandbox *sandbox;
    struct work *work = work_asked(gateway, request, match, &sandbox);
    double wait, from[2];
    char name[64];
    if (work == NULL)
        return;
    if (http_query_unknown(request, known, name, sizeof name) != NULL) {
        reply_problem(request, 400, "invalid_request", "the parameters are wait, stdout_from and stderr_from");
        return;
    }
    if (!query_number(request, "wait", (double)gateway->config->server.wait_time / 1e6, &wait) ||
        !query_number(request, "stdout_from", 1e15, &from[0]) || !query_number(request, "stderr_from", 1e15, &from[1]))
        return;
    uint64_t starts[2] = {(uint64_t)from[0], (uint64_t)from[1]};
    struct waiting *waiting = wait > 0 && !work->over ? calloc(1, sizeof *waiting) : NULL;
    if (waiting == NULL) {
        sandbox_used(sandbox);
        sandbox_reply(request, 200, whole_json(work, starts));
        return;
    }
    *waiting = (struct waiting){.watcher = {.written = on_written, .ended = on_waited},
                                .work = work,
                                .request = request,
                                .from = {starts[0], starts[1]}};
    waiting->timer = hc_loop_timer(gateway->loop, hc_now() + (uint64_t)(wait * 1e6), on_time, waiting);
    request->data = waiting;
    request->on_gone = on_waiting_gone;
    stay(work);
    work_watch(work, &waiting->watcher);
}

/* ---- ending, signals, input ---- */

void handle_job_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox;
    struct work *work = work_asked(gateway, request, match, &sandbox);
    if (work == NULL)
        return;
    work_kill(work);
    sandbox_used(sandbox);
    sandbox_reply(request, 202, work_json(work));
}

void handle_job_signal(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char *const known[] = {"signal", NULL};
    struct sandbox *sandbox;
    struct work *work = work_asked(gateway, request, match, &sandbox);
    if (work == NULL)
        return;
    hc_cleanup_json json_t *body = sandbox_body(request);
    if (body == NULL || !sandbox_body_knows(request, body, known))
        return;
    const json_t *value = json_object_get(body, "signal");
    int number = json_is_integer(value)  ? (int)json_integer_value(value)
                 : json_is_string(value) ? hc_signal_number(json_string_value(value))
                                         : -1;
    if (number < 1 || number > 64) {
        struct hc_err err = {0};
        hc_cleanup_free char *given = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL,
                "signal must be the name or the number of a signal, such as \"TERM\", and cannot be %.80s",
                given != NULL ? given : "left out");
        hc_err_field(&err, "signal");
        reply_error(request, &err);
        return;
    }
    sandbox_used(sandbox);
    if (work_signal(work, number) < 0)
        reply_problem(request, 409, "conflict", "the job has ended");
    else
        sandbox_reply(request, 200, work_json(work));
}

void handle_job_stdin(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox;
    struct work *work = work_asked(gateway, request, match, &sandbox);
    char text[8] = "";
    if (work == NULL)
        return;
    bool end = http_query_value(request, "end", text, sizeof text) > 0 && strcmp(text, "true") == 0;
    ssize_t count = request->body_length > 0 ? work_write(work, request->body, request->body_length) : 0;
    sandbox_used(sandbox);
    if (work->over || (count < 0 && count != -EAGAIN) || (work->input < 0 && request->body_length > 0)) {
        reply_problem(request, 409, "conflict", "the job has ended, or has no open input");
        return;
    }
    size_t taken = count > 0 ? (size_t)count : 0;
    if (taken < request->body_length) {
        char detail[128];
        snprintf(detail, sizeof detail, "the job has not read what it was sent before; %zu bytes were taken", taken);
        reply_busy(request, 429, "overloaded", 1, detail);
        return;
    }
    if (end)
        work_end_input(work);
    reply_text(request, 204, "text/plain", "", 0);
}

/* ---- events ---- */

struct reader { /* request->data */
    struct work_watcher watcher;
    struct work *work;
    struct http_request *request;
    uint64_t at[2];
};

static int write_event(struct reader *reader, const char *event, const char *id, json_t *data)
{
    hc_cleanup_free char *text = data != NULL ? hc_json_write(data, false) : NULL;
    struct hc_buf out = HC_BUF_INIT((size_t)EVENTS_PIECE * 8);
    json_decref(data);
    if (text == NULL)
        return -ENOMEM;
    hc_buf_printf(&out, "id: %s\nevent: %s\ndata: ", id, event);
    hc_buf_add_str(&out, text);
    hc_buf_add_str(&out, "\n\n");
    int result =
        hc_buf_status(&out) < 0 ? hc_buf_status(&out) : http_stream_write(reader->request, out.data, out.length);
    hc_buf_release(&out);
    return result;
}

static int tell_piece(struct reader *reader, int stream)
{
    struct piece piece = {.from = reader->at[stream]};
    piece.text = job_log_read(reader->work->log, stream, &piece.from, &piece.length);
    if (piece.text == NULL || piece.length == 0) {
        free(piece.text);
        return 0;
    }
    if (piece.length > EVENTS_PIECE)
        piece.length = EVENTS_PIECE;
    bool plain = hc_utf8_valid(piece.text, piece.length);
    for (size_t cut = 1; !plain && cut < 4 && cut < piece.length; cut++) /* a character may come in two pieces */
        if (hc_utf8_valid(piece.text, piece.length - cut)) {
            piece.length -= cut;
            plain = true;
        }
    reader->at[stream] = piece.from + piece.length;
    char id[64];
    snprintf(id, sizeof id, "%llu-%llu", (unsigned long long)reader->at[0], (unsigned long long)reader->at[1]);
    json_t *data =
        json_pack("{s:o, s:I}", plain ? "text" : "base64", piece_json(&piece, plain), "offset", (json_int_t)piece.from);
    free(piece.text);
    int result = write_event(reader, stream == 0 ? "stdout" : "stderr", id, data);
    return result < 0 ? result : 1;
}

static void reader_free(struct reader *reader)
{
    reader->request->on_gone = NULL;
    leave(reader->work);
    free(reader);
}

/* As much as the client takes at once; the rest when it has taken that. */
static void tell(struct reader *reader)
{
    struct http_request *request = reader->request;
    int told = 1;
    while (told > 0 && http_stream_pending(request) < (size_t)EVENTS_PIECE * 4) {
        told = tell_piece(reader, 0);
        if (told >= 0) {
            int more = tell_piece(reader, 1);
            told = more != 0 ? more : told;
        }
    }
    if (told != 0 || !reader->work->over)
        return; /* on_drained, or on_gone, goes on */
    json_t *object = work_json(reader->work);
    json_object_set_new(object, "result", result_of(reader->work));
    write_event(reader, "result", "end", object);
    reader_free(reader);
    http_stream_end(request);
}

static void on_more(struct work_watcher *watcher)
{
    tell((struct reader *)watcher);
}

static void on_drained(struct http_request *request)
{
    tell(request->data);
}

static void on_reader_gone(struct http_request *request)
{
    struct reader *reader = request->data;
    work_unwatch(reader->work, &reader->watcher);
    reader_free(reader);
}

/* "12-0": what had been told of each stream. */
static bool read_position(const char *text, unsigned long long *at)
{
    char *end;
    errno = 0;
    at[0] = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '-' || end[1] < '0' || end[1] > '9')
        return false;
    at[1] = strtoull(end + 1, &end, 10);
    return errno == 0 && *end == '\0' && text[0] >= '0' && text[0] <= '9';
}

void handle_job_events(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox;
    struct work *work = work_asked(gateway, request, match, &sandbox);
    unsigned long long at[2] = {0, 0};
    if (work == NULL)
        return;
    const char *last = http_header(request, "last-event-id");
    if (last != NULL && strcmp(last, "end") == 0) {
        reply_text(request, 204, "text/plain", "", 0);
        return;
    }
    if (last != NULL && strcmp(last, "start") != 0 && !read_position(last, at)) {
        reply_problem(request, 400, "invalid_request", "Last-Event-ID is no id of this stream");
        return;
    }
    struct reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    *reader = (struct reader){
        .watcher = {.written = on_more, .ended = on_more}, .work = work, .request = request, .at = {at[0], at[1]}};
    request->data = reader;
    request->on_gone = on_reader_gone;
    request->on_drained = on_drained;
    stay(work);
    reply_stream(request, 200, "text/event-stream");
    if (last == NULL)
        write_event(reader, "start", "start", json_pack("{s:s}", "id", work->fixture.id));
    if (!work->over)
        work_watch(work, &reader->watcher);
    tell(reader);
}
