/*
 * The writing thread.
 *
 * Theory of operation. Changes are tasks in a queue. The thread takes all that wait (up to a bound), makes them in one
 * transaction, and so pays for one fsync however many there are; meanwhile the next ones gather. Then it puts those
 * with a `done` on a second list and wakes the loop through an eventfd, and the loop calls them in order. Without a
 * loop the same transaction is made on the caller's thread.
 *
 * What always holds:
 * - `done` gets 0 only after COMMIT has returned, with synchronous=FULL, into files that are still in the folder.
 * - A transaction succeeds or fails as a whole; only what concerns one change alone (a name that exists) is told to
 *   that one, and has changed nothing.
 * - After a failure nothing is left open: the next batch begins afresh, so a disk that has room again is enough.
 * - Every task that was taken is settled exactly once, at the latest in writer_close.
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
    PATIENCE_NS = 50 * 1000 * 1000,
    CHECKPOINT_PAGES = 1000,
    QUICK_COMMIT_US = 1000,
    SLOW_COMMIT_US = 4000,
    LONE_US = 1000
};

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
        task->result = task->apply(store, task);
        if (task->result < 0 && !concerns_one(task->result))
            return task->result;
    }
    return 0;
}

/* Fills the `result` of each. */
static int commit_batch(struct store *store, struct task *batch)
{
    int status = store_in_place(store) ? run(store, WRITE_BEGIN) : -ESTALE;
    if (status == 0)
        status = apply_all(store, batch);
    if (status == 0)
        status = run(store, WRITE_COMMIT);
    if (status == 0 && !store_in_place(store))
        status = -ESTALE;
    if (sqlite3_get_autocommit(store->writer.db) == 0)
        run(store, WRITE_ROLLBACK);
    bool checkpoint = false;
    for (struct task *task = batch; task != NULL; task = task->next) {
        if (status < 0)
            task->result = status;
        checkpoint |= task->checkpoint;
    }
    if (checkpoint && status == 0) /* only to give space back: it loses nothing when it cannot */
        sqlite3_wal_checkpoint_v2(store->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return status;
}

static void append(struct task **first, struct task **last, struct task *task)
{
    task->next = NULL;
    if (*first == NULL)
        *first = task;
    else
        (*last)->next = task;
    *last = task;
}

static struct task *take_first(struct store *store)
{
    struct task *task = store->first;
    store->first = task->next;
    task->next = NULL;
    store->pressing -= !task->patient;
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
        append(&batch, &last, task);
        count++;
        bytes += task->bytes;
        if (task->alone)
            break;
    }
    return batch;
}

static void release(struct store *store, struct task *task)
{
    store->bytes -= task->bytes;
    free(task);
}

static void settle(struct store *store, struct task *batch)
{
    bool wake = false;
    while (batch != NULL) {
        struct task *task = batch;
        batch = task->next;
        if (task->result == TASK_AGAIN && !store->stopping) {
            append(&store->first, &store->last, task);
            store->pressing += !task->patient;
            continue;
        }
        if (task->result == TASK_AGAIN)
            task->result = -ECANCELED;
        if (task->waited) {
            task->settled = true;
            pthread_cond_broadcast(&store->settled);
        } else if (task->done != NULL) {
            append(&store->done_first, &store->done_last, task);
            wake = true;
        } else {
            release(store, task);
        }
    }
    if (wake)
        eventfd_write(store->eventfd, 1); /* fails only at 2^64 - 1, when the loop is awake already */
}

static void wait_for_work(struct store *store)
{
    while ((store->first == NULL && !store->stopping) || store->busy)
        pthread_cond_wait(&store->work, &store->lock);
    if (store->pressing > 0 || store->stopping)
        return;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (store->pressing == 0 && !store->stopping &&
           pthread_cond_clockwait(&store->work, &store->lock, CLOCK_MONOTONIC, &until) == 0)
        continue;
    while (store->busy)
        pthread_cond_wait(&store->work, &store->lock);
}

/* The log is copied into the database when it has grown long: after whoever waited was told, not before. */
static void checkpoint_when_long(struct store *store)
{
    if (store->log_pages < CHECKPOINT_PAGES)
        return;
    pthread_mutex_unlock(&store->lock);
    sqlite3_wal_checkpoint_v2(store->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    pthread_mutex_lock(&store->lock);
    store->log_pages = 0;
}

static int on_log(void *data, sqlite3 *db, const char *name, int pages)
{
    (void)db;
    (void)name;
    ((struct store *)data)->log_pages = pages;
    return SQLITE_OK;
}

/* With the lock held, which is let go meanwhile. */
static void write_batch(struct store *store)
{
    struct task *batch = take_batch(store);
    store->busy = true;
    pthread_mutex_unlock(&store->lock);
    uint64_t begun = hc_now();
    int status = commit_batch(store, batch);
    uint64_t took = hc_now() - begun;
    pthread_mutex_lock(&store->lock);
    store->busy = false;
    store->status = status;
    store->probing = false;
    store->usual_commit = store->usual_commit ? (7 * store->usual_commit + took) / 8 : took;
    settle(store, batch);
    if (store->first != NULL || store->stopping || store->log_pages >= CHECKPOINT_PAGES)
        pthread_cond_signal(&store->work);
}

/* A lone change is written by the caller itself: waking the thread and being woken by it would take as long again as a
 * quick disk does. Where changes come close together for the disk that it is, the thread does it, many to a commit. */
static bool write_at_once(const struct store *store, const struct task *task, uint64_t now)
{
    uint64_t usual = store->usual_commit, alone = usual < QUICK_COMMIT_US ? LONE_US : 4 * usual;
    return task->prompt && !store->busy && !store->stopping && usual > 0 && usual < SLOW_COMMIT_US &&
           now - store->came_last > alone;
}

static void *write_until_stopped(void *data)
{
    struct store *store = data;
    pthread_mutex_lock(&store->lock);
    for (;;) {
        wait_for_work(store);
        if (store->first == NULL && store->stopping)
            break;
        if (store->first != NULL)
            write_batch(store);
        checkpoint_when_long(store);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

static void call_done(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    struct task *task = store->done_first;
    store->done_first = NULL;
    for (struct task *each = task; each != NULL; each = each->next)
        store->bytes -= each->bytes;
    pthread_mutex_unlock(&store->lock);
    while (task != NULL) {
        struct task *next = task->next;
        task->done(task->data, task->result);
        free(task);
        task = next;
    }
}

static void on_eventfd(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    eventfd_t ignored;
    (void)loop;
    (void)events;
    eventfd_read(fd, &ignored);
    call_done(data);
}

static int apply_probe(struct store *store, struct task *task)
{
    (void)task;
    return run(store, WRITE_PROBE);
}

int writer_open(struct store *store, struct hc_err *err)
{
    /* The first commit opens what is still to be opened (the folder, to sync it). On a full disk it fails: then the
     * history can still be read, and store_status says it. */
    struct task probe = {.apply = apply_probe};
    store->status = commit_batch(store, &probe);
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
    do {
        store->status = commit_batch(store, task);
    } while (task->result == TASK_AGAIN);
    store->probing = false;
    return task->result;
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
        append(&store->first, &store->last, task);
        store->pressing += !task->patient;
        store->bytes += task->bytes;
        if (write_at_once(store, task, now))
            write_batch(store);
        else
            pthread_cond_signal(&store->work);
        if (!patient) /* the task may be gone */
            store->came_last = now;
    }
    pthread_mutex_unlock(&store->lock);
    return status;
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

void writer_close(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    store->stopping = true;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->lock);
    if (store->thread_started)
        pthread_join(store->thread, NULL);
    call_done(store);
    hc_watch_remove(store->watch);
    store->eventfd = hc_close(store->eventfd);
}
