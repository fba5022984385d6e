/*
 * One transaction of the database: what is pending in the journal, then a batch of other changes.
 *
 * A commit that nobody relies on (the journal holds what is in it) is not synced: SQLite's synchronous=NORMAL. A later
 * one that is synced takes all before it to the disk, for they are one file, the write-ahead log.
 *
 * What always holds: after a sync that failed, nothing that was committed without one is believed to be in the log's
 * file. The kernel may have forgotten what it could not write, and the next sync would say that all is well, with a
 * hole in the log before what it synced (lwn.net/Articles/752063). So the log is first written once more, over itself.
 */
#include "store/internal.h"
#include <errno.h>

static bool concerns_one(int status)
{
    return status == -EEXIST || status == -ENOENT;
}

static int run(struct store *store, enum statement which)
{
    struct binding binding = bind_start(&store->writer, which);
    return bind_run(&binding);
}

static int apply_all(struct store *store, struct task *batch)
{
    for (struct task *task = batch; task != NULL; task = task->next) {
        if (task->refused)
            continue;
        task->result = task->apply(store, task);
        if (task->result < 0 && !concerns_one(task->result))
            return task->result;
    }
    return 0;
}

/* Their results were told long ago, and another thread may be telling them now. */
static int apply_pending(struct store *store, struct task *pending)
{
    int status = 0;
    for (struct task *task = pending; task != NULL && status == 0; task = task->next) {
        status = task->apply(store, task);
        if (concerns_one(status))
            status = 0;
    }
    return status;
}

static int write_state(struct store *store, const char *name, uint64_t value)
{
    struct binding binding = bind_start(&store->writer, WRITE_STATE);
    bind_text(&binding, name);
    bind_number(&binding, (int64_t)value);
    return bind_run(&binding);
}

static int write_applied(struct store *store, const struct commit *commit)
{
    int status = write_state(store, "journal_id", commit->journal);
    return status < 0 ? status : write_state(store, "journal_applied", commit->applied);
}

static int set_relaxed(struct store *store, bool relaxed)
{
    if (store->relaxed == relaxed)
        return 0;
    const char *sql = relaxed ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL";
    int code = sqlite3_exec(store->writer.db, sql, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        store->relaxed = relaxed;
    return store_errno(store->writer.db, code);
}

/* Only to give space back: it loses nothing when it cannot. */
void commit_checkpoint(struct store *store)
{
    int code = sqlite3_wal_checkpoint_v2(store->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if ((code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_FULL)
        store->doubtful |= store->unsynced;
}

/* Inside a transaction, so that nobody else writes to it. */
static int write_log_again(struct store *store)
{
    sqlite3_file *log = NULL;
    sqlite3_int64 size = 0;
    char bytes[32 * 1024];
    int code = sqlite3_file_control(store->writer.db, "main", SQLITE_FCNTL_JOURNAL_POINTER, (void *)&log);
    if (code == SQLITE_OK)
        code = log != NULL && log->pMethods != NULL ? log->pMethods->xFileSize(log, &size) : SQLITE_IOERR;
    for (sqlite3_int64 at = 0; at < size && code == SQLITE_OK; at += (sqlite3_int64)sizeof bytes) {
        int part = size - at < (sqlite3_int64)sizeof bytes ? (int)(size - at) : (int)sizeof bytes;
        code = log->pMethods->xRead(log, bytes, part, at);
        if (code == SQLITE_OK)
            code = log->pMethods->xWrite(log, bytes, part, at);
    }
    if (code == SQLITE_OK)
        code = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
    store->doubtful = code != SQLITE_OK;
    return store_errno(NULL, code);
}

static int begin(struct store *store, bool durable)
{
    if (!store_in_place(store))
        return -ESTALE;
    int status = set_relaxed(store, !durable);
    if (status == 0)
        status = run(store, WRITE_BEGIN);
    return status == 0 && store->doubtful ? write_log_again(store) : status;
}

static int end(struct store *store, bool durable)
{
    /* A commit that changes nothing syncs nothing, and the commits before it rely on its sync. */
    int status = durable && store->unsynced ? run(store, WRITE_PROBE) : 0;
    if (status == 0)
        status = run(store, WRITE_COMMIT);
    if (status == 0)
        store->unsynced = !durable;
    else if (durable && store->unsynced)
        store->doubtful = true;
    return status == 0 && !store_in_place(store) ? -ESTALE : status;
}

int commit_write(struct store *store, const struct commit *commit)
{
    int status = begin(store, commit->durable);
    if (status == 0)
        status = apply_pending(store, commit->pending);
    if (status == 0)
        status = apply_all(store, commit->batch);
    if (status == 0 && commit->journal > 0)
        status = write_applied(store, commit);
    if (status == 0)
        status = end(store, commit->durable);
    if (sqlite3_get_autocommit(store->writer.db) == 0)
        run(store, WRITE_ROLLBACK);
    bool give_back = false;
    for (struct task *task = commit->batch; task != NULL; task = task->next) {
        if (status < 0 && !task->refused)
            task->result = status;
        give_back |= task->checkpoint;
    }
    if (give_back && status == 0)
        commit_checkpoint(store);
    return status;
}
