/*
 * The gateway: all that outside input meets. It parses HTTP and JSON, decides who may do what, queues runs, drives them
 * through the warden, keeps their history. It has no privileges: see seal.h. One thread and one loop; only SQLite's
 * writing is on a thread of its own (store/store.h).
 */
#ifndef HC_GATEWAY_GATEWAY_H
#define HC_GATEWAY_GATEWAY_H

#include "gateway/budget.h"
#include "gateway/http.h"
#include "run/config.h"
#include "run/language.h"
#include "run/link.h"
#include "store/audit.h"
#include "store/store.h"

struct runs;      /* runs.h: those that are queued, running, or just over */
struct metrics;   /* metrics.h */
struct tenants;   /* tenants.h: keys and what each has used */
struct catalogue; /* languages.h: the languages, with versions */

struct gateway {
    struct hc_loop *loop;
    struct config *config; /* replaced whole on reload: nobody keeps a pointer into it across events */
    struct link *link;     /* to the warden; NULL while it is being restarted */
    struct store *store;
    struct audit *audit;
    struct http_server *http;
    struct runs *runs;
    struct metrics *metrics;
    struct tenants *tenants;
    struct catalogue *catalogue; /* read once at start */
    struct budget results;       /* what they may take of memory */
    uint32_t isolation;          /* ISOLATION_* layers that hold, by the warden's greeting; 0 until then */
    struct pool_facts pool;      /* as the warden told last; all 0 while there is none */
    int workspace_host;          /* which of the warden's host folders is the shared /workspace of /execute; -1: none */
    uint64_t started_at;         /* CLOCK_MONOTONIC µs */
    int64_t started_time;        /* µs since the epoch */
    bool warden_silent;          /* it does not answer the keeper: it may hang */
    bool draining;
};

/* Who asks: request->context (a struct visit, which begins with it). */
struct caller {
    char tenant[64]; /* the key's name; "local" for the unix socket, and for loopback while there are no keys */
    bool operator_;  /* the unix socket: sees every tenant's runs */
};

/* ---- routes.c: one table ---- */
struct route {
    enum http_method method;
    const char *pattern; /* "/v1/runs/{id}/events"; {id} matches one component */
    void (*handle)(struct gateway *gateway, struct http_request *request, const char *id);
    bool open;           /* needs no key: health, readiness, openapi */
    const char *summary; /* openapi's */
};
extern const struct route ROUTES[]; /* ends with a row without a pattern */
/* What a path and a method mean. `route` is NULL when there is no such path, or not with that method: then `allow`
 * has the methods that the path does have, "GET, HEAD, POST", or "". */
struct route_match {
    const struct route *route;
    const char *id; /* within the path, up to the next '/'; "" when the pattern has none */
    char allow[64];
};
void route_match(enum http_method method, const char *path, struct route_match *match);
/* The pattern nearest to a path that is unknown, or NULL. */
const char *route_nearest(const char *path);
/* http_handlers' functions; data is the gateway. */
int gateway_admit(void *data, struct http_request *request);                     /* Host, Origin, route, key */
void gateway_handle(void *data, struct http_request *request);                   /* to the route's function */
void gateway_refused(void *data, const char *peer, int status, const char *why); /* counted */

/* request->context of every request that was admitted. */
struct visit {
    struct caller caller;
    struct gateway *gateway;
    const struct route *route; /* NULL: none */
};

/* ---- access.c: who may ask at all ---- */
/* Whether the Host and Origin of a request are ours; NULL, or why not, in `text`. */
const char *access_refusal(const struct config *config, const struct http_request *request, char *text, size_t size);
/* For an Origin that is allowed: adds the CORS headers. */
void access_cors(struct http_request *request);
bool access_loopback(const char *address); /* "127.0.0.1:52114", "[::1]:1" */

/* ---- reply.c ---- */
/* problem+json of RFC 9457. `code` is a word of API.md; detail names field, value, remedy. */
void reply_problem(struct http_request *request, int status, const char *code, const char *detail);
/* The same from an error: the class decides the status (hc_class_info), ENOENT 404, EACCES/EPERM of the mount policy
 * 403, E2BIG/EFBIG 413. */
void reply_error(struct http_request *request, const struct hc_err *err);
void reply_json(struct http_request *request, int status, const char *json); /* json: text, not owned */
/* A 429 or 503 with Retry-After. */
void reply_busy(struct http_request *request, int status, const char *code, unsigned retry_seconds, const char *detail);
/* http_reply and http_stream_begin, counted in the metrics: replies go through these. */
void reply_text(struct http_request *request, int status, const char *content_type, const char *body, size_t length);
void reply_stream(struct http_request *request, int status, const char *content_type);
/* application/json or application/<word>+json, with or without parameters. Whatever runs something asks for it: a page
 * of another origin can send any other kind without a preflight. */
bool content_is_json(const struct http_request *request);

/* ---- handlers, by family ---- */
/* routes_runs.c */
void handle_run_create(struct gateway *gateway, struct http_request *request, const char *id);
void handle_run_list(struct gateway *gateway, struct http_request *request, const char *id);
void handle_run_get(struct gateway *gateway, struct http_request *request, const char *id);
void handle_run_cancel(struct gateway *gateway, struct http_request *request, const char *id);
void handle_run_events(struct gateway *gateway, struct http_request *request, const char *id);
void handle_run_stdin(struct gateway *gateway, struct http_request *request, const char *id);
void handle_run_report(struct gateway *gateway, struct http_request *request, const char *id);
/* routes_errors.c */
void handle_error_list(struct gateway *gateway, struct http_request *request, const char *id);
/* routes_execute.c */
void handle_execute(struct gateway *gateway, struct http_request *request, const char *id);
void handle_root(struct gateway *gateway, struct http_request *request, const char *id); /* GET /: {"status":"ok"} */
/* routes_info.c */
void handle_languages(struct gateway *gateway, struct http_request *request, const char *id);
void handle_stats(struct gateway *gateway, struct http_request *request, const char *id);
void handle_health(struct gateway *gateway, struct http_request *request, const char *id);
void handle_ready(struct gateway *gateway, struct http_request *request, const char *id);
void handle_metrics(struct gateway *gateway, struct http_request *request, const char *id);
void handle_openapi(struct gateway *gateway, struct http_request *request, const char *id);

#endif
