/*
 * Volumes over HTTP: made, listed, removed. What always holds: a tenant sees its own alone, and another's is not there
 * (404); the operator's socket lists all, and removes one of another tenant by ?tenant=.
 */
#include "base/fd.h"
#include "base/size.h"
#include "gateway/runs.h"
#include "gateway/sandboxes.h"
#include "gateway/volumes.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct volume_visit { /* request->data: who waits for the keeper */
    struct gateway *gateway;
    struct http_request *request; /* NULL: it has gone */
    struct serve_volume_facts facts;
};

static void on_visitor_gone(struct http_request *request)
{
    struct volume_visit *visit = request->data;
    visit->request = NULL; /* freed when the keeper has answered: what was asked is done all the same */
}

static void ask(struct gateway *gateway, struct http_request *request, enum serve_volume_act act,
                const struct serve_volume_facts *facts, volume_answer_fn answered)
{
    struct hc_err err = {0};
    struct volume_visit *visit = malloc(sizeof *visit);
    if (visit == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    *visit = (struct volume_visit){.gateway = gateway, .request = request, .facts = *facts};
    if (volume_ask(gateway, act, facts, answered, visit, &err) < 0) {
        free(visit);
        reply_error(request, &err);
        return;
    }
    request->data = visit;
    request->on_gone = on_visitor_gone;
}

/* NULL: nobody waits any more. */
static struct http_request *waiting(const struct volume_visit *visit)
{
    if (visit->request != NULL)
        visit->request->on_gone = NULL;
    return visit->request;
}

static json_t *volume_json(const struct gateway *gateway, const struct serve_volume_facts *facts, bool operator_)
{
    char time[40];
    json_int_t count = 0;
    for (const struct sandbox *sandbox = sandboxes_first(gateway->sandboxes); sandbox != NULL; sandbox = sandbox->next)
        count += sandbox_has_volume(sandbox, facts->tenant, facts->name);
    json_t *object = json_pack("{s:s, s:I, s:I, s:s, s:I}", "name", facts->name, "size", (json_int_t)facts->size,
                               "used", (json_int_t)facts->used, "created_at",
                               sandbox_time_text(facts->created_at, time, sizeof time), "sandboxes", count);
    if (object != NULL && operator_)
        json_object_set_new(object, "tenant", json_string(facts->tenant));
    return object;
}

/* ---- POST ---- */

static void on_created(void *data, const struct serve_volume *volume, int fd, const struct hc_err *err)
{
    (void)fd;
    struct volume_visit visit = *(struct volume_visit *)data;
    struct http_request *request = waiting(&visit);
    free(data);
    if (err == NULL)
        runs_audit(visit.gateway->runs, "volume_created", visit.facts.tenant, NULL, visit.facts.name);
    if (request == NULL)
        return;
    if (err != NULL) {
        runs_audit_refusal(visit.gateway->runs, visit.facts.tenant, err);
        reply_error(request, err);
        return;
    }
    const struct caller *caller = request->context;
    char location[80];
    snprintf(location, sizeof location, "/v1/volumes/%s", volume->facts.name);
    http_add_header(request, "Location", location);
    sandbox_reply(request, 201, volume_json(visit.gateway, &volume->facts, caller->operator_));
}

/* Bytes, or a text such as "1g". */
static int read_size(const json_t *value, uint64_t *size, struct hc_err *err)
{
    if (json_is_string(value)) {
        if (hc_parse_size(json_string_value(value), size, err) == 0)
            return 0;
        return hc_err_field(err, "size");
    }
    if (json_is_integer(value) && json_integer_value(value) > 0) {
        *size = (uint64_t)json_integer_value(value);
        return 0;
    }
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "size must be a number of bytes, or a text such as \"1g\"");
    return hc_err_field(err, "size");
}

void handle_volume_create(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    static const char *const known[] = {"name", "size", NULL};
    const struct caller *caller = request->context;
    struct serve_volume_facts facts = {0};
    struct hc_err err = {0};
    bool bad = false;
    hc_cleanup_json json_t *body = sandbox_body(request);
    if (body == NULL || !sandbox_body_knows(request, body, known))
        return;
    const char *name = sandbox_text(request, body, "name", &bad);
    if (bad)
        return;
    if (volume_check_name(name != NULL ? name : "", &err) < 0 ||
        read_size(json_object_get(body, "size"), &facts.size, &err) < 0) {
        reply_error(request, &err);
        return;
    }
    snprintf(facts.tenant, sizeof facts.tenant, "%s", caller->tenant);
    snprintf(facts.name, sizeof facts.name, "%s", name);
    ask(gateway, request, SERVE_VOLUME_CREATE, &facts, on_created);
}

/* ---- GET ---- */

static int by_name(const void *a, const void *b)
{
    const struct serve_volume_facts *one = a, *other = b;
    int names = strcmp(one->name, other->name);
    return names != 0 ? names : strcmp(one->tenant, other->tenant);
}

static void on_listed(void *data, const struct serve_volume *volume, int fd, const struct hc_err *err)
{
    (void)volume;
    struct volume_visit visit = *(struct volume_visit *)data;
    struct http_request *request = waiting(&visit);
    free(data);
    if (request == NULL)
        return;
    if (err != NULL) {
        reply_error(request, err);
        return;
    }
    const struct caller *caller = request->context;
    struct serve_volume_facts *item = NULL;
    size_t length = 0;
    bool whole = hc_memfd_check(fd, &length) == 0 && length % sizeof *item == 0 &&
                 (item = malloc(length + 1)) != NULL && pread(fd, item, length, 0) == (ssize_t)length;
    json_t *list = whole ? json_array() : NULL;
    if (list != NULL && length > 0)
        qsort(item, length / sizeof *item, sizeof *item, by_name);
    for (size_t i = 0; list != NULL && i < length / sizeof *item; i++)
        json_array_append_new(list, volume_json(visit.gateway, &item[i], caller->operator_));
    free(item);
    sandbox_reply(request, 200, list != NULL ? json_pack("{s:o}", "volumes", list) : NULL);
}

void handle_volume_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    const struct caller *caller = request->context;
    struct serve_volume_facts facts = {0};
    if (!caller->operator_)
        snprintf(facts.tenant, sizeof facts.tenant, "%s", caller->tenant);
    ask(gateway, request, SERVE_VOLUME_LIST, &facts, on_listed);
}

/* ---- DELETE ---- */

static void on_removed(void *data, const struct serve_volume *volume, int fd, const struct hc_err *err)
{
    (void)volume, (void)fd;
    struct volume_visit visit = *(struct volume_visit *)data;
    struct http_request *request = waiting(&visit);
    free(data);
    if (err == NULL)
        runs_audit(visit.gateway->runs, "volume_removed", visit.facts.tenant, NULL, visit.facts.name);
    if (request == NULL)
        return;
    if (err != NULL)
        reply_error(request, err);
    else
        reply_text(request, 204, "text/plain", "", 0);
}

/* Whose it is: the caller's; the operator may name another. */
static bool read_tenant(struct http_request *request, struct serve_volume_facts *facts)
{
    static const char *const known[] = {"tenant", NULL}, *const none[] = {NULL};
    const struct caller *caller = request->context;
    char name[64], tenant[sizeof facts->tenant] = "";
    snprintf(facts->tenant, sizeof facts->tenant, "%s", caller->tenant);
    if (http_query_unknown(request, caller->operator_ ? known : none, name, sizeof name) != NULL ||
        (caller->operator_ && http_query_value(request, "tenant", tenant, sizeof tenant) < 0)) {
        reply_problem(request, 400, "invalid_request",
                      caller->operator_ ? "the one parameter of this is tenant, once" : "this takes no parameters");
        return false;
    }
    if (tenant[0] != '\0')
        snprintf(facts->tenant, sizeof facts->tenant, "%s", tenant);
    return true;
}

void handle_volume_remove(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *name = route_value(match, "name");
    struct serve_volume_facts facts = {0};
    char detail[256];
    if (!read_tenant(request, &facts))
        return;
    if (volume_check_name(name, NULL) < 0) {
        snprintf(detail, sizeof detail, "there is no volume \"%.80s\"", name);
        reply_problem(request, 404, "not_found", detail);
        return;
    }
    snprintf(facts.name, sizeof facts.name, "%s", name);
    for (const struct sandbox *sandbox = sandboxes_first(gateway->sandboxes); sandbox != NULL; sandbox = sandbox->next)
        if (sandbox_has_volume(sandbox, facts.tenant, facts.name)) {
            snprintf(detail, sizeof detail, "the sandbox %s has the volume \"%s\"; delete the sandbox first",
                     sandbox->id, facts.name);
            reply_problem(request, 409, "conflict", detail);
            return;
        }
    if (!sandboxes_ready(gateway->sandboxes)) {
        reply_busy(request, 503, "overloaded", 1, "the server is starting");
        return;
    }
    ask(gateway, request, SERVE_VOLUME_REMOVE, &facts, on_removed);
}
