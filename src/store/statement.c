/*
 * Every SQL statement that is used more than once, in one table, prepared when the database is opened: a table that is
 * not as we know it is noticed then, and no statement is ever put together from values.
 */
#include "base/fd.h"
#include "store/internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The order that read_row() of history_read.c knows. */
#define RUN_COLUMNS                                                                                                    \
    "r.id, r.tenant, r.kind, r.status, r.language, r.exit_code, r.created_at, r.started_at, r.ended_at, r.wall_us, "   \
    "r.cpu_us, r.queue_us, r.memory_peak, r.keep_going, r.shape"
#define RUN_VALUES                                                                                                     \
    "(id, tenant, kind, status, language, exit_code, created_at, started_at, ended_at, wall_us, cpu_us, queue_us, "    \
    "memory_peak, keep_going, shape) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
#define COUNTS "SELECT status, SUM(runs), SUM(cpu_us), SUM(wall_us), 0 FROM counts "
#define TOTALS "SELECT status, COUNT(*), SUM(cpu_us), SUM(wall_us), MIN(created_at) FROM runs WHERE created_at >= ?1 "

static const struct {
    const char *sql;
    bool writing;
} TABLE[STATEMENT_COUNT] = {
    [WRITE_BEGIN] = {"BEGIN IMMEDIATE", true},
    [WRITE_COMMIT] = {"COMMIT", true},
    [WRITE_ROLLBACK] = {"ROLLBACK", true},
    [WRITE_RUN_INSERT] = {"INSERT INTO runs " RUN_VALUES " RETURNING seq", true},
    [WRITE_RUN_STARTED] = {"UPDATE runs SET status = 'running', started_at = ?2 WHERE id = ?1 AND status = 'queued'"
                           " RETURNING tenant",
                           true},
    /* Also without an insert before, which a full disk may have refused: a run that ended has its record. */
    [WRITE_RUN_FINISH] = {"INSERT INTO runs " RUN_VALUES
                          " ON CONFLICT (id) DO UPDATE SET status = excluded.status, exit_code = excluded.exit_code,"
                          " language = CASE excluded.language WHEN '' THEN language ELSE excluded.language END,"
                          " started_at = excluded.started_at, ended_at = excluded.ended_at,"
                          " wall_us = excluded.wall_us, cpu_us = excluded.cpu_us, queue_us = excluded.queue_us,"
                          " memory_peak = excluded.memory_peak, shape = coalesce(excluded.shape, shape)"
                          " RETURNING seq",
                          true},
    [WRITE_CONTENT] = {"INSERT OR REPLACE INTO contents (seq, size, request, result, log) VALUES (?1, ?2, ?3, ?4, ?5)",
                       true},
    [WRITE_COUNT] =
        {"INSERT INTO counts (tenant, status, runs, cpu_us, wall_us) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT"
         " (tenant, status) DO UPDATE SET runs = runs + excluded.runs, cpu_us = cpu_us + excluded.cpu_us,"
         " wall_us = wall_us + excluded.wall_us",
         true},
    [FIND_RUN] = {"SELECT tenant, status, cpu_us, wall_us FROM runs WHERE id = ?1", true},
    [WRITE_ERROR] =
        {"INSERT INTO errors (seq, tenant, language, fingerprint, at, shape) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
         " ON CONFLICT (seq) DO NOTHING RETURNING seq",
         true},
    [WRITE_ERROR_GROUP] =
        {"INSERT INTO error_groups (tenant, fingerprint, language, category, error_type, message, count, first_at,"
         " last_at, last_seq, last_run) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?7, ?8, ?9) ON CONFLICT (tenant,"
         " fingerprint) DO UPDATE SET count = count + 1, message = excluded.message, last_at = excluded.last_at,"
         " last_seq = excluded.last_seq, last_run = excluded.last_run",
         true},
    [FIND_OPEN_ERRORS] = {"SELECT seq, fingerprint, shape FROM errors WHERE tenant = ?1 AND language = ?2 AND seq < ?3"
                          " AND shape IS NOT NULL ORDER BY seq DESC LIMIT ?4",
                          true},
    [WRITE_ERROR_FIXED] = {"UPDATE errors SET fixed_by = ?2, shape = NULL WHERE seq = ?1", true},
    [WRITE_GROUP_FIXED] = {"UPDATE error_groups SET fixed_by = ?3 WHERE tenant = ?1 AND fingerprint = ?2", true},
    [FORGET_ERROR] = {"DELETE FROM errors WHERE seq = ?1 RETURNING tenant, fingerprint", true},
    /* Runs are forgotten from the oldest on: the rest of a group stays true of those that are left. */
    [WRITE_GROUP_LESS] = {"UPDATE error_groups SET count = count - 1, first_at = coalesce((SELECT at FROM errors WHERE"
                          " tenant = ?1 AND fingerprint = ?2 ORDER BY seq LIMIT 1), first_at)"
                          " WHERE tenant = ?1 AND fingerprint = ?2",
                          true},
    [FORGET_GROUP] = {"DELETE FROM error_groups WHERE tenant = ?1 AND fingerprint = ?2 AND count <= 0", true},
    [WRITE_KEY_INSERT] = {"INSERT INTO keys (name, prefix, hash, runs_per_minute, concurrent, cpu_seconds_per_day,"
                          " created_at, revoked_at, used_at, no_compile_cache)"
                          " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8)",
                          true},
    [WRITE_KEY_REVOKE] = {"UPDATE keys SET revoked_at = ?2 WHERE name = ?1 AND revoked_at = 0", true},
    [WRITE_KEY_USED] = {"UPDATE keys SET used_at = ?2 WHERE name = ?1 AND revoked_at = 0 AND used_at < ?2", true},
    [WRITE_KEYS_CHANGED] = {"UPDATE state SET value = value + 1 WHERE name = 'keys_version'", true},
    [WRITE_USAGE_ADD] = {"INSERT INTO usage (tenant, day, cpu_us, runs) VALUES (?1, ?2, ?3, ?4) ON CONFLICT"
                         " (tenant, day) DO UPDATE SET cpu_us = cpu_us + excluded.cpu_us, runs = runs + excluded.runs",
                         true},
    [WRITE_PROBE] = {"INSERT INTO state (name, value) VALUES ('probes', 1) ON CONFLICT (name) DO UPDATE SET value ="
                     " value + 1",
                     true},
    [FIND_STATE] = {"SELECT value FROM state WHERE name = ?1", true},
    [WRITE_STATE] = {"INSERT INTO state (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value ="
                     " excluded.value",
                     true},
    [PRUNE_BY_AGE] = {"SELECT seq FROM runs WHERE created_at < ?1 AND status NOT IN ('queued', 'running')"
                      " ORDER BY created_at LIMIT ?2",
                      true},
    [PRUNE_OLDEST] = {"SELECT r.seq, coalesce(c.size, 0) FROM runs r LEFT JOIN contents c ON c.seq = r.seq"
                      " WHERE r.status NOT IN ('queued', 'running') ORDER BY r.created_at LIMIT ?1",
                      true},
    /* Its content goes with it: ON DELETE CASCADE. */
    [PRUNE_DELETE] = {"DELETE FROM runs WHERE seq = ?1 RETURNING tenant, status, cpu_us, wall_us", true},
    [PRUNE_PAGES] = {"SELECT page_count, freelist_count, page_size FROM pragma_page_count(), pragma_freelist_count(),"
                     " pragma_page_size()",
                     true},
    [PRUNE_VACUUM] = {"PRAGMA incremental_vacuum(256)", true},
    [READ_RUN] = {"SELECT " RUN_COLUMNS ", c.request, c.result, c.log FROM runs r LEFT JOIN contents c ON c.seq = r.seq"
                  " WHERE r.id = ?1",
                  false},
    [READ_RUN_OF_TENANT] = {"SELECT " RUN_COLUMNS ", c.request, c.result, c.log FROM runs r LEFT JOIN contents c"
                            " ON c.seq = r.seq WHERE r.id = ?1 AND r.tenant = ?2",
                            false},
    [READ_UNFINISHED] = {"SELECT " RUN_COLUMNS
                         ", c.request, NULL, NULL FROM runs r LEFT JOIN contents c ON c.seq = r.seq"
                         " WHERE r.status IN ('queued', 'running') ORDER BY r.seq",
                         false},
    [READ_COUNTS] = {COUNTS "GROUP BY status", false},
    [READ_COUNTS_OF_TENANT] = {COUNTS "WHERE tenant = ?1 GROUP BY status", false},
    [READ_OLDEST] = {"SELECT min(created_at) FROM runs", false},
    /* By its place, which an index finds at once: rows are written in the order in which runs are made. */
    [READ_OLDEST_OF_TENANT] = {"SELECT created_at FROM runs WHERE tenant = ?1 ORDER BY seq LIMIT 1", false},
    [READ_TOTALS_SINCE] = {TOTALS "GROUP BY status", false},
    [READ_TOTALS_SINCE_OF_TENANT] = {TOTALS "AND tenant = ?2 GROUP BY status", false},
    [READ_BYTES] = {"SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()", false},
    [READ_KEYS] = {"SELECT name, prefix, hash, runs_per_minute, concurrent, cpu_seconds_per_day, created_at,"
                   " revoked_at, used_at, no_compile_cache FROM keys ORDER BY seq",
                   false},
    [READ_STATE] = {"SELECT value FROM state WHERE name = ?1", false},
    [READ_EXISTS] = {"SELECT 1 FROM runs WHERE id = ?1", false},
    [READ_USAGE] = {"SELECT cpu_us, runs FROM usage WHERE tenant = ?1 AND day = ?2", false},
};

int statements_prepare(struct connection *connection, bool writing)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        if (TABLE[i].writing != writing)
            continue;
        int code = sqlite3_prepare_v3(connection->db, TABLE[i].sql, -1, SQLITE_PREPARE_PERSISTENT,
                                      &connection->statements[i], NULL);
        if (code != SQLITE_OK)
            return code;
    }
    return SQLITE_OK;
}

void statements_finalize(struct connection *connection)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        sqlite3_finalize(connection->statements[i]);
        connection->statements[i] = NULL;
    }
}

struct binding bind_start(const struct connection *connection, enum statement which)
{
    sqlite3_stmt *statement = connection->statements[which];
    /* A callback that asks the same question while it is being answered would end the outer reading. */
    int code = statement == NULL || sqlite3_stmt_busy(statement) ? SQLITE_MISUSE : SQLITE_OK;
    return (struct binding){.db = connection->db, .statement = statement, .next = 1, .code = code};
}

static void keep_first(struct binding *binding, int code)
{
    if (binding->code == SQLITE_OK)
        binding->code = code;
}

void bind_bytes(struct binding *binding, const char *text, size_t length)
{
    if (binding->code == SQLITE_OK)
        keep_first(binding,
                   sqlite3_bind_text64(binding->statement, binding->next++, text, length, SQLITE_STATIC, SQLITE_UTF8));
}

void bind_text(struct binding *binding, const char *text)
{
    bind_bytes(binding, text, text != NULL ? strlen(text) : 0);
}

void bind_blob(struct binding *binding, const void *data, size_t length)
{
    if (binding->code == SQLITE_OK)
        keep_first(binding, sqlite3_bind_blob64(binding->statement, binding->next++, data, length, SQLITE_STATIC));
}

void bind_number(struct binding *binding, int64_t number)
{
    if (binding->code == SQLITE_OK)
        keep_first(binding, sqlite3_bind_int64(binding->statement, binding->next++, number));
}

bool bind_row(struct binding *binding)
{
    if (binding->code != SQLITE_OK)
        return false;
    int code = sqlite3_step(binding->statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        keep_first(binding, code);
    return code == SQLITE_ROW;
}

int bind_end(struct binding *binding)
{
    if (binding->code == SQLITE_MISUSE)
        return -EDEADLK;
    int status = store_errno(binding->db, binding->code);
    sqlite3_reset(binding->statement);
    sqlite3_clear_bindings(binding->statement);
    return status;
}

int bind_run(struct binding *binding)
{
    while (bind_row(binding))
        ;
    return bind_end(binding);
}

int store_errno(sqlite3 *db, int code)
{
    int system = db != NULL ? sqlite3_system_errno(db) : 0;
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (code == SQLITE_IOERR_NOMEM)
            return -ENOMEM;
        if (system == ENOSPC || system == EDQUOT)
            return -ENOSPC;
        return (code & 0xff) == SQLITE_CANTOPEN && (system == EACCES || system == ENOENT) ? -system : -EIO;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return -EACCES;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EBADMSG;
    case SQLITE_CONSTRAINT:
        return -EEXIST;
    case SQLITE_TOOBIG:
        return -EFBIG;
    default:
        return -EIO;
    }
}

void store_column(sqlite3_stmt *statement, int column, char *text, size_t size)
{
    const char *value = (const char *)sqlite3_column_text(statement, column);
    snprintf(text, size, "%s", value != NULL ? value : "");
}
