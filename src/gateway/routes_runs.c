/*
 * Runs over HTTP: asked for (and waited for, streamed, or left alone), listed, looked at, ended. What always holds: a
 * tenant sees its own runs alone, and one that is not its own is not there (404); the operator's socket sees all.
 */
#include "base/fd.h"
#include "base/size.h"
#include "gateway/run_internal.h"
#include "run/isolation.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { RETRY_FAILURE = 5 }; /* seconds */

/* ---- failures ---- */

static void failure_text(const struct hc_err *err, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", err->message, err->remedy[0] != '\0' ? "; " : "", err->remedy);
}

void runs_reply_failure(struct http_request *request, const struct hc_err *err, unsigned retry_seconds)
{
    char detail[sizeof err->message + sizeof err->remedy + 4];
    failure_text(err, detail, sizeof detail);
    if (err->code == EAGAIN)
        reply_busy(request, 503, "overloaded", retry_seconds, detail);
    else if (err->code == EDQUOT)
        reply_busy(request, 429, "quota_exceeded", retry_seconds, detail);
    else
        reply_error(request, err);
}

char *run_failure_json(const struct hc_err *err)
{
    char detail[sizeof err->message + sizeof err->remedy + 4];
    int status = err->code == EAGAIN ? 503 : hc_class_info(err->class)->http_status;
    failure_text(err, detail, sizeof detail);
    hc_cleanup_json json_t *object = json_pack(
        "{s:s, s:s, s:i, s:o, s:s}", "type", "about:blank", "title", http_status_text(status), "status", status,
        "detail", hc_json_text_lossy(detail), "code", err->code == EAGAIN ? "overloaded" : "internal");
    return object != NULL ? hc_json_write(object, false) : NULL;
}

static void reply_no_memory(struct http_request *request)
{
    reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}

static void reply_unknown(struct http_request *request, const char *id)
{
    char detail[160];
    snprintf(detail, sizeof detail, "there is no run \"%.80s\"", id);
    reply_problem(request, 404, "not_found", detail);
}

/* Text that was made for this reply; NULL: there was no memory for it. */
static void reply_made(struct http_request *request, int status, char *text)
{
    if (text != NULL)
        reply_json(request, status, text);
    else
        reply_no_memory(request);
    free(text);
}

/* ---- POST /v1/runs ---- */

/* Who waits for a run: request->data. */
struct waiter {
    struct gateway *gateway;
    struct http_request *request;
    struct run *run;
    struct hc_timer *timer; /* ?wait= */
};

static void waiter_free(struct waiter *waiter)
{
    hc_timer_remove(waiter->timer);
    free(waiter);
}

static void on_waiter_gone(struct http_request *request)
{
    struct waiter *waiter = request->data;
    run_unwatch(waiter->run, waiter);
    waiter_free(waiter);
}

static void on_answer(void *data, struct run *run, const char *json)
{
    struct waiter *waiter = data;
    struct http_request *request = waiter->request;
    const struct hc_err *failure = run_failure(run);
    waiter_free(waiter);
    if (failure != NULL)
        runs_reply_failure(request, failure, RETRY_FAILURE);
    else
        reply_json(request, 200, json);
}

/* It is on disk: from here on it happens whether or not anybody is there. */
static void on_accepted(void *data, struct run *run)
{
    struct waiter *waiter = data;
    struct http_request *request = waiter->request;
    char location[80];
    snprintf(location, sizeof location, "/v1/runs/%s", run_id(run));
    http_add_header(request, "Location", location);
    run_unwatch(run, waiter);
    waiter_free(waiter);
    reply_made(request, 202, run_state_json(run));
}

/* RFC 7240: a list of preferences, each with parameters. */
static bool prefers_async(const struct http_request *request)
{
    static const char word[] = "respond-async";
    const char *at = http_header(request, "prefer");
    while (at != NULL && *at != '\0') {
        at += strspn(at, " \t,");
        size_t length = strcspn(at, ",; \t");
        if (length == sizeof word - 1 && strncasecmp(at, word, length) == 0)
            return true;
        at += strcspn(at, ",");
    }
    return false;
}

/* The request's object, checked for its shape. NULL: it has replied. */
static struct request *read_request(struct gateway *gateway, struct http_request *request)
{
    static const char *const known[] = {NULL};
    const struct caller *caller = request->context;
    char name[64], detail[128];
    if (http_query_unknown(request, known, name, sizeof name) != NULL) {
        snprintf(detail, sizeof detail, "there is no parameter \"%s\"", name);
        reply_problem(request, 400, "invalid_request", detail);
        return NULL;
    }
    if (!content_is_json(request)) { /* a page of another origin can send any other kind without asking first */
        runs_audit(gateway->runs, "request_refused", caller->tenant, NULL, "Content-Type is not application/json");
        reply_problem(request, 415, "invalid_request", "send Content-Type: application/json");
        return NULL;
    }
    struct hc_err err = {0};
    struct request *asked = request_new();
    int result = asked != NULL ? request_from_json(asked, request->body, request->body_length, &err)
                               : hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result == 0)
        result = run_unwrap(gateway, asked, &err);
    if (result == 0)
        return asked;
    runs_audit_refusal(gateway->runs, caller->tenant, &err);
    reply_error(request, &err);
    request_free(asked);
    return NULL;
}

static void drop_asked(struct request *asked, const struct run_options *options)
{
    request_free(asked);
    if (options->place != NULL)
        options->place->left(options->place->room.data);
}

static void start_streamed(struct gateway *gateway, struct http_request *request, struct request *asked,
                           const struct run_options *options)
{
    struct events_position position = {0};
    struct events_reader *reader = events_reader_new(gateway, request, &position);
    if (reader == NULL) {
        drop_asked(asked, options);
        reply_no_memory(request);
        return;
    }
    struct run_watcher watcher = events_reader_watcher(reader);
    struct run *run = NULL;
    struct hc_err err = {0};
    unsigned retry = 1;
    if (runs_start(gateway->runs, asked, options, &watcher, &run, &retry, &err) == 0) {
        events_reader_begin(reader, run);
        return;
    }
    events_reader_drop(reader);
    runs_reply_failure(request, &err, retry);
}

static void start_waited(struct gateway *gateway, struct http_request *request, struct request *asked,
                         const struct run_options *options)
{
    struct waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) {
        drop_asked(asked, options);
        reply_no_memory(request);
        return;
    }
    *waiter = (struct waiter){.gateway = gateway, .request = request};
    struct run_watcher watcher = {
        .data = waiter, .accepted = options->keep_going ? on_accepted : NULL, .ended = on_answer};
    struct hc_err err = {0};
    unsigned retry = 1;
    request->data = waiter;
    request->on_gone = on_waiter_gone;
    if (runs_start(gateway->runs, asked, options, &watcher, &waiter->run, &retry, &err) == 0)
        return;
    request->on_gone = NULL;
    waiter_free(waiter);
    runs_reply_failure(request, &err, retry);
}

/* A client that could do without this server says what the server must be. */
static bool is_as_expected(const struct gateway *gateway, const struct http_request *request)
{
    const char *expected = http_header(request, "hotcell-expect");
    bool full = (gateway->isolation & ISOLATION_ALL) == ISOLATION_ALL;
    return expected == NULL || strcmp(expected, "hotcell/" HC_VERSION) == 0 ||
           (full && strcmp(expected, "hotcell/" HC_VERSION " full") == 0);
}

void handle_run_create(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    if (!is_as_expected(gateway, request)) {
        reply_problem(request, 412, "conflict", "this server is another than Hotcell-Expect says");
        return;
    }
    struct request *asked = read_request(gateway, request);
    if (asked == NULL)
        return;
    bool prefers = prefers_async(request);
    struct run_options options = {
        .caller = *(const struct caller *)request->context,
        .keep_going = asked->async || prefers,
        .kind = "run",
        .request_text = request->body,
        .request_length = request->body_length,
    };
    if (prefers)
        http_add_header(request, "Preference-Applied", "respond-async");
    run_answer(gateway, request, asked, &options);
}

void run_answer(struct gateway *gateway, struct http_request *request, struct request *asked,
                const struct run_options *options)
{
    if (!options->keep_going && http_accepts(request, "text/event-stream"))
        start_streamed(gateway, request, asked, options);
    else
        start_waited(gateway, request, asked, options);
}

/* ---- one run, live or from the store ---- */

struct stored {
    int64_t created_at;
    char status[24], language[32], tenant[64];
    bool keep_going;
    char *result, *shape; /* result NULL: it has not ended */
};

static void stored_release(struct stored *stored)
{
    free(stored->result);
    free(stored->shape);
}

static int take_row(void *data, const struct run_row *row)
{
    struct stored *stored = data;
    *stored = (struct stored){.created_at = row->created_at, .keep_going = row->keep_going};
    memcpy(stored->status, row->status, sizeof stored->status);
    memcpy(stored->language, row->language, sizeof stored->language);
    memcpy(stored->tenant, row->tenant, sizeof stored->tenant);
    stored->result = row->result != NULL ? strndup(row->result, row->result_length) : NULL;
    stored->shape = row->shape != NULL ? strdup(row->shape) : NULL;
    return (row->result != NULL && stored->result == NULL) || (row->shape != NULL && stored->shape == NULL) ? -ENOMEM
                                                                                                            : 0;
}

/* True when it is there; otherwise it has replied. */
static bool find_stored(struct gateway *gateway, struct http_request *request, const char *id, struct stored *stored)
{
    const struct caller *caller = request->context;
    *stored = (struct stored){0};
    int found = store_run_get(gateway->store, caller->operator_ ? NULL : caller->tenant, id, take_row, stored);
    if (found > 0)
        return true;
    if (found == 0)
        reply_unknown(request, id);
    else
        reply_problem(request, 500, "internal", "the history cannot be read");
    stored_release(stored);
    return false;
}

static char *stored_state_json(const struct stored *stored, const char *id)
{
    char at[32];
    hc_cleanup_json json_t *object =
        json_pack("{s:s, s:s, s:o, s:b, s:s}", "id", id, "status", stored->status, "language",
                  stored->language[0] != '\0' ? json_string(stored->language) : json_null(), "async",
                  stored->keep_going, "created_at", run_time_text(stored->created_at, at, sizeof at));
    return object != NULL ? hc_json_write(object, false) : NULL;
}

/* What can be told of a live run now. */
static void reply_run(struct http_request *request, const struct run *run)
{
    const char *json = run_result_json(run);
    if (json != NULL)
        reply_json(request, 200, json);
    else if (run_has_ended(run))
        runs_reply_failure(request, run_failure(run), RETRY_FAILURE);
    else
        reply_made(request, 200, run_state_json(run));
}

/* ---- GET /v1/runs/{id} ---- */

static void on_look(void *data, struct run *run, const char *json)
{
    struct waiter *waiter = data;
    struct http_request *request = waiter->request;
    (void)json;
    waiter_free(waiter);
    reply_run(request, run);
}

static void on_wait_over(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct waiter *waiter = data;
    struct http_request *request = waiter->request;
    struct run *run = waiter->run;
    waiter->timer = NULL;
    run_unwatch(run, waiter);
    waiter_free(waiter);
    reply_run(request, run);
}

static void wait_for(struct gateway *gateway, struct http_request *request, struct run *run, uint64_t time)
{
    struct waiter *waiter = calloc(1, sizeof *waiter);
    struct run_watcher watcher = {.data = waiter, .ended = on_look};
    if (waiter == NULL || run_watch(run, &watcher) < 0) {
        free(waiter);
        reply_no_memory(request);
        return;
    }
    *waiter = (struct waiter){.gateway = gateway, .request = request, .run = run};
    waiter->timer = hc_loop_timer(gateway->loop, hc_now() + time, on_wait_over, waiter);
    request->data = waiter;
    request->on_gone = on_waiter_gone;
    if (waiter->timer == NULL)
        on_wait_over(gateway->loop, waiter);
}

/* µs; 0: not asked for. -EINVAL: it has replied. */
static int read_wait(struct gateway *gateway, struct http_request *request, uint64_t *wait)
{
    static const char *const known[] = {"wait", NULL};
    char text[64], detail[160];
    *wait = 0;
    if (http_query_unknown(request, known, text, sizeof text) != NULL) {
        snprintf(detail, sizeof detail, "there is no parameter \"%s\"; there is wait", text);
        reply_problem(request, 400, "invalid_request", detail);
        return -EINVAL;
    }
    int given = http_query_value(request, "wait", text, sizeof text);
    struct hc_err err = {0};
    double seconds = 0;
    if (given < 0 || (given > 0 && hc_parse_decimal(text, 0, 1e6, &seconds, &err) < 0)) {
        snprintf(detail, sizeof detail, "wait is a number of seconds, such as wait=30%s%s%s",
                 given > 0 ? "; found \"" : ", given once", given > 0 ? text : "", given > 0 ? "\"" : "");
        reply_problem(request, 400, "invalid_request", detail);
        return -EINVAL;
    }
    *wait = (uint64_t)(seconds * 1e6);
    if (*wait > gateway->config->server.wait_time)
        *wait = gateway->config->server.wait_time;
    return 0;
}

void handle_run_get(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *id = route_value(match, "id");
    uint64_t wait;
    if (read_wait(gateway, request, &wait) < 0)
        return;
    struct run *run = runs_find(gateway->runs, request->context, id);
    if (run != NULL && !run_has_ended(run) && wait > 0) {
        wait_for(gateway, request, run, wait);
        return;
    }
    if (run != NULL) {
        reply_run(request, run);
        return;
    }
    struct stored stored;
    if (!find_stored(gateway, request, id, &stored))
        return;
    if (stored.result != NULL)
        reply_json(request, 200, stored.result);
    else
        reply_made(request, 200, stored_state_json(&stored, id));
    stored_release(&stored);
}

/* ---- DELETE /v1/runs/{id} ---- */

void handle_run_cancel(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *id = route_value(match, "id");
    struct run *run = runs_find(gateway->runs, request->context, id);
    if (run != NULL && run->state < RUN_SAVING) {
        char *state = run_state_json(run);
        run_cancel(run, "cancelled by request");
        reply_made(request, 202, state);
        return;
    }
    struct stored stored = {0};
    if (run == NULL && !find_stored(gateway, request, id, &stored))
        return;
    stored_release(&stored);
    reply_problem(request, 409, "conflict", "the run has ended already");
}

/* ---- GET /v1/runs/{id}/report ---- */

static void reply_report(struct http_request *request, const struct report_source *source)
{
    bool markdown = http_accepts(request, "text/markdown"), plain = http_accepts(request, "text/plain");
    struct hc_err err = {0};
    hc_cleanup_free char *text = report_make(source, markdown || plain, &err);
    if (text == NULL)
        reply_error(request, &err);
    else if (markdown || plain)
        reply_text(request, 200, markdown ? "text/markdown; charset=utf-8" : "text/plain; charset=utf-8", text,
                   strlen(text));
    else
        reply_json(request, 200, text);
}

void handle_run_report(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *id = route_value(match, "id");
    struct run *run = runs_find(gateway->runs, request->context, id);
    if (run != NULL && run_result_json(run) != NULL) {
        const struct report_source source = {run_result_json(run), run->shape, gateway->store, run->row.tenant};
        reply_report(request, &source);
        return;
    }
    if (run != NULL && run_has_ended(run)) {
        runs_reply_failure(request, run_failure(run), RETRY_FAILURE);
        return;
    }
    struct stored stored = {0};
    if (run == NULL && !find_stored(gateway, request, id, &stored))
        return;
    if (stored.result == NULL)
        reply_problem(request, 409, "conflict", "the run has not ended: there is nothing to report yet");
    else
        reply_report(request, &(struct report_source){stored.result, stored.shape, gateway->store, stored.tenant});
    stored_release(&stored);
}
