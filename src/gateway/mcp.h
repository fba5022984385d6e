/*
 * The Model Context Protocol: tools and files of sandboxes for its clients, over streamable HTTP. Two eras of it are
 * spoken at one endpoint. Until 2025-11-25 a client begins with `initialize`, and gets a session; since 2026-07-28
 * every request says which version it speaks, and there is none.
 *
 * What always holds: a session is a memory aid and proves nothing. Every request is admitted like any other (Host,
 * Origin, key), and a session of another tenant is not there (404).
 *
 * Theory of operation. A POST is an exchange: one message, or in old versions a batch of them. Each request in it
 * becomes an answer, now or later (mcp_call). When all are there they are sent as JSON. If a client takes event
 * streams, and there is progress to tell or it takes long, the exchange becomes a stream instead and each answer is an
 * event of it. A client that hangs up ends what it had asked for: there is nobody left to tell.
 */
#ifndef HC_GATEWAY_MCP_H
#define HC_GATEWAY_MCP_H

#include "gateway/gateway.h"
#include "gateway/mcp_message.h"
#include "gateway/tools.h"

enum {
    MCP_BATCH_LIMIT = 100,
    MCP_DEPTH = 64,
    MCP_SESSIONS = 4096,       /* of all tenants */
    MCP_SESSIONS_TENANT = 256, /* of one; past it the longest unused is forgotten */
    MCP_BODY_LIMIT = 64 << 20, /* bytes of a resource */
    MCP_PAGE = 100,            /* entries of a list */
    MCP_RECENT = 4096,         /* bytes of output in one progress notification */
};

struct mcp_version {
    const char *name;
    bool modern;  /* without sessions */
    bool batches; /* a message may be a list of messages */
};
extern const struct mcp_version MCP_VERSIONS[];               /* newest first; ends with a row without a name */
const struct mcp_version *mcp_version_find(const char *name); /* NULL: unknown */
json_t *mcp_version_names(void);

/* ---- sessions: mcp_sessions.c ---- */
struct mcp_session {
    struct mcp_session *next;
    char id[40];
    char tenant[64];
    const struct mcp_version *version;
    struct mcp_call *calls; /* under way */
    uint64_t used_at;
};

int mcp_new(struct mcp **out, struct hc_err *err);
void mcp_free(struct mcp *mcp); /* after the HTTP server: nothing is under way */
struct mcp_session *mcp_session_new(struct mcp *mcp, const char *tenant, const struct mcp_version *version);
struct mcp_session *mcp_session_find(struct mcp *mcp, const char *tenant, const char *id);
void mcp_session_end(struct mcp *mcp, struct mcp_session *session); /* and what it had under way */
size_t mcp_session_count(const struct mcp *mcp);

/* ---- exchanges: routes_mcp.c ---- */
struct mcp_exchange {
    struct gateway *gateway;
    struct http_request *request;
    struct mcp_session *session; /* or NULL */
    const struct mcp_version *version;
    struct mcp_call *calls;
    json_t *answers;
    struct hc_timer *timer; /* of silence */
    size_t pending;         /* answers to come, and 1 while messages are still being read */
    int status;             /* of the HTTP reply, where it is no stream */
    bool batch, streams;    /* `streams`: the client takes them */
    bool streaming;
};

/* One request that is not answered yet. */
struct mcp_call {
    struct mcp_call *next;         /* of the exchange */
    struct mcp_call *session_next; /* of the session */
    struct mcp_exchange *exchange;
    json_t *id;
    struct tool_call *tool;     /* tools/call */
    struct http_inside *inside; /* resources/… */
    struct hc_buf body;
    int reply_status;
    int step;
    json_t *kept;
    json_t *token;           /* of progress, or NULL */
    struct hc_timer *timer;  /* the next notification */
    uint64_t total, told;    /* bytes of output; those that progress told of */
    char recent[MCP_RECENT]; /* the end of the output, as far as it is not told */
    size_t recent_length;
};

/* An answer, which is taken (NULL: out of memory). The exchange may be gone after the last one. */
void mcp_answer(struct mcp_exchange *exchange, json_t *answer);
void mcp_answer_error(struct mcp_exchange *exchange, const json_t *id, enum mcp_code code, const char *text);
/* Ends the exchange where nothing is pending. It may be gone after it. */
void mcp_settle(struct mcp_exchange *exchange);
/* A notification to the client, if it takes streams; taken. */
void mcp_notify(struct mcp_exchange *exchange, json_t *notification);

/* ---- methods: mcp.c ---- */
/* One message. */
void mcp_handle(struct mcp_exchange *exchange, const struct mcp_message *message);
/* A result as the exchange's version has it; takes `result`. `ttl` in ms, -1 where the result is no cacheable one. */
json_t *mcp_finished(const struct mcp_exchange *exchange, const json_t *id, json_t *result, int ttl);

/* ---- calls: mcp_calls.c ---- */
/* Counted as pending and known to the session. NULL: out of memory. */
struct mcp_call *mcp_call_new(struct mcp_exchange *exchange, const json_t *id);
void mcp_call_free(struct mcp_call *call); /* what it had begun is ended */
/* The answer of a call, taken; the call is gone after it. */
void mcp_call_answer(struct mcp_call *call, json_t *answer);
void mcp_call_tool(struct mcp_exchange *exchange, const struct mcp_message *message);
void mcp_cancel(struct mcp_exchange *exchange, const struct mcp_message *message);

/* ---- resources: mcp_resources.c ---- */
void mcp_resources_list(struct mcp_exchange *exchange, const struct mcp_message *message);
void mcp_resources_templates(struct mcp_exchange *exchange, const struct mcp_message *message);
void mcp_resources_read(struct mcp_exchange *exchange, const struct mcp_message *message);

#endif
