/*
 * loops: what so many bare processes get done. PARALLEL workers, each a process of its own, start one command again and
 * again, without a sandbox, until SECONDS have passed; what runs then is waited for and counts, as does the time.
 *
 * A worker for each, because one parent that starts all of them would be what is measured: posix_spawn holds its caller
 * until the exec. There is nothing between two runs but a wait and a look at the clock. Output goes to /dev/null.
 *
 * Usage: loops PARALLEL SECONDS COMMAND [ARGUMENT...]
 *
 * Prints "total RUNS NANOSECONDS", or "fail WHY" with status 1 when a run did not exit with 0: a failure must never
 * count as a fast run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* What a worker has to say, in memory that it shares with its parent. */
struct tally {
    long runs;
    int error, status;
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void fail(const char *what, int error)
{
    fprintf(stderr, "loops: %s: %s\n", what, strerror(error));
    exit(2);
}

static void work(char **argv, uint64_t deadline, struct tally *tally)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    do {
        pid_t pid = -1;
        tally->error = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
        if (tally->error == 0 && waitpid(pid, &tally->status, 0) < 0)
            tally->error = errno;
        if (tally->error || tally->status)
            _exit(1);
        tally->runs++;
    } while (now_ns() < deadline);
    _exit(0);
}

int main(int argc, char **argv)
{
    long parallel = argc > 3 ? atol(argv[1]) : 0;
    double seconds = argc > 3 ? atof(argv[2]) : 0;
    if (parallel < 1 || seconds <= 0) {
        fprintf(stderr, "usage: loops PARALLEL SECONDS COMMAND [ARGUMENT...]\n");
        return 2;
    }
    struct tally *tallies =
        mmap(NULL, (size_t)parallel * sizeof *tallies, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tallies == MAP_FAILED)
        fail("mmap", errno);
    uint64_t begun = now_ns(), deadline = begun + (uint64_t)(seconds * 1e9);
    for (long i = 0; i < parallel; i++) {
        pid_t pid = fork();
        if (pid < 0)
            fail("fork", errno);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(&argv[3], deadline, &tallies[i]);
        }
    }
    while (wait(NULL) > 0)
        ;
    uint64_t ended = now_ns();
    long runs = 0;
    for (long i = 0; i < parallel; i++) {
        const struct tally *tally = &tallies[i];
        if (tally->error) {
            printf("fail %s: %s\n", argv[3], strerror(tally->error));
            return 1;
        }
        if (tally->status) {
            printf("fail %s: wait status %#x\n", argv[3], (unsigned)tally->status);
            return 1;
        }
        runs += tally->runs;
    }
    printf("total %ld %llu\n", runs, (unsigned long long)(ended - begun));
    return 0;
}
