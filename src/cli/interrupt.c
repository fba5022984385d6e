/*
 * Signals. A handler is given no argument of its own, so what it works on has to be static: the variables here are the
 * only mutable state of the command line outside a function. Any number of signals may come; each asks for the same
 * thing.
 */
#include "cli/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

static hc_engine *volatile target;
static volatile sig_atomic_t caught, wake = -1;

static void on_signal(int signal)
{
    int saved = errno;
    hc_engine *engine = target;

    caught = signal;
    if (engine)
        hc_engine_cancel(engine);
    if (wake >= 0 && write(wake, &(uint64_t){1}, sizeof(uint64_t)) < 0)
        errno = 0; /* the counter is full: it is readable all the same */
    errno = saved;
}

static void on_closed_pipe(int signal)
{
    (void)signal;
}

void interrupt_begin(void)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = on_signal}, before;

    /* No SA_RESTART: a write to a reader that sleeps returns, and the run ends. */
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(ending[i], &action, NULL);

    /* A handler, not SIG_IGN: an ignored signal stays ignored across exec, and the guest would inherit it. */
    action.sa_handler = on_closed_pipe;
    sigaction(SIGPIPE, &action, NULL);
}

void interrupt_target(hc_engine *engine)
{
    target = engine;
}

void interrupt_wake(int fd)
{
    wake = fd;
}

int interrupt_caught(void)
{
    return caught;
}
