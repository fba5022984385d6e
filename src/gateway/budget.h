/*
 * Memory for results. What runs have written, the files that they collect, results on their way to the disk and to
 * clients: all of it together may take so much and no more, whatever runs do, so that a server is never ended for want
 * of memory. Each holder (a run, a connection) says how much it holds; what it cannot have it must do without.
 */
#ifndef HC_GATEWAY_BUDGET_H
#define HC_GATEWAY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* What any holder may have, also when the rest is used up: runs that write little do not suffer from those that write
 * much. Their number is bounded elsewhere. */
enum { BUDGET_SMALL = 64 * 1024 };

struct budget {
    uint64_t used, limit;
    uint64_t refused; /* times that there was not enough */
};

/* *held becomes `wanted`. False: there is not enough, and it stays what it was. Less is always granted. */
static inline bool budget_hold(struct budget *budget, uint64_t *held, uint64_t wanted)
{
    if (wanted > *held && wanted > BUDGET_SMALL && budget->used - *held + wanted > budget->limit) {
        budget->refused++;
        return false;
    }
    budget->used += wanted - *held;
    *held = wanted;
    return true;
}

#endif
