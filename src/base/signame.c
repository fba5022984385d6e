/* See signame.h. */
#include "base/signame.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

struct row {
    const char *name, *meaning;
};

#define ROW(name, meaning) [name] = {#name, meaning}

static const struct row ROWS[] = {
    ROW(SIGHUP, "hangup"),
    ROW(SIGINT, "interrupt"),
    ROW(SIGQUIT, "quit"),
    ROW(SIGILL, "illegal instruction"),
    ROW(SIGTRAP, "trace/breakpoint trap"),
    ROW(SIGABRT, "aborted"),
    ROW(SIGBUS, "bus error"),
    ROW(SIGFPE, "floating point exception"),
    ROW(SIGKILL, "killed"),
    ROW(SIGUSR1, "user defined signal 1"),
    ROW(SIGSEGV, "segmentation fault"),
    ROW(SIGUSR2, "user defined signal 2"),
    ROW(SIGPIPE, "broken pipe"),
    ROW(SIGALRM, "alarm clock"),
    ROW(SIGTERM, "terminated"),
    ROW(SIGSTKFLT, "stack fault"),
    ROW(SIGCHLD, "child exited"),
    ROW(SIGCONT, "continued"),
    ROW(SIGSTOP, "stopped (signal)"),
    ROW(SIGTSTP, "stopped"),
    ROW(SIGTTIN, "stopped (tty input)"),
    ROW(SIGTTOU, "stopped (tty output)"),
    ROW(SIGURG, "urgent I/O condition"),
    ROW(SIGXCPU, "CPU time limit exceeded"),
    ROW(SIGXFSZ, "file size limit exceeded"),
    ROW(SIGVTALRM, "virtual timer expired"),
    ROW(SIGPROF, "profiling timer expired"),
    ROW(SIGWINCH, "window changed"),
    ROW(SIGPOLL, "I/O possible"),
    ROW(SIGPWR, "power failure"),
    ROW(SIGSYS, "bad system call"),
};

static const struct row *find(int number)
{
    static const struct row none;
    return number > 0 && (size_t)number < sizeof ROWS / sizeof *ROWS ? &ROWS[number] : &none;
}

const char *hc_signal_name(int number)
{
    return find(number)->name;
}

const char *hc_signal_meaning(int number)
{
    return find(number)->meaning;
}

int hc_signal_number(const char *name)
{
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 1; i < sizeof ROWS / sizeof *ROWS; i++)
        if (ROWS[i].name && strcasecmp(ROWS[i].name + 3, name) == 0)
            return (int)i;
    return -1;
}
