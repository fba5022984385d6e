/*
 * The store: SQLite in WAL mode, in the state folder, and a journal in front of it. History of runs, keys, daily usage.
 *
 * Writing is done by one thread of the store's own, many changes at once when many wait; `done` is called on the loop
 * once the change is on disk (in the journal, or in the database by a synced commit), with 0 or -errno. What was called
 * done survives a power cut. Reading is done at once, on the caller's thread, by a connection of its own, and sees what
 * was called done.
 *
 * The same files may be opened by the command line beside a running server (keys, history): SQLite's locks are between
 * them, and the server alone writes to the journal. A full disk or a lost file is an error of the call, never a crash,
 * and what was there stays.
 */
#ifndef HC_STORE_STORE_H
#define HC_STORE_STORE_H

#include "base/err.h"
#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

typedef void (*store_done_fn)(void *data, int result);

/* `folder`: the state folder, which exists. `loop`: NULL for the command line: then every change is made at once on the
 * caller's thread, and `done`, if given, is called before the function returns; without a `done` the result is what the
 * function returns.
 *
 * With a loop, a change that returns 0 is in the queue and `done` is called exactly once; on -errno it is not called:
 * -EAGAIN the queue is full (256 MiB), -EFBIG it never fits, -EROFS opened read-only, -ESHUTDOWN being closed. `done`
 * gets -ENOSPC, -EIO, -EBUSY (another process holds the lock), -ESTALE (the files were taken away), -EBADMSG (the
 * database is damaged), and then nothing was changed that one could rely on; a later change tries again. */
int store_open(const char *folder, struct hc_loop *loop, bool read_only, struct store **out, struct hc_err *err);
/* Starts the writing thread; the first change does it otherwise. A program that seals itself calls this after what
 * holds for one thread only (Landlock, no_new_privs, capabilities), so that the thread inherits it. No file is opened
 * after store_open, but for the database's own (-wal, -shm). Does nothing where there is no loop. */
int store_start(struct store *store, struct hc_err *err);
/* Waits until everything is written; every `done` that is still to come is called from here. A prune that is not at its
 * end is told -ECANCELED. Not to be called from a `done`. */
void store_close(struct store *store);
/* For /readyz: 0, or the -errno of the last commit where the database could not be written to (then changes may still
 * be taken, as long as there is room in the journal), or of files that were taken away. */
int store_status(struct store *store);
/* Nothing has happened for a while: pages of the database that were kept in memory are given back. */
void store_rest(struct store *store);

/* ---- runs ---- */
/* Why a run failed, as it is grouped with others; an empty fingerprint: nothing is recorded of it. */
struct run_error {
    char fingerprint[17];
    char category[16], error_type[96]; /* "" where it is not known */
    char message[256];
};
/* The shape of its program (run/fingerprint.h), by which a later run is known to be of similar code. UINT32_MAX is an
 * empty slot. It is kept for failures alone, until they are fixed. */
enum { STORE_SHAPE_SLOTS = 64 };

struct run_row {
    char id[40];
    char tenant[64];
    char kind[16];                            /* "run", "execute" */
    char status[24];                          /* "queued", "running", or a result's */
    char language[32];                        /* "" for a plain command */
    int exit_code;                            /* -1 until it has ended */
    int64_t created_at, started_at, ended_at; /* µs since the epoch; 0: not yet */
    uint64_t wall_us, cpu_us, queue_us, memory_peak;
    bool keep_going;     /* async */
    const char *shape;   /* JSON: what was asked, without contents: language, sizes, names of files, limits, … */
    const char *request; /* while it has not ended: the request, whole if keep_going, else its metadata; or NULL */
    size_t request_length;
    const char *result; /* JSON text; NULL until it has ended */
    size_t result_length;
    const char *log; /* what its streams showed, where the result does not tell all of it (store_run_get); else NULL */
    size_t log_length;
    /* For store_run_finish alone; reading leaves them empty. */
    struct run_error error;
    bool has_shape;
    uint32_t code_shape[STORE_SHAPE_SLOTS];
};

/* Everything pointed to is copied. -EEXIST: the id is there. finish also makes the row where the insert had failed, and
 * forgets `request`. */
int store_run_insert(struct store *store, const struct run_row *row, store_done_fn done, void *data);
/* `done` may be NULL, where it is only a hint. */
int store_run_started(struct store *store, const char *id, int64_t started_at, store_done_fn done, void *data);
int store_run_finish(struct store *store, const struct run_row *row, store_done_fn done, void *data);
/* For whoever has more to do than the processors can: how long the ends of runs gather from now on, so that one sync
 * serves many. 0, as at first: not at all. */
void store_gather(struct store *store, uint64_t us);
/* The end of a run is likely to come within a moment, and alone. */
void store_expect(struct store *store);

/* Strings of the row live until the callback returns. A return other than 0 ends the reading. A callback may call the
 * store, but not the function that called it (-EDEADLK). */
typedef int (*store_row_fn)(void *data, const struct run_row *row);

/* tenant NULL: any. 1 when found (fn was called), 0 when not, -errno; also where it was not found and may be among
 * those that the database could not take yet. */
int store_run_get(struct store *store, const char *tenant, const char *id, store_row_fn fn, void *data);
struct run_filter {
    const char *tenant, *language, *status; /* NULL: any */
    const char *before;                     /* an id: only older ones */
    size_t limit;                           /* 0: none */
};
/* Newest first; `result` and `request` of the rows are NULL (a listing is small). The count, or -errno. */
int store_run_list(struct store *store, const struct run_filter *filter, store_row_fn fn, void *data);
/* Those that are queued or running: what a gateway that died has left, oldest first, with `request`. -errno, and none
 * of them, where the database could not take all of them yet: ask again. */
int store_run_unfinished(struct store *store, store_row_fn fn, void *data);
struct store_totals {
    uint64_t runs, by_status[16]; /* in the order of `store_statuses` */
    uint64_t cpu_us, wall_us;
    uint64_t bytes; /* of the database */
    int64_t oldest; /* created_at, or 0 */
};
extern const char *const store_statuses[]; /* NULL-terminated */
/* since: µs since the epoch; 0: all there are, which is quick; else it takes time for each run since. */
int store_totals(struct store *store, const char *tenant, int64_t since, struct store_totals *totals);
/* Removes ended runs that are older than `before` (µs since the epoch; 0: none for their age), then the oldest ones
 * until the database is below `bytes` (0: no limit). In small steps on the writing thread. */
int store_prune(struct store *store, int64_t before, uint64_t bytes, store_done_fn done, void *data);

/* ---- errors ---- */
/* All failures of a tenant with one fingerprint that are still in the history. */
struct error_group {
    char tenant[64], language[32];
    struct run_error error; /* the message is the last one's */
    uint64_t count;
    int64_t first_at, last_at; /* µs since the epoch */
    char last_run[40];
    char fixed_by[40]; /* a later run of similar code that succeeded, and is in the history; "": none is known */
};
struct error_filter {
    const char *tenant, *fingerprint, *error_type, *language; /* NULL: any */
    size_t limit;                                             /* 0: none */
};
typedef int (*store_error_fn)(void *data, const struct error_group *group);
/* Those that failed last first. A return of fn other than 0 ends the reading. The count, or -errno. */
int store_error_list(struct store *store, const struct error_filter *filter, store_error_fn fn, void *data);
/* Of two shapes: the estimated share of the code's triples of tokens that they have in common, 0 to 1. */
double store_shape_likeness(const uint32_t a[STORE_SHAPE_SLOTS], const uint32_t b[STORE_SHAPE_SLOTS]);

/* ---- keys ---- */
enum { STORE_TOKEN_LENGTH = 46 }; /* "hc_" + 43 characters of base64url */
struct key_row {
    char name[64];
    char prefix[12]; /* the first characters of the token, to tell keys apart */
    unsigned char hash[32];
    uint64_t runs_per_minute, concurrent, cpu_seconds_per_day; /* 0: no quota */
    int64_t created_at, revoked_at, used_at;
    bool no_compile_cache; /* what this tenant compiles is not kept */
};
/* A new random token, shown once: `token` has STORE_TOKEN_LENGTH + 1 bytes. Reads name and quotas of the row and fills
 * the rest. -EEXIST: there is such a name in force (a revoked one may be given again: the same tenant, a new key).
 * -EINVAL: not a name. Both wait until it is on disk. */
int store_key_create(struct store *store, struct key_row *row, char *token, struct hc_err *err);
int store_key_revoke(struct store *store, const char *name, struct hc_err *err); /* -ENOENT */
typedef int (*store_key_fn)(void *data, const struct key_row *row);
int store_key_list(struct store *store, store_key_fn fn, void *data); /* also revoked ones; the count, or -errno */
/* Changes whenever a key was made or revoked, by whichever process: then read the keys again. Less than a
 * microsecond while nothing at all was committed, else a few. */
uint64_t store_version(struct store *store);
void store_key_hash(const char *token, unsigned char hash[32]);             /* SHA-256 */
bool store_key_equal(const unsigned char a[32], const unsigned char b[32]); /* constant time */
int store_key_used(struct store *store, const char *name, int64_t when);    /* at most once a minute for each */

/* ---- usage by day (UTC, days since the epoch) ---- */
int store_usage_add(struct store *store, const char *tenant, int64_t day, uint64_t cpu_us, uint64_t runs);
/* What is on disk: what is still in the queue is not counted. */
int store_usage_get(struct store *store, const char *tenant, int64_t day, uint64_t *cpu_us, uint64_t *runs);

#endif
