/* See witness.h. */
#include "cell/witness.h"

#include "base/fd.h"
#include "kernel/sys.h"
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM_MS = 200, ROOM_TURNS = 10 };

void witness_init(struct witness *witness)
{
    witness->door = witness->bell = witness->book = -1;
}

void witness_close(struct witness *witness)
{
    witness->door = hc_close(witness->door);
    witness->bell = hc_close(witness->bell);
    witness->book = hc_close(witness->book);
}

int witness_make(struct witness *witness, int *inside, struct hc_err *err)
{
    int ends[2];
    witness_init(witness);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    witness->door = ends[0];
    witness->bell = epoll_create1(EPOLL_CLOEXEC);
    witness->book = memfd_create("hotcell-book", MFD_CLOEXEC);
    if (witness->bell < 0 || witness->book < 0) {
        int result = hc_fail_errno(err, HC_CLASS_OURS, errno, "making what refused calls are reported by");
        witness_close(witness);
        hc_close(ends[1]);
        return result;
    }
    *inside = ends[1];
    return 0;
}

/* Some hundred programs run that have made no such call, and none has ended lately: the door is full. Rings once, for
 * pid 1 to empty it. */
static void empty_door(int door, int bell)
{
    int ring = eventfd(1, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    struct pollfd room = {.fd = door, .events = POLLOUT};
    if (ring >= 0 && epoll_ctl(bell, EPOLL_CTL_ADD, ring, &event) == 0)
        poll(&room, 1, ROOM_MS);
    hc_close(ring);
}

int witness_hand(int door, int bell, int listener, uint64_t job, pid_t speaker, struct hc_err *err)
{
    struct witness_word word = {.job = job, .pid = speaker};
    struct epoll_event event = {.events = EPOLLIN};
    int result = hc_try_send_fds(door, &word, sizeof word, &listener, 1);
    for (int turn = 0; result == -EAGAIN && turn < ROOM_TURNS; turn++) {
        empty_door(door, bell);
        result = hc_try_send_fds(door, &word, sizeof word, &listener, 1);
    }
    if (result == 0 && epoll_ctl(bell, EPOLL_CTL_ADD, listener, &event) < 0)
        result = -errno;
    /* What is left open here the guest would have. */
    int fds[] = {listener, door, bell};
    for (unsigned i = 0; i < 3; i++)
        if (close(fds[i]) < 0 && result == 0)
            result = -errno;
    return result < 0 ? hc_fail_errno(err, HC_CLASS_OURS, -result, "reporting refused calls") : 0;
}

void witness_refuse(int door, uint64_t job)
{
    struct witness_word word = {.job = job};
    (void)hc_try_send_fds(door, &word, sizeof word, NULL, 0);
}

bool witness_hear(int door, struct witness_last *last, bool *gone)
{
    ssize_t size;
    do
        size = recv(door, last, sizeof *last, MSG_DONTWAIT);
    while (size < 0 && errno == EINTR);
    *gone = size == 0 || (size < 0 && errno != EAGAIN);
    return size == (ssize_t)sizeof *last;
}

static off_t place_of(uint64_t job)
{
    return (off_t)(job % WITNESS_ROWS * sizeof(struct witness_row));
}

void witness_write(int book, const struct witness_row *row)
{
    ssize_t written = pwrite(book, row, sizeof *row, place_of(row->job));
    (void)written; /* the cell is out of memory: the call is refused all the same */
}

void witness_read(int book, uint64_t job, struct reported *calls)
{
    struct witness_row row;
    memset(calls, 0, sizeof *calls);
    if (job == 0 || book < 0 || pread(book, &row, sizeof row, place_of(job)) != (ssize_t)sizeof row || row.job != job)
        return;
    *calls = row.calls;
    reported_check(calls);
}
