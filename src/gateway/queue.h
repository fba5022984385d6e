/*
 * Who runs next: a bounded queue with fair turns. Each tenant has a lane, first come first served; the lanes take
 * turns, so a tenant with a thousand runs waiting delays the others by one run each. A sixteenth of the places is kept
 * for tenants that have nothing in the queue, so that one tenant cannot fill it for all.
 *
 * Items are embedded in their owner. No call here calls back, and all but queue_expired take time that does not depend
 * on how many items there are.
 */
#ifndef HC_GATEWAY_QUEUE_H
#define HC_GATEWAY_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue;
struct queue_lane;

struct queue_item { /* zeroed by its owner before it is first put */
    struct queue_item *next, *previous;
    struct queue_lane *lane; /* NULL: not in a queue */
    uint64_t since;          /* CLOCK_MONOTONIC µs of queue_put */
};

struct queue *queue_new(void);        /* NULL: out of memory */
void queue_free(struct queue *queue); /* items that are still in it are the owners'; NULL is fine */
/* Whether there is a place for this tenant, where `limit` may wait at all. */
bool queue_has_room(const struct queue *queue, const char *tenant, size_t limit);
/* At the end of its tenant's lane. 0, -EAGAIN when there is no room, -ENOMEM. */
int queue_put(struct queue *queue, struct queue_item *item, const char *tenant, size_t limit, uint64_t now);
/* The one whose turn it is, taken out; NULL when it is empty. */
struct queue_item *queue_take(struct queue *queue);
void queue_remove(struct queue *queue, struct queue_item *item); /* one that is in no queue is left alone */
/* One that was put before `before`, taken out; NULL when there is none. Looks at the first of each lane. */
struct queue_item *queue_expired(struct queue *queue, uint64_t before);
size_t queue_count(const struct queue *queue);

#endif
