/* See pipes.h. */
#include "run/pipes.h"

#include "base/fd.h"
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

int pipes_open(struct pipes *pipes, uint64_t job, int number, int *write_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    struct pipe_end *end = calloc(1, sizeof *end);
    if (end) {
        *end = (struct pipe_end){.pipes = pipes, .job = job, .number = number, .fd = ends[0]};
        hc_set_nonblock(ends[0], true);
        end->watch = hc_loop_watch(pipes->loop, ends[0], EPOLLIN, on_readable, end);
    }
    if (!end || !end->watch) {
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
    while (pipes->first)
        close_end(pipes->first);
}
