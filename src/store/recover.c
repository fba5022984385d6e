/*
 * What a journal holds that the database has not: after a crash, or beside a server that is about to apply it.
 *
 * The database names its journal (`journal_id`) and knows up to which entry it has it (`journal_applied`), both in the
 * transaction that applies, so doing it twice, or being killed while doing it, changes nothing. A database that names
 * none (new, or from before there were journals) takes the one that is there. One that names another is not touched,
 * and neither is the journal, unless there is nothing in it.
 */
#include "store/internal.h"
#include <errno.h>
#include <unistd.h>

enum { FOLLOW_US = 2 * 1000 * 1000, FOLLOW_STEP_US = 2000 };

struct known {
    uint64_t id, applied; /* 0: none */
};

static int ask(const struct connection *connection, enum statement which, const char *name, uint64_t *number)
{
    struct binding binding = bind_start(connection, which);
    bind_text(&binding, name);
    *number = bind_row(&binding) ? (uint64_t)sqlite3_column_int64(binding.statement, 0) : 0;
    return bind_end(&binding);
}

static int ask_known(const struct connection *connection, enum statement which, struct known *known)
{
    int status = ask(connection, which, "journal_id", &known->id);
    return status < 0 ? status : ask(connection, which, "journal_applied", &known->applied);
}

/* Entries that the database has not. -EBADMSG: they are another database's. */
static int read_new(struct journal *journal, const struct known *known, struct journal_content *content)
{
    bool ours = known->id == journal_id(journal);
    int status = journal_read(journal, ours ? known->applied : 0, content);
    if (status == 0 && content->count > 0 && known->id != 0 && !ours)
        return -EBADMSG;
    return status;
}

static uint64_t last_of(const struct journal_content *content)
{
    return content->count > 0 ? content->entries[content->count - 1].sequence : 0;
}

static int read_changes(const struct journal_content *content, struct task **first, struct task **last)
{
    int status = 0;
    for (size_t i = 0; i < content->count && status == 0; i++)
        status = change_read(&content->entries[i], first, last);
    return status;
}

static int fail(const struct store *store, int status, struct hc_err *err)
{
    if (status != -EBADMSG)
        return hc_fail_errno(err, HC_CLASS_HOST, -status, "reading the journal %s", store->journal_path);
    hc_fail(err, HC_CLASS_HOST, EBADMSG, "%s holds runs that are not of %s, or cannot be read", store->journal_path,
            store->path);
    return hc_err_remedy(err, "nothing was changed; put back the database that it belongs to, or move it away");
}

/* ---- the owner ---- */

/* What is new becomes pending; nothing is written over it before it is applied. */
static int load(struct store *store, struct known *known)
{
    struct journal_content content = {0};
    struct task *first = NULL, *last = NULL;
    int status = ask_known(&store->writer, FIND_STATE, known);
    if (status == 0)
        status = read_new(store->journal, known, &content);
    if (status == 0)
        status = read_changes(&content, &first, &last);
    if (status == 0) {
        journal_begin(store->journal, known->applied, last_of(&content));
        store->unsynced = true; /* what a process that was killed had committed may be in the kernel's memory alone */
        store->pending_sequence = journal_last(store->journal);
        store->pending_mark = journal_mark(store->journal);
        for (struct task *task = first, *next; task != NULL; task = next) {
            next = task->next;
            pending_add(store, task);
        }
        first = NULL;
    }
    task_free_all(first);
    journal_release(&content);
    return status;
}

static int open_journal(struct store *store, struct known *known, struct hc_err *err)
{
    int status = store_make_file(store->folder, store->journal_path, err);
    if (status == 0)
        status = journal_open(store->journal_path, &store->journal, err);
    if (status == -ENOSPC || status == -EDQUOT) { /* it is there to save time; what is promised needs none */
        hc_err_clear(err);
        return 0;
    }
    if (status == 0 && !store_identify(store->journal_path, &store->journal_file))
        status = hc_fail_errno(err, HC_CLASS_HOST, errno, "%s", store->journal_path);
    if (status < 0)
        return status;
    status = load(store, known);
    return status < 0 ? fail(store, status, err) : 0;
}

int recover_own(struct store *store, struct task *first, struct hc_err *err)
{
    struct known known = {0};
    int status = open_journal(store, &known, err);
    if (status < 0)
        return status;
    pthread_mutex_lock(&store->lock);
    status = pending_apply_with(store, first);
    pthread_mutex_unlock(&store->lock);
    /* A full disk now is no reason not to start: it is tried again, and a database without a name takes this one. */
    bool named = store->journal == NULL || known.id == 0 || known.id == journal_id(store->journal);
    return status < 0 && !named ? fail(store, status, err) : 0;
}

/* ---- others ---- */

/* Its owner is gone, and whoever holds it now applies it: this one. */
static int replay(struct store *store, struct journal *journal, struct hc_err *err)
{
    struct journal_content content = {0};
    struct task *first = NULL, *last = NULL;
    struct known known = {0};
    bool opened = store->writer.db == NULL;
    int status = opened ? store_open_writer(store, err) : 0;
    if (status == 0)
        status = ask_known(&store->writer, FIND_STATE, &known); /* again: somebody else may have been here */
    if (status == 0)
        status = read_new(journal, &known, &content);
    if (status == 0)
        status = read_changes(&content, &first, &last);
    if (status == 0 && first != NULL) {
        struct commit commit = {.pending = first, .journal = journal_id(journal), .durable = true};
        commit.applied = last_of(&content);
        status = commit_write(store, &commit);
    }
    task_free_all(first);
    journal_release(&content);
    if (opened)
        store_close_writer(store);
    return status;
}

/* 0: the database has it all; 1: its owner will see to it in a moment. */
static int look(struct store *store, struct hc_err *err)
{
    struct journal_content content = {0};
    struct journal *journal = NULL;
    struct known known = {0};
    int status = journal_look(store->journal_path, &journal, err);
    if (status < 0)
        return status == -ENOENT ? 0 : status;
    status = ask_known(&store->reader, READ_STATE, &known);
    if (status == 0)
        status = read_new(journal, &known, &content);
    if (status == 0 && content.count > 0) {
        int owned = journal_try_own(journal);
        status = owned == 0 ? replay(store, journal, err) : owned == -EBUSY ? 1 : owned;
    }
    journal_release(&content);
    journal_close(journal);
    return status;
}

int recover_follow(struct store *store, struct hc_err *err)
{
    /* In the middle of a reading it sees what there was when that began, whatever happens. */
    if (sqlite3_txn_state(store->reader.db, NULL) != SQLITE_TXN_NONE)
        return 0;
    int status = look(store, err);
    for (uint64_t deadline = hc_now() + FOLLOW_US; status == 1 && hc_now() < deadline;) {
        usleep(FOLLOW_STEP_US);
        status = look(store, err);
    }
    if (status < 0 && err != NULL && err->code == 0)
        return fail(store, status, err);
    return status == 1 ? -EBUSY : status;
}
