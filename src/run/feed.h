/* Feeding a program's stdin from an fd of the caller's, through a pipe, without ever blocking on either end. */
#ifndef HC_RUN_FEED_H
#define HC_RUN_FEED_H

#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>

struct feed {
    struct hc_loop *loop;
    struct hc_watch *source_watch, *sink_watch;
    int source, sink;  /* sink is owned; source is the caller's */
    bool always_ready; /* a regular file: epoll does not take it, and it never makes one wait */
    size_t start, length;
    char data[65536];
};

/* `sink` becomes non-blocking and is closed at the end of the source, or when nobody reads any more. 0 or -errno. */
int feed_start(struct feed *feed, struct hc_loop *loop, int source, int sink);
void feed_stop(struct feed *feed);

#endif
