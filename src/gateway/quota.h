/* The arithmetic of quotas, without clocks or stores: what tenants.c decides by. */
#ifndef HC_GATEWAY_QUOTA_H
#define HC_GATEWAY_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

/* How often something happened in the last minute, by the second. */
enum { QUOTA_SECONDS = 60 };
struct quota_window {
    uint64_t second; /* the newest one that is counted */
    uint32_t count[QUOTA_SECONDS + 1];
};

/* Counts one at `now` (seconds of any clock that does not go back) if that makes at most `limit` within any 60 seconds
 * (0: no limit). Else false, and *retry: after how many seconds the next one will be taken, if nobody comes between. */
bool quota_take(struct quota_window *window, uint64_t limit, uint64_t now, unsigned *retry);

/* A day of UTC, in days since the epoch, and the seconds until the next one. */
int64_t quota_day(int64_t epoch_us);
unsigned quota_day_left(int64_t epoch_us);

#endif
