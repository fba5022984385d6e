/* See http_inside.h. */
#include "gateway/http_inside.h"
#include "base/fd.h"
#include "gateway/http_url.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADERS = 2 };

struct http_inside {
    struct http_request request;
    struct http_inside_events events;
    struct hc_loop *loop;
    struct hc_timer *timer;       /* the next turn, where one is needed */
    bool busy, over;              /* it is being worked on in this turn; it has ended meanwhile */
    bool drained;                 /* on_drained is due */
    bool streamed, paused, ended; /* its body */
    size_t given;                 /* bytes of it that the handler has had */
    uint64_t most;
    struct http_header headers[HEADERS];
    char *target, *path, *body;
    size_t length; /* of the body */
    char nothing[1];
    char *values[HEADERS];
    char names[HEADERS][16];
};

static void release(struct http_inside *inside)
{
    hc_timer_remove(inside->timer);
    if (inside->request.context_free != NULL)
        inside->request.context_free(inside->request.context);
    for (size_t i = 0; i < HEADERS; i++)
        free(inside->values[i]);
    free(inside->target);
    free(inside->path);
    free(inside->body);
    inside->over = true;
    if (!inside->busy)
        free(inside);
}

static void add_header(struct http_inside *inside, const char *name, const char *value)
{
    size_t index = inside->request.header_count++;
    snprintf(inside->names[index], sizeof inside->names[index], "%s", name);
    inside->values[index] = strdup(value);
    inside->headers[index] = (struct http_header){inside->names[index], inside->values[index]};
}

static int copy_ask(struct http_inside *inside, const struct http_inside_ask *ask)
{
    static const char *const methods[] = {
        [HTTP_GET] = "GET",       [HTTP_HEAD] = "HEAD",       [HTTP_POST] = "POST",    [HTTP_PUT] = "PUT",
        [HTTP_DELETE] = "DELETE", [HTTP_OPTIONS] = "OPTIONS", [HTTP_OTHER] = "UNKNOWN"};
    struct http_request *request = &inside->request;
    size_t path_length = strcspn(ask->target, "?");
    inside->target = strdup(ask->target);
    inside->path = malloc(path_length + 1);
    inside->body = malloc(ask->length + 1);
    add_header(inside, "accept", ask->accept != NULL ? ask->accept : "application/json");
    if (ask->body != NULL)
        add_header(inside, "content-type", ask->type != NULL ? ask->type : "application/json");
    for (size_t i = 0; i < request->header_count; i++)
        if (inside->values[i] == NULL)
            return -ENOMEM;
    if (inside->target == NULL || inside->path == NULL || inside->body == NULL)
        return -ENOMEM;
    if (http_path_decode(ask->target, path_length, inside->path) != NULL)
        return -EINVAL;
    if (ask->body != NULL && ask->length > 0)
        memcpy(inside->body, ask->body, ask->length);
    inside->body[ask->length] = '\0';
    inside->length = ask->length;
    request->method = ask->method;
    snprintf(request->method_name, sizeof request->method_name, "%s", methods[ask->method]);
    request->target = inside->target;
    request->path = inside->path;
    request->query = inside->target + path_length + (inside->target[path_length] == '?');
    request->headers = inside->headers;
    request->body = inside->body;
    request->body_length = request->body_expected = ask->length;
    return 0;
}

int http_inside_new(struct hc_loop *loop, const struct http_request *from, const struct http_inside_ask *ask,
                    const struct http_inside_events *events, struct http_inside **out, struct hc_err *err)
{
    struct http_inside *inside = calloc(1, sizeof *inside);
    if (inside == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
    inside->events = *events;
    inside->loop = loop;
    inside->most = UINT64_MAX;
    inside->request.inside = inside;
    inside->request.listener = from->listener;
    inside->request.tls = from->tls;
    inside->request.received_at = hc_now();
    memcpy(inside->request.peer, from->peer, sizeof inside->request.peer);
    memcpy(inside->request.local, from->local, sizeof inside->request.local);
    int status = copy_ask(inside, ask);
    if (status < 0) {
        release(inside);
        return status == -EINVAL ? hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.200s\" is no path", ask->target)
                                 : hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
    }
    *out = inside;
    return 0;
}

struct http_request *http_inside_request(struct http_inside *inside)
{
    return &inside->request;
}

void http_inside_drop(struct http_inside *inside)
{
    if (inside == NULL)
        return;
    if (inside->request.on_gone != NULL)
        inside->request.on_gone(&inside->request);
    release(inside);
}

/* ---- the next turn: what a handler must not be told from inside its own calls ---- */

static void on_turn(struct hc_loop *loop, void *data);

static void settle(struct http_inside *inside)
{
    bool body = inside->streamed && !inside->paused && !inside->ended;
    if (inside->timer == NULL && (inside->drained || body))
        inside->timer = hc_loop_timer(inside->loop, hc_now(), on_turn, inside);
}

static void refuse_body(struct http_inside *inside)
{
    char why[160];
    int length = snprintf(why, sizeof why,
                          "{\"detail\":\"the body is larger than this server takes: it takes %llu bytes here\","
                          "\"code\":\"too_large\"}",
                          (unsigned long long)inside->most);
    if (inside->request.on_gone != NULL)
        inside->request.on_gone(&inside->request);
    http_inside_reply(inside, 413, "application/problem+json", why, (size_t)length);
}

static void give_body(struct http_inside *inside)
{
    struct http_request *request = &inside->request;
    size_t left = inside->length - inside->given, piece = left < HTTP_PIECE ? left : HTTP_PIECE;
    if (inside->length > inside->most) {
        refuse_body(inside);
    } else if (piece > 0) {
        const char *data = inside->body + inside->given;
        inside->given += piece;
        if (request->on_body != NULL)
            request->on_body(request, data, piece);
    } else {
        inside->ended = true;
        if (request->on_body_end != NULL)
            request->on_body_end(request);
    }
}

static void on_turn(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct http_inside *inside = data;
    inside->timer = NULL;
    inside->busy = true;
    if (inside->drained && inside->request.on_drained != NULL) {
        inside->drained = false;
        inside->request.on_drained(&inside->request);
    }
    if (!inside->over && inside->streamed && !inside->paused && !inside->ended)
        give_body(inside);
    inside->busy = false;
    if (inside->over)
        free(inside);
    else
        settle(inside);
}

void http_inside_body(struct http_inside *inside, enum http_inside_step step, uint64_t most)
{
    switch (step) {
    case HTTP_INSIDE_STREAM:
        inside->streamed = inside->paused = true;
        inside->request.body = inside->nothing;
        inside->request.body_length = 0;
        break;
    case HTTP_INSIDE_LIMIT:
        inside->most = most;
        break;
    case HTTP_INSIDE_RESUME:
        inside->paused = false;
        settle(inside);
        break;
    case HTTP_INSIDE_PAUSE:
        inside->paused = true;
        break;
    }
}

/* ---- replies ---- */

void http_inside_begin(struct http_inside *inside, int status, const char *content_type)
{
    inside->events.head(inside->events.data, status, content_type != NULL ? content_type : "");
}

int http_inside_write(struct http_inside *inside, const char *data, size_t length)
{
    if (length > 0)
        inside->events.piece(inside->events.data, data, length);
    inside->drained = inside->request.on_drained != NULL;
    settle(inside);
    return 0;
}

void http_inside_end(struct http_inside *inside)
{
    struct http_inside_events events = inside->events;
    release(inside);
    events.end(events.data);
}

void http_inside_reply(struct http_inside *inside, int status, const char *content_type, const char *body,
                       size_t length)
{
    /* The body may be a part of the request, or of what the end of the request frees: it is told before that. */
    http_inside_begin(inside, status, content_type);
    if (length > 0)
        http_inside_write(inside, body, length);
    http_inside_end(inside);
}
