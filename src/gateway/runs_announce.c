/*
 * When the store hears of a run. One that somebody waits for is not begun again after a crash, so the store need not
 * have it before it begins; and most are over in a few milliseconds, when one record says all. So it is announced after
 * a moment, and one that has ended by then never is: its end makes its row.
 *
 * What always holds: a run in this list is neither in the store nor on its way there; the oldest is the first.
 */
#include "base/fd.h"
#include "gateway/run_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_US 50000ULL

void runs_announce_not(struct run *run)
{
    struct runs *runs = run->runs;
    if (!run->unannounced)
        return;
    run->unannounced = false;
    *(run->later_previous != NULL ? &run->later_previous->later_next : &runs->first_later) = run->later_next;
    *(run->later_next != NULL ? &run->later_next->later_previous : &runs->last_later) = run->later_previous;
    run->later_next = run->later_previous = NULL;
}

static void on_announced(void *data, int result)
{
    struct run *run = data;
    (void)result; /* one that fails is told by the run's end, which is written anew */
    run->pending--;
}

int run_insert(struct run *run, const char *request, size_t length, store_done_fn done)
{
    const char *metadata = run->work->request->metadata;
    hc_cleanup_free char *kept = NULL;
    if (request == NULL &&
        metadata != NULL) { /* what its record needs of it, should nothing be left of the run but that */
        int size = asprintf(&kept, "{\"metadata\":%s}", metadata);
        if (size < 0)
            return -ENOMEM;
        length = (size_t)size;
    }
    run_describe(run);
    run->row.request = request != NULL ? request : kept;
    run->row.request_length = run->row.request != NULL ? length : 0;
    int result = store_run_insert(run->runs->gateway->store, &run->row, done, run);
    run->pending += result == 0;
    run->row.request = NULL;
    run->row.request_length = 0;
    return result;
}

static void announce(struct run *run)
{
    runs_announce_not(run);
    (void)run_insert(run, NULL, 0, on_announced); /* without it, too, its end makes its row */
}

static void on_time(struct hc_loop *loop, void *data)
{
    struct runs *runs = data;
    uint64_t now = hc_now();
    runs->announce_timer = NULL;
    while (runs->first_later != NULL && runs->first_later->queued_at + PATIENCE_US <= now)
        announce(runs->first_later);
    if (runs->first_later != NULL)
        runs->announce_timer = hc_loop_timer(loop, runs->first_later->queued_at + PATIENCE_US, on_time, runs);
}

void runs_announce_later(struct run *run)
{
    struct runs *runs = run->runs;
    run->unannounced = true;
    run->later_previous = runs->last_later;
    *(runs->last_later != NULL ? &runs->last_later->later_next : &runs->first_later) = run;
    runs->last_later = run;
    if (runs->announce_timer == NULL)
        runs->announce_timer =
            hc_loop_timer(runs->gateway->loop, runs->first_later->queued_at + PATIENCE_US, on_time, runs);
    if (runs->announce_timer == NULL)
        announce(run);
}
