/*
 * Processes that do not want to end. argv[1]:
 *   daemon     double-fork a session of its own that sleeps on, then exit
 *   chain [N]  a process that forks its successor and exits, N times (default: without end)
 *   block      block and ignore every signal, sleep       stop   SIGSTOP oneself
 *   reaper     become a subreaper, leave grandchildren without a parent-death signal, sleep
 *   hold       leave a child that holds stdout, exit      sleep  sleep
 *   many N     N sleeping children, then sleep
 */
#include "probe.h"

enum { LONG = 60 }; /* seconds: long for a test, short for a machine that it was forgotten on */

static void rest(void)
{
    for (int i = 0; i < LONG * 10; i++)
        nap(100);
    _exit(0);
}

static void leave_daemon(void)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            int null = open("/dev/null", O_RDWR);
            for (int fd = 0; fd < 3; fd++)
                dup2(null, fd);
            signal(SIGHUP, SIG_IGN);
            rest();
        }
        _exit(0);
    }
    wait(NULL);
    fact("daemon", "left");
}

static void chain(long count)
{
    for (long i = 0; count == 0 || i < count; i++) {
        pid_t child = fork();
        if (child > 0)
            _exit(0);
        if (child < 0)
            nap(1);
        else
            setsid();
    }
    rest();
}

static void reaper(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, 0);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, 0);
                prctl(PR_SET_CHILD_SUBREAPER, 1);
                rest();
            }
            _exit(0);
        }
    fact("reaper", "ready");
    rest();
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    const char *mode = argv[1];
    if (strcmp(mode, "daemon") == 0)
        leave_daemon();
    if (strcmp(mode, "chain") == 0)
        chain(argc > 2 ? atol(argv[2]) : 0);
    if (strcmp(mode, "block") == 0) {
        sigset_t every;
        sigfillset(&every);
        sigprocmask(SIG_SETMASK, &every, NULL);
        for (int number = 1; number < 65; number++)
            signal(number, SIG_IGN);
        fact("blocked", "yes");
        rest();
    }
    if (strcmp(mode, "stop") == 0) {
        fact("stopping", "yes");
        raise(SIGSTOP);
    }
    if (strcmp(mode, "reaper") == 0)
        reaper();
    if (strcmp(mode, "hold") == 0 && fork() == 0) {
        setsid();
        rest();
    }
    if (strcmp(mode, "many") == 0) {
        for (int i = argc > 2 ? atoi(argv[2]) : 1; i > 0; i--)
            if (fork() == 0)
                rest();
        fact("many", "ready");
        rest();
    }
    if (strcmp(mode, "sleep") == 0) {
        fact("sleeping", "yes");
        rest();
    }
    return 0;
}
