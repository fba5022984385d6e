/*
 * The routes: one table, and the way of a request to its row. Every request passes gateway_admit first, before its body
 * is read: is it called by a name of ours and from a page of ours, is there such a route, may this caller use it. What
 * always holds: no handler runs for a request without a visit in its context.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/suggest.h"
#include "gateway/gateway.h"
#include "gateway/metrics.h"
#include "gateway/tenants.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_SIZE = 72, ROUTE_LIMIT = 64 };

const struct route ROUTES[] = {
    {HTTP_GET, "/", handle_root, true, "Whether the server is there"},
    {HTTP_POST, "/v1/runs", handle_run_create, false, "Run code, a command or files in a fresh cell"},
    {HTTP_GET, "/v1/runs", handle_run_list, false, "The history, newest first"},
    {HTTP_GET, "/v1/runs/{id}", handle_run_get, false, "One run"},
    {HTTP_DELETE, "/v1/runs/{id}", handle_run_cancel, false, "End a run"},
    {HTTP_GET, "/v1/runs/{id}/events", handle_run_events, false, "The events of a run, as they happen"},
    {HTTP_POST, "/v1/runs/{id}/stdin", handle_run_stdin, false, "More input for a run that goes on"},
    {HTTP_GET, "/v1/runs/{id}/report", handle_run_report, false, "The debug report of a run"},
    {HTTP_GET, "/v1/history/errors", handle_error_list, false, "What failed before, how often, and what put it right"},
    {HTTP_GET, "/v1/languages", handle_languages, false, "The languages of this server"},
    {HTTP_GET, "/v1/stats", handle_stats, false, "Live counts, latencies and the limits in force"},
    {HTTP_POST, "/execute", handle_execute, false, "Run code in the shared, persistent workspace"},
    {HTTP_GET, "/healthz", handle_health, true, "Whether the server is alive"},
    {HTTP_GET, "/readyz", handle_ready, true, "Whether the server takes runs"},
    {HTTP_GET, "/metrics", handle_metrics, false, "Metrics for Prometheus"},
    {HTTP_GET, "/openapi.json", handle_openapi, true, "This description"},
    {0},
};

/* ---- matching ---- */

/* "{id}" stands for one component. `id` points to it in the path. */
static bool pattern_fits(const char *pattern, const char *path, const char **id)
{
    *id = "";
    while (*pattern != '\0') {
        if (*pattern == '{') {
            size_t length = strcspn(path, "/");
            if (length == 0)
                return false;
            *id = path;
            path += length;
            pattern = strchr(pattern, '}') + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

static const char *method_word(enum http_method method)
{
    static const char *const words[] = {
        [HTTP_GET] = "GET, HEAD", [HTTP_HEAD] = "HEAD",       [HTTP_POST] = "POST", [HTTP_PUT] = "PUT",
        [HTTP_DELETE] = "DELETE", [HTTP_OPTIONS] = "OPTIONS", [HTTP_OTHER] = ""};
    return words[method];
}

void route_match(enum http_method method, const char *path, struct route_match *match)
{
    *match = (struct route_match){.id = ""};
    size_t used = 0;
    if (method == HTTP_HEAD)
        method = HTTP_GET;
    for (const struct route *route = ROUTES; route->pattern != NULL; route++) {
        const char *id;
        if (!pattern_fits(route->pattern, path, &id))
            continue;
        if (route->method == method) {
            *match = (struct route_match){.route = route, .id = id};
            return;
        }
        used += (size_t)snprintf(match->allow + used, sizeof match->allow - used, "%s%s", used > 0 ? ", " : "",
                                 method_word(route->method));
    }
}

const char *route_nearest(const char *path)
{
    const char *patterns[ROUTE_LIMIT];
    size_t count = 0;
    for (const struct route *route = ROUTES; route->pattern != NULL && count < ROUTE_LIMIT; route++)
        patterns[count++] = route->pattern;
    return hc_suggest(path, patterns, count);
}

/* ---- admission ---- */

static int refuse_host(struct gateway *gateway, struct http_request *request, const char *why)
{
    tenants_note_refusal(gateway->tenants, request, "request_refused", why);
    reply_problem(request, 403, "forbidden", why);
    return -EPERM;
}

static int refuse_path(struct http_request *request, const struct route_match *match)
{
    char detail[256];
    if (match->allow[0] != '\0') {
        snprintf(detail, sizeof detail, "%.80s takes %s, not %s", request->path, match->allow, request->method_name);
        http_add_header(request, "Allow", match->allow);
        reply_problem(request, 405, "invalid_request", detail);
        return -ENOTSUP;
    }
    const char *nearest = route_nearest(request->path);
    snprintf(detail, sizeof detail, "there is no %.80s%s%s%s", request->path, nearest != NULL ? "; did you mean " : "",
             nearest != NULL ? nearest : "; /openapi.json lists what there is", nearest != NULL ? "?" : "");
    reply_problem(request, 404, "not_found", detail);
    return -ENOENT;
}

/* Preflight: whether the page may send the real request, which is then checked like any other. */
static int answer_options(struct http_request *request, const struct route_match *match)
{
    if (match->allow[0] == '\0')
        return refuse_path(request, match);
    http_add_header(request, "Allow", match->allow);
    reply_text(request, 204, "text/plain", "", 0);
    return -EALREADY;
}

static int refuse_caller(struct gateway *gateway, struct http_request *request)
{
    bool given = http_header(request, "authorization") != NULL || http_header(request, "x-api-key") != NULL;
    const char *why = given ? "this key is not valid here" : "a key is needed: send Authorization: Bearer KEY";
    tenants_note_refusal(gateway->tenants, request, "unauthorized", why);
    http_add_header(request, "WWW-Authenticate", "Bearer realm=\"hotcell\"");
    reply_problem(request, 401, "unauthorized", why);
    return -EACCES;
}

static int identify(struct gateway *gateway, const struct http_request *request, struct caller *caller)
{
    if (request->listener == HTTP_LISTEN_UNIX) {
        *caller = (struct caller){.tenant = "local", .operator_ = true};
        return 0;
    }
    if (!tenants_have_keys(gateway->tenants)) {
        if (!access_loopback(request->local) || !access_loopback(request->peer))
            return -EACCES;
        *caller = (struct caller){.tenant = "local"};
        return 0;
    }
    return tenants_identify(gateway->tenants, request, caller);
}

int gateway_admit(void *data, struct http_request *request)
{
    struct gateway *gateway = data;
    struct visit *visit = calloc(1, sizeof *visit);
    if (visit == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return -ENOMEM;
    }
    visit->gateway = gateway;
    request->context = visit;
    request->context_free = free;
    char why[256];
    if (access_refusal(gateway->config, request, why, sizeof why) != NULL)
        return refuse_host(gateway, request, why);
    access_cors(request);
    struct route_match match;
    route_match(request->method, request->path, &match);
    if (match.route == NULL)
        return request->method == HTTP_OPTIONS ? answer_options(request, &match) : refuse_path(request, &match);
    visit->route = match.route;
    if (identify(gateway, request, &visit->caller) < 0 && !match.route->open)
        return refuse_caller(gateway, request);
    return 0;
}

void gateway_handle(void *data, struct http_request *request)
{
    const struct visit *visit = request->context;
    const char *component;
    pattern_fits(visit->route->pattern, request->path, &component);
    size_t length = strcspn(component, "/");
    char id[ID_SIZE];
    if (length >= sizeof id) { /* longer than any id that was ever given out */
        reply_problem(request, 404, "not_found", "there is no run with this id");
        return;
    }
    memcpy(id, component, length);
    id[length] = '\0';
    visit->route->handle(data, request, id);
}

void gateway_refused(void *data, const char *peer, int status, const char *why)
{
    const struct gateway *gateway = data;
    if (gateway->metrics != NULL)
        metrics_request(gateway->metrics, "", status);
    hc_log(HC_LOG_DEBUG, "%s: %d %s", peer, status, why);
}
