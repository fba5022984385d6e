/*
 * The life of sandboxes over HTTP: made, listed, looked at, paused, kept, ended. What always holds: a tenant sees its
 * own alone, and another's is not there (404); the operator's socket sees all.
 */
#include "base/fd.h"
#include "base/log.h"
#include "gateway/run_internal.h"
#include "gateway/sandboxes.h"
#include "gateway/volumes.h"
#include "run/isolation.h"
#include "sandbox/errand.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_DEPTH = 32, NAME_LONGEST = 64 };
#define DISK_TIME (5 * 1000000ULL)

/* ---- what the route files share ---- */

struct sandbox *sandbox_asked(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const struct caller *caller = request->context;
    const char *id = route_value(match, "id");
    struct sandbox *sandbox = sandboxes_find(gateway->sandboxes, caller->operator_ ? NULL : caller->tenant, id);
    if (sandbox != NULL && sandbox->state != SANDBOX_CREATING)
        return sandbox;
    if (sandbox != NULL && sandbox->recovered > 0) {
        reply_busy(request, 503, "overloaded", 1, "the sandbox is being made anew");
        return NULL;
    }
    char detail[160];
    snprintf(detail, sizeof detail, "there is no sandbox \"%.80s\"", id);
    if (!sandboxes_ready(gateway->sandboxes))
        reply_busy(request, 503, "overloaded", 1, "the server is starting");
    else
        reply_problem(request, 404, "not_found", detail);
    return NULL;
}

json_t *sandbox_body(struct http_request *request)
{
    json_t *body = NULL;
    struct hc_err err = {0};
    if (request->body_length == 0)
        return json_object();
    if (!content_is_json(request)) {
        reply_problem(request, 415, "invalid_request", "send Content-Type: application/json");
        return NULL;
    }
    if (hc_json_read(request->body, request->body_length, BODY_DEPTH, &body, &err) < 0) {
        reply_error(request, &err);
        return NULL;
    }
    if (!json_is_object(body)) {
        json_decref(body);
        reply_problem(request, 400, "invalid_request", "the request must be a JSON object");
        return NULL;
    }
    return body;
}

bool sandbox_body_knows(struct http_request *request, const json_t *body, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)body, key, value)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] != NULL)
            continue;
        struct hc_err err = {0};
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "unknown field \"%.64s\"", key);
        hc_err_field(&err, "%.60s", key);
        char list[160] = "";
        size_t length = 0;
        for (i = 0; known[i] != NULL && length < sizeof list; i++)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i > 0 ? ", " : "", known[i]);
        hc_err_remedy(&err, "this takes %s", list);
        reply_error(request, &err);
        return false;
    }
    return true;
}

const char *sandbox_text(struct http_request *request, const json_t *body, const char *field, bool *bad)
{
    const json_t *value = json_object_get(body, field);
    if (value == NULL || json_is_null(value))
        return NULL;
    if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
        return json_string_value(value);
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "%s must be a text without NUL", field);
    hc_err_field(&err, "%s", field);
    reply_error(request, &err);
    *bad = true;
    return NULL;
}

int sandbox_check_name(const char *field, const char *name, struct hc_err *err)
{
    size_t length = strlen(name);
    bool good = length >= 1 && length <= NAME_LONGEST && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    for (size_t i = 0; i < length; i++)
        good = good && name[i] != '/' && (unsigned char)name[i] >= 0x20 && name[i] != 0x7f;
    if (good)
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s cannot be \"%.80s\"", field, name);
    hc_err_field(err, "%s", field);
    return hc_err_remedy(err, "give 1 to %d bytes without \"/\" and control characters, and not \".\" or \"..\"",
                         NAME_LONGEST);
}

void sandbox_reply(struct http_request *request, int status, json_t *object)
{
    hc_cleanup_free char *text = object != NULL ? hc_json_write(object, false) : NULL;
    json_decref(object);
    if (text != NULL)
        reply_json(request, status, text);
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}

/* ---- one as JSON ---- */

static json_t *isolation_json(uint32_t layers)
{
    json_t *list = json_array();
    for (unsigned bit = 0; bit < ISOLATION_LAYERS; bit++)
        if (layers & 1U << bit)
            json_array_append_new(list, json_string(isolation_layer_words[bit]));
    bool full = (layers & ISOLATION_ALL) == ISOLATION_ALL;
    return json_pack("{s:s, s:o}", "level", full ? "full" : "weak", "layers", list);
}

static json_t *describe(const struct gateway *gateway, const struct http_request *request,
                        const struct sandbox *sandbox)
{
    const struct caller *caller = request->context;
    json_t *object = sandbox_json(sandbox);
    if (object == NULL)
        return NULL;
    if (caller->operator_)
        json_object_set_new(object, "tenant", json_string(sandbox->tenant));
    json_object_set_new(object, "isolation", isolation_json(gateway->isolation));
    return object;
}

/* ---- POST /v1/sandboxes ---- */

struct creation { /* request->data */
    struct gateway *gateway;
    struct http_request *request;
    struct sandbox *sandbox;
};

static void on_creator_gone(struct http_request *request)
{
    struct creation *creation = request->data;
    sandbox_unwatch(creation->sandbox);
    free(creation);
}

static void on_created(void *data, struct sandbox *sandbox, const struct hc_err *err)
{
    struct creation creation = *(struct creation *)data;
    free(data);
    creation.request->on_gone = NULL;
    if (err != NULL) {
        reply_error(creation.request, err);
        return;
    }
    char location[80];
    snprintf(location, sizeof location, "/v1/sandboxes/%s", sandbox->id);
    http_add_header(creation.request, "Location", location);
    sandbox_reply(creation.request, 201, describe(creation.gateway, creation.request, sandbox));
}

void handle_sandbox_create(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    const struct caller *caller = request->context;
    struct hc_err err = {0};
    if (request->body_length > 0 && !content_is_json(request)) {
        reply_problem(request, 415, "invalid_request", "send Content-Type: application/json");
        return;
    }
    if (gateway->draining) {
        reply_busy(request, 503, "overloaded", 5, "the server is stopping");
        return;
    }
    struct creation *creation = malloc(sizeof *creation);
    if (creation == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    *creation = (struct creation){.gateway = gateway, .request = request};
    const char *order = request->body_length > 0 ? request->body : "{}";
    if (sandbox_create(gateway->sandboxes, caller->tenant, order, strlen(order), on_created, creation,
                       &creation->sandbox, &err) == 0) {
        request->data = creation;
        request->on_gone = on_creator_gone;
        return;
    }
    free(creation);
    runs_audit_refusal(gateway->runs, caller->tenant, &err);
    reply_error(request, &err);
}

/* ---- made anew ---- */

static void on_recoverer_gone(struct http_request *request)
{
    struct creation *creation = request->data;
    sandbox_unwatch(creation->sandbox);
    free(creation);
}

static void on_recovered(void *data, struct sandbox *sandbox, const struct hc_err *err)
{
    char lost[24];
    struct creation creation = *(struct creation *)data;
    free(data);
    creation.request->on_gone = NULL;
    creation.request->data = NULL;
    if (err != NULL) {
        reply_error(creation.request, err);
        return;
    }
    http_add_header(creation.request, "Hotcell-Recovered", "true");
    snprintf(lost, sizeof lost, "%" PRIu64, sandbox->lost);
    if (sandbox->lost > 0)
        http_add_header(creation.request, "Hotcell-Skipped", lost);
    gateway_handle(creation.gateway, creation.request);
}

struct sandbox *sandbox_for_work(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct hc_err err = {0};
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL || sandbox_box(sandbox, &err) != NULL)
        return sandbox;
    struct creation *creation = sandbox->state == SANDBOX_FAILED && sandbox->recover ? malloc(sizeof *creation) : NULL;
    if (creation == NULL) {
        reply_error(request, &err);
        return NULL;
    }
    *creation = (struct creation){.gateway = gateway, .request = request, .sandbox = sandbox};
    hc_err_clear(&err);
    if (sandbox_recover(sandbox, on_recovered, creation, &err) < 0) {
        free(creation);
        reply_error(request, &err);
        return NULL;
    }
    request->data = creation;
    request->on_gone = on_recoverer_gone;
    return NULL;
}

/* ---- looking ---- */

/* "creating" as well, though none of those is shown: it is a word of the documents. */
static bool is_state(const char *word)
{
    for (enum sandbox_state state = SANDBOX_CREATING; state <= SANDBOX_STOPPING; state++)
        if (strcmp(sandbox_state_word(state), word) == 0)
            return true;
    return false;
}

void handle_sandbox_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    static const char *const known[] = {"state", NULL};
    const struct caller *caller = request->context;
    char name[64], state[16] = "", detail[128];
    if (http_query_unknown(request, known, name, sizeof name) != NULL ||
        http_query_value(request, "state", state, sizeof state) < 0) {
        snprintf(detail, sizeof detail, "the one parameter of this list is state, once");
        reply_problem(request, 400, "invalid_request", detail);
        return;
    }
    if (state[0] != '\0' && !is_state(state)) {
        snprintf(detail, sizeof detail, "state cannot be \"%s\"; it is running, paused, failed or stopping", state);
        reply_problem(request, 400, "invalid_request", detail);
        return;
    }
    json_t *list = json_array();
    for (const struct sandbox *sandbox = sandboxes_first(gateway->sandboxes); sandbox != NULL; sandbox = sandbox->next)
        if ((caller->operator_ || strcmp(caller->tenant, sandbox->tenant) == 0) && sandbox->state != SANDBOX_CREATING &&
            (state[0] == '\0' || strcmp(state, sandbox_state_word(sandbox->state)) == 0))
            json_array_append_new(list, describe(gateway, request, sandbox));
    const struct sandboxes_config *settings = &gateway->config->sandboxes;
    uint64_t limit = settings->max_per_tenant && !caller->operator_ ? settings->max_per_tenant : settings->max;
    sandbox_reply(request, 200,
                  json_pack("{s:o, s:I, s:I}", "sandboxes", list, "count", (json_int_t)json_array_size(list), "limit",
                            (json_int_t)limit));
}

struct look { /* request->data: who waits for the usage of one */
    struct gateway *gateway;
    struct http_request *request;
    struct sandbox *sandbox;
    struct errand *errand;
    json_t *object, *usage;
};

static void look_answer(struct look *look)
{
    struct http_request *request = look->request;
    json_t *object = look->object;
    request->on_gone = NULL;
    json_object_set_new(object, "usage", look->usage != NULL ? look->usage : json_null());
    sandbox_leave(look->sandbox);
    free(look);
    sandbox_reply(request, 200, object);
}

static void on_look_gone(struct http_request *request)
{
    struct look *look = request->data;
    if (look->errand != NULL)
        errand_drop(look->errand, -1);
    else if (look->sandbox->box != NULL)
        box_unask(look->sandbox->box, look);
    json_decref(look->object);
    json_decref(look->usage);
    sandbox_leave(look->sandbox);
    free(look);
}

static void on_disk(void *data, const json_t *head, const struct hc_err *err)
{
    (void)err;
    struct look *look = data;
    static const char *const fields[] = {"used", "limit", "inodes", "inodes_limit"};
    json_t *disk = json_object();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *value = json_object_get(head, fields[i]);
        json_object_set(disk, fields[i], json_is_integer(value) ? value : json_null());
    }
    json_object_set_new(look->usage, "disk", disk);
}

static void on_disk_ended(void *data, bool whole)
{
    (void)whole;
    struct look *look = data;
    look->errand = NULL;
    look_answer(look);
}

static bool ask_disk(struct look *look)
{
    struct words words = {0};
    struct hc_err err = {0};
    struct errand_events events = {.data = look, .head = on_disk, .ended = on_disk_ended, .looks = true};
    int result = words_add(&words, "disk");
    if (result == 0)
        result = errand_start(look->sandbox, &words, -1, -1, DISK_TIME, &events, &look->errand, &err);
    words_release(&words);
    return result == 0;
}

static void on_usage(void *data, const struct warden_message *message)
{
    struct look *look = data;
    const struct sandbox *sandbox = look->sandbox;
    uint64_t now = hc_now();
    if (message->err.code) { /* it is going */
        look_answer(look);
        return;
    }
    look->usage = json_pack(
        "{s:I, s:I, s:f, s:I, s:n, s:{s:i, s:i}, s:f, s:f}", "memory", (json_int_t)message->usage.memory, "memory_peak",
        (json_int_t)message->usage.memory_peak, "cpu_ms", (double)message->usage.cpu / 1000, "pids",
        (json_int_t)(message->usage.pids > 0 ? message->usage.pids - 1 : 0), "disk", "network", "received", 0, "sent",
        0, "age_s", (double)(now - sandbox->created_clock) / 1e6, "idle_s",
        sandbox->holds <= 1 && fixture_count(sandbox, "job") == 0 ? (double)(now - sandbox->used_clock) / 1e6 : 0.0);
    if (sandbox->state != SANDBOX_RUNNING || look->usage == NULL || !ask_disk(look))
        look_answer(look);
}

void handle_sandbox_get(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    json_t *object = describe(gateway, request, sandbox);
    struct look *look = object != NULL && sandbox->box != NULL ? calloc(1, sizeof *look) : NULL;
    if (look == NULL) {
        if (object != NULL)
            json_object_set_new(object, "usage", json_null());
        sandbox_reply(request, 200, object);
        return;
    }
    *look = (struct look){.gateway = gateway, .request = request, .sandbox = sandbox, .object = object};
    if (box_ask_usage(sandbox->box, on_usage, look) < 0) {
        free(look);
        sandbox_reply(request, 200, object);
        return;
    }
    sandbox_stay(sandbox);
    request->data = look;
    request->on_gone = on_look_gone;
}

/* ---- changing ---- */

void handle_sandbox_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    sandbox_delete(sandbox, "sandbox_deleted", NULL);
    reply_text(request, 204, "text/plain", "", 0);
}

static void on_pauser_gone(struct http_request *request)
{
    struct creation *creation = request->data;
    creation->request = NULL; /* freed when the warden has answered */
}

static void on_paused(void *data, const struct warden_message *message)
{
    struct creation creation = *(struct creation *)data;
    free(data);
    if (creation.request == NULL)
        return;
    creation.request->on_gone = NULL;
    if (message->err.code)
        reply_error(creation.request, &message->err);
    else
        sandbox_reply(creation.request, 200, describe(creation.gateway, creation.request, creation.sandbox));
}

static void pause_or_resume(struct gateway *gateway, struct http_request *request, const struct route_match *match,
                            bool on)
{
    struct hc_err err = {0};
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    struct creation *pausing = malloc(sizeof *pausing);
    if (pausing == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    *pausing = (struct creation){.gateway = gateway, .request = request, .sandbox = sandbox};
    request->data = pausing;
    request->on_gone = on_pauser_gone;
    if (sandbox_pause(sandbox, on, on_paused, pausing, &err) == 0)
        return;
    request->on_gone = NULL;
    free(pausing);
    reply_error(request, &err);
}

void handle_sandbox_pause(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    pause_or_resume(gateway, request, match, true);
}

void handle_sandbox_resume(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    pause_or_resume(gateway, request, match, false);
}

void handle_sandbox_keepalive(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    sandbox_used(sandbox);
    sandbox_reply(request, 200, describe(gateway, request, sandbox));
}

/* ---- events ---- */

static void on_changed(void *data, const struct sandbox *sandbox, const char *event, const char *why)
{
    struct gateway *gateway = data;
    const struct hc_log_field fields[] = {{"id", sandbox->id, 0},
                                          {"tenant", sandbox->tenant, 0},
                                          {"state", sandbox_state_word(sandbox->state), 0},
                                          {"why", why != NULL ? why : "", 0}};
    hc_log_event(HC_LOG_INFO, event, fields, why != NULL ? 4 : 3);
    if (gateway->audit == NULL)
        return;
    /* Not by runs_audit, which leaves out what comes too fast: each change of a sandbox's state is written down. */
    hc_cleanup_json json_t *detail =
        json_pack("{s:s, s:o}", "sandbox", sandbox->id, "reason", hc_json_text_lossy(why != NULL ? why : ""));
    hc_cleanup_free char *text = detail != NULL ? hc_json_write(detail, false) : NULL;
    int result = audit_add(gateway->audit, event, sandbox->tenant, NULL, text);
    if (result < 0)
        hc_log(HC_LOG_ERROR, "audit: %s was not written: %s", event, strerror(-result));
}

static bool is_stopping(void *data)
{
    return ((const struct gateway *)data)->draining;
}

static void on_calls(void *data, const struct sandbox *sandbox, const char *job, const struct reported *calls)
{
    const struct gateway *gateway = data;
    runs_audit_calls(gateway->runs, sandbox->tenant, NULL, sandbox->id, job, calls);
}

int gateway_sandboxes_new(struct gateway *gateway, struct hc_err *err)
{
    struct sandboxes_events events = {
        .data = gateway, .changed = on_changed, .stopping = is_stopping, .calls = on_calls};
    volumes_for_sandboxes(&events);
    gateway->sandboxes = sandboxes_new(gateway->loop, &events);
    if (gateway->sandboxes == NULL)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    sandboxes_configure(gateway->sandboxes, gateway->config);
    return 0;
}
