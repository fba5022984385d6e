/*
 * The tables, and how an older database becomes one of today. user_version counts the steps of MIGRATIONS that a
 * database has behind it: a step is never changed once it was released, a new one is added behind. All missing steps
 * happen in one transaction.
 *
 * What always holds: a file that is damaged, not ours, or newer than we are is left as it is.
 */
#include "store/internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    APPLICATION_ID = 0x4843454c,           /* "HCEL", for file(1) */
    CHECKED_WHOLE_BYTES = 64 * 1024 * 1024 /* a larger database would hold up the start for too long */
};

static const char *const MIGRATIONS[] = {
    /* What is listed and counted is apart from what is large, so that a listing reads few pages. Times are µs since the
     * epoch. */
    "CREATE TABLE runs ("
    " seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL,"
    " language TEXT NOT NULL, exit_code INTEGER NOT NULL, created_at INTEGER NOT NULL, started_at INTEGER NOT NULL,"
    " ended_at INTEGER NOT NULL, wall_us INTEGER NOT NULL, cpu_us INTEGER NOT NULL, queue_us INTEGER NOT NULL,"
    " memory_peak INTEGER NOT NULL, keep_going INTEGER NOT NULL, shape TEXT) STRICT;"
    "CREATE INDEX runs_by_tenant ON runs (tenant, seq);"
    "CREATE INDEX runs_by_status ON runs (tenant, status, seq);"
    "CREATE INDEX runs_by_language ON runs (tenant, language, seq);"
    "CREATE INDEX runs_by_time ON runs (created_at);"
    "CREATE INDEX runs_unfinished ON runs (seq) WHERE status IN ('queued', 'running');"
    "CREATE TABLE contents ("
    " seq INTEGER PRIMARY KEY REFERENCES runs (seq) ON DELETE CASCADE, size INTEGER NOT NULL, request TEXT,"
    " result TEXT, log BLOB) STRICT;"
    /* The sums over `runs`, kept with every change: counting a year of runs would take too long to do it when asked. */
    "CREATE TABLE counts ("
    " tenant TEXT NOT NULL, status TEXT NOT NULL, runs INTEGER NOT NULL, cpu_us INTEGER NOT NULL,"
    " wall_us INTEGER NOT NULL, PRIMARY KEY (tenant, status)) STRICT, WITHOUT ROWID;"
    /* A name may be given again once its key is revoked: it is the same tenant with a new key. */
    "CREATE TABLE keys ("
    " seq INTEGER PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, hash BLOB NOT NULL UNIQUE,"
    " runs_per_minute INTEGER NOT NULL, concurrent INTEGER NOT NULL, cpu_seconds_per_day INTEGER NOT NULL,"
    " created_at INTEGER NOT NULL, revoked_at INTEGER NOT NULL, used_at INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX keys_in_force ON keys (name) WHERE revoked_at = 0;"
    "CREATE TABLE usage ("
    " tenant TEXT NOT NULL, day INTEGER NOT NULL, cpu_us INTEGER NOT NULL, runs INTEGER NOT NULL,"
    " PRIMARY KEY (tenant, day)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "INSERT INTO state (name, value) VALUES ('keys_version', 1);",
    "ALTER TABLE keys ADD COLUMN no_compile_cache INTEGER NOT NULL DEFAULT 0;",
    /* One row for each failure, and one for all with the same fingerprint, so that neither asking whether it was there
     * before nor listing them reads many. A failure is open until a run of similar code succeeds. */
    "CREATE TABLE errors ("
    " seq INTEGER PRIMARY KEY REFERENCES runs (seq) ON DELETE CASCADE, tenant TEXT NOT NULL, language TEXT NOT NULL,"
    " fingerprint TEXT NOT NULL, at INTEGER NOT NULL, shape BLOB, fixed_by TEXT) STRICT;"
    "CREATE INDEX errors_by_fingerprint ON errors (tenant, fingerprint, seq);"
    "CREATE INDEX errors_open ON errors (tenant, language, seq) WHERE shape IS NOT NULL;"
    "CREATE TABLE error_groups ("
    " tenant TEXT NOT NULL, fingerprint TEXT NOT NULL, language TEXT NOT NULL, category TEXT NOT NULL,"
    " error_type TEXT NOT NULL, message TEXT NOT NULL, count INTEGER NOT NULL, first_at INTEGER NOT NULL,"
    " last_at INTEGER NOT NULL, last_seq INTEGER NOT NULL, last_run TEXT NOT NULL, fixed_by TEXT,"
    " PRIMARY KEY (tenant, fingerprint)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX error_groups_by_time ON error_groups (tenant, last_seq);"
    "CREATE INDEX error_groups_by_type ON error_groups (tenant, error_type, last_seq);",
};
enum { VERSION = sizeof MIGRATIONS / sizeof *MIGRATIONS };

static int damaged(const char *path, const char *why, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_HOST, EBADMSG, "%s is damaged: %s", path, why);
    return hc_err_remedy(
        err, "nothing was changed; move it away together with its -wal and -runs files and a new one is made, or "
             "get out what can be read with `sqlite3 FILE .recover`");
}

int schema_fail(sqlite3 *db, int code, const char *path, const char *what, struct hc_err *err)
{
    int status = store_errno(db, code);
    const char *why = db != NULL ? sqlite3_errmsg(db) : sqlite3_errstr(code);
    if (status == -EBADMSG)
        return damaged(path, why, err);
    return hc_fail(err, HC_CLASS_HOST, status < 0 ? -status : EIO, "%s: %s: %s", path, what, why);
}

static int exec(sqlite3 *db, const char *sql, const char *path, const char *what, struct hc_err *err)
{
    int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : schema_fail(db, code, path, what, err);
}

/* The first column of the first row; `text` may be NULL. An SQLite code; SQLITE_OK also for no row at all. */
static int ask(sqlite3 *db, const char *sql, int64_t *number, char *text, size_t size)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *number = sqlite3_column_int64(statement, 0);
        if (text != NULL)
            store_column(statement, 0, text, size);
        code = sqlite3_step(statement); /* a change (journal_mode) answers first and fails after */
    }
    if (code == SQLITE_ROW || code == SQLITE_DONE)
        code = SQLITE_OK;
    sqlite3_finalize(statement);
    return code;
}

struct identity {
    int64_t application, version, tables;
};

static int identify(sqlite3 *db, const char *path, struct identity *found, struct hc_err *err)
{
    int code = ask(db, "SELECT count(*) FROM sqlite_schema", &found->tables, NULL, 0);
    if (code == SQLITE_OK)
        code = ask(db, "PRAGMA application_id", &found->application, NULL, 0);
    if (code == SQLITE_OK)
        code = ask(db, "PRAGMA user_version", &found->version, NULL, 0);
    if (code != SQLITE_OK)
        return schema_fail(db, code, path, "cannot be read", err);
    bool new = found->application == 0 && found->version == 0 && found->tables == 0;
    if (!new && found->application != APPLICATION_ID) {
        hc_fail(err, HC_CLASS_HOST, EBADMSG, "%s is a database, but not one of hotcell's", path);
        return hc_err_remedy(err, "move it away, or use another state folder");
    }
    if (found->version > VERSION) {
        hc_fail(err, HC_CLASS_HOST, EPROTONOSUPPORT,
                "%s was written by a newer hotcell (its format is %lld, this one knows %d)", path,
                (long long)found->version, (int)VERSION);
        return hc_err_remedy(err, "use that version of hotcell, or another state folder");
    }
    return 0;
}

static int migrate(sqlite3 *db, const char *path, struct hc_err *err)
{
    struct identity found = {0};
    /* Asked again inside: another process may just have done it. */
    int status = exec(db, "BEGIN IMMEDIATE", path, "cannot be locked", err);
    if (status == 0)
        status = identify(db, path, &found, err);
    for (int64_t step = found.version; status == 0 && step < VERSION; step++)
        status = exec(db, MIGRATIONS[step], path, "the tables cannot be made", err);
    if (status == 0 && found.version < VERSION) {
        char sql[96];
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID, (int)VERSION);
        status = exec(db, sql, path, "cannot be marked", err);
    }
    if (status == 0)
        status = exec(db, "COMMIT", path, "the tables cannot be written", err);
    if (status < 0 && sqlite3_get_autocommit(db) == 0)
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

static int check(sqlite3 *db, const char *path, struct hc_err *err)
{
    static const char *const whole[] = {"PRAGMA quick_check(1)", NULL};
    static const char *const small[] = {"PRAGMA quick_check(keys)", "PRAGMA quick_check(usage)",
                                        "PRAGMA quick_check(state)", NULL};
    int64_t bytes = 0, ignored;
    int code = ask(db, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()", &bytes, NULL, 0);
    const char *const *question = bytes <= CHECKED_WHOLE_BYTES ? whole : small;
    for (; code == SQLITE_OK && *question != NULL; question++) {
        char answer[256] = "no answer";
        code = ask(db, *question, &ignored, answer, sizeof answer);
        if (code == SQLITE_OK && strcmp(answer, "ok") != 0)
            return damaged(path, answer, err);
    }
    return code == SQLITE_OK ? 0 : schema_fail(db, code, path, "the check failed", err);
}

static int become_wal(sqlite3 *db, const char *path, struct hc_err *err)
{
    int64_t ignored;
    char mode[16] = "";
    int code = ask(db, "PRAGMA journal_mode = WAL", &ignored, mode, sizeof mode);
    if (code != SQLITE_OK)
        return schema_fail(db, code, path, "cannot be opened for writing", err);
    if (strcmp(mode, "wal") != 0)
        return hc_fail(err, HC_CLASS_HOST, ENOTSUP, "%s: the file system cannot hold a write-ahead log (mode %s)", path,
                       mode);
    return 0;
}

int schema_prepare(sqlite3 *db, const char *path, bool read_only, struct hc_err *err)
{
    struct identity found = {0};
    int status = identify(db, path, &found, err);
    if (status < 0)
        return status;
    if (read_only && found.version < VERSION)
        return hc_fail(err, HC_CLASS_HOST, ENOENT, "%s is from an older hotcell, or was never written to", path);
    if (read_only)
        return 0;
    if (found.version > 0)
        status = check(db, path, err);
    else /* it is taken over only before the first table */
        status = exec(db, "PRAGMA auto_vacuum = INCREMENTAL", path, "cannot be set up", err);
    if (status == 0)
        status = become_wal(db, path, err);
    if (status == 0)
        status = migrate(db, path, err);
    return status;
}
