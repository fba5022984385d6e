/*
 * Pipes whose job has ended and that something which it left running still writes to. Closing them would end a server
 * that logs a line; so they are read, and what comes is forgotten, until nobody holds them any more.
 */
#include "base/fd.h"
#include "sandbox/sandbox.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

struct linger {
    struct hc_watch *watch;
    int fd;
};

static void on_readable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct linger *linger = data;
    char bytes[65536];
    ssize_t count = read(fd, bytes, sizeof bytes);
    if (count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    hc_watch_remove(linger->watch);
    hc_close(linger->fd);
    free(linger);
}

void sandbox_linger(struct sandbox *sandbox, int fd)
{
    struct linger *linger = malloc(sizeof *linger);
    if (linger) {
        hc_set_nonblock(fd, true);
        *linger = (struct linger){.fd = fd};
        linger->watch = hc_loop_watch(sandbox_loop(sandbox), fd, EPOLLIN, on_readable, linger);
    }
    if (!linger || !linger->watch) {
        free(linger);
        hc_close(fd);
    }
}
