/*
 * The event loop.
 *
 * Theory of operation. One epoll fd holds the watched fds and one timerfd, which is armed at the time of the earliest
 * timer: so the epoll fd itself is readable exactly when a turn would do something, and loops nest. Timers live in a
 * binary heap ordered by (when, sequence).
 *
 * What always holds:
 * - A removed watch is never called again, not even for an event that was fetched before its removal. It is marked dead
 * at once and freed when the outermost turn ends, because fetched events still point at it.
 * - In one turn, fds go first and timers after: a program that ended just in time is seen to end before its deadline
 * is.
 * - A timer added by a timer's callback waits for the next turn, and sorts after every timer that was already due, so
 * that a callback that keeps adding timers in the past starves nobody.
 */
#include "base/loop.h"
#include "base/fd.h"
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

enum { EVENTS_PER_TURN = 64 };

struct hc_watch {
    struct hc_loop *loop;
    struct hc_watch *next, *previous; /* in loop->watches; only `next` is used in loop->dead */
    int fd;
    bool dead;
    hc_watch_fn fn;
    void *data;
};

struct hc_timer {
    struct hc_loop *loop;
    uint64_t when;
    uint64_t sequence;
    size_t place; /* index in loop->heap */
    hc_timer_fn fn;
    void *data;
};

struct hc_loop {
    int epoll;
    int timerfd;
    unsigned depth; /* of turns: a callback may turn its own loop */
    struct hc_watch *watches;
    struct hc_watch *dead;
    struct hc_timer **heap;
    size_t heap_count;
    size_t heap_capacity;
    uint64_t sequence;  /* of the next timer */
    uint64_t turn_time; /* when the timers of the current turn were looked at; 0 outside of that */
    uint64_t armed;     /* what the timerfd is set to, 0: nothing */
};

uint64_t hc_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

struct hc_loop *hc_loop_new(void)
{
    struct hc_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return NULL;
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}; /* NULL marks the timerfd */
    if (loop->epoll < 0 || loop->timerfd < 0 || epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->timerfd, &event) < 0) {
        int saved = errno;
        hc_loop_free(loop);
        errno = saved;
        return NULL;
    }
    return loop;
}

static void bury(struct hc_loop *loop)
{
    while (loop->dead != NULL) {
        struct hc_watch *watch = loop->dead;
        loop->dead = watch->next;
        free(watch);
    }
}

void hc_loop_free(struct hc_loop *loop)
{
    if (loop == NULL)
        return;
    while (loop->watches != NULL)
        hc_watch_remove(loop->watches);
    bury(loop);
    for (size_t i = 0; i < loop->heap_count; i++)
        free(loop->heap[i]);
    free(loop->heap);
    hc_close(loop->timerfd);
    hc_close(loop->epoll);
    free(loop);
}

int hc_loop_fd(const struct hc_loop *loop)
{
    return loop->epoll;
}

struct hc_watch *hc_loop_watch(struct hc_loop *loop, int fd, uint32_t events, hc_watch_fn fn, void *data)
{
    struct hc_watch *watch = malloc(sizeof *watch);
    if (watch == NULL)
        return NULL;
    *watch = (struct hc_watch){.loop = loop, .next = loop->watches, .fd = fd, .fn = fn, .data = data};
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        int saved = errno;
        free(watch);
        errno = saved;
        return NULL;
    }
    if (watch->next != NULL)
        watch->next->previous = watch;
    loop->watches = watch;
    return watch;
}

int hc_watch_set(struct hc_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    return epoll_ctl(watch->loop->epoll, EPOLL_CTL_MOD, watch->fd, &event) < 0 ? -errno : 0;
}

void hc_watch_remove(struct hc_watch *watch)
{
    if (watch == NULL || watch->dead)
        return;
    struct hc_loop *loop = watch->loop;
    int saved = errno;
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->fd, NULL); /* fails only if the fd is closed, which removed it */
    errno = saved;
    if (watch->next != NULL)
        watch->next->previous = watch->previous;
    if (watch->previous != NULL)
        watch->previous->next = watch->next;
    else
        loop->watches = watch->next;
    watch->dead = true;
    watch->next = loop->dead;
    loop->dead = watch;
    if (loop->depth == 0)
        bury(loop);
}

static bool earlier(const struct hc_timer *a, const struct hc_timer *b)
{
    return a->when != b->when ? a->when < b->when : a->sequence < b->sequence;
}

static void put(struct hc_loop *loop, size_t place, struct hc_timer *timer)
{
    loop->heap[place] = timer;
    timer->place = place;
}

static void sift_up(struct hc_loop *loop, struct hc_timer *timer)
{
    size_t place = timer->place;
    while (place > 0 && earlier(timer, loop->heap[(place - 1) / 2])) {
        put(loop, place, loop->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(loop, place, timer);
}

static void sift_down(struct hc_loop *loop, struct hc_timer *timer)
{
    size_t place = timer->place;
    for (size_t child; (child = 2 * place + 1) < loop->heap_count; place = child) {
        if (child + 1 < loop->heap_count && earlier(loop->heap[child + 1], loop->heap[child]))
            child++;
        if (!earlier(loop->heap[child], timer))
            break;
        put(loop, place, loop->heap[child]);
    }
    put(loop, place, timer);
}

static void unlink_timer(struct hc_timer *timer)
{
    struct hc_loop *loop = timer->loop;
    struct hc_timer *last = loop->heap[--loop->heap_count];
    if (last == timer)
        return;
    put(loop, timer->place, last);
    sift_up(loop, last);
    sift_down(loop, last);
}

/* Sets the timerfd to the earliest timer. Setting it anew also clears an expiry that nobody has read. */
static void arm(struct hc_loop *loop)
{
    uint64_t when = 0;
    if (loop->heap_count > 0)
        when = loop->heap[0]->when > 0 ? loop->heap[0]->when : 1; /* a time of 0 would disarm it */
    if (when == loop->armed)
        return;
    struct itimerspec setting = {
        .it_value = {.tv_sec = (time_t)(when / 1000000), .tv_nsec = (long)(when % 1000000) * 1000},
    };
    timerfd_settime(loop->timerfd, TFD_TIMER_ABSTIME, &setting, NULL); /* cannot fail: the fd and the time are valid */
    loop->armed = when;
}

/* In a turn it is done once, at its end, however many timers come and go. */
static void arm_outside(struct hc_loop *loop)
{
    if (loop->depth == 0)
        arm(loop);
}

struct hc_timer *hc_loop_timer(struct hc_loop *loop, uint64_t when, hc_timer_fn fn, void *data)
{
    if (loop->heap_count == loop->heap_capacity) {
        size_t capacity = loop->heap_capacity > 0 ? loop->heap_capacity * 2 : 16;
        struct hc_timer **heap = reallocarray(loop->heap, capacity, sizeof(struct hc_timer *));
        if (heap == NULL)
            return NULL;
        loop->heap = heap;
        loop->heap_capacity = capacity;
    }
    struct hc_timer *timer = malloc(sizeof *timer);
    if (timer == NULL)
        return NULL;
    if (when < loop->turn_time)
        when = loop->turn_time;
    *timer = (struct hc_timer){.loop = loop, .when = when, .sequence = loop->sequence++, .fn = fn, .data = data};
    put(loop, loop->heap_count++, timer);
    sift_up(loop, timer);
    arm_outside(loop);
    return timer;
}

void hc_timer_remove(struct hc_timer *timer)
{
    if (timer == NULL)
        return;
    struct hc_loop *loop = timer->loop;
    unlink_timer(timer);
    free(timer);
    arm_outside(loop);
}

static void dispatch_timers(struct hc_loop *loop)
{
    uint64_t first_new = loop->sequence;
    uint64_t now = hc_now();
    uint64_t outer_time = loop->turn_time;
    loop->turn_time = now;
    while (loop->heap_count > 0 && loop->heap[0]->when <= now && loop->heap[0]->sequence < first_new) {
        struct hc_timer *timer = loop->heap[0];
        hc_timer_fn fn = timer->fn;
        void *data = timer->data;
        unlink_timer(timer);
        free(timer);
        fn(loop, data);
    }
    loop->turn_time = outer_time;
    arm(loop);
}

int hc_loop_turn(struct hc_loop *loop, int milliseconds)
{
    struct epoll_event events[EVENTS_PER_TURN];
    if (loop->depth > 0)
        arm(loop);
    int count = epoll_wait(loop->epoll, events, EVENTS_PER_TURN, milliseconds);
    if (count < 0)
        return errno == EINTR ? 0 : -errno; /* a signal ends the turn, so that the caller can look at what it means */
    loop->depth++;
    for (int i = 0; i < count; i++) {
        struct hc_watch *watch = events[i].data.ptr;
        if (watch != NULL && !watch->dead)
            watch->fn(loop, watch->fd, events[i].events, watch->data);
    }
    dispatch_timers(loop);
    if (--loop->depth == 0)
        bury(loop);
    return 0;
}
