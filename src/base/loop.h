/*
 * The event loop: epoll, timers, nothing else. Small enough to read at a sitting. Its own fd is pollable, so it can be
 * nested in another loop. One thread.
 */
#ifndef HC_BASE_LOOP_H
#define HC_BASE_LOOP_H

#include <stdint.h>

struct hc_loop;
struct hc_watch; /* one fd being watched */
struct hc_timer;

/* events: EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR as in epoll(7). A callback may remove any watch or timer, also its own.
 */
typedef void (*hc_watch_fn)(struct hc_loop *loop, int fd, uint32_t events, void *data);
typedef void (*hc_timer_fn)(struct hc_loop *loop, void *data);

struct hc_loop *hc_loop_new(void);          /* NULL: errno */
void hc_loop_free(struct hc_loop *loop);    /* frees watches and timers; does not close watched fds; NULL is fine */
int hc_loop_fd(const struct hc_loop *loop); /* readable when hc_loop_turn(loop, 0) would do something */

/* The fd stays the caller's, who must remove the watch before closing it. NULL: errno. */
struct hc_watch *hc_loop_watch(struct hc_loop *loop, int fd, uint32_t events, hc_watch_fn fn, void *data);
int hc_watch_set(struct hc_watch *watch, uint32_t events);
void hc_watch_remove(struct hc_watch *watch); /* NULL is fine */

/* A one-shot timer at a CLOCK_MONOTONIC time in microseconds. It frees itself after firing. NULL: errno. */
struct hc_timer *hc_loop_timer(struct hc_loop *loop, uint64_t when, hc_timer_fn fn, void *data);
void hc_timer_remove(
    struct hc_timer *timer); /* NULL is fine; not to be called from or after the timer's own callback */

/* Wait at most `milliseconds` (-1: for ever) and dispatch what is there. 0, or -errno. */
int hc_loop_turn(struct hc_loop *loop, int milliseconds);

uint64_t hc_now(void); /* CLOCK_MONOTONIC, microseconds */

#endif
