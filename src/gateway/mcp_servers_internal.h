/* What mcp_servers.c (their life) and mcp_servers_talk.c (what is said) share. */
#ifndef HC_GATEWAY_MCP_SERVERS_INTERNAL_H
#define HC_GATEWAY_MCP_SERVERS_INTERNAL_H

#include "gateway/mcp_servers.h"
#include "run/drive.h"

enum {
    SERVER_LINE_LIMIT = 16 << 20, /* bytes of one message */
    SERVER_OUT_LIMIT = 64 << 20,  /* bytes that wait for it */
    SERVER_DEPTH = 64,
    SERVER_TOOLS_MOST = 256,
    SERVER_PAGES_MOST = 32,
    SERVER_ERRORS_KEPT = 512, /* bytes of its stderr, for messages */
};

enum server_state { SERVER_DOWN, SERVER_GREETING, SERVER_LISTING, SERVER_READY };

struct mcp_forward {
    struct mcp_forward *next;
    struct attached *server; /* NULL: it is to fail in the next turn */
    json_int_t id;
    struct tool_events events;
    struct hc_timer *timer;
    uint64_t told; /* of progress */
    char why[256]; /* of one that is to fail */
};

struct attached {
    struct attached *next;
    struct mcp_servers *servers;
    const struct mcp_server_config *config; /* of the configuration in force */
    json_t *definition;                     /* what it was started with: another one means a change */
    char name[MCP_NAME_SIZE];
    enum server_state state;
    struct request *request;
    struct plan plan;
    struct result result;
    struct drive *drive;
    bool planned, doomed; /* `doomed`: it is no more in the configuration, and freed when its drive has ended */
    int input[2];         /* a pipe: what it is told */
    struct hc_watch *watch;
    struct hc_buf out, line;
    size_t out_sent;
    json_int_t next_id, awaited; /* of our own requests that are no calls; 0: none */
    int pages;
    json_t *tools, *listing; /* those that it has, and those that it is telling now */
    struct mcp_forward *forwards;
    struct hc_timer *timer; /* the next start, or the end of our patience */
    unsigned failures;      /* in a row */
    uint64_t started_at;
    char why[256];                       /* it is down */
    char errors[SERVER_ERRORS_KEPT + 1]; /* the end of its stderr */
    size_t errors_length;
};

struct mcp_servers {
    struct gateway *gateway;
    struct attached *first;
};

/* ---- mcp_servers.c ---- */
/* It is ended, and started again after a while. */
void attached_fail(struct attached *server, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Its tools are offered (json array, taken) or not any more (NULL). */
void attached_offer(struct attached *server, json_t *tools);

/* ---- mcp_servers_talk.c ---- */
void attached_greet(struct attached *server);
void attached_heard(struct attached *server, const char *bytes, size_t length); /* on its stdout */
void attached_pump(struct attached *server); /* writes what waits for it, as far as it goes */
void attached_call(struct attached *server, struct mcp_forward *forward, const char *tool, const json_t *arguments);
void attached_cancel(struct attached *server, const struct mcp_forward *forward);

#endif
