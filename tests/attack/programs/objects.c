/* Kernel objects up to a count: argv[1] of each kind. `kind=<got> <errno>`. What has a name in an ipc namespace is
 * removed again unless argv[2] is "leave". */
#include "probe.h"
#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/timerfd.h>

static void tell(const char *kind, long got, long wanted)
{
    fact(kind, "%ld %s", got, got == wanted ? "none" : errno_word(errno));
}

static void descriptors(const char *kind, long wanted, int (*make)(void))
{
    int *fds = calloc((size_t)wanted, sizeof *fds);
    long got = 0;
    while (got < wanted && (fds[got] = make()) >= 0)
        got++;
    tell(kind, got, wanted);
    for (long i = 0; i < got; i++)
        close(fds[i]);
    free(fds);
}

static int make_timer(void)
{
    return timerfd_create(CLOCK_MONOTONIC, 0);
}
static int make_epoll(void)
{
    return epoll_create1(0);
}
static int make_event(void)
{
    return eventfd(0, 0);
}
static int make_inotify(void)
{
    return inotify_init1(0);
}

static void timers(long wanted)
{
    long got = 0;
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    for (timer_t timer; got < wanted && timer_create(CLOCK_MONOTONIC, &quiet, &timer) == 0;)
        got++;
    tell("timer", got, wanted);
}

static void queues(long wanted, bool leave)
{
    long got = 0;
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    char name[64];
    for (; got < wanted; got++) {
        snprintf(name, sizeof name, "/attack.%ld", got);
        if (mq_open(name, O_CREAT | O_RDWR, 0600, &attributes) < 0)
            break;
    }
    tell("mqueue", got, wanted);
    for (long i = 0; i < got && !leave; i++) {
        snprintf(name, sizeof name, "/attack.%ld", i);
        mq_unlink(name);
    }
}

static void system_v(long wanted, bool leave)
{
    int *ids = calloc((size_t)wanted, sizeof *ids);
    long got = 0;
    while (got < wanted && (ids[got] = shmget(leave ? 0x5afe + (int)got : IPC_PRIVATE, 4096, IPC_CREAT | 0600)) >= 0)
        got++;
    tell("shm", got, wanted);
    for (long i = 0; i < got && !leave; i++)
        shmctl(ids[i], IPC_RMID, NULL);
    for (got = 0;
         got < wanted && (ids[got] = semget(leave ? 0x5afe + (int)got : IPC_PRIVATE, 1, IPC_CREAT | 0600)) >= 0;)
        got++;
    tell("sem", got, wanted);
    for (long i = 0; i < got && !leave; i++)
        semctl(ids[i], 0, IPC_RMID);
    for (got = 0; got < wanted && (ids[got] = msgget(leave ? 0x5afe + (int)got : IPC_PRIVATE, IPC_CREAT | 0600)) >= 0;)
        got++;
    tell("msg", got, wanted);
    for (long i = 0; i < got && !leave; i++)
        msgctl(ids[i], IPC_RMID, NULL);
    free(ids);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    long wanted = atol(argv[1]);
    if (wanted < 1 || wanted > 1000000)
        return 2;
    bool leave = argc > 2 && strcmp(argv[2], "leave") == 0;
    if (!leave) {
        descriptors("timerfd", wanted, make_timer);
        descriptors("epoll", wanted, make_epoll);
        descriptors("eventfd", wanted, make_event);
        descriptors("inotify", wanted, make_inotify);
        timers(wanted);
    }
    queues(wanted, leave);
    system_v(wanted, leave);
    return 0;
}
