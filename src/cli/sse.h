/*
 * Server-sent events, read piece by piece, as the WHATWG describes: lines end in LF, CR LF or CR; an event ends at an
 * empty line; several `data` lines are one text.
 */
#ifndef HC_CLI_SSE_H
#define HC_CLI_SSE_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>

struct sse_event {
    const char *name; /* "message" when it has none */
    const char *id;   /* the last one that came, with this event or before it; "" when none has */
    const char *data;
    size_t length;
};

/* A return other than 0 ends the reading with it. Strings live until it returns. */
typedef int (*sse_fn)(void *data, const struct sse_event *event);

struct sse {
    struct hc_buf line, data;
    char name[32], id[128];
    char told[128]; /* the id as of the last event that was whole */
    bool has_data;
    bool after_cr; /* an LF that comes next belongs to it */
    bool begun;    /* a byte order mark may come before the first byte, and nowhere else */
};

void sse_start(struct sse *sse);
void sse_release(struct sse *sse);
/* A new connection: what was half read is forgotten, the id of the last whole event is kept. */
void sse_restart(struct sse *sse);
/* 0, what fn returned, or -errno: -EPROTO for a name, an id or an event that is too long, or with a NUL in its name or
 * id; -ENOMEM. */
int sse_feed(struct sse *sse, const char *bytes, size_t length, sse_fn fn, void *data);

#endif
