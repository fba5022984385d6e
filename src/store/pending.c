/*
 * Between the journal and the database: what is on disk and acknowledged, and still to be applied. It is applied soon,
 * many changes in a commit; the journal's blocks are given up after a commit that was synced, which only every so many
 * are.
 *
 * What always holds: a change leaves the list only when the database has it. When it cannot be applied (a full disk),
 * it stays, and is tried again; the journal fills, and what comes then is told the database's own error.
 */
#include "store/internal.h"
#include <stdlib.h>

enum {
    MANY = 512,                       /* changes that are not left waiting for more */
    SYNC_BLOCKS = JOURNAL_BLOCKS / 4, /* used: then a commit is synced */
    RETRY_US = 200 * 1000,
};

void pending_add(struct store *store, struct task *task)
{
    if (store->pending_first == NULL)
        store->pending_since = hc_now();
    task->pending = true;
    task_append(&store->pending_first, &store->pending_last, task);
    store->pending_count++;
}

uint64_t pending_due(const struct store *store)
{
    if (store->pending_first == NULL)
        return UINT64_MAX;
    bool crowded = store->pending_count >= MANY || journal_used(store->journal) > 2 * (size_t)SYNC_BLOCKS;
    uint64_t due = crowded ? 0 : store->pending_since + PATIENCE_US;
    return due > store->pending_not_until ? due : store->pending_not_until;
}

static void release_all(struct store *store, struct task *pending)
{
    while (pending != NULL) {
        struct task *next = pending->next;
        ids_remove(store, pending);
        pending->pending = false;
        if (pending->told)
            free(pending);
        pending = next;
    }
}

static void put_back(struct store *store, struct task *pending, struct task *last, size_t count)
{
    if (pending == NULL)
        return;
    last->next = store->pending_first;
    if (store->pending_first == NULL)
        store->pending_last = last;
    store->pending_first = pending;
    store->pending_count += count;
}

static int apply(struct store *store, struct commit *commit, uint64_t mark)
{
    struct task *pending = store->pending_first, *last = store->pending_last;
    size_t count = store->pending_count;
    store->pending_first = NULL;
    store->pending_count = 0;
    store->busy = true;
    pthread_mutex_unlock(&store->lock);
    commit->pending = pending;
    int status = commit_write(store, commit);
    if (status == 0)
        keys_after_commit(store);
    pthread_mutex_lock(&store->lock);
    store->busy = false;
    store->status = status;
    store->probing = false;
    if (status == 0) {
        store->pending_not_until = 0;
        release_all(store, pending);
        if (commit->durable && store->journal != NULL)
            journal_give_up(store->journal, mark);
    } else {
        store->pending_not_until = hc_now() + RETRY_US;
        put_back(store, pending, last, count);
    }
    pthread_cond_broadcast(&store->settled);
    return status;
}

int pending_apply(struct store *store, bool durable)
{
    struct commit commit = {.journal = journal_id(store->journal),
                            .applied = store->pending_sequence,
                            .durable = durable || journal_used(store->journal) > SYNC_BLOCKS};
    return apply(store, &commit, store->pending_mark);
}

/* Nobody appends meanwhile: so all that the journal has is in this commit, and what it may have of a failed write is
 * never applied. */
int pending_apply_with(struct store *store, struct task *batch)
{
    struct journal *journal = store->journal;
    struct commit commit = {.batch = batch, .durable = true};
    if (journal != NULL) {
        commit.journal = journal_id(journal);
        commit.applied = journal_last(journal);
    }
    return apply(store, &commit, journal != NULL ? journal_mark(journal) : 0);
}
