/*
 * Previews: HTTP and WebSocket to a server inside a sandbox, by three names. Below the sandbox's own path, for who may
 * use the sandbox; below /preview/TOKEN, for who has a link; and as a host of its own, where a domain is configured.
 * What always holds: the connection is made from inside the cell; answers that share this server's origin are made
 * strangers to it by a Content-Security-Policy that the guest cannot take away.
 */
#include "base/fd.h"
#include "gateway/preview.h"
#include "gateway/proxy.h"
#include "gateway/sandboxes.h"
#include "sandbox/connect.h"
#include "sandbox/order.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ANSWER_TIME (60 * 1000000ULL)
#define IDLE_TIME (600 * 1000000ULL)
#define LINK_TIME (3600 * 1000000ULL)
#define LINK_LONGEST (30ULL * 86400 * 1000000)
#define COOKIE "hotcell_preview"

static const char *const STRANGER[] = {
    "Content-Security-Policy", "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads", NULL};

struct visiting { /* request->data until there is a connection */
    struct gateway *gateway;
    struct http_request *request;
    struct sandbox *sandbox;
    struct connecting *connecting;
    struct proxy *proxy;
    char *target, *prefix, host[64];
    bool own_origin, own_authorization;
};

static void visiting_free(struct visiting *visiting)
{
    sandbox_release(visiting->sandbox);
    free(visiting->target);
    free(visiting->prefix);
    free(visiting);
}

/* ---- the connection is there ---- */

static void on_failed(void *data, struct http_request *request, int status, const char *why)
{
    (void)data;
    reply_problem(request, status, "internal", why);
}

static void on_ended(void *data)
{
    visiting_free(data);
}

static void on_connected(void *data, int fd, const struct hc_err *err)
{
    struct visiting *visiting = data;
    struct http_request *request = visiting->request;
    visiting->connecting = NULL;
    request->on_gone = NULL;
    if (err != NULL) {
        visiting_free(visiting);
        reply_problem(request, 502, "internal", err->message);
        return;
    }
    struct proxy_options options = {.target = visiting->target,
                                    .host = visiting->host,
                                    .prefix = visiting->prefix,
                                    .headers = visiting->own_origin ? NULL : STRANGER,
                                    .own_origin = visiting->own_origin,
                                    .own_authorization = visiting->own_authorization,
                                    .answer_time = ANSWER_TIME,
                                    .idle_time = IDLE_TIME};
    struct proxy_handlers handlers = {.data = visiting, .failed = on_failed, .ended = on_ended};
    int result = proxy_start(visiting->gateway->loop, request, fd, &options, &handlers, &visiting->proxy);
    if (result == 0)
        return;
    visiting_free(visiting);
    if (result == -EINVAL)
        reply_problem(request, 400, "invalid_request", "this request cannot be handed on");
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}

static void on_gone(struct http_request *request)
{
    struct visiting *visiting = request->data;
    if (visiting->connecting != NULL)
        connect_drop(visiting->connecting);
    visiting_free(visiting);
}

/* `prefix` is taken. */
static void visit(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox, unsigned port,
                  const char *target, char *prefix, bool own_origin, bool own_authorization)
{
    struct hc_err err = {0};
    struct visiting *visiting = calloc(1, sizeof *visiting);
    if (visiting == NULL || prefix == NULL) {
        free(visiting);
        free(prefix);
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    *visiting = (struct visiting){.gateway = gateway,
                                  .request = request,
                                  .sandbox = sandbox,
                                  .target = strdup(target),
                                  .prefix = prefix,
                                  .own_origin = own_origin,
                                  .own_authorization = own_authorization};
    snprintf(visiting->host, sizeof visiting->host, "localhost:%u", port);
    sandbox_hold(sandbox);
    int result = visiting->target != NULL
                     ? connect_start(sandbox, port, on_connected, visiting, &visiting->connecting, &err)
                     : hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result < 0) {
        visiting_free(visiting);
        reply_error(request, &err);
        return;
    }
    request->data = visiting;
    request->on_gone = on_gone;
}

static unsigned port_of(const char *text)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);
    return *text != '\0' && *end == '\0' && port <= 65535 ? (unsigned)port : 0;
}

static bool refuse_port(struct http_request *request, unsigned port, const char *given)
{
    char detail[128];
    if (port == 0) {
        snprintf(detail, sizeof detail, "a port is a number from 1 to 65535, and cannot be \"%.40s\"", given);
        reply_problem(request, 400, "invalid_request", detail);
    }
    return port == 0;
}

static char *path_of(const struct sandbox *sandbox, unsigned port)
{
    char *text = NULL;
    return asprintf(&text, "/v1/sandboxes/%s/ports/%u", sandbox->id, port) < 0 ? NULL : text;
}

/* What is asked for, as it was sent: "/" and the rest. */
static char *target_of(const struct route_match *match, const struct http_request *request)
{
    char *text = NULL;
    return asprintf(&text, "/%s", route_raw_rest(match, request)) < 0 ? NULL : text;
}

/* ---- the three names ---- */

void handle_preview(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    unsigned port = port_of(route_value(match, "port")); /* before a reply, which may be the end of the request */
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    if (sandbox == NULL || refuse_port(request, port, route_value(match, "port")))
        return;
    hc_cleanup_free char *target = target_of(match, request);
    visit(gateway, request, sandbox, port, target != NULL ? target : "/", path_of(sandbox, port), false, false);
}

void handle_preview_link(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *token = route_value(match, "token");
    unsigned port = 0;
    struct sandbox *sandbox = preview_find(gateway->sandboxes, token, &port);
    char *prefix = NULL;
    if (sandbox == NULL) {
        reply_problem(request, 404, "not_found", "this link is not valid, or not any more");
        return;
    }
    hc_cleanup_free char *target = target_of(match, request);
    if (asprintf(&prefix, "/preview/%s", token) < 0)
        prefix = NULL;
    visit(gateway, request, sandbox, port, target != NULL ? target : "/", prefix, false, true);
}

/* The token of a link, from the cookie that it has left. */
static bool cookie_of(const struct http_request *request, char *token, size_t size)
{
    const char *at = http_header(request, "cookie");
    while (at != NULL && *at != '\0') {
        at += strspn(at, " ;");
        size_t length = strcspn(at, ";");
        if (strncmp(at, COOKIE "=", sizeof COOKIE) == 0 && length - sizeof COOKIE < size) {
            snprintf(token, size, "%.*s", (int)(length - sizeof COOKIE), at + sizeof COOKIE);
            return true;
        }
        at += length;
    }
    return false;
}

static bool token_fits(const struct gateway *gateway, const char *token, const struct sandbox *sandbox, unsigned port)
{
    unsigned found = 0;
    return preview_find(gateway->sandboxes, token, &found) == sandbox && found == port;
}

/* What was asked for, as it was sent, without the link in its query; NULL without memory. */
static char *without_link(const char *target)
{
    size_t used = strcspn(target, "?");
    const char *at = target + used;
    char *text = strdup(target[0] == '/' ? target : "/"), mark = '?';
    while (text != NULL && target[0] == '/' && *at != '\0') {
        size_t length = strcspn(++at, "&");
        if (strncmp(at, COOKIE "=", sizeof COOKIE) != 0) {
            text[used] = mark;
            memcpy(text + used + 1, at, length);
            used += 1 + length;
            mark = '&';
        }
        at += length;
        text[used] = '\0';
    }
    return text;
}

/* A link that was opened: it becomes a cookie of this host's, and the address loses it. */
static void take_link(struct http_request *request, const char *token)
{
    char cookie[PREVIEW_TOKEN_SIZE + 64];
    snprintf(cookie, sizeof cookie, COOKIE "=%s; Path=/; HttpOnly; SameSite=Lax%s", token,
             request->tls ? "; Secure" : "");
    http_add_header(request, "Set-Cookie", cookie);
    hc_cleanup_free char *place = without_link(request->target);
    if (place == NULL || http_add_header(request, "Location", place) < 0)
        http_add_header(request, "Location", "/"); /* too long to be said */
    reply_text(request, 302, "text/plain", "", 0);
}

void handle_preview_host(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    const struct visit *who = request->context;
    const char *host = http_header(request, "host");
    char id[40], token[PREVIEW_TOKEN_SIZE] = "";
    unsigned port = 0;
    bool good = host != NULL && preview_host(host, gateway->config->sandboxes.domain, &port, id);
    const char *tenant = who->caller.operator_ || who->caller.tenant[0] == '\0' ? NULL : who->caller.tenant;
    struct sandbox *sandbox = good ? sandboxes_find(gateway->sandboxes, tenant, id) : NULL;
    bool linked = http_query_value(request, COOKIE, token, sizeof token) > 0;
    if (sandbox != NULL && linked && token_fits(gateway, token, sandbox, port)) {
        take_link(request, token);
        return;
    }
    bool allowed = who->caller.tenant[0] != '\0' || (sandbox != NULL && cookie_of(request, token, sizeof token) &&
                                                     token_fits(gateway, token, sandbox, port));
    if (sandbox == NULL || !allowed || port == 0) {
        reply_problem(request, 404, "not_found", "there is no such preview, or a link to it is needed");
        return;
    }
    visit(gateway, request, sandbox, port, request->target, strdup(""), true, who->caller.tenant[0] == '\0');
}

/* ---- making a link ---- */

void handle_preview_sign(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char *const known[] = {"expires_in", NULL};
    unsigned port = port_of(route_value(match, "port"));
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    struct hc_err err = {0};
    uint64_t lasts = LINK_TIME;
    char token[PREVIEW_TOKEN_SIZE], url[PREVIEW_TOKEN_SIZE + 256], at[40];
    if (sandbox == NULL || refuse_port(request, port, route_value(match, "port")))
        return;
    hc_cleanup_json json_t *body = sandbox_body(request);
    if (body == NULL || !sandbox_body_knows(request, body, known))
        return;
    const json_t *asked = json_object_get(body, "expires_in");
    if (asked != NULL && !json_is_null(asked) &&
        (order_duration(asked, "expires_in", &lasts, &err) < 0 || lasts == 0 || lasts > LINK_LONGEST)) {
        if (!err.code)
            hc_fail(&err, HC_CLASS_REQUEST, ERANGE, "expires_in must be more than 0, and 30 days at most");
        hc_err_field(&err, "expires_in");
        reply_error(request, &err);
        return;
    }
    int64_t expires = (int64_t)time(NULL) + (int64_t)(lasts / 1000000);
    if (preview_token(sandbox, port, expires, token) < 0) {
        reply_problem(request, 500, "internal", "the link could not be signed");
        return;
    }
    sandbox_used(sandbox);
    const char *domain = gateway->config->sandboxes.domain;
    json_t *object = NULL;
    snprintf(url, sizeof url, "/preview/%s/", token);
    object = json_pack("{s:s, s:i, s:s}", "url", url, "port", (int)port, "expires_at",
                       sandbox_time_text(expires * 1000000, at, sizeof at));
    if (object != NULL && domain[0] != '\0') {
        snprintf(url, sizeof url, "%s://%u-%s.%.100s/?" COOKIE "=%s", request->tls ? "https" : "http", port,
                 sandbox->id, domain, token);
        json_object_set_new(object, "host_url", json_string(url));
    }
    sandbox_reply(request, 201, object);
}

/* Without the slash at its end a page's own links would lead elsewhere. */
void handle_preview_slash(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    unsigned port = port_of(route_value(match, "port"));
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL || refuse_port(request, port, route_value(match, "port")))
        return;
    char location[128];
    snprintf(location, sizeof location, "/v1/sandboxes/%s/ports/%u/", sandbox->id, port);
    http_add_header(request, "Location", location);
    reply_text(request, 308, "text/plain", "", 0);
}
