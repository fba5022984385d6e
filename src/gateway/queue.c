/*
 * See queue.h. The lanes are a ring in which `turn` is the one whose turn it is; a lane that empties leaves the ring
 * and is freed, so that memory follows what waits and not how many tenants there ever were. What always holds: every
 * lane in the ring has an item, and `count` is the sum of the lanes' counts.
 */
#include "gateway/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256, KEPT_PART = 16, NAME_SIZE = 64 };

struct queue_lane {
    struct queue_lane *next, *previous; /* in the ring */
    struct queue_lane *chain;           /* in its bucket */
    struct queue_item *first, *last;
    size_t count;
    char tenant[NAME_SIZE];
};

struct queue {
    struct queue_lane *turn;
    struct queue_lane *buckets[BUCKETS];
    size_t count;
};

struct queue *queue_new(void)
{
    return calloc(1, sizeof(struct queue));
}

void queue_free(struct queue *queue)
{
    if (queue == NULL)
        return;
    while (queue_take(queue) != NULL)
        ;
    free(queue);
}

size_t queue_count(const struct queue *queue)
{
    return queue->count;
}

/* ---- lanes ---- */

static struct queue_lane **bucket_of(const struct queue *queue, const char *tenant)
{
    uint32_t hash = 2166136261U; /* FNV-1a: tenants' names are the operator's, nobody chooses them to collide */
    for (const char *c = tenant; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619U;
    return (struct queue_lane **)&queue->buckets[hash % BUCKETS];
}

static struct queue_lane *find_lane(const struct queue *queue, const char *tenant)
{
    struct queue_lane *lane = *bucket_of(queue, tenant);
    while (lane != NULL && strncmp(lane->tenant, tenant, sizeof lane->tenant - 1) != 0)
        lane = lane->chain;
    return lane;
}

/* A new lane is the last to have its turn. */
static struct queue_lane *add_lane(struct queue *queue, const char *tenant)
{
    struct queue_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return NULL;
    snprintf(lane->tenant, sizeof lane->tenant, "%s", tenant);
    struct queue_lane **bucket = bucket_of(queue, lane->tenant);
    lane->chain = *bucket;
    *bucket = lane;
    if (queue->turn == NULL) {
        queue->turn = lane->next = lane->previous = lane;
    } else {
        lane->next = queue->turn;
        lane->previous = queue->turn->previous;
        lane->previous->next = lane->next->previous = lane;
    }
    return lane;
}

static void drop_lane(struct queue *queue, struct queue_lane *lane)
{
    struct queue_lane **link = bucket_of(queue, lane->tenant);
    while (*link != lane)
        link = &(*link)->chain;
    *link = lane->chain;
    if (lane->next == lane) {
        queue->turn = NULL;
    } else {
        lane->next->previous = lane->previous;
        lane->previous->next = lane->next;
        if (queue->turn == lane)
            queue->turn = lane->next;
    }
    free(lane);
}

/* ---- items ---- */

bool queue_has_room(const struct queue *queue, const char *tenant, size_t limit)
{
    size_t kept = find_lane(queue, tenant) != NULL ? limit / KEPT_PART : 0;
    return queue->count < limit - kept;
}

int queue_put(struct queue *queue, struct queue_item *item, const char *tenant, size_t limit, uint64_t now)
{
    if (!queue_has_room(queue, tenant, limit))
        return -EAGAIN;
    struct queue_lane *lane = find_lane(queue, tenant);
    if (lane == NULL)
        lane = add_lane(queue, tenant);
    if (lane == NULL)
        return -ENOMEM;
    *item = (struct queue_item){.previous = lane->last, .lane = lane, .since = now};
    if (lane->last != NULL)
        lane->last->next = item;
    else
        lane->first = item;
    lane->last = item;
    lane->count++;
    queue->count++;
    return 0;
}

void queue_remove(struct queue *queue, struct queue_item *item)
{
    struct queue_lane *lane = item->lane;
    if (lane == NULL)
        return;
    if (item->previous != NULL)
        item->previous->next = item->next;
    else
        lane->first = item->next;
    if (item->next != NULL)
        item->next->previous = item->previous;
    else
        lane->last = item->previous;
    item->next = item->previous = NULL;
    item->lane = NULL;
    queue->count--;
    if (--lane->count == 0)
        drop_lane(queue, lane);
}

struct queue_item *queue_take(struct queue *queue)
{
    struct queue_lane *lane = queue->turn;
    if (lane == NULL)
        return NULL;
    struct queue_item *item = lane->first;
    queue->turn = lane->next; /* before the lane may go */
    queue_remove(queue, item);
    return item;
}

struct queue_item *queue_expired(struct queue *queue, uint64_t before)
{
    struct queue_lane *lane = queue->turn;
    if (lane == NULL)
        return NULL;
    do {
        struct queue_item *item = lane->first;
        if (item->since < before) {
            queue_remove(queue, item);
            return item;
        }
        lane = lane->next;
    } while (lane != queue->turn);
    return NULL;
}
