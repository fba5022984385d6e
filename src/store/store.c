/*
 * The store's life: its folder, its files, its two connections.
 *
 * What always holds: nothing outside the folder is opened, and no file is opened after store_open returned (the process
 * may have sealed itself by then) but those of the database itself. Temporary tables and sorting stay in memory. The
 * file is the gateway's, and root may read it with the command line: so a connection believes nothing that the file
 * says about code to run (triggers, views, functions in the schema).
 */
#include "base/fd.h"
#include "store/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const store_statuses[] = {"queued", "running",      "completed",  "error",  "compile_error", "timeout",
                                      "oom",    "output_limit", "pids_limit", "killed", "internal",      NULL};

int store_make_file(const char *folder, const char *path, struct hc_err *err)
{
    hc_cleanup_fd int directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;
    if (directory < 0 || fstat(directory, &status) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "the state folder %s", folder);
    hc_cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return 0;
    if (fd < 0 || fchmod(fd, 0600) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot make %s", path);
    if (geteuid() == 0 && fchown(fd, status.st_uid, status.st_gid) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot give %s to the owner of its folder", path);
    if (fsync(directory) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "the state folder %s", folder);
    return 0;
}

static int harden(sqlite3 *db)
{
    static const struct {
        int option, value;
    } settings[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
        {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1},
        {SQLITE_DBCONFIG_DQS_DML, 0},
        {SQLITE_DBCONFIG_DQS_DDL, 0},
        {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int code = sqlite3_db_config(db, settings[i].option, settings[i].value, NULL);
        if (code != SQLITE_OK)
            return code;
    }
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 2 * QUEUE_BYTES);
    sqlite3_busy_timeout(db, 5000);
    /* cell_size_check: a page that contradicts itself is an error rather than a wrong answer. */
    return sqlite3_exec(db,
                        "PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA synchronous = FULL;"
                        "PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON; PRAGMA cache_size = -1024;"
                        "PRAGMA wal_autocheckpoint = 1000; PRAGMA journal_size_limit = 16777216",
                        NULL, NULL, NULL);
}

static int open_connection(const char *path, bool writing, struct connection *connection, struct hc_err *err)
{
    int flags = (writing ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
                SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
    int code = sqlite3_open_v2(path, &connection->db, flags, NULL);
    if (code == SQLITE_OK)
        code = harden(connection->db);
    return code == SQLITE_OK ? 0 : schema_fail(connection->db, code, path, "cannot be opened", err);
}

static int prepare(const char *path, bool writing, struct connection *connection, struct hc_err *err)
{
    int code = statements_prepare(connection, writing);
    return code == SQLITE_OK ? 0 : schema_fail(connection->db, code, path, "its tables are not as expected", err);
}

bool store_identify(const char *path, struct file_identity *identity)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return false;
    *identity = (struct file_identity){status.st_dev, status.st_ino};
    return true;
}

int store_open_writer(struct store *store, struct hc_err *err)
{
    int status = open_connection(store->path, true, &store->writer, err);
    if (status == 0)
        status = schema_prepare(store->writer.db, store->path, false, err);
    if (status == 0)
        status = prepare(store->path, true, &store->writer, err);
    if (status == 0 && !(store_identify(store->path, &store->database) && store_identify(store->wal_path, &store->wal)))
        status = hc_fail_errno(err, HC_CLASS_HOST, errno, "%s", store->path);
    return status;
}

void store_close_writer(struct store *store)
{
    statements_finalize(&store->writer);
    sqlite3_close(store->writer.db);
    store->writer.db = NULL;
}

static int open_database(struct store *store, struct hc_err *err)
{
    int status = store->read_only ? 0 : store_open_writer(store, err);
    if (status == 0)
        status = open_connection(store->path, false, &store->reader, err);
    if (status == 0)
        status = schema_prepare(store->reader.db, store->path, true, err);
    if (status == 0)
        status = prepare(store->path, false, &store->reader, err);
    return status;
}

static bool is_still(const char *path, const struct file_identity *identity)
{
    struct file_identity found;
    return store_identify(path, &found) && found.device == identity->device && found.inode == identity->inode;
}

/* SQLite goes on writing to a file that was removed, and what it writes is gone with the process. The WAL is there, and
 * the same, as long as a connection is open. */
bool store_in_place(const struct store *store)
{
    return is_still(store->path, &store->database) && is_still(store->wal_path, &store->wal) &&
           (store->journal == NULL || is_still(store->journal_path, &store->journal_file));
}

static int name_files(struct store *store, const char *folder, struct hc_err *err)
{
    /* SQLite is told to follow no symbolic link; those on the way to the folder are the operator's affair. */
    hc_cleanup_free char *real = realpath(folder, NULL);
    if (real == NULL)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "the state folder %s", folder);
    if (asprintf(&store->path, "%s/history.db", real) < 0 ||
        asprintf(&store->wal_path, "%s/history.db-wal", real) < 0 ||
        asprintf(&store->journal_path, "%s/history.db-runs", real) < 0)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    store->folder = HC_TAKE_PTR(real);
    /* Before SQLite opens it, which would make it readable to all. Its -wal and -shm get the same mode and owner. */
    if (!store->read_only)
        return store_make_file(store->folder, store->path, err);
    if (access(store->path, F_OK) < 0) {
        hc_fail_errno(err, HC_CLASS_HOST, errno, "no history in %s", store->folder);
        return hc_err_remedy(err, "start the server once, or name its state folder");
    }
    return 0;
}

/* A server that is too busy to apply what it has is no reason not to open; and what is there can be read. */
static int catch_up(struct store *store, struct hc_err *err)
{
    int status = recover_follow(store, err);
    if (status != -EBUSY && status != -ENOSPC)
        return status;
    hc_err_clear(err);
    return 0;
}

int store_open(const char *folder, struct hc_loop *loop, bool read_only, struct store **out, struct hc_err *err)
{
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    *store = (struct store){.loop = loop, .read_only = read_only, .eventfd = -1, .gather_until = UINT64_MAX};
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->work, NULL);
    pthread_cond_init(&store->settled, NULL);
    int status = name_files(store, folder, err);
    if (status == 0)
        status = open_database(store, err);
    if (status == 0)
        status = loop != NULL && !read_only ? writer_open(store, err) : catch_up(store, err);
    if (status < 0) {
        store_close(store);
        return status;
    }
    store_version(store);
    *out = store;
    return 0;
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    writer_close(store);
    /* The writer last: the last one to close puts the WAL into the database. */
    statements_finalize(&store->reader);
    sqlite3_close(store->reader.db);
    store_close_writer(store);
    pthread_cond_destroy(&store->settled);
    pthread_cond_destroy(&store->work);
    pthread_mutex_destroy(&store->lock);
    free(store->journal_path);
    free(store->wal_path);
    free(store->path);
    free(store->folder);
    free(store);
}
