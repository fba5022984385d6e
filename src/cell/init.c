/*
 * hotcell-init: pid 1 of a cell. It reaps orphans and does nothing else; the cell lives as long as it does. It was
 * exec'ed inside the cell, so that its memory belongs to the cell's user namespace (setns(2) by pidfd asks for that),
 * and it is not dumpable, so that no guest can look into it. It holds no open file but /dev/null, and no capability.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    sigset_t all;
    sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, NULL) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return 125;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        sigwaitinfo(&child, NULL);
    }
}
