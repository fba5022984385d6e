/*
 * hotcell-init: pid 1 of a cell. It has orphans reaped and, in a server's cells, is the witness of calls that are
 * refused (witness.h); the cell lives as long as it does. It was exec'ed inside the cell, so that its memory belongs to
 * the cell's user namespace (setns(2) by pidfd asks for that), and it is not dumpable, so that no guest can look into
 * it or take one of its fds. It has no capability, and no open file but /dev/null and what a witness has.
 */
#include "base/fd.h"
#include "cell/witness.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MAX_LISTENERS = 1024 };

struct listener {
    int fd;
    unsigned answers;
    struct witness_row row;
};

struct witnessing {
    struct listener list[MAX_LISTENERS];
    size_t count;
};

static void drop(struct witnessing *all, size_t index)
{
    hc_close(all->list[index].fd);
    all->list[index] = all->list[--all->count];
}

/* Those that lie in the door. One for which there is no place is closed: its calls are refused, and not counted. */
static void take_listeners(struct witnessing *all)
{
    struct witness_word word;
    int fd = -1;
    size_t count = 0;
    while (hc_recv_fds(WITNESS_DOOR_FD, &word, sizeof word, &fd, 1, &count) == (ssize_t)sizeof word) {
        if (count == 1 && all->count < MAX_LISTENERS)
            all->list[all->count++] = (struct listener){.fd = fd, .row = {.job = word.job}};
        else if (count == 1)
            hc_close(fd);
    }
}

/* One call. Nothing of it is looked at but its number, and SECCOMP_USER_NOTIF_FLAG_CONTINUE is never said. */
static void answer(struct listener *listener)
{
    union { /* a later kernel may have more to say */
        struct seccomp_notif call;
        char space[512];
    } heard = {.space = {0}};
    if (ioctl(listener->fd, SECCOMP_IOCTL_NOTIF_RECV, &heard.call) < 0)
        return; /* its caller was killed, or a signal came, and it will ask again */
    int index = reported_index(heard.call.data.nr);
    if (index >= 0 && listener->row.calls.count[index] < REPORTED_MOST) {
        reported_add(&listener->row.calls, (unsigned)index);
        witness_write(WITNESS_BOOK_FD, &listener->row);
    }
    struct seccomp_notif_resp said = {.id = heard.call.id,
                                      .error = index >= 0 ? -reported_error((unsigned)index) : -ENOSYS};
    ioctl(listener->fd, SECCOMP_IOCTL_NOTIF_SEND, &said);
    listener->answers++;
}

static void serve(struct witnessing *all)
{
    struct pollfd ready[MAX_LISTENERS];
    size_t count = all->count;
    for (size_t i = 0; i < count; i++)
        ready[i] = (struct pollfd){.fd = all->list[i].fd, .events = POLLIN};
    if (poll(ready, count, 0) <= 0)
        return;
    for (size_t i = count; i-- > 0;) { /* the last first: whoever takes the place of one that goes was served already */
        if (ready[i].revents & POLLIN)
            answer(&all->list[i]);
        else if (ready[i].revents)
            drop(all, i); /* nobody has its filter any more */
        if (i < all->count && all->list[i].fd == ready[i].fd && all->list[i].answers >= WITNESS_ANSWERS)
            drop(all, i);
    }
}

int main(void)
{
    static struct witnessing all;
    sigset_t every;
    sigfillset(&every);
    /* With SIGCHLD ignored the kernel reaps our children as they end, and does not wake us for it. */
    if (sigprocmask(SIG_SETMASK, &every, NULL) < 0 || signal(SIGCHLD, SIG_IGN) == SIG_ERR ||
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return 125;
    (void)!write(INIT_BUILT_FD, "i", 1); /* nobody reads it where no job came early */
    close(INIT_BUILT_FD);
    while (fcntl(WITNESS_BELL_FD, F_GETFD) < 0)
        pause(); /* no witness is wanted */
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(WITNESS_BELL_FD, &event, 1, -1) < 0 && errno != EINTR)
            return 125;
        take_listeners(&all);
        serve(&all);
    }
}
