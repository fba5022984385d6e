/* See guard.h. */
#include "cli/guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LAST_WISH = 2 /* s that the child has to end after a signal that ends it */ };

static const int ENDING[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

void guard_signals(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < sizeof ENDING / sizeof *ENDING; i++)
        sigaddset(set, ENDING[i]);
    sigaddset(set, SIGWINCH);
    sigaddset(set, SIGCONT);
}

int guard_raw(int terminal, struct termios *before)
{
    struct termios raw;

    if (tcgetattr(terminal, before) < 0)
        return -errno;
    raw = *before;
    cfmakeraw(&raw);
    return tcsetattr(terminal, TCSADRAIN, &raw) < 0 ? -errno : 0;
}

void guard_restore(int terminal, const struct termios *before)
{
    tcsetattr(terminal, TCSADRAIN, before);
}

/* ---- the guard ---- */

struct guard {
    int terminal;
    struct termios before;
    pid_t child;
    sigset_t waited;
};

/* Somebody stops us: whoever gets the terminal meanwhile finds it as it was. */
static void stop(const struct guard *guard)
{
    struct termios now;
    int known = tcgetattr(guard->terminal, &now);

    kill(guard->child, SIGSTOP);
    guard_restore(guard->terminal, &guard->before);
    raise(SIGSTOP);
    if (known == 0)
        guard_restore(guard->terminal, &now);
    kill(guard->child, SIGCONT);
}

static int is_ending(int signal)
{
    for (size_t i = 0; i < sizeof ENDING / sizeof *ENDING; i++)
        if (ENDING[i] == signal)
            return 1;
    return 0;
}

/* Until the child has ended: its status. */
static int watch(const struct guard *guard)
{
    const struct timespec last = {.tv_sec = LAST_WISH};
    int status = 0, ending = 0;

    for (;;) {
        if (waitpid(guard->child, &status, WNOHANG) == guard->child)
            return status;
        int signal = ending ? sigtimedwait(&guard->waited, NULL, &last) : sigwaitinfo(&guard->waited, NULL);
        if (signal == SIGTSTP) {
            stop(guard);
        } else if (is_ending(signal)) {
            kill(guard->child, signal);
            ending = 1;
        } else if (signal < 0 && errno == EAGAIN) { /* it hangs, perhaps in a write to this very terminal */
            kill(guard->child, SIGKILL);
        }
    }
}

static void be_child(pid_t guard, int (*work)(void *data), void *data)
{
    prctl(PR_SET_PDEATHSIG, SIGHUP);
    if (getppid() != guard)
        _exit(128 + SIGHUP);
    int code = work(data);
    fflush(stdout);
    _exit(code);
}

int guard_run(int terminal, int (*work)(void *data), void *data, int *fault)
{
    struct guard guard = {.terminal = terminal};
    pid_t self = getpid();
    sigset_t blocked, before;

    if (tcgetattr(terminal, &guard.before) < 0)
        return -errno;
    guard_signals(&blocked);
    /* SIGTTOU: the terminal is put right also from the background. */
    sigaddset(&blocked, SIGTTOU);
    guard.waited = blocked;
    sigdelset(&guard.waited, SIGTTOU);
    sigdelset(&guard.waited, SIGWINCH);
    sigdelset(&guard.waited, SIGCONT);
    sigaddset(&guard.waited, SIGCHLD);
    sigaddset(&guard.waited, SIGTSTP);
    sigaddset(&blocked, SIGCHLD);
    sigaddset(&blocked, SIGTSTP);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    fflush(stdout);
    guard.child = fork();
    if (guard.child < 0) {
        int code = errno;
        sigprocmask(SIG_SETMASK, &before, NULL);
        return -code;
    }
    if (guard.child == 0)
        be_child(self, work, data);
    int status = watch(&guard);
    guard_restore(terminal, &guard.before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    *fault = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + *fault;
}
