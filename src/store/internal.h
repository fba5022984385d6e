/*
 * What the files of the store share. Two connections to one database: `writer`, which belongs to the writing thread
 * (or to the caller, where there is no loop), and `reader`, which belongs to the caller. Neither is ever used by two
 * threads.
 */
#ifndef HC_STORE_INTERNAL_H
#define HC_STORE_INTERNAL_H

#include "store/store.h"
#include <pthread.h>
#include <sqlite3.h>
#include <sys/types.h>

/* ---- statement.c ---- */
enum statement {
    /* the writer's */
    WRITE_BEGIN,
    WRITE_COMMIT,
    WRITE_ROLLBACK,
    WRITE_RUN_INSERT,
    WRITE_RUN_STARTED,
    WRITE_RUN_FINISH,
    WRITE_CONTENT,
    WRITE_COUNT,
    FIND_RUN,
    WRITE_ERROR,
    WRITE_ERROR_GROUP,
    FIND_OPEN_ERRORS,
    WRITE_ERROR_FIXED,
    WRITE_GROUP_FIXED,
    FORGET_ERROR,
    WRITE_GROUP_LESS,
    FORGET_GROUP,
    WRITE_KEY_INSERT,
    WRITE_KEY_REVOKE,
    WRITE_KEY_USED,
    WRITE_KEYS_CHANGED,
    WRITE_USAGE_ADD,
    WRITE_PROBE,
    PRUNE_BY_AGE,
    PRUNE_OLDEST,
    PRUNE_DELETE,
    PRUNE_PAGES,
    PRUNE_VACUUM,
    /* the reader's */
    READ_RUN,
    READ_RUN_OF_TENANT,
    READ_UNFINISHED,
    READ_COUNTS,
    READ_COUNTS_OF_TENANT,
    READ_OLDEST,
    READ_OLDEST_OF_TENANT,
    READ_TOTALS_SINCE,
    READ_TOTALS_SINCE_OF_TENANT,
    READ_BYTES,
    READ_KEYS,
    READ_KEYS_VERSION,
    READ_USAGE,
    STATEMENT_COUNT,
};

struct connection {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT]; /* only its own ones */
};

int statements_prepare(struct connection *connection, bool writing); /* an SQLite code */
void statements_finalize(struct connection *connection);

/* One use of a kept statement: values in order, then either bind_run, or bind_row for each row and bind_end. The first
 * failure sticks. */
struct binding {
    sqlite3 *db;
    sqlite3_stmt *statement;
    int next;
    int code; /* SQLITE_OK, or what went wrong */
};
struct binding bind_start(const struct connection *connection, enum statement which);
void bind_text(struct binding *binding, const char *text); /* NULL: NULL */
void bind_bytes(struct binding *binding, const char *text, size_t length);
void bind_blob(struct binding *binding, const void *data, size_t length);
void bind_number(struct binding *binding, int64_t number);
bool bind_row(struct binding *binding); /* false at the end, or on a failure */
int bind_end(struct binding *binding);  /* 0 or -errno; the statement is free again */
int bind_run(struct binding *binding);  /* a statement without rows: 0 or -errno */

int store_errno(sqlite3 *db, int code); /* of an SQLite code: 0 or -errno */
void store_column(sqlite3_stmt *statement, int column, char *text, size_t size);

/* ---- history.c ---- */
/* Adds to the sums: `runs` is 1 or -1, times go with it. Within the transaction that changes `runs`. */
int history_count(struct store *store, const char *tenant, const char *status, int runs, int64_t cpu_us,
                  int64_t wall_us);

/* ---- errors.c ---- */
/* Of a run that ended: records its failure, or which failures before it are fixed. Within the transaction. */
int errors_write(struct store *store, int64_t seq, const struct run_row *row, const char *tenant);
/* Of a run that is about to be removed. */
int errors_forget(struct store *store, int64_t seq);

/* ---- schema.c ---- */
/* Makes or upgrades the tables, and looks at what is there. `path` is for messages. */
int schema_prepare(sqlite3 *db, const char *path, bool read_only, struct hc_err *err);
int schema_fail(sqlite3 *db, int code, const char *path, const char *what, struct hc_err *err);

/* ---- writer.c ---- */
enum { TASK_AGAIN = 1 };
struct task {
    struct task *next;
    /* Inside a transaction, on the writer's thread. 0; -errno; TASK_AGAIN: commit, let others go first, call again. */
    int (*apply)(struct store *store, struct task *task);
    store_done_fn done;
    void *data;
    size_t bytes; /* what it holds in memory */
    int result;
    bool alone;      /* a transaction of its own */
    bool prompt;     /* somebody waits for it, and it is worth holding up the caller for a moment: see write_at_once */
    bool patient;    /* it may wait a moment for a change that it can share a commit with */
    bool checkpoint; /* set by apply: what was freed goes back to the file system */
    bool waited;     /* somebody sleeps until it is settled, and owns it */
    bool settled;
};

/* Takes a task that malloc'ed memory begins with, also on failure. */
int writer_submit(struct store *store, struct task *task);
/* The caller's own task; returns once it is on disk, with its result. */
int writer_wait(struct store *store, struct task *task);
int writer_open(struct store *store, struct hc_err *err);
void writer_close(struct store *store); /* everything is written, every done is called */

enum {
    QUEUE_BYTES = 256 * 1024 * 1024,
    BATCH_TASKS = 1024,
    BATCH_BYTES = 32 * 1024 * 1024,
    USED_SLOTS = 64,
};

/* Which file it is, to notice that it was taken away. */
struct file_identity {
    dev_t device;
    ino_t inode;
};

struct store {
    struct hc_loop *loop; /* NULL: no thread */
    bool read_only;
    char *path, *wal_path;
    struct file_identity database, wal;
    struct connection writer, reader;
    int log_pages; /* of the write-ahead log, after the last commit; the thread's */

    /* The queue. All of it is under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t work, settled;
    struct task *first, *last;           /* to be written */
    size_t pressing;                     /* how many of them are not patient */
    bool busy;                           /* somebody is using `writer` */
    uint64_t usual_commit;               /* µs, a moving average; 0: not known yet */
    uint64_t came_last;                  /* when a task came before this one */
    struct task *done_first, *done_last; /* written, `done` not yet called */
    size_t bytes;                        /* of both lists and of the batch at hand */
    int status;                          /* of the last transaction */
    bool probing;                        /* a probe was sent, and nothing was written since */
    bool stopping;

    /* The caller's thread only. */
    pthread_t thread;
    bool thread_started;
    int eventfd;
    struct hc_watch *watch;
    uint64_t keys_version;
    struct {
        char name[64];
        int64_t when;
    } used[USED_SLOTS]; /* keys whose last use was written lately, by hash of the name */
};

bool store_in_place(const struct store *store); /* database and WAL are still the files that were opened */

#endif
