/*
 * The pool: cells that were built before anybody asked for one. Each is taken once and never comes back. They are built
 * one at a time, in groups that give way to all others, so that runs under way are not slowed by what is
 * only in stock; one that is asked for while it is being built gets its weight at once. How many wait is decided by
 * demand: more after each time that none was there, fewer when nobody has missed one for a while. A pool that is empty,
 * or cannot be filled, means that cells are built on request.
 */
#include "base/fd.h"
#include "warden/warden.h"
#include <string.h>
#include <sys/resource.h>

enum {
    BUSY_PAUSE_US = 20000,     /* while programs run, or are about to */
    FAILED_PAUSE_US = 1000000, /* after one could not be built */
    DECAY_US = 10000000,       /* without a miss, until one fewer is kept */
    FDS_BESIDE_STOCK = 160,
    FDS_PER_CELL = 32,
    TELL_US = 100000, /* between two messages to the client */
};

bool pool_fits(const struct cell_spec *have, const struct cell_spec *want)
{
    return have->flags == want->flags && have->mount_count == 0 && want->mount_count == 0 &&
           strcmp(have->hostname, want->hostname) == 0 && strcmp(have->work_dir, want->work_dir) == 0;
}

static void count(const struct warden *warden, struct pool_facts *facts)
{
    *facts =
        (struct pool_facts){.target = warden->pool.target, .hits = warden->pool.hits, .misses = warden->pool.misses};
    for (const struct held_cell *cell = warden->cells; cell; cell = cell->next)
        if (cell->place == PLACE_POOL) {
            facts->ready += cell->state == HELD_READY;
            facts->building += cell->state == HELD_BUILDING;
        }
    warm_count(warden, facts);
}

/* ---- telling the client ---- */

static void on_tell(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct warden *warden = data;
    warden->pool.tell = NULL;
    struct warden_message message = {.type = WARDEN_POOL};
    count(warden, &message.pool);
    warden_say(warden, &message);
}

static void tell(struct warden *warden)
{
    if (!warden->pool.tell && warden->pool.spec.most)
        warden->pool.tell = hc_loop_timer(warden->loop, hc_now() + TELL_US, on_tell, warden);
}

/* ---- filling ---- */

static void on_refill(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct warden *warden = data;
    struct pool_facts facts;
    warden->pool.refill = NULL;
    primed_refill(warden);
    count(warden, &facts);
    if (warden->closing || !pool_has_room(warden) || facts.building || facts.ready >= warden->pool.target)
        return;
    struct hc_err err = {0};
    struct held_cell *cell = supervise_build(warden, &warden->pool.spec.cell, PLACE_POOL, &err);
    if (cell)
        cgroup_background(&warden->host.cgroups, &cell->cell.group, true);
    else
        pool_failed(warden);
}

/* Making a cell takes a millisecond of the warden's own time, in which it sees nothing else. */
bool pool_busy(const struct warden *warden, const struct held_cell *but)
{
    for (const struct held_cell *cell = warden->cells; cell; cell = cell->next)
        for (const struct held_job *job = cell->place == PLACE_CLIENT ? cell->jobs : NULL; job; job = job->next)
            if (!job->over && cell != but)
                return true;
    return false;
}

static void refill_after(struct warden *warden, uint64_t pause)
{
    struct pool *pool = &warden->pool;
    uint64_t when = hc_now() + pause;
    if (pool->spec.most == 0 || warden->closing)
        return;
    if (when < pool->not_before)
        when = pool->not_before;
    if (pool->refill && when >= pool->refill_at)
        return;
    hc_timer_remove(pool->refill);
    pool->refill_at = when;
    pool->refill = hc_loop_timer(warden->loop, when, on_refill, warden); /* without one the pool stays empty */
}

static void refill(struct warden *warden)
{
    refill_after(warden, pool_busy(warden, NULL) ? BUSY_PAUSE_US : ANSWER_FIRST_US);
}

void pool_rest(struct warden *warden)
{
    if (!pool_busy(warden, NULL))
        refill(warden);
}

void pool_changed(struct warden *warden)
{
    refill(warden);
    tell(warden);
}

void pool_failed(struct warden *warden)
{
    warden->pool.not_before = hc_now() + FAILED_PAUSE_US;
    refill(warden);
}

/* ---- size ---- */

static void on_decay(struct hc_loop *loop, void *data)
{
    struct warden *warden = data;
    struct pool *pool = &warden->pool;
    pool->decay = NULL;
    if (pool->target > pool->spec.least && hc_now() - pool->missed_at >= DECAY_US)
        pool->target--;
    struct pool_facts facts;
    count(warden, &facts);
    if (facts.ready > pool->target)
        for (struct held_cell *cell = warden->cells; cell; cell = cell->next)
            if (cell->place == PLACE_POOL && cell->state == HELD_READY) {
                supervise_drop(cell);
                break;
            }
    if (pool->target > pool->spec.least)
        pool->decay = hc_loop_timer(loop, hc_now() + DECAY_US, on_decay, warden);
}

static void missed(struct warden *warden)
{
    struct pool *pool = &warden->pool;
    pool->misses++;
    pool->missed_at = hc_now();
    uint32_t more = pool->target + 1 + pool->target / 2;
    pool->target = more < pool->spec.most ? more : pool->spec.most;
    if (!pool->decay && pool->target > pool->spec.least)
        pool->decay = hc_loop_timer(warden->loop, hc_now() + DECAY_US, on_decay, warden);
}

/* ---- use ---- */

struct held_cell *pool_take(struct warden *warden, const struct cell_spec *spec)
{
    struct pool *pool = &warden->pool;
    if (pool->spec.most == 0 || !pool_fits(&pool->spec.cell, spec))
        return NULL;
    struct held_cell *ready = NULL, *nearly = NULL;
    unsigned stock = 0;
    for (struct held_cell *cell = warden->cells; cell; cell = cell->next) {
        if (cell->place != PLACE_POOL)
            continue;
        if (cell->state == HELD_READY) {
            ready = cell; /* the oldest is the last */
            stock++;
        } else if (cell->state == HELD_BUILDING) {
            nearly = cell;
        }
    }
    if (ready)
        pool->hits++;
    else
        missed(warden);
    struct held_cell *taken = ready ? ready : nearly;
    if (taken)
        cgroup_background(&warden->host.cgroups, &taken->cell.group, false);
    /* What the cell was taken for is about to be asked for, and must not wait until another one is made. */
    if (stock > 1)
        refill_after(warden, BUSY_PAUSE_US);
    else
        refill(warden);
    tell(warden);
    return taken;
}

/* Each cell takes some fds of ours while it waits. Most of those that we may have are for runs. */
void pool_measure(struct warden *warden)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= FDS_BESIDE_STOCK)
        return;
    rlim_t cells = (limit.rlim_cur - FDS_BESIDE_STOCK) / FDS_PER_CELL;
    warden->pool.room = cells < UINT32_MAX ? (uint32_t)cells : UINT32_MAX;
}

bool pool_has_room(const struct warden *warden)
{
    uint32_t count = 0;
    for (const struct held_cell *cell = warden->cells; cell; cell = cell->next)
        count += cell->place != PLACE_CLIENT;
    return count < warden->pool.room;
}

void pool_configure(struct warden *warden, const struct pool_spec *spec)
{
    struct hc_err err = {0};
    if (cell_spec_check(&spec->cell, NULL, &err) < 0 || spec->cell.mount_count || spec->cell.lookups ||
        spec->least > spec->most)
        return; /* the keeper's; one that makes no sense is no pool */
    warden->pool.spec = *spec;
    warden->pool.target = spec->least;
    refill(warden);
    tell(warden);
}

void pool_end(struct warden *warden)
{
    struct pool *pool = &warden->pool;
    hc_timer_remove(pool->refill);
    hc_timer_remove(pool->decay);
    hc_timer_remove(pool->tell);
    pool->refill = pool->decay = pool->tell = NULL;
    pool->spec.most = 0;
}
