/*
 * Terminals: a program in a pseudo-terminal of the sandbox's own, whose other end is here. What it writes is
 * remembered, the last of it, in memory that outlives the gateway; so whoever comes back after a broken connection sees
 * where it was. One client is attached at a time; without one it goes on for a while.
 */
#ifndef HC_SANDBOX_TERMINAL_H
#define HC_SANDBOX_TERMINAL_H

#include "sandbox/log.h"
#include "sandbox/sandbox.h"

extern const struct fixture_kind terminal_kind;

enum { TERMINAL_SCROLLBACK = 256 << 10 };

struct terminal;

/* Who is attached. Each is called from the loop. */
struct terminal_client {
    void *data;
    void (*ready)(void *data, struct terminal *terminal); /* of a new one: it is there */
    /* Bytes for it; false: enough for now, terminal_more says when it can take others. */
    bool (*written)(void *data, const char *bytes, size_t length);
    void (*writable)(void *data); /* input is taken again, after terminal_write returned less than all */
    /* It is over, or could not be started (err), or another has taken it over (neither). No more is told. */
    void (*ended)(void *data, const struct warden_message *message, const struct hc_err *err);
};

struct terminal {
    struct fixture fixture;
    struct job_log *log;
    char *command;
    int master, door; /* door: until the master has come */
    unsigned cols, rows;
    struct hc_watch *watch, *door_watch;
    struct hc_timer *timer; /* nobody is attached */
    struct terminal_client client;
    bool attached, full, blocked; /* full: its client takes nothing now; blocked: the program takes no input */
    uint64_t wait;                /* µs that it goes on without a client */
};

struct terminal_plan {
    const struct words *argv, *env;
    const char *cwd;
    unsigned cols, rows;
    uint64_t wait;
};

int terminal_start(struct sandbox *sandbox, const struct terminal_plan *plan, const struct terminal_client *client,
                   struct terminal **out, struct hc_err *err);
struct terminal *terminal_find(const struct sandbox *sandbox, const char *id);
/* Attaches; who was attached before is told that it has ended. What it wrote last is in terminal->log. */
void terminal_attach(struct terminal *terminal, const struct terminal_client *client);
void terminal_detach(struct terminal *terminal, const void *data); /* if that is who is attached */
void terminal_more(struct terminal *terminal);                     /* the client can take bytes again */
size_t terminal_write(struct terminal *terminal, const char *bytes, size_t length); /* how many were taken */
void terminal_resize(struct terminal *terminal, unsigned cols, unsigned rows);
void terminal_end(struct terminal *terminal);

#endif
