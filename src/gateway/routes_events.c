/*
 * Streams of events: of a run while it goes on, of one that is over, of one that only the store remembers. A reader is
 * told no faster than it reads: what it has not been told yet is in the run or in the store, not in a buffer of its
 * own, so a slow reader costs nothing but its place in the stream, and a run does not wait for it.
 */
#include "base/fd.h"
#include "gateway/run_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AHEAD = 256 << 10, /* bytes that may wait for the client while there is more to tell */
    EVENT_LIMIT = 1 << 20,
    RESULT_PIECE = 64 << 10,
};
#define HEARTBEAT (15 * 1000000ULL) /* µs of silence after which a comment tells that the line is alive */

struct events_reader {
    struct gateway *gateway;
    struct http_request *request;
    struct run *run;          /* held; NULL: from the store */
    struct events_kept *kept; /* from the store */
    char *kept_result;
    char id[sizeof((struct run_row *)0)->id];
    struct events_position position;
    size_t result_told, result_length; /* bytes of the result's text */
    bool result_begun;
    bool begun, pumping;
    uint64_t written_at;
    struct hc_timer *timer;
};

struct events_reader *events_reader_new(struct gateway *gateway, struct http_request *request,
                                        const struct events_position *position)
{
    struct events_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return NULL;
    reader->gateway = gateway;
    reader->request = request;
    reader->position = *position;
    return reader;
}

void events_reader_drop(struct events_reader *reader)
{
    hc_timer_remove(reader->timer);
    if (reader->run != NULL)
        run_release(reader->run);
    events_kept_free(reader->kept);
    free(reader->kept_result);
    free(reader);
}

/* ---- writing ---- */

static int put(struct events_reader *reader, const char *text, size_t length)
{
    reader->written_at = hc_now();
    return http_stream_write(reader->request, text, length);
}

static void source_of(struct events_reader *reader, struct events_source *source)
{
    if (reader->run != NULL)
        run_shown_source(reader->run, source);
    else
        events_kept_source(reader->kept, reader->id, source);
}

/* The result is the last event: after it the stream ends, and the reader with it. It may be large, so it goes in
 * pieces. 1: there is more; 2: that was all. */
static int tell_result(struct events_reader *reader)
{
    const char *json = reader->run != NULL ? run_result_json(reader->run) : reader->kept_result;
    struct hc_buf head = HC_BUF_INIT(EVENT_LIMIT);
    if (!reader->result_begun) {
        reader->result_begun = true;
        if (json == NULL) { /* no result, and no id: a reader that comes back may find one */
            const struct hc_err *failure = run_failure(reader->run);
            hc_cleanup_free char *text = run_failure_json(failure);
            hc_buf_printf(&head, "event: error\ndata: %s", text != NULL ? text : "{}");
        } else {
            events_result_begin(&reader->position, &head);
            reader->result_length = strlen(json);
        }
    }
    size_t left = reader->result_length - reader->result_told;
    size_t piece = left < RESULT_PIECE ? left : RESULT_PIECE;
    if (piece > 0)
        hc_buf_add(&head, json + reader->result_told, piece);
    reader->result_told += piece;
    if (piece == left)
        hc_buf_add_str(&head, EVENTS_RESULT_END);
    int result = hc_buf_status(&head);
    if (result == 0)
        result = put(reader, head.data, head.length);
    hc_buf_release(&head);
    return result < 0 ? result : piece < left ? 1 : 2;
}

static void finish(struct events_reader *reader)
{
    struct http_request *request = reader->request;
    if (reader->run != NULL)
        run_unwatch(reader->run, reader);
    events_reader_drop(reader);
    http_stream_end(request);
}

/* One step. 1: there may be more; 0: nothing for now; 2: the end; negative: the client is gone, or there is no memory.
 */
static int step(struct events_reader *reader)
{
    if (reader->result_begun)
        return tell_result(reader);
    struct events_source source;
    source_of(reader, &source);
    struct hc_buf event = HC_BUF_INIT(EVENT_LIMIT);
    int result = events_next(&reader->position, &source, &event);
    if (result == 1) {
        int written = put(reader, event.data, event.length);
        result = written < 0 ? written : 1;
    } else if (result == 2) {
        result = tell_result(reader);
    }
    hc_buf_release(&event);
    return result;
}

static void pump(struct events_reader *reader)
{
    if (!reader->begun || reader->pumping)
        return;
    reader->pumping = true; /* a write may tell at once that it has drained */
    int result = 1;
    while (result == 1 && http_stream_pending(reader->request) < AHEAD)
        result = step(reader);
    reader->pumping = false;
    if (result == 2 || result == -ENOMEM)
        finish(reader);
    /* -EPIPE: on_gone follows, and frees it. */
}

/* ---- what happens to a reader ---- */

static void on_gone(struct http_request *request)
{
    struct events_reader *reader = request->data;
    if (reader->run != NULL)
        run_unwatch(reader->run, reader);
    events_reader_drop(reader);
}

static void on_drained(struct http_request *request)
{
    pump(request->data);
}

static void on_silence(struct hc_loop *loop, void *data)
{
    struct events_reader *reader = data;
    uint64_t now = hc_now();
    bool silent = now - reader->written_at >= HEARTBEAT;
    if (silent && !reader->result_begun)
        put(reader, ": still here\n\n", 14);
    reader->timer = hc_loop_timer(loop, (silent ? now : reader->written_at) + HEARTBEAT, on_silence, reader);
}

static void on_stage(void *data, struct run *run, const char *name, size_t index)
{
    (void)run, (void)name, (void)index;
    pump(data);
}

static void on_output(void *data, struct run *run, int stream, const char *bytes, size_t length, uint64_t offset)
{
    (void)run, (void)stream, (void)bytes, (void)length, (void)offset;
    pump(data);
}

static void on_ended(void *data, struct run *run, const char *json)
{
    (void)run, (void)json;
    pump(data);
}

struct run_watcher events_reader_watcher(struct events_reader *reader)
{
    return (struct run_watcher){.data = reader, .stage = on_stage, .output = on_output, .ended = on_ended};
}

static void begin(struct events_reader *reader)
{
    struct http_request *request = reader->request;
    http_add_header(request, "Cache-Control", "no-store");
    http_add_header(request, "X-Accel-Buffering", "no");
    request->data = reader;
    request->on_gone = on_gone;
    request->on_drained = on_drained;
    reply_stream(request, 200, "text/event-stream");
    reader->begun = true;
    static const char first[] = "retry: 2000\n\n";
    put(reader, first, sizeof first - 1);
    reader->timer = hc_loop_timer(reader->gateway->loop, hc_now() + HEARTBEAT, on_silence, reader);
    pump(reader);
}

void events_reader_begin(struct events_reader *reader, struct run *run)
{
    reader->run = run;
    run_hold(run);
    begin(reader);
}

/* ---- GET /v1/runs/{id}/events ---- */

/* 0, or it has replied. */
static int read_position(struct http_request *request, struct events_position *position)
{
    static const char *const known[] = {"last_event_id", NULL};
    char text[128], detail[256];
    if (http_query_unknown(request, known, text, sizeof text) != NULL) {
        snprintf(detail, sizeof detail, "there is no parameter \"%s\"; there is last_event_id", text);
        reply_problem(request, 400, "invalid_request", detail);
        return -EINVAL;
    }
    int given = http_query_value(request, "last_event_id", text, sizeof text);
    const char *header = http_header(request, "last-event-id");
    if (given == 0 && header != NULL)
        given = (size_t)snprintf(text, sizeof text, "%s", header) < sizeof text ? 1 : -EINVAL;
    if (given == 0 || (given == 1 && text[0] == '\0'))
        return 0;
    if (given < 0 || events_parse_id(text, position) < 0) {
        reply_problem(request, 400, "invalid_request",
                      "Last-Event-ID is not the id of an event; send one as it came, or none to begin at the start");
        return -EINVAL;
    }
    return 0;
}

/* 0, or it has replied. */
static int check_position(struct events_reader *reader)
{
    struct events_source source;
    source_of(reader, &source);
    if (!events_position_fits(&reader->position, &source)) {
        reply_problem(reader->request, 400, "invalid_request", "Last-Event-ID is not the id of an event of this run");
        return -EINVAL;
    }
    if (reader->position.phase == EVENTS_OVER) {
        /* There is nothing more, and an EventSource that gets this does not come back. */
        reply_text(reader->request, 204, "text/event-stream", "", 0);
        return -ENODATA;
    }
    return 0;
}

static int take_row(void *data, const struct run_row *row)
{
    struct events_reader *reader = data;
    if (row->result == NULL)
        return -EINPROGRESS;
    struct hc_err err = {0};
    memcpy(reader->id, row->id, sizeof reader->id);
    reader->kept_result = strndup(row->result, row->result_length);
    if (reader->kept_result == NULL)
        return -ENOMEM;
    return events_kept_new(row->log, row->log_length, row->result, row->result_length, &reader->kept, &err);
}

static void serve_stored(struct events_reader *reader, const struct caller *caller, const char *id)
{
    const char *tenant = caller->operator_ ? NULL : caller->tenant;
    int found = store_run_get(reader->gateway->store, tenant, id, take_row, reader);
    if (found == 0)
        reply_problem(reader->request, 404, "not_found", "there is no run with this id");
    else if (found < 0 || reader->kept == NULL)
        reply_problem(reader->request, 500, "internal", "the history of this run cannot be read");
    else if (check_position(reader) == 0) {
        begin(reader);
        return;
    }
    events_reader_drop(reader);
}

void handle_run_events(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *id = route_value(match, "id");
    const struct caller *caller = request->context;
    struct events_position position = {0};
    if (read_position(request, &position) < 0)
        return;
    if (request->method == HTTP_HEAD) {
        reply_text(request, 200, "text/event-stream", "", 0);
        return;
    }
    struct run *run = runs_find(gateway->runs, caller, id);
    struct events_reader *reader = events_reader_new(gateway, request, &position);
    if (reader == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    if (run == NULL) {
        serve_stored(reader, caller, id);
        return;
    }
    reader->run = run;
    run_hold(run);
    struct run_watcher watcher = events_reader_watcher(reader);
    if (check_position(reader) < 0) {
        events_reader_drop(reader);
    } else if (!run_has_ended(run) && run_watch(run, &watcher) < 0) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        events_reader_drop(reader);
    } else {
        begin(reader);
    }
}
