/*
 * The writing thread.
 *
 * Theory of operation. Changes are tasks in a queue. The thread takes all that wait (up to a bound), makes them durable
 * together, and so pays for one sync however many there are; meanwhile the next ones gather. Then it puts those with a
 * `done` on a second list and wakes the loop through an eventfd, and the loop calls them in order.
 *
 * Ends of runs may be told to gather (store_gather): they then wait for others for a moment, and go with the first
 * change that does not.
 *
 * Changes that the journal can hold are durable once they are in it (journal.h), and are applied to the database a
 * moment later (pending.c). All others go into the database at once, together with what is pending, and are durable by
 * a synced commit: so the database gets changes in the order in which they came. Without a loop there is no journal,
 * and the same commit is made on the caller's thread.
 *
 * What always holds:
 * - `done` gets 0 only after the journal's fdatasync or a synced COMMIT has returned, into files that are still in the
 *   folder.
 * - A batch succeeds or fails as a whole; only what concerns one change alone (a name that exists) is told to that one,
 *   and has changed nothing.
 * - After a failure nothing is left open: the next batch begins afresh, so a disk that has room again is enough. A
 *   journal that cannot be written to costs time and nothing else: the batch goes into the database instead.
 * - Every task that was taken is settled exactly once, at the latest in writer_close.
 * - One batch of the queue is made durable at a time (`writing`); the database's writer is used by one at a time
 *   (`busy`), and what is pending is applied while the next batch goes into the journal.
 */
#include "base/fd.h"
#include "store/internal.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    THREAD_STACK = 512 * 1024,
    CHECKPOINT_PAGES = 1000,
    QUICK_COMMIT_US = 1000,
    SLOW_COMMIT_US = 4000,
    LONE_US = 1000,
    EXPECT_US = 100,
    EXPECT_LATE_US = 200
};

/* A lone change is written by the caller itself: waking the thread and being woken by it would take as long again as a
 * quick disk does. Where changes come close together for the disk that it is, the thread does it, many to a write. */
static bool write_at_once(const struct store *store, bool prompt, uint64_t now)
{
    uint64_t usual = store->usual_commit, alone = usual < QUICK_COMMIT_US ? LONE_US : 4 * usual;
    return prompt && !store->writing && !store->stopping && usual > 0 && usual < SLOW_COMMIT_US &&
           now - store->came_last > alone && (!store->busy || batch_is_for_journal(store, store->first));
}

/* When the queue is to be written. */
static uint64_t queue_due(const struct store *store)
{
    if (store->first == NULL || store->pressing > 0)
        return store->first == NULL ? UINT64_MAX : 0;
    uint64_t due = store->waiting_since + PATIENCE_US;
    return due < store->gather_until ? due : store->gather_until;
}

/* When the thread has something to do; 0: now. */
static uint64_t next_due(const struct store *store)
{
    uint64_t queue = queue_due(store);
    uint64_t pending = pending_due(store);
    if (store->stopping || store->log_pages >= CHECKPOINT_PAGES)
        return 0;
    return queue < pending ? queue : pending;
}

/* After something changed: the thread is woken when it would sleep too long, and only then, for most runs are over
 * before it has to do anything for them. */
static void wake_thread(struct store *store)
{
    store->owes_wake = false;
    if (next_due(store) < store->thread_sleeps_until)
        pthread_cond_signal(&store->work);
}

static void wait_for_work(struct store *store)
{
    for (;;) {
        bool held = store->busy || store->writing; /* whoever it is wakes this one afterwards */
        uint64_t due = held ? UINT64_MAX : next_due(store);
        if (due <= hc_now())
            return;
        store->thread_sleeps_until = due;
        if (due == UINT64_MAX) {
            pthread_cond_wait(&store->work, &store->lock);
        } else {
            struct timespec until = {.tv_sec = (time_t)(due / 1000000), .tv_nsec = (long)(due % 1000000) * 1000};
            pthread_cond_clockwait(&store->work, &store->lock, CLOCK_MONOTONIC, &until);
        }
        store->thread_sleeps_until = 0;
    }
}

/* The log is copied into the database when it has grown long: after whoever waited was told, not before. */
static void checkpoint_when_long(struct store *store)
{
    if (store->log_pages < CHECKPOINT_PAGES || store->busy)
        return;
    store->busy = true;
    pthread_mutex_unlock(&store->lock);
    commit_checkpoint(store);
    pthread_mutex_lock(&store->lock);
    store->log_pages = 0;
    store->busy = false;
    pthread_cond_broadcast(&store->settled);
}

static int on_log(void *data, sqlite3 *db, const char *name, int pages)
{
    (void)db;
    (void)name;
    ((struct store *)data)->log_pages = pages;
    return SQLITE_OK;
}

static void *write_until_stopped(void *data)
{
    struct store *store = data;
    pthread_mutex_lock(&store->lock);
    for (;;) {
        wait_for_work(store);
        if (store->first == NULL && store->stopping)
            break;
        if (store->first != NULL && (store->stopping || queue_due(store) <= hc_now()))
            batch_write(store);
        if (!store->busy && pending_due(store) <= hc_now())
            pending_apply(store, false);
        checkpoint_when_long(store);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

static void call_done(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    struct task *list = store->done_first;
    store->done_first = NULL;
    for (struct task *each = list; each != NULL; each = each->done_next)
        store->bytes -= each->bytes;
    pthread_mutex_unlock(&store->lock);
    for (struct task *task = list; task != NULL; task = task->done_next)
        task->done(task->data, task->result);
    pthread_mutex_lock(&store->lock);
    for (struct task *task = list, *next; task != NULL; task = next) {
        next = task->done_next;
        task->told = true;
        if (!task->pending)
            free(task);
    }
    if (store->owes_wake)
        wake_thread(store);
    pthread_mutex_unlock(&store->lock);
}

static void on_eventfd(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    eventfd_t ignored;
    (void)loop;
    (void)events;
    eventfd_read(fd, &ignored);
    call_done(data);
}

static void on_told(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct store *store = data;
    store->told = NULL;
    call_done(store);
}

/* The caller is in the loop, which comes back to it in this turn: nobody need wake it. */
static void write_for_caller(struct store *store)
{
    store->at_once = true;
    batch_write(store);
    store->at_once = false;
    if (store->done_first == NULL)
        return;
    store->owes_wake = true; /* who waits is told first: call_done */
    if (store->told == NULL)
        store->told = hc_loop_timer(store->loop, 0, on_told, store);
    if (store->told == NULL)
        eventfd_write(store->eventfd, 1);
}

static int apply_probe(struct store *store, struct task *task)
{
    (void)task;
    struct binding binding = bind_start(&store->writer, WRITE_PROBE);
    return bind_run(&binding);
}

int writer_open(struct store *store, struct hc_err *err)
{
    /* The first commit opens what is still to be opened (the folder, to sync it). On a full disk it fails: then the
     * history can still be read, and store_status says it. */
    struct task probe = {.apply = apply_probe};
    int status = recover_own(store, &probe, err);
    if (status < 0)
        return status;
    store->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->eventfd >= 0)
        store->watch = hc_loop_watch(store->loop, store->eventfd, EPOLLIN, on_eventfd, store);
    return store->watch != NULL ? 0 : hc_fail_errno(err, HC_CLASS_HOST, errno, "the store cannot be watched");
}

static int start_thread(struct store *store)
{
    sqlite3_wal_hook(store->writer.db, on_log, store); /* takes the place of SQLite's own checkpoints */
    pthread_attr_t attributes;
    sigset_t all, before;
    int status = pthread_attr_init(&attributes);
    if (status != 0)
        return -status;
    sigfillset(&all);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    /* Signals are for the thread that has the loop. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    status = pthread_create(&store->thread, &attributes, write_until_stopped, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    store->thread_started = status == 0;
    return -status;
}

int store_start(struct store *store, struct hc_err *err)
{
    if (store->loop == NULL || store->read_only || store->thread_started)
        return 0;
    int status = start_thread(store);
    return status == 0 ? 0 : hc_fail_errno(err, HC_CLASS_HOST, -status, "the store's thread cannot be started");
}

static int write_now(struct store *store, struct task *task)
{
    pthread_mutex_lock(&store->lock);
    do {
        pending_apply_with(store, task);
    } while (task->result == TASK_AGAIN);
    pthread_mutex_unlock(&store->lock);
    return task->result;
}

static void on_owed(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct store *store = data;
    store->owed = NULL;
    pthread_mutex_lock(&store->lock);
    if (store->owes_wake)
        wake_thread(store);
    pthread_mutex_unlock(&store->lock);
}

/* For a patient task: what it belongs to is on its way, as a rule, and wakes the thread if need be. True when the
 * thread is woken in time where nothing comes. */
static bool may_owe_wake(struct store *store, uint64_t now)
{
    if (store->owed == NULL)
        store->owed = hc_loop_timer(store->loop, now + PATIENCE_US, on_owed, store);
    return store->owed != NULL;
}

/* 0 when it is in the queue, and then it is the thread's. */
static int enqueue(struct store *store, struct task *task)
{
    int status = 0;
    if (task->bytes > QUEUE_BYTES)
        return -EFBIG;
    if (!store->thread_started && !store->stopping)
        status = start_thread(store);
    uint64_t now = hc_now();
    bool patient = task->patient;
    pthread_mutex_lock(&store->lock);
    if (status == 0 && store->stopping)
        status = -ESHUTDOWN;
    if (status == 0 && store->bytes > QUEUE_BYTES - task->bytes)
        status = -EAGAIN;
    if (status == 0) {
        if (store->first == NULL)
            store->waiting_since = now;
        if (task->prompt && store->gather > 0) {
            task->patient = true;
            if (store->gather_until > now + store->gather)
                store->gather_until = now + store->gather;
        }
        task_append(&store->first, &store->last, task);
        store->pressing += !task->patient;
        store->bytes += task->bytes;
        if (store->journal != NULL && task->apply == history_apply_insert && !task->refused)
            ids_add(store, task);
        store->owes_wake = patient && may_owe_wake(store, now);
        if (!task->patient && write_at_once(store, task->prompt, now))
            write_for_caller(store);
        if (!store->owes_wake)
            wake_thread(store);
        if (!patient) /* the task may be gone */
            store->came_last = now;
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

static void on_expected(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct store *store = data;
    store->expected = NULL;
    pthread_mutex_lock(&store->lock);
    bool idle = store->journal != NULL && store->thread_started && !store->writing && !store->stopping &&
                !store->journal_failed && store->first == NULL && store->done_first == NULL;
    /* On a busy processor the loop comes to it late, and the end is near. */
    if (idle && hc_now() < store->expected_at + EXPECT_LATE_US) {
        store->writing = true;
        pthread_mutex_unlock(&store->lock);
        journal_expect(store->journal);
        pthread_mutex_lock(&store->lock);
        store->writing = false;
        wake_thread(store);
    }
    pthread_mutex_unlock(&store->lock);
}

/* Not at once: what the run itself needs now comes first. */
void store_expect(struct store *store)
{
    if (store->expected != NULL || store->journal == NULL)
        return;
    store->expected_at = hc_now() + EXPECT_US;
    store->expected = hc_loop_timer(store->loop, store->expected_at, on_expected, store);
}

void store_gather(struct store *store, uint64_t us)
{
    store->gather = us;
}

int writer_submit(struct store *store, struct task *task)
{
    int status = task == NULL ? -ENOMEM : store->read_only ? -EROFS : 0;
    if (status == 0 && store->loop != NULL) {
        status = enqueue(store, task);
        if (status == 0)
            return 0;
    } else if (status == 0) {
        status = write_now(store, task);
        if (task->done != NULL) {
            task->done(task->data, status);
            status = 0;
        }
    }
    free(task);
    return status;
}

int writer_wait(struct store *store, struct task *task)
{
    if (store->read_only)
        return -EROFS;
    if (store->loop == NULL)
        return write_now(store, task);
    task->waited = true;
    int status = enqueue(store, task);
    if (status < 0)
        return status;
    pthread_mutex_lock(&store->lock);
    while (!task->settled)
        pthread_cond_wait(&store->settled, &store->lock);
    store->bytes -= task->bytes;
    pthread_mutex_unlock(&store->lock);
    return task->result;
}

int store_status(struct store *store)
{
    if (store->read_only)
        return 0;
    if (!store_in_place(store))
        return -ESTALE;
    pthread_mutex_lock(&store->lock);
    int status = store->status;
    bool probe = status < 0 && !store->probing;
    store->probing |= probe;
    pthread_mutex_unlock(&store->lock);
    /* Who is not ready is sent no work, and would never learn that the disk has room again: so it tries. */
    if (probe) {
        struct task *task = malloc(sizeof *task);
        if (task != NULL)
            *task = (struct task){.apply = apply_probe, .bytes = sizeof *task};
        writer_submit(store, task);
    }
    return status;
}

void store_rest(struct store *store)
{
    sqlite3_db_release_memory(store->reader.db);
    pthread_mutex_lock(&store->lock);
    bool free_now = !store->busy && store->writer.db != NULL;
    store->busy |= free_now;
    pthread_mutex_unlock(&store->lock);
    if (!free_now)
        return; /* somebody writes: it is not at rest */
    sqlite3_db_release_memory(store->writer.db);
    pthread_mutex_lock(&store->lock);
    store->busy = false;
    pthread_cond_broadcast(&store->settled);
    wake_thread(store);
    pthread_mutex_unlock(&store->lock);
}

/* ---- what is pending, from the caller's thread ---- */

int writer_settle(struct store *store)
{
    if (store->journal == NULL)
        return store->loop == NULL || store->read_only ? recover_follow(store, NULL) : 0;
    pthread_mutex_lock(&store->lock);
    while (store->busy)
        pthread_cond_wait(&store->settled, &store->lock);
    int status = 0;
    if (store->pending_first != NULL)
        status = store->pending_not_until > hc_now() ? store->status : pending_apply(store, false);
    wake_thread(store);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* The last that happens to the journal: it is empty, unless the database could not take what it holds. */
static void empty_journal(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    bool empty = journal_used(store->journal) == 0 || pending_apply_with(store, NULL) == 0;
    pthread_mutex_unlock(&store->lock);
    if (empty)
        journal_wipe(store->journal); /* when it fails, what is in it is known to be in the database */
}

void writer_close(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    store->stopping = true;
    wake_thread(store);
    pthread_mutex_unlock(&store->lock);
    if (store->thread_started)
        pthread_join(store->thread, NULL);
    if (store->journal != NULL)
        empty_journal(store);
    call_done(store);
    task_free_all(store->pending_first);
    journal_close(store->journal);
    hc_watch_remove(store->watch);
    hc_timer_remove(store->owed);
    hc_timer_remove(store->expected);
    hc_timer_remove(store->told);
    store->eventfd = hc_close(store->eventfd);
}
