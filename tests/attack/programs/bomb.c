/*
 * A fork bomb that never gives up: every process forks as fast as it can. It runs only inside a cell; without the
 * argument `inside` it does nothing. The pid limit is set by RLIMIT_NPROC as well, so that a cell without a pid limit
 * is no disaster.
 */
#include "probe.h"

int main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "inside") != 0 || getpid() > 4096)
        return 2;
    struct rlimit limit = {2000, 2000};
    setrlimit(RLIMIT_NPROC, &limit);
    fact("bomb", "lit");
    for (;;)
        if (fork() < 0)
            sched_yield();
}
