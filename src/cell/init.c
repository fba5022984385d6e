/*
 * hotcell-init: pid 1 of a cell. It has orphans reaped and, in a server's cells, is the witness of calls that are
 * refused (witness.h); the cell lives as long as it does. It was exec'ed inside the cell, so that its memory belongs to
 * the cell's user namespace (setns(2) by pidfd asks for that), and it is not dumpable, so that no guest can look into
 * it or take one of its fds. It has no capability, and no open file but /dev/null and what a witness has; until it has
 * read them, the names that it looks up (look_up).
 */
#include "base/fd.h"
#include "cell/spec.h"
#include "cell/witness.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LISTENERS = 1024, PAGE = 4096 };

struct listener {
    int fd;
    unsigned answers;
    int32_t pid;
    uint64_t held; /* the call that was its program's last word, until it is answered; or 0 */
    struct witness_row row;
};

struct witnessing {
    struct listener list[MAX_LISTENERS];
    size_t count;
    unsigned held;
    struct timespec since; /* the last of them */
};

static void drop(struct witnessing *all, size_t index)
{
    all->held -= all->list[index].held != 0; /* whose call it is goes on, or has gone */
    hc_close(all->list[index].fd);
    all->list[index] = all->list[--all->count];
}

static void refuse(const struct listener *listener, uint64_t id, int error)
{
    struct seccomp_notif_resp said = {.id = id, .error = -error};
    ioctl(listener->fd, SECCOMP_IOCTL_NOTIF_SEND, &said);
}

/* One whose last word does not count, nor will another: the warden is asked once by each, and not at a guest's pace. */
static void let_go(struct witnessing *all, uint64_t job)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i].held && all->list[i].row.job == job) {
            refuse(&all->list[i], all->list[i].held, ENOSYS);
            all->list[i].held = 0;
            all->list[i].pid = 0;
            all->held--;
        }
}

/* Those that lie in the door. One for which there is no place is closed: its calls are refused, and not counted. */
static void take_listeners(struct witnessing *all)
{
    struct witness_word word;
    int fd = -1;
    size_t count = 0;
    while (hc_recv_fds(WITNESS_DOOR_FD, &word, sizeof word, &fd, 1, &count) == (ssize_t)sizeof word) {
        if (count == 1 && all->count < MAX_LISTENERS)
            all->list[all->count++] = (struct listener){.fd = fd, .pid = word.pid, .row = {.job = word.job}};
        else if (count == 1)
            hc_close(fd);
        else
            let_go(all, word.job);
    }
}

/* The warden is told, and ends the cell or waits for the end itself. False: it is not the first process of its job, or
 * nobody can be told. */
static bool pass_on(struct witnessing *all, struct listener *listener, const struct seccomp_notif *call)
{
    struct witness_last last = {.job = listener->row.job, .code = (int32_t)call->data.args[0]};
    if ((int32_t)call->pid != listener->pid || listener->held ||
        send(WITNESS_DOOR_FD, &last, sizeof last, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof last)
        return false;
    listener->held = call->id;
    all->held++;
    sched_yield(); /* it may be waiting for this processor */
    clock_gettime(CLOCK_MONOTONIC, &all->since);
    return true;
}

/* The warden does not answer. */
static void let_late_go(struct witnessing *all)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - all->since.tv_sec) * 1000 + (now.tv_nsec - all->since.tv_nsec) / 1000000 < WITNESS_HOLD_MS)
        return;
    for (size_t i = 0; i < all->count; i++)
        let_go(all, all->list[i].row.job);
}

/* While a last word waits for its answer, that is listened for as well: it comes by the door. */
static int wait_for_work(const struct witnessing *all)
{
    struct epoll_event event;
    struct pollfd ready[] = {{.fd = WITNESS_BELL_FD, .events = POLLIN}, {.fd = WITNESS_DOOR_FD, .events = POLLIN}};
    if (all->held && poll(ready, 2, WITNESS_HOLD_MS) < 0)
        return -1;
    return epoll_wait(WITNESS_BELL_FD, &event, 1, all->held ? 0 : -1);
}

/* One call. Nothing of it is looked at but its number, and of a last word its code;
 * SECCOMP_USER_NOTIF_FLAG_CONTINUE is never said. */
static void answer(struct witnessing *all, struct listener *listener)
{
    union { /* a later kernel may have more to say */
        struct seccomp_notif call;
        char space[512];
    } heard = {.space = {0}};
    if (ioctl(listener->fd, SECCOMP_IOCTL_NOTIF_RECV, &heard.call) < 0)
        return; /* its caller was killed, or a signal came, and it will ask again */
    /* A last word leaves no row, so it must not use up what a row is written for. Its pace is its caller's. */
    if (heard.call.data.nr != SYS_exit_group)
        listener->answers++;
    else if (pass_on(all, listener, &heard.call))
        return;
    int index = reported_index(heard.call.data.nr);
    if (index >= 0 && listener->row.calls.count[index] < REPORTED_MOST) {
        reported_add(&listener->row.calls, (unsigned)index);
        witness_write(WITNESS_BOOK_FD, &listener->row);
    }
    refuse(listener, heard.call.id, index >= 0 ? reported_error((unsigned)index) : ENOSYS);
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
            answer(all, &all->list[i]);
        else if (ready[i].revents)
            drop(all, i); /* nobody has its filter any more */
        if (i < all->count && all->list[i].fd == ready[i].fd && all->list[i].answers >= WITNESS_ANSWERS &&
            !all->list[i].held)
            drop(all, i);
    }
}

/* The names that the first program is known to look up while it starts. A cell's /usr has just been mounted, and the
 * kernel asks the file system below for every name that is new to it: what is done here meanwhile, on a processor that
 * has nothing else to do, the program need not wait for. What is not there is one of the answers. */
static void look_up(void)
{
    static char names[CELL_MAX_LOOKUPS + 1];
    struct stat st;
    ssize_t length = pread(INIT_LOOKUPS_FD, names, sizeof names - 1, 0);
    if (length < 0)
        return; /* there are none */
    hc_close(INIT_LOOKUPS_FD);
    for (const char *name = names; name < names + length; name += strlen(name) + 1)
        (void)stat(name, &st);
}

/* Memory that is used for the first time when a last word comes: who says it, and who waits for it, would wait for the
 * kernel to find it. */
static void settle_in(struct witnessing *all)
{
    volatile char deep[sizeof(struct pollfd) * MAX_LISTENERS + 4 * PAGE];
    for (size_t at = 0; at < sizeof deep; at += PAGE)
        deep[at] = 0;
    all->list[0].fd = -1;
    clock_gettime(CLOCK_MONOTONIC, &all->since);
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
    look_up();
    while (fcntl(WITNESS_BELL_FD, F_GETFD) < 0)
        pause(); /* no witness is wanted */
    settle_in(&all);
    for (;;) {
        if (wait_for_work(&all) < 0 && errno != EINTR)
            return 125;
        if (all.held)
            let_late_go(&all);
        take_listeners(&all);
        serve(&all);
    }
}
