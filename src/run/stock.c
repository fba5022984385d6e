/* See stock.h. Nothing comes back: whatever was handed out is new to whoever gets it. */
#include "run/stock.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIPES = 2, MEMFDS = 2, PAGE = 4096, HEAP = 8 * PAGE };

/* The process's, as its heap is: it holds fds, and nothing of anybody's. */
static struct stock {
    bool kept;
    int null, pipe_count, memfd_count, pipe[PIPES][2], memfd[MEMFDS];
} stock = {.null = -1};

static int make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static int make_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int stock_pipe(int ends[2])
{
    if (stock.pipe_count == 0)
        return make_pipe(ends);
    stock.pipe_count--;
    ends[0] = stock.pipe[stock.pipe_count][0];
    ends[1] = stock.pipe[stock.pipe_count][1];
    return 0;
}

int stock_memfd(void)
{
    return stock.memfd_count > 0 ? stock.memfd[--stock.memfd_count] : hc_memfd_open("hotcell");
}

int stock_null(void)
{
    return stock.null >= 0 ? HC_TAKE_FD(stock.null) : make_null();
}

void stock_keep(void)
{
    stock.kept = true;
    stock_refill();
}

/* Each run leaves something that is kept for a while, so the heap grows, and what it grows by is new to the kernel. */
static void touch_heap(void)
{
    char *room = malloc(HEAP);
    for (size_t at = 0; room && at < HEAP; at += PAGE)
        ((volatile char *)room)[at] = 0;
    free(room);
}

void stock_refill(void)
{
    if (!stock.kept)
        return;
    touch_heap();
    while (stock.pipe_count < PIPES && make_pipe(stock.pipe[stock.pipe_count]) == 0)
        stock.pipe_count++;
    while (stock.memfd_count < MEMFDS && (stock.memfd[stock.memfd_count] = hc_memfd_open("hotcell")) >= 0)
        stock.memfd_count++;
    if (stock.null < 0)
        stock.null = make_null();
}

void stock_drop(void)
{
    stock.kept = false;
    while (stock.pipe_count > 0) {
        stock.pipe_count--;
        hc_close(stock.pipe[stock.pipe_count][0]);
        hc_close(stock.pipe[stock.pipe_count][1]);
    }
    while (stock.memfd_count > 0)
        hc_close(stock.memfd[--stock.memfd_count]);
    stock.null = hc_close(stock.null);
}
