/*
 * Crashes. `many N`: N children that crash by turns in different ways, with the core limit raised as far as it goes;
 * prints how many left a core. `recurse`: without end. `signal N`, `exit N`: end oneself so. `say TEXT N`: print TEXT
 * to both streams, exit N.
 */
#include "probe.h"

static volatile char sink;
static volatile bool deeper = true; /* so that the compiler does not know that it never ends */

__attribute__((noinline)) static int recurse(int depth)
{
    volatile char frame[4096];
    frame[depth % 4096] = (char)depth;
    sink = frame[depth % 4096];
    return deeper ? recurse(depth + 1) + frame[0] : 0;
}

static int many(int count)
{
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_CORE, &limit);
    static const int kinds[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGTRAP};
    int cores = 0, crashed = 0;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i % 2)
                raise(kinds[i / 2 % 6]);
            *(volatile int *)8 = 1;
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        crashed += WIFSIGNALED(status) != 0;
        cores += WIFSIGNALED(status) && WCOREDUMP(status);
    }
    fact("crashed", "%d", crashed);
    fact("cores", "%d", cores);
    fact("core_limit", "%ld", (long)limit.rlim_max);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "many") == 0 && argc > 2)
        return many(atoi(argv[2]));
    if (strcmp(mode, "recurse") == 0)
        return recurse(0);
    if (strcmp(mode, "exit") == 0 && argc > 2)
        return atoi(argv[2]);
    if (strcmp(mode, "say") == 0 && argc > 3) {
        dprintf(1, "%s\n", argv[2]);
        dprintf(2, "%s\n", argv[2]);
        return atoi(argv[3]);
    }
    if (strcmp(mode, "signal") == 0 && argc > 2) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        int number = atoi(argv[2]);
        signal(number, SIG_DFL);
        kill(getpid(), number);
        nap(50);
    }
    return 0;
}
