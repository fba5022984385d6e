/* See feed.h. At any time exactly one of the two ends is watched: the source while the buffer is empty, the sink while
 * it is not. */
#include "run/feed.h"

#include "base/fd.h"
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

void feed_stop(struct feed *feed)
{
    hc_watch_remove(feed->source_watch);
    hc_watch_remove(feed->sink_watch);
    feed->source_watch = feed->sink_watch = NULL;
    feed->sink = hc_close(feed->sink);
    feed->source = -1;
}

/* A write to a pipe without readers, without its signal: the process, and what it does about SIGPIPE, belong to the
 * library's caller. */
static ssize_t write_quietly(int fd, const char *data, size_t length)
{
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t count = write(fd, data, length);
    int code = errno;
    if (count < 0 && code == EPIPE && !sigismember(&pending, SIGPIPE)) {
        struct timespec now = {0};
        sigtimedwait(&pipe_signal, NULL, &now);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return count < 0 ? -code : count;
}

static void advance(struct feed *feed, bool source_ready);

static void on_source(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    advance(data, true);
}

static void on_sink(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct feed *feed = data;
    if (feed->length == 0) { /* watched for errors only: the reader has gone */
        if (events & EPOLLERR)
            feed_stop(feed);
        return;
    }
    advance(feed, feed->always_ready);
}

static void advance(struct feed *feed, bool source_ready)
{
    for (;;) {
        if (feed->length == 0) {
            if (!source_ready)
                break;
            source_ready = feed->always_ready;
            ssize_t count = read(feed->source, feed->data, sizeof feed->data);
            if (count < 0 && (errno == EINTR || errno == EAGAIN))
                break;
            if (count <= 0) {
                feed_stop(feed);
                return;
            }
            feed->start = 0;
            feed->length = (size_t)count;
        }
        ssize_t count = write_quietly(feed->sink, feed->data + feed->start, feed->length);
        if (count == -EAGAIN || count == -EINTR)
            break;
        if (count < 0) {
            feed_stop(feed);
            return;
        }
        feed->start += (size_t)count;
        feed->length -= (size_t)count;
    }
    if (feed->source_watch)
        hc_watch_set(feed->source_watch, feed->length ? 0 : EPOLLIN);
    hc_watch_set(feed->sink_watch, feed->length || feed->always_ready ? EPOLLOUT : 0);
}

int feed_start(struct feed *feed, struct hc_loop *loop, int source, int sink)
{
    feed->loop = loop;
    feed->source = source;
    feed->sink = sink;
    feed->start = feed->length = 0;
    feed->source_watch = feed->sink_watch = NULL;
    hc_set_nonblock(sink, true);
    feed->sink_watch = hc_loop_watch(loop, sink, EPOLLOUT, on_sink, feed);
    feed->source_watch = hc_loop_watch(loop, source, EPOLLIN, on_source, feed);
    feed->always_ready = !feed->source_watch && errno == EPERM;
    if (!feed->sink_watch || (!feed->source_watch && !feed->always_ready)) {
        int code = errno;
        feed_stop(feed);
        return -code;
    }
    advance(feed, feed->always_ready);
    return 0;
}
