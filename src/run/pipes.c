/* See pipes.h. */
#include "run/pipes.h"

#include "base/fd.h"
#include "run/stock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A pipe holds at most 1 MiB unless root makes it larger; who writes without end is not waited for. */
enum { DRAIN_READS = 32 };

struct pipe_end {
    struct pipes *pipes;
    struct pipe_end *next;
    struct hc_watch *watch;
    uint64_t job;
    int fd, number;
};

static void close_end(struct pipe_end *end)
{
    for (struct pipe_end **at = &end->pipes->first; *at; at = &(*at)->next)
        if (*at == end) {
            *at = end->next;
            break;
        }
    hc_watch_remove(end->watch);
    hc_close(end->fd);
    free(end);
}

/* Whether something came; at its end it is closed. */
static bool read_end(struct pipe_end *end)
{
    char bytes[65536];
    ssize_t count = read(end->fd, bytes, sizeof bytes);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (count > 0)
        end->pipes->bytes(end->pipes->data, end->job, end->number, bytes, (size_t)count);
    else
        close_end(end);
    return count > 0;
}

static void on_readable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct pipes *pipes = ((struct pipe_end *)data)->pipes;
    read_end(data);
    pipes->after(pipes->data);
}

void pipes_drain(struct pipes *pipes)
{
    struct pipe_end *next;
    for (struct pipe_end *end = pipes->first; end; end = next) {
        next = end->next;
        for (int i = 0; i < DRAIN_READS && read_end(end); i++)
            continue;
    }
}

static bool watch(struct pipe_end *end)
{
    if (!end->watch)
        end->watch = hc_loop_watch(end->pipes->loop, end->fd, EPOLLIN, on_readable, end);
    return end->watch != NULL;
}

static bool wait_quietly(struct pipes *pipes);

/* What cannot be watched is looked at now and then. */
static void on_quiet_over(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct pipes *pipes = data;
    pipes->wait = NULL;
    for (struct pipe_end *end = pipes->first; end; end = end->next)
        if (!watch(end))
            (void)wait_quietly(pipes);
    pipes_drain(pipes);
    pipes->after(pipes->data);
}

static bool wait_quietly(struct pipes *pipes)
{
    if (!pipes->wait)
        pipes->wait = hc_loop_timer(pipes->loop, hc_now() + pipes->quiet, on_quiet_over, pipes);
    return pipes->wait != NULL;
}

void pipes_listen(struct pipes *pipes)
{
    bool all = true;
    pipes_drain(pipes);
    for (struct pipe_end *end = pipes->first; end; end = end->next)
        all = watch(end) && all;
    if (all) {
        hc_timer_remove(pipes->wait);
        pipes->wait = NULL;
    }
}

int pipes_open(struct pipes *pipes, uint64_t job, int number, int *write_end)
{
    int ends[2];
    int result = stock_pipe(ends);
    if (result < 0)
        return result;
    struct pipe_end *end = calloc(1, sizeof *end);
    if (end)
        *end = (struct pipe_end){.pipes = pipes, .job = job, .number = number, .fd = ends[0]};
    if (!end || !(pipes->quiet ? wait_quietly(pipes) : watch(end))) {
        free(end);
        hc_close(ends[0]);
        hc_close(ends[1]);
        return -ENOMEM;
    }
    end->next = pipes->first;
    pipes->first = end;
    *write_end = ends[1];
    return 0;
}

bool pipes_busy(const struct pipes *pipes)
{
    return pipes->first != NULL;
}

void pipes_leave(struct pipes *pipes, void (*take)(void *data, int fd), void *data)
{
    while (pipes->first) {
        int fd = HC_TAKE_FD(pipes->first->fd);
        close_end(pipes->first);
        if (take)
            take(data, fd);
        else
            hc_close(fd);
    }
}

void pipes_close(struct pipes *pipes)
{
    hc_timer_remove(pipes->wait);
    pipes->wait = NULL;
    while (pipes->first)
        close_end(pipes->first);
}
