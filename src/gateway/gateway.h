/*
 * The gateway: all that outside input meets. It parses HTTP and JSON, decides who may do what, queues runs, drives them
 * through the warden, keeps their history. It has no privileges: see seal.h. One thread and one loop; only SQLite's
 * writing is on a thread of its own (store/store.h).
 */
#ifndef HC_GATEWAY_GATEWAY_H
#define HC_GATEWAY_GATEWAY_H

#include "gateway/budget.h"
#include "gateway/http.h"
#include "gateway/http_inside.h"
#include "run/config.h"
#include "run/language.h"
#include "run/link.h"
#include "store/audit.h"
#include "store/store.h"

struct runs;      /* runs.h: those that are queued, running, or just over */
struct metrics;   /* metrics.h */
struct tenants;   /* tenants.h: keys and what each has used */
struct catalogue; /* languages.h: the languages, with versions */
struct sandboxes; /* sandbox/sandbox.h: cells that live on */
struct tools;     /* tools.h: the tools for models */
struct mcp_servers;
struct mcp; /* mcp.h: sessions of the Model Context Protocol */

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
    struct sandboxes *sandboxes;
    struct tools *tools;
    struct mcp *mcp;
    struct mcp_servers *servers; /* mcp_servers.h; NULL in tests */
    struct budget results;       /* what they may take of memory */
    uint32_t isolation;          /* ISOLATION_* layers that hold, by the warden's greeting; 0 until then */
    uint32_t isolation_last;     /* the same, and what it was while there is no warden: for what ends then */
    struct pool_facts pool;      /* as the warden told last; all 0 while there is none */
    int workspace_host;          /* which of the warden's host folders is the shared /workspace of /execute; -1: none */
    uint64_t started_at;         /* CLOCK_MONOTONIC µs */
    int64_t started_time;        /* µs since the epoch */
    struct volume_question *volume_questions; /* volumes.h: what the keeper has not answered yet */
    uint64_t volume_next;                     /* number of the next one, less 1 */
    uint64_t volume_count, volume_bytes;      /* all volumes of the server, and their sizes, as the keeper told last */
    bool warden_silent;                       /* it does not answer the keeper: it may hang */
    bool draining;
};

/* Who asks: request->context (a struct visit, which begins with it). */
struct caller {
    char tenant[64]; /* the key's name; "local" for the unix socket, and for loopback while there are no keys */
    bool operator_;  /* the unix socket: sees every tenant's runs */
};

/* ---- routes.c: one table ---- */
struct route_match;
enum route_flags {
    ROUTE_STREAM = 1,     /* its body is streamed: see http_body_stream */
    ROUTE_ANY_ORIGIN = 2, /* any page may call it: what is called decides by itself who may, as a secret link does */
};
struct route {
    enum http_method method; /* HTTP_ANY: each, known or not */
    /* "/v1/runs/{id}/events": a word in braces stands for one component, one that ends with "..." ("{path...}", at the
     * end) for all the rest, slashes and nothing included. */
    const char *pattern;
    void (*handle)(struct gateway *gateway, struct http_request *request, const struct route_match *match);
    bool open;           /* needs no key: health, readiness, openapi */
    const char *summary; /* openapi's */
    unsigned flags;      /* enum route_flags */
};
extern const struct route ROUTES[]; /* ends with a row without a pattern; of two rows that fit the first is meant */

/* ---- route.c: matching ---- */
enum { ROUTE_VALUES = 4, ROUTE_VALUE_MAX = 159 }; /* bytes of one component: more than any name that is given out has */
/* What a path and a method mean. `route` is NULL when there is no such path, or not with that method: then `allow`
 * has the methods that the path does have, "GET, HEAD, POST", or "". */
struct route_match {
    const struct route *route;
    char allow[64];
    size_t count;
    struct {
        const char *name; /* in the pattern */
        size_t name_length;
        size_t at, length; /* in the path */
        bool rest;
    } value[ROUTE_VALUES];
    char *text; /* the path, with a NUL after each value; NULL until route_bind */
};
void route_match(const struct route *table, enum http_method method, const char *path, struct route_match *match);
/* Makes the values readable, from a copy of the path. -ENAMETOOLONG for a component past ROUTE_VALUE_MAX; -ENOMEM. */
int route_bind(struct route_match *match, const char *path);
void route_release(struct route_match *match);
/* What stands for {name} in the path, decoded; "" when the pattern has no such word. */
const char *route_value(const struct route_match *match, const char *name);
/* What stands for the pattern's "{rest...}" as it was sent: percent-encoded, with its query. For handing it on. */
const char *route_raw_rest(const struct route_match *match, const struct http_request *request);
/* The pattern nearest to a path that is unknown, or NULL. */
const char *route_nearest(const struct route *table, const char *path);

/* http_handlers' functions; data is the gateway. */
int gateway_admit(void *data, struct http_request *request);                     /* Host, Origin, route, key */
void gateway_handle(void *data, struct http_request *request);                   /* to the route's function */
void gateway_refused(void *data, const char *peer, int status, const char *why); /* counted */

/* A request of our own, for the caller of `from`, by the same table; see http_inside.h. *out is set before anything
 * happens: `end`, which may come before this returns, is where it must be forgotten. */
int gateway_ask(struct gateway *gateway, const struct http_request *from, const struct http_inside_ask *ask,
                const struct http_inside_events *events, struct http_inside **out, struct hc_err *err);

/* request->context of every request that was admitted. */
struct visit {
    struct caller caller;
    struct gateway *gateway;
    const struct route *route; /* NULL: none */
    struct route_match match;
};

/* ---- access.c: who may ask at all ---- */
/* Whether the Host and Origin of a request are ours; NULL, or why not, in `text`. `any_origin`: only the Host counts.
 */
const char *access_refusal(const struct config *config, const struct http_request *request, bool any_origin, char *text,
                           size_t size);
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
void reply_stream_sized(struct http_request *request, int status, const char *content_type, uint64_t length);
/* application/json or application/<word>+json, with or without parameters. Whatever runs something asks for it: a page
 * of another origin can send any other kind without a preflight. */
bool content_is_json(const struct http_request *request);

/* ---- handlers, by family ---- */
/* routes_runs.c */
void handle_run_create(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_run_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_run_get(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_run_cancel(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_run_events(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_run_stdin(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_run_report(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_sandboxes.c */
void handle_sandbox_create(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_sandbox_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_sandbox_get(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_sandbox_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_sandbox_pause(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_sandbox_resume(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_sandbox_keepalive(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_exec.c */
void handle_sandbox_exec(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_jobs.c */
void handle_job_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_job_get(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_job_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_job_signal(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_job_stdin(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_job_events(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_sessions.c */
void handle_session_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_session_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_session_interrupt(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_contexts.c */
void handle_context_create(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_context_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_context_get(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_context_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_context_execute(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_context_interrupt(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_files.c, routes_watch.c */
void handle_file_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_file_search(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_file_watch(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_file_get(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_file_put(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_file_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_file_move(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_file_mkdir(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_archive_get(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_archive_put(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_terminal.c */
void handle_terminal(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_terminal_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_terminal_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_volumes.c */
void handle_volume_create(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_volume_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_volume_remove(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_preview.c */
void handle_preview(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_preview_link(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_preview_host(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_preview_sign(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_preview_slash(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_errors.c */
void handle_error_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_execute.c */
void handle_execute(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_root(struct gateway *gateway, struct http_request *request,
                 const struct route_match *match); /* GET /: {"status":"ok"} */
/* routes_tools.c */
void handle_tool_list(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_tool_call(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_mcp.c */
void handle_mcp(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_mcp_end(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* routes_info.c */
void handle_languages(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_stats(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_health(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_ready(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_metrics(struct gateway *gateway, struct http_request *request, const struct route_match *match);
void handle_openapi(struct gateway *gateway, struct http_request *request, const struct route_match *match);

#endif
