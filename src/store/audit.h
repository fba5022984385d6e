/*
 * The audit log: one JSON object a line, each with the SHA-256 of the one before, so that a line that was changed, left
 * out or put elsewhere is found by audit_verify. Append-only: the gateway of a server may read the file, and what it
 * appends goes through the keeper (audit_open_through).
 *
 *     {"n":17,"at":"2026-01-02T03:04:05.678Z","event":"mount_denied","tenant":"local","run":"run_…",
 *      "detail":{…},"prev":"<hex>","hash":"<hex>"}
 *
 * hash = SHA-256 over the line as written, up to and without the `,"hash":…` part. n counts from 1; prev of the first
 * entry is zeros; tenant, run and detail are null where there is none.
 *
 * A chain shows what was changed, left out, moved or put in. It cannot show that whole entries at the end were cut off,
 * or that everything from one entry on was written anew: for that, keep `last_hash` elsewhere.
 */
#ifndef HC_STORE_AUDIT_H
#define HC_STORE_AUDIT_H

#include "base/err.h"
#include <stdint.h>
#include <stdio.h>

struct audit;

/* The events, one table in audit_line.c: mount_denied, request_refused, unauthorized, limit_hit, key_created,
 * key_revoked, blocked_call, isolation_weak, server_started, server_stopped, warden_died, gateway_died,
 * config_reloaded, mcp_server_ended, sandbox_created, _paused, _resumed, _failed, _recovered, _deleted and _expired,
 * volume_created and _removed; and torn_line, which is only written here. */

/* Takes the fd, also on failure: opened O_RDWR | O_APPEND. Reads the last line to go on from there. A torn last line
 * (power cut, full disk) is ended, and a torn_line entry says its length and hash. -EBADMSG: the file ends with
 * something that is no entry of ours. */
int audit_open(int fd, struct audit **out, struct hc_err *err);
/* For one who may only read the file, by `fd`: others append for it. `append` puts the bytes at the end and on disk,
 * all of them or -errno; -EAGAIN when the file does not end at `end`, or somebody has it locked: then its end is read
 * again. Takes the fd, also on failure. */
typedef int (*audit_append_fn)(void *data, int64_t end, const char *bytes, size_t length);
int audit_open_through(int fd, audit_append_fn append, void *data, struct audit **out, struct hc_err *err);
/* detail: a JSON object as text, or NULL. Written and synced before it returns. 0 or -errno (-EINVAL: no such event, or
 * detail is not an object; -E2BIG: over 64 KiB). Several processes may append, also by one inherited fd (a record lock
 * of fcntl(2) is around it, and the last line is read again if the file has grown). Within a process: one handle. */
int audit_add(struct audit *audit, const char *event, const char *tenant, const char *run, const char *detail);
void audit_close(struct audit *audit);

struct audit_report {
    uint64_t lines;    /* entries that are good */
    uint64_t torn;     /* places where a write was cut short, which the chain accounts for */
    uint64_t unended;  /* bytes after the last entry: a write that was cut short, and nothing was written since */
    uint64_t bad_line; /* 1-based; 0: none */
    char why[160];
    char last_hash[65];
};
/* 0 when the chain holds, -EBADMSG when not (the report says where), another -errno when it cannot be read. `kept`: the
 * hash of an entry that must be in it, as `last_hash` said it once, or NULL; one that is missing is -EBADMSG with the
 * line after the last as the bad one. */
int audit_verify(int fd, const char *kept, struct audit_report *report);

#endif
