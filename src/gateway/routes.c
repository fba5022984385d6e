/*
 * The routes: one table, and the way of a request to its row. Every request passes gateway_admit first, before its body
 * is read: is it called by a name of ours and from a page of ours, is there such a route, may this caller use it. What
 * always holds: no handler runs for a request without a visit in its context.
 */
#include "base/fd.h"
#include "base/log.h"
#include "gateway/gateway.h"
#include "gateway/metrics.h"
#include "gateway/preview.h"
#include "gateway/tenants.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct route ROUTES[] = {
    {HTTP_GET, "/", handle_root, true, "Whether the server is there"},
    {HTTP_POST, "/v1/runs", handle_run_create, false, "Run code, a command or files in a fresh cell"},
    {HTTP_GET, "/v1/runs", handle_run_list, false, "The history, newest first"},
    {HTTP_GET, "/v1/runs/{id}", handle_run_get, false, "One run"},
    {HTTP_DELETE, "/v1/runs/{id}", handle_run_cancel, false, "End a run"},
    {HTTP_GET, "/v1/runs/{id}/events", handle_run_events, false, "The events of a run, as they happen"},
    {HTTP_POST, "/v1/runs/{id}/stdin", handle_run_stdin, false, "More input for a run that goes on"},
    {HTTP_GET, "/v1/runs/{id}/report", handle_run_report, false, "The debug report of a run"},
    {HTTP_POST, "/v1/sandboxes", handle_sandbox_create, false, "Make a sandbox that lives on"},
    {HTTP_GET, "/v1/sandboxes", handle_sandbox_list, false, "The sandboxes, newest first"},
    {HTTP_GET, "/v1/sandboxes/{id}", handle_sandbox_get, false, "One sandbox, with what it uses"},
    {HTTP_DELETE, "/v1/sandboxes/{id}", handle_sandbox_delete, false, "End a sandbox, and all that is in it"},
    {HTTP_POST, "/v1/sandboxes/{id}/pause", handle_sandbox_pause, false, "Freeze a sandbox"},
    {HTTP_POST, "/v1/sandboxes/{id}/resume", handle_sandbox_resume, false, "Let a paused sandbox go on"},
    {HTTP_POST, "/v1/sandboxes/{id}/keepalive", handle_sandbox_keepalive, false, "Begin its idle time anew"},
    {HTTP_POST, "/v1/sandboxes/{id}/exec", handle_sandbox_exec, false, "Run a command or code in a sandbox"},
    {HTTP_GET, "/v1/sandboxes/{id}/jobs", handle_job_list, false, "The detached jobs of a sandbox"},
    {HTTP_GET, "/v1/sandboxes/{id}/jobs/{job}", handle_job_get, false, "One job, with its output"},
    {HTTP_DELETE, "/v1/sandboxes/{id}/jobs/{job}", handle_job_delete, false, "End a job, with all its descendants"},
    {HTTP_POST, "/v1/sandboxes/{id}/jobs/{job}/signal", handle_job_signal, false, "Send a job a signal"},
    {HTTP_POST, "/v1/sandboxes/{id}/jobs/{job}/stdin", handle_job_stdin, false, "More input for a job"},
    {HTTP_GET, "/v1/sandboxes/{id}/jobs/{job}/events", handle_job_events, false, "The output of a job, as it comes"},
    {HTTP_GET, "/v1/sandboxes/{id}/sessions", handle_session_list, false, "The shell sessions of a sandbox"},
    {HTTP_DELETE, "/v1/sandboxes/{id}/sessions/{name}", handle_session_delete, false, "End a shell session"},
    {HTTP_POST, "/v1/sandboxes/{id}/sessions/{name}/interrupt", handle_session_interrupt, false,
     "Interrupt the call of a shell session"},
    {HTTP_POST, "/v1/sandboxes/{id}/contexts", handle_context_create, false,
     "Start an interpreter that keeps its variables"},
    {HTTP_GET, "/v1/sandboxes/{id}/contexts", handle_context_list, false, "The contexts of a sandbox"},
    {HTTP_GET, "/v1/sandboxes/{id}/contexts/{context}", handle_context_get, false, "One context"},
    {HTTP_DELETE, "/v1/sandboxes/{id}/contexts/{context}", handle_context_delete, false, "End a context"},
    {HTTP_POST, "/v1/sandboxes/{id}/contexts/{context}/execute", handle_context_execute, false,
     "Execute code in a context"},
    {HTTP_POST, "/v1/sandboxes/{id}/contexts/{context}/interrupt", handle_context_interrupt, false,
     "Interrupt what a context executes"},
    {HTTP_GET, "/v1/sandboxes/{id}/files", handle_file_list, false, "A folder of a sandbox, or the facts of a file"},
    {HTTP_PUT, "/v1/sandboxes/{id}/files", handle_file_put, false, "Write the file that path names", ROUTE_STREAM},
    {HTTP_DELETE, "/v1/sandboxes/{id}/files", handle_file_delete, false, "Delete what path names"},
    {HTTP_GET, "/v1/sandboxes/{id}/files/search", handle_file_search, false, "Files by name and by content"},
    {HTTP_GET, "/v1/sandboxes/{id}/files/watch", handle_file_watch, false, "What changes in a folder, as it happens"},
    {HTTP_POST, "/v1/sandboxes/{id}/files/move", handle_file_move, false, "Move or rename"},
    {HTTP_POST, "/v1/sandboxes/{id}/files/mkdir", handle_file_mkdir, false, "Make a folder"},
    {HTTP_GET, "/v1/sandboxes/{id}/files/{path...}", handle_file_get, false, "The bytes of a file"},
    {HTTP_PUT, "/v1/sandboxes/{id}/files/{path...}", handle_file_put, false, "Write a file", ROUTE_STREAM},
    {HTTP_DELETE, "/v1/sandboxes/{id}/files/{path...}", handle_file_delete, false, "Delete a file or folder"},
    {HTTP_GET, "/v1/sandboxes/{id}/archive", handle_archive_get, false, "A folder as a tar"},
    {HTTP_PUT, "/v1/sandboxes/{id}/archive", handle_archive_put, false, "Unpack a tar into a folder", ROUTE_STREAM},
    {HTTP_GET, "/v1/sandboxes/{id}/terminal", handle_terminal, false, "A terminal in a sandbox, by WebSocket"},
    {HTTP_GET, "/v1/sandboxes/{id}/terminals", handle_terminal_list, false, "The terminals of a sandbox"},
    {HTTP_DELETE, "/v1/sandboxes/{id}/terminals/{terminal}", handle_terminal_delete, false, "End a terminal"},
    {HTTP_POST, "/v1/sandboxes/{id}/ports/{port}", handle_preview_sign, false, "A signed link to a port of a sandbox"},
    {HTTP_GET, "/v1/sandboxes/{id}/ports/{port}", handle_preview_slash, false, "To the port's own root"},
    {HTTP_ANY, "/v1/sandboxes/{id}/ports/{port}/{rest...}", handle_preview, false,
     "HTTP and WebSocket to a server inside a sandbox", ROUTE_STREAM},
    {HTTP_ANY, "/preview/{token}/{rest...}", handle_preview_link, true, "The same by a signed link",
     ROUTE_STREAM | ROUTE_ANY_ORIGIN},
    {HTTP_POST, "/v1/volumes", handle_volume_create, false, "Make a folder that outlives sandboxes"},
    {HTTP_GET, "/v1/volumes", handle_volume_list, false, "The volumes, by name"},
    {HTTP_DELETE, "/v1/volumes/{name}", handle_volume_remove, false, "Remove a volume that no sandbox has"},
    {HTTP_GET, "/v1/history/errors", handle_error_list, false, "What failed before, how often, and what put it right"},
    {HTTP_GET, "/v1/languages", handle_languages, false, "The languages of this server"},
    {HTTP_GET, "/v1/stats", handle_stats, false, "Live counts, latencies and the limits in force"},
    {HTTP_GET, "/v1/tools", handle_tool_list, false, "The tools for models, with their schemas"},
    {HTTP_POST, "/v1/tools/{name}", handle_tool_call, false, "Call a tool"},
    {HTTP_POST, "/mcp", handle_mcp, false, "Model Context Protocol: messages"},
    {HTTP_DELETE, "/mcp", handle_mcp_end, false, "Model Context Protocol: the end of a session"},
    {HTTP_POST, "/execute", handle_execute, false, "Run code in the shared, persistent workspace"},
    {HTTP_GET, "/healthz", handle_health, true, "Whether the server is alive"},
    {HTTP_GET, "/readyz", handle_ready, true, "Whether the server takes runs"},
    {HTTP_GET, "/metrics", handle_metrics, false, "Metrics for Prometheus"},
    {HTTP_GET, "/openapi.json", handle_openapi, true, "This description"},
    {0},
};

/* A host of its own, where a domain is configured: every path of it is the guest's. */
static const struct route PREVIEW_HOST = {
    .method = HTTP_ANY, .pattern = "/", .handle = handle_preview_host, .open = true, .flags = ROUTE_STREAM};

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
    const char *nearest = route_nearest(ROUTES, request->path);
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

static void free_visit(void *context)
{
    struct visit *visit = context;
    route_release(&visit->match);
    free(visit);
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
    request->context_free = free_visit;
    char why[256], id[40];
    struct route_match *match = &visit->match;
    const char *host = http_header(request, "host");
    unsigned port;
    if (host != NULL && preview_host(host, gateway->config->sandboxes.domain, &port, id)) {
        visit->route = &PREVIEW_HOST;
        if (identify(gateway, request, &visit->caller) < 0)
            visit->caller = (struct caller){0};
        http_body_stream(request);
        return 0;
    }
    route_match(ROUTES, request->method, request->path, match);
    bool any_origin = match->route != NULL && (match->route->flags & ROUTE_ANY_ORIGIN) != 0;
    if (access_refusal(gateway->config, request, any_origin, why, sizeof why) != NULL)
        return refuse_host(gateway, request, why);
    access_cors(request);
    if (match->route == NULL)
        return request->method == HTTP_OPTIONS ? answer_options(request, match) : refuse_path(request, match);
    visit->route = match->route;
    if (identify(gateway, request, &visit->caller) < 0 && !match->route->open)
        return refuse_caller(gateway, request);
    if ((match->route->flags & ROUTE_STREAM) != 0)
        http_body_stream(request);
    return 0;
}

void gateway_handle(void *data, struct http_request *request)
{
    struct visit *visit = request->context;
    int bound = route_bind(&visit->match, request->path);
    if (bound == -ENAMETOOLONG)
        reply_problem(request, 404, "not_found", "there is nothing with this id");
    else if (bound < 0)
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
    else
        visit->route->handle(data, request, &visit->match);
}

int gateway_ask(struct gateway *gateway, const struct http_request *from, const struct http_inside_ask *ask,
                const struct http_inside_events *events, struct http_inside **out, struct hc_err *err)
{
    struct http_inside *inside;
    struct visit *visit = calloc(1, sizeof *visit);
    if (visit == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
    int status = http_inside_new(gateway->loop, from, ask, events, &inside, err);
    if (status < 0) {
        free(visit);
        return status;
    }
    *out = inside; /* it may have its end below */
    struct http_request *request = http_inside_request(inside);
    request->context = visit;
    request->context_free = free_visit;
    route_match(ROUTES, request->method, request->path, &visit->match);
    visit->caller = *(const struct caller *)from->context;
    visit->gateway = gateway;
    visit->route = visit->match.route;
    if (visit->route == NULL) {
        refuse_path(request, &visit->match);
        return 0;
    }
    if ((visit->route->flags & ROUTE_STREAM) != 0)
        http_body_stream(request);
    gateway_handle(gateway, request);
    return 0;
}

void gateway_refused(void *data, const char *peer, int status, const char *why)
{
    const struct gateway *gateway = data;
    if (gateway->metrics != NULL)
        metrics_request(gateway->metrics, "", status);
    if (status < 500 && status != 408) /* a client that is slow, or a server that is full, is no attack */
        tenants_note_nonsense(gateway->tenants, peer, status, why);
    hc_log(HC_LOG_DEBUG, "%s: %d %s", peer, status, why);
}
