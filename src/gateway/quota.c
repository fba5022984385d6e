/*
 * A sliding minute: one counter for each second of the last 61. The oldest of them is only partly within the minute and
 * is counted whole, so that no 60 seconds ever hold more than the limit, which a token bucket would allow after a rest.
 * 61 small counters a tenant are the whole cost, whatever the limit is.
 */
#include "gateway/quota.h"
#include <string.h>

enum { SLOTS = QUOTA_SECONDS + 1, DAY_SECONDS = 24 * 60 * 60 };

/* Empties the seconds that have passed since the last call. */
static void advance(struct quota_window *window, uint64_t now)
{
    if (now <= window->second)
        return;
    if (now - window->second >= SLOTS)
        memset(window->count, 0, sizeof window->count);
    else
        for (uint64_t second = window->second + 1; second <= now; second++)
            window->count[second % SLOTS] = 0;
    window->second = now;
}

bool quota_take(struct quota_window *window, uint64_t limit, uint64_t now, unsigned *retry)
{
    advance(window, now);
    uint64_t sum = 0;
    for (int i = 0; i < SLOTS; i++)
        sum += window->count[i];
    if (limit == 0 || sum < limit) {
        window->count[window->second % SLOTS]++;
        return true;
    }
    /* The oldest second leaves at the next tick, the one after it a second later, … */
    for (unsigned wait = 1; wait <= SLOTS; wait++) {
        sum -= window->count[(window->second + wait) % SLOTS];
        if (sum < limit) {
            *retry = wait;
            break;
        }
    }
    return false;
}

int64_t quota_day(int64_t epoch_us)
{
    return epoch_us / 1000000 / DAY_SECONDS;
}

unsigned quota_day_left(int64_t epoch_us)
{
    return (unsigned)(DAY_SECONDS - epoch_us / 1000000 % DAY_SECONDS);
}
