/*
 * See speak.h. What always holds: a call is recorded in the history like a run, under an id of its own; a client that
 * hangs up interrupts its call, and the program keeps its state.
 */
#include "gateway/speak.h"

#include "base/fd.h"
#include "base/log.h"
#include "gateway/events.h"
#include "gateway/run_internal.h"
#include "text/base64.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct asking { /* request->data */
    struct gateway *gateway;
    struct http_request *request; /* NULL: it has hung up */
    struct call *call;
    bool streams;
    uint64_t memory; /* held: budget.h */
    uint64_t offset[2], events;
    char id[40], sandbox[40], tenant[64], language[32], version[64], speaker[80];
    bool session;
    uint64_t number; /* of the call, among the speaker's */
    int64_t created_at;
    uint64_t begun;
    uint32_t isolation;
    char *metadata;
    size_t code_length;
};

/* ---- what is asked ---- */

static bool fail_field(struct http_request *request, const char *field, const char *text)
{
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "%s %s", field, text);
    hc_err_field(&err, "%s", field);
    reply_error(request, &err);
    return false;
}

static bool read_limit(struct http_request *request, const json_t *body, enum limit_id id, const char *field,
                       const struct config *config, uint64_t *value)
{
    struct hc_err err = {0};
    const json_t *given = json_object_get(body, field);
    int result = 0;
    if (given == NULL || json_is_null(given))
        return true;
    if (json_is_string(given))
        result = limit_parse(id, json_string_value(given), value, &err);
    else if (json_is_number(given))
        result = limit_from_number(id, json_number_value(given), value, &err);
    else
        return fail_field(request, field, "must be a number, or a text such as \"10s\" or \"1m\"");
    if (result == 0 && config->ceilings.set[id] && *value > config->ceilings.value[id])
        return fail_field(request, field, "is more than this server allows");
    if (result == 0)
        return true;
    hc_err_field(&err, "%s", field);
    reply_error(request, &err);
    return false;
}

bool speak_order(struct gateway *gateway, struct http_request *request, const struct sandbox *sandbox,
                 const json_t *body, struct speak_order *order)
{
    const json_t *input = json_object_get(body, "stdin"), *metadata = json_object_get(body, "metadata");
    uint64_t cap = sandbox->limits.value[LIMIT_OUTPUT];
    order->time = sandbox->limits.value[LIMIT_TIMEOUT];
    if (!read_limit(request, body, LIMIT_TIMEOUT, "timeout", gateway->config, &order->time) ||
        !read_limit(request, body, LIMIT_OUTPUT, "output", gateway->config, &cap))
        return false;
    order->cap = (size_t)cap;
    if (input != NULL && !json_is_null(input) && !json_is_string(input))
        return fail_field(request, "stdin", "must be a text");
    order->input = json_is_string(input) ? json_string_value(input) : "";
    order->input_length = json_is_string(input) ? json_string_length(input) : 0;
    if (metadata != NULL && !json_is_null(metadata) && !json_is_object(metadata))
        return fail_field(request, "metadata", "must be an object");
    order->metadata = json_is_object(metadata) ? hc_json_write(metadata, false) : NULL;
    return true;
}

/* ---- the answer ---- */

static json_t *stream_json(const struct capture *capture, bool plain)
{
    size_t length = 0;
    hc_cleanup_free char *text = capture_text(capture, &length);
    if (text == NULL)
        return json_null();
    if (plain)
        return json_stringn(text, length);
    hc_cleanup_free char *encoded = hc_base64_encode(text, length, NULL);
    return encoded != NULL ? json_string(encoded) : json_null();
}

static bool is_plain(const struct capture *capture)
{
    size_t length = 0;
    hc_cleanup_free char *text = capture_text(capture, &length);
    return text != NULL && hc_utf8_valid(text, length);
}

static json_t *metadata_json(const struct asking *asking)
{
    json_t *metadata = NULL;
    const char *text = asking->metadata;
    return text != NULL && hc_json_read(text, strlen(text), 64, &metadata, NULL) == 0 ? metadata : json_object();
}

static void put_about(json_t *object, const struct asking *asking, const struct call_outcome *outcome)
{
    char at[40];
    json_object_set_new(object, asking->session ? "session" : "context", json_string(asking->speaker));
    json_object_set_new(object, asking->session ? "session_state" : "context_state",
                        json_string(!outcome->alive   ? "ended"
                                    : asking->session ? "alive"
                                                      : "idle"));
    if (!asking->session) {
        json_object_set_new(object, "execution", json_integer((json_int_t)asking->number));
        json_object_set(object, "results", outcome->results);
        json_object_set_new(object, "error", outcome->error != NULL ? json_incref(outcome->error) : json_null());
    }
    json_object_set_new(object, "language", json_string(asking->language));
    json_object_set_new(object, "language_version", json_string(asking->version));
    json_object_set_new(object, "usage", json_pack("{s:f}", "wall_ms", (double)outcome->took / 1000));
    json_object_set_new(object, "timing",
                        json_pack("{s:s, s:f, s:f, s:f}", "start", "warm", "queue_ms", 0.0, "run_ms",
                                  (double)outcome->took / 1000, "total_ms", (double)(hc_now() - asking->begun) / 1000));
    json_object_set_new(object, "created_at", json_string(sandbox_time_text(asking->created_at, at, sizeof at)));
    json_object_set_new(object, "metadata", metadata_json(asking));
}

static json_t *answer_json(const struct asking *asking, const struct call_outcome *outcome)
{
    bool plain = is_plain(&outcome->out) && is_plain(&outcome->err);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:b, s:i, s:o, s:b, s:o, s:o, s:s, s:{s:I, s:I}}", "id", asking->id, "sandbox",
        asking->sandbox, "status", run_status_word(outcome->status), "success", outcome->status == RUN_COMPLETED,
        "exit_code", outcome->exit_code, "signal", outcome->signal ? json_integer(outcome->signal) : json_null(),
        "timed_out", outcome->status == RUN_TIMEOUT, "stdout", stream_json(&outcome->out, plain), "stderr",
        stream_json(&outcome->err, plain), "output_encoding", plain ? "utf-8" : "base64", "truncated", "stdout",
        (json_int_t)capture_missing(&outcome->out), "stderr", (json_int_t)capture_missing(&outcome->err));
    if (object != NULL)
        put_about(object, asking, outcome);
    return object;
}

/* ---- the record ---- */

static void record(const struct asking *asking, const struct call_outcome *outcome, const char *json)
{
    struct gateway *gateway = asking->gateway;
    char shape[128];
    snprintf(shape, sizeof shape, "{\"language\":\"%s\",\"code_bytes\":%zu}", asking->language, asking->code_length);
    struct run_row row = {.exit_code = outcome->exit_code,
                          .created_at = asking->created_at,
                          .started_at = asking->created_at,
                          .ended_at = run_time_now(),
                          .wall_us = outcome->took,
                          .shape = shape,
                          .result = json,
                          .result_length = strlen(json)};
    snprintf(row.id, sizeof row.id, "%s", asking->id);
    snprintf(row.tenant, sizeof row.tenant, "%s", asking->tenant);
    snprintf(row.kind, sizeof row.kind, "%s", asking->session ? "session" : "context");
    snprintf(row.language, sizeof row.language, "%s", asking->language);
    snprintf(row.status, sizeof row.status, "%s", run_status_word(outcome->status));
    int result = store_run_finish(gateway->store, &row, NULL, NULL);
    if (result < 0)
        hc_log(HC_LOG_ERROR, "run id=%s could not be recorded: %s", asking->id, strerror(-result));
    const struct hc_log_field fields[] = {{"id", asking->id, 0},
                                          {"kind", row.kind, 0},
                                          {"tenant", asking->tenant, 0},
                                          {"sandbox", asking->sandbox, 0},
                                          {"language", asking->language, 0},
                                          {"status", row.status, 0},
                                          {"exit_code", NULL, outcome->exit_code},
                                          {"wall_ms", NULL, (double)outcome->took / 1000}};
    hc_log_event(HC_LOG_INFO, "run", fields, sizeof fields / sizeof *fields);
}

/* ---- events ---- */

static void write_event(struct asking *asking, const char *event, json_t *data)
{
    hc_cleanup_free char *text = data != NULL ? hc_json_write(data, false) : NULL;
    json_decref(data);
    if (text == NULL || asking->request == NULL)
        return;
    char head[96];
    int length =
        snprintf(head, sizeof head, "id: %llu\nevent: %s\ndata: ", (unsigned long long)asking->events++, event);
    if (http_stream_write(asking->request, head, (size_t)length) == 0 &&
        http_stream_write(asking->request, text, strlen(text)) == 0)
        http_stream_write(asking->request, "\n\n", 2);
}

static void on_output(void *data, int stream, const char *bytes, size_t length)
{
    struct asking *asking = data;
    if (!asking->streams)
        return;
    bool plain = hc_utf8_valid(bytes, length);
    hc_cleanup_free char *encoded = plain ? NULL : hc_base64_encode(bytes, length, NULL);
    json_t *text = plain ? json_stringn(bytes, length) : json_string(encoded != NULL ? encoded : "");
    write_event(asking, stream == 0 ? "stdout" : "stderr",
                json_pack("{s:o, s:I}", plain ? "text" : "base64", text, "offset", (json_int_t)asking->offset[stream]));
    asking->offset[stream] += length;
}

static void on_display(void *data, const json_t *entry)
{
    struct asking *asking = data;
    if (asking->streams)
        write_event(asking, "display", json_incref((json_t *)entry));
}

static bool on_holds(void *data, uint64_t bytes)
{
    struct asking *asking = data;
    return budget_hold(&asking->gateway->results, &asking->memory, bytes * 3);
}

static void on_ended(void *data, struct call_outcome *outcome)
{
    struct asking *asking = data;
    struct http_request *request = asking->request;
    json_t *object = answer_json(asking, outcome);
    hc_cleanup_free char *text = object != NULL ? hc_json_write(object, false) : NULL;
    if (text != NULL)
        record(asking, outcome, text);
    if (request != NULL)
        request->on_gone = NULL;
    if (request != NULL && asking->streams) {
        write_event(asking, "result", HC_TAKE_PTR(object));
        http_stream_end(request);
    } else if (request != NULL && text != NULL) {
        reply_json(request, 200, text);
    } else if (request != NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
    }
    json_decref(object);
    budget_hold(&asking->gateway->results, &asking->memory, 0);
    free(asking->metadata);
    free(asking);
}

static void on_gone(struct http_request *request)
{
    struct asking *asking = request->data;
    asking->request = NULL;
    call_cancel(asking->call);
}

/* ---- making it ---- */

static struct asking *asking_new(struct gateway *gateway, struct http_request *request, const struct speaker *speaker,
                                 struct speak_order *order)
{
    const struct caller *caller = request->context;
    struct asking *asking = calloc(1, sizeof *asking);
    if (asking == NULL)
        return NULL;
    *asking = (struct asking){.gateway = gateway,
                              .request = request,
                              .streams = http_accepts(request, "text/event-stream"),
                              .session = speaker->fixture.kind == &session_kind,
                              .number = speaker->calls + 1,
                              .created_at = run_time_now(),
                              .begun = request->received_at,
                              .code_length = order->code_length};
    asking->metadata = HC_TAKE_PTR(order->metadata);
    snprintf(asking->sandbox, sizeof asking->sandbox, "%s", speaker->fixture.sandbox->id);
    snprintf(asking->tenant, sizeof asking->tenant, "%s", caller->tenant);
    snprintf(asking->language, sizeof asking->language, "%s", speaker->language);
    snprintf(asking->version, sizeof asking->version, "%s", speaker->version);
    snprintf(asking->speaker, sizeof asking->speaker, "%.79s", speaker->name ? speaker->name : speaker->fixture.id);
    if (result_id(asking->id, sizeof asking->id, asking->created_at) < 0) {
        free(asking->metadata);
        free(asking);
        return NULL;
    }
    return asking;
}

void speak(struct gateway *gateway, struct http_request *request, struct speaker *speaker, struct speak_order *order)
{
    struct hc_err err = {0};
    struct asking *asking = asking_new(gateway, request, speaker, order);
    free(HC_TAKE_PTR(order->metadata));
    if (asking == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    struct call_events events = {
        .data = asking, .output = on_output, .display = on_display, .holds = on_holds, .ended = on_ended};
    if (speaker_call(speaker, order->code, order->code_length, order->input, order->input_length, order->time,
                     order->cap, &events, &asking->call, &err) < 0) {
        free(asking->metadata);
        free(asking);
        reply_error(request, &err);
        return;
    }
    request->data = asking;
    request->on_gone = on_gone;
    if (asking->streams) {
        reply_stream(request, 200, "text/event-stream");
        write_event(asking, "start", json_pack("{s:s}", "id", asking->id));
    }
}
