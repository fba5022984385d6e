/*
 * What the files of the store share. Two connections to one database: `writer`, which belongs to the writing thread
 * (or to the caller, where there is no loop), and `reader`, which belongs to the caller. Neither is ever used by two
 * threads.
 */
#ifndef HC_STORE_INTERNAL_H
#define HC_STORE_INTERNAL_H

#include "store/journal.h"
#include "store/record.h"
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
    FIND_STATE,
    WRITE_STATE,
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
    READ_STATE,
    READ_EXISTS,
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

/* ---- tasks: a change that waits ---- */
enum { TASK_AGAIN = 1 };
struct task {
    struct task *next;
    /* Inside a transaction, on the writer's thread. 0; -errno; TASK_AGAIN: commit, let others go first, call again. */
    int (*apply)(struct store *store, struct task *task);
    store_done_fn done;
    void *data;
    size_t bytes; /* what it holds in memory */
    int result;
    size_t record;   /* its size in the journal; 0: it goes into the database at once */
    bool alone;      /* a transaction of its own */
    bool prompt;     /* somebody waits for it, and it is worth holding up the caller for a moment: see write_at_once */
    bool patient;    /* it may wait a moment for a change that it can share a commit with */
    bool refused;    /* it is known that it changes nothing: `result` says why */
    bool checkpoint; /* set by apply: what was freed goes back to the file system */
    bool waited;     /* somebody sleeps until it is settled, and owns it */
    bool settled;
    /* Of one that is in the journal: it is freed once the database has it and its `done` was called. */
    bool pending, told;
    struct task *done_next;
    struct task *same_slot; /* ids.c */
};

/* ---- change.c ---- */
/* A change that the journal can hold: its task, with a copy of all that it needs. */
struct change {
    struct task task; /* first: a task is freed as a whole */
    struct record record;
    char bytes[]; /* shape, request, result, log, each with a NUL behind */
};
/* -EFBIG: it would not fit into the queue; -ENOMEM. `record` is copied with what it points to. */
int change_new(const struct record *record, store_done_fn done, void *data, struct change **out);
/* The changes of an entry, in order. */
int change_read(const struct journal_entry *entry, struct task **first, struct task **last);

int history_apply_insert(struct store *store, struct task *task);
int history_apply_started(struct store *store, struct task *task);
int history_apply_finish(struct store *store, struct task *task);
int usage_apply(struct store *store, struct task *task);

void task_append(struct task **first, struct task **last, struct task *task);
void task_free_all(struct task *first);

/* ---- ids.c ---- */
/* Ids of inserts that the database does not have yet, so that the second of two is told so before it is in the journal.
 * Under `lock`. */
enum { ID_SLOTS = 256 };
void ids_add(struct store *store, struct task *insert);
void ids_remove(struct store *store, const struct task *task); /* one that is not there: does nothing */
bool ids_has(const struct store *store, const char *id);

/* ---- commit.c ---- */
struct commit {
    struct task *pending; /* from the journal: what concerns one of them alone is nobody's to hear any more */
    struct task *batch;   /* each gets its `result` */
    uint64_t journal;     /* its id, 0: there is none; and its number up to which the database then has it all: */
    uint64_t applied;
    bool durable; /* on disk when it returns; else the journal still holds it */
};
/* One transaction. As a whole it succeeds or fails. By whoever has the writer. */
int commit_write(struct store *store, const struct commit *commit);
void commit_checkpoint(struct store *store);

/* ---- recover.c ---- */
/* Opens the journal, and takes what the database does not have of it as pending. It is tried once to apply it, together
 * with a first change, which must be one: with it, what a process that was killed had committed without a sync gets
 * one, before the journal's blocks are used again. */
int recover_own(struct store *store, struct task *first, struct hc_err *err);
/* For whoever has no journal of its own: what another process acknowledged is in the database when this returns 0. It
 * waits for that process, which applies it within moments, or does it itself where that is gone. -EBUSY: not yet. */
int recover_follow(struct store *store, struct hc_err *err);

/* ---- writer.c ---- */
/* Takes a task that malloc'ed memory begins with, also on failure. */
int writer_submit(struct store *store, struct task *task);
/* The caller's own task; returns once it is on disk, with its result. */
int writer_wait(struct store *store, struct task *task);
int writer_open(struct store *store, struct hc_err *err);
void writer_close(struct store *store); /* everything is written, every done is called */
/* Before reading: what was acknowledged is in the database. -errno: not all of it, and the rest can be read. */
int writer_settle(struct store *store);

/* ---- batch.c ---- */
/* With the lock held, which is let go meanwhile. The queue is not empty, and nobody else is writing; for what does not
 * go into the journal, nobody has the writer either. */
void batch_write(struct store *store);
/* Whether a batch that begins with this task goes into the journal. */
bool batch_is_for_journal(const struct store *store, const struct task *task);

/* ---- keys.c ---- */
/* By whoever has made a commit and still has the writer. */
void keys_after_commit(struct store *store);

/* ---- pending.c ---- all with the lock held */
void pending_add(struct store *store, struct task *task);
/* When it is to be applied, on hc_now's clock; UINT64_MAX: there is nothing. */
uint64_t pending_due(const struct store *store);
/* Takes the writer, which nobody has; the lock is let go meanwhile. */
int pending_apply(struct store *store, bool durable);
/* The same, with a batch of changes that are not in the journal. */
int pending_apply_with(struct store *store, struct task *batch);

enum {
    QUEUE_BYTES = 256 * 1024 * 1024,
    BATCH_TASKS = 1024,
    BATCH_BYTES = 32 * 1024 * 1024,
    RECORD_BYTES = 64 * 1024, /* what is larger goes into the database at once: it would be written twice */
    USED_SLOTS = 64,
    INDEX_HEADER = 96,
    INDEX_BYTES = 32 * 1024, /* SQLite maps so much of it at a time */
    PATIENCE_US = 50 * 1000,
};

/* The version of the keys, and the header of the log's index as it was before that was read: as long as it is the same,
 * so is the version. */
struct keys_known {
    bool known;
    uint64_t version;
    unsigned char header[INDEX_HEADER];
};

/* Which file it is, to notice that it was taken away. */
struct file_identity {
    dev_t device;
    ino_t inode;
};

struct store {
    struct hc_loop *loop; /* NULL: no thread */
    bool read_only;
    char *folder, *path, *wal_path, *journal_path;
    struct file_identity database, wal, journal_file;
    struct connection writer, reader;
    _Atomic int log_pages;   /* of the write-ahead log, after the last commit */
    bool relaxed;            /* commits are not synced now; the writer's */
    bool unsynced, doubtful; /* commit.c; the writer's */
    struct journal *journal; /* NULL: everything goes into the database at once */

    /* The queue. All of it is under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t work, settled;
    struct task *first, *last;           /* to be written */
    size_t pressing;                     /* how many of them are not patient */
    bool owes_wake;                      /* the thread may have to be woken: soon, by who comes next, */
    struct hc_timer *owed;               /* or, where nobody comes, by this; the loop's */
    bool at_once;                        /* the loop is writing one itself, and looks at `done_first` afterwards */
    struct hc_timer *told;               /* when it does; the loop's */
    struct hc_timer *expected;           /* then it is seen to that the next end takes less time; the loop's */
    uint64_t expected_at;                /* when that is to be */
    uint64_t waiting_since;              /* when the first of them came */
    bool busy;                           /* somebody is using `writer` */
    bool writing;                        /* somebody is making a batch of the queue durable */
    uint64_t usual_commit;               /* µs that this takes, a moving average; 0: not known yet */
    uint64_t came_last;                  /* when a task came before this one */
    uint64_t gather;                     /* µs that prompt ones wait for others; the loop's */
    uint64_t gather_until;               /* when those that do are to be written; UINT64_MAX: there are none */
    struct task *done_first, *done_last; /* durable, `done` not yet called */
    size_t bytes;                        /* of both lists and of the batch at hand */
    int status;                          /* of the last transaction */
    bool probing;                        /* a probe was sent, and nothing was written since */
    bool stopping;
    uint64_t thread_sleeps_until; /* 0: it is awake */

    /* What is in the journal and not in the database. Under `lock`. */
    struct task *pending_first, *pending_last;
    size_t pending_count;
    uint64_t pending_since;     /* when the first of them came */
    uint64_t pending_not_until; /* the last try failed: the next one is then */
    uint64_t pending_sequence;  /* of the last of them */
    uint64_t pending_mark;      /* and where the journal is behind it */
    bool journal_failed;        /* its last write: the next batch goes into the database at once */
    struct task *ids[ID_SLOTS];
    struct keys_known keys_committed; /* after the last commit of our own */

    /* The caller's thread only. */
    pthread_t thread;
    bool thread_started;
    int eventfd;
    struct hc_watch *watch;
    struct keys_known keys;
    const volatile void *index; /* keys.c: of the write-ahead log; it does not change once it is there */
    struct {
        char name[64];
        int64_t when;
    } used[USED_SLOTS]; /* keys whose last use was written lately, by hash of the name */
};

bool store_identify(const char *path, struct file_identity *identity);
bool store_in_place(const struct store *store); /* database, WAL and journal are still the files that were opened */
/* The file `path`, empty, where it is not there: for its owner alone, and root makes it for whom the folder belongs to.
 */
int store_make_file(const char *folder, const char *path, struct hc_err *err);
/* `writer`, and which files it has. */
int store_open_writer(struct store *store, struct hc_err *err);
void store_close_writer(struct store *store);

#endif
