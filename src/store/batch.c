/*
 * A batch of the queue is made durable: taken from its front, put into the journal or into the database, and settled.
 * All of it with the lock held, which is let go while something is written.
 */
#include "store/internal.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

bool batch_is_for_journal(const struct store *store, const struct task *task)
{
    return store->journal != NULL && !store->journal_failed && (task->record > 0 || task->refused) &&
           task->record <= journal_room(store->journal);
}

static struct task *take_first(struct store *store)
{
    struct task *task = store->first;
    store->first = task->next;
    task->next = NULL;
    store->pressing -= !task->patient;
    if (store->first == NULL)
        store->gather_until = UINT64_MAX;
    return task;
}

static struct task *take_batch(struct store *store)
{
    struct task *batch = NULL, *last = NULL;
    size_t count = 0, bytes = 0;
    while (store->first != NULL && count < BATCH_TASKS && bytes < BATCH_BYTES) {
        if (store->first->alone && count > 0)
            break;
        struct task *task = take_first(store);
        task_append(&batch, &last, task);
        count++;
        bytes += task->bytes;
        if (task->alone)
            break;
    }
    return batch;
}

/* From the queue's front, what fits into one entry. */
static struct task *take_entry(struct store *store)
{
    struct task *batch = NULL, *last = NULL;
    size_t count = 0, room = journal_room(store->journal);
    while (store->first != NULL && count < BATCH_TASKS) {
        struct task *task = store->first;
        if ((task->record == 0 && !task->refused) || task->record > room)
            break;
        room -= task->record;
        take_first(store);
        task_append(&batch, &last, task);
        count++;
    }
    return batch;
}

static void put_back(struct store *store, struct task *batch)
{
    struct task *last = NULL;
    for (struct task *task = batch; task != NULL; task = task->next) {
        store->pressing += !task->patient;
        last = task;
    }
    if (last == NULL)
        return;
    last->next = store->first;
    if (store->first == NULL)
        store->last = last;
    store->first = batch;
    store->gather_until = 0;
}

static void add_done(struct store *store, struct task *task)
{
    task->done_next = NULL;
    if (store->done_first == NULL)
        store->done_first = task;
    else
        store->done_last->done_next = task;
    store->done_last = task;
}

static void settle_one(struct store *store, struct task *task)
{
    if (!task->pending)
        ids_remove(store, task);
    if (task->waited) {
        task->settled = true;
    } else if (task->done != NULL) {
        add_done(store, task);
    } else {
        store->bytes -= task->bytes;
        task->told = true;
        if (!task->pending)
            free(task);
    }
}

static void settle(struct store *store, struct task *batch)
{
    while (batch != NULL) {
        struct task *task = batch;
        batch = task->next;
        if (task->result == TASK_AGAIN && !store->stopping) {
            task_append(&store->first, &store->last, task);
            store->pressing += !task->patient;
            continue;
        }
        if (task->result == TASK_AGAIN)
            task->result = -ECANCELED;
        settle_one(store, task);
    }
    pthread_cond_broadcast(&store->settled);
    if (store->done_first != NULL && !store->at_once)
        eventfd_write(store->eventfd, 1); /* fails only at 2^64 - 1, when the loop is awake already */
}

static int append_entry(struct store *store, const struct task *batch)
{
    unsigned char *payload = journal_payload(store->journal);
    size_t length = 0;
    for (const struct task *task = batch; task != NULL; task = task->next) {
        if (task->refused)
            continue;
        record_write(&((const struct change *)task)->record, payload + length);
        length += task->record;
    }
    int status = length > 0 ? journal_append(store->journal, length) : 0;
    return status == 0 && !store_in_place(store) ? -ESTALE : status;
}

static void became_durable(struct store *store, struct task *batch, int status)
{
    for (struct task *task = batch, *next; task != NULL; task = next) {
        next = task->next;
        if (!task->refused)
            task->result = status;
        if (status == 0 && !task->refused)
            pending_add(store, task);
        settle_one(store, task);
    }
    if (status == 0) {
        store->pending_sequence = journal_last(store->journal);
        store->pending_mark = journal_mark(store->journal);
    }
    settle(store, NULL);
}

static void write_entry(struct store *store)
{
    struct task *batch = take_entry(store);
    pthread_mutex_unlock(&store->lock);
    int status = append_entry(store, batch);
    pthread_mutex_lock(&store->lock);
    if (status == 0 || status == -ESTALE) {
        if (status < 0)
            store->status = status;
        became_durable(store, batch, status);
    } else {
        store->journal_failed = true;
        put_back(store, batch);
    }
}

static void write_database(struct store *store)
{
    struct task *batch = take_batch(store);
    if (pending_apply_with(store, batch) == 0)
        store->journal_failed = false;
    settle(store, batch);
}

void batch_write(struct store *store)
{
    uint64_t begun = hc_now();
    store->writing = true;
    if (batch_is_for_journal(store, store->first))
        write_entry(store);
    else
        write_database(store);
    store->writing = false;
    uint64_t took = hc_now() - begun;
    store->usual_commit = store->usual_commit ? (7 * store->usual_commit + took) / 8 : took;
}
