/*
 * launch: the benchmark's stopwatch. Starts several commands in turn, many times, and prints how long each run took.
 *
 * A run is timed from just before the spawn until its output has ended and it has been waited for: what a caller waits
 * for. posix_spawn shares the launcher's memory until the exec, so the cost of starting is small and the same for every
 * command. Output goes to a pipe that is drained, input comes from /dev/null.
 *
 * Each round runs every command once, so that a slow moment of the machine falls on all of them, in an order that is
 * shuffled anew, so that none always follows the same one. What the kernel does after a command has ended (a network
 * namespace is taken down by a worker thread) is thus charged to all alike; a pause between runs keeps most of it out.
 *
 * Usage: launch [-o] [-g PAUSE_US] [-p PARALLEL] ROUNDS COMMAND [ARGUMENT...] [::: COMMAND [ARGUMENT...]]...
 *
 * Prints "run INDEX NANOSECONDS MAXRSS_KIB" for each run; with -o also each line of its output as "out INDEX LINE".
 * With -p, one command runs PARALLEL times at once until ROUNDS runs have ended, then "total NANOSECONDS" is printed.
 * A run that does not exit with 0 is printed as "fail INDEX WHY" and not timed: a failure must never count as a fast
 * run. With -p it ends the launcher with status 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_COMMANDS = 32, MAX_OUTPUT = 64 * 1024 };

extern char **environ;

struct plan {
    char **command[MAX_COMMANDS];
    int commands;
    long rounds;
    long pause_us;
    long parallel;
    bool show_output;
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void fail(const char *what, int error)
{
    fprintf(stderr, "launch: %s: %s\n", what, strerror(error));
    exit(2);
}

static pid_t spawn(char **argv, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, out, 2);
    pid_t pid = -1;
    int error = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        fail(argv[0], error);
    return pid;
}

/* Whether a run went well; if not, prints why, with the last line that it said. */
static bool went_well(int index, int status, char *output)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    for (char *end = output + strlen(output); end > output && end[-1] == '\n';)
        *--end = '\0';
    char *line = strrchr(output, '\n');
    printf("fail %d %s %d: %s\n", index, WIFEXITED(status) ? "exit status" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), line ? line + 1 : output);
    return false;
}

/* Reads to the end of file; keeps what fits and drops the rest. */
static void drain(int fd, char *output)
{
    size_t length = 0;
    for (;;) {
        char spill[4096];
        size_t room = MAX_OUTPUT - 1 - length;
        ssize_t n = room ? read(fd, output + length, room) : read(fd, spill, sizeof(spill));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        if (room)
            length += (size_t)n;
    }
    output[length] = '\0';
}

static void run_one(const struct plan *plan, int index)
{
    static char output[MAX_OUTPUT];
    char **argv = plan->command[index];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        fail("pipe2", errno);

    uint64_t started = now_ns();
    pid_t pid = spawn(argv, ends[1]);
    close(ends[1]);
    drain(ends[0], output);
    int status = 0;
    struct rusage usage;
    if (wait4(pid, &status, 0, &usage) < 0)
        fail("wait4", errno);
    uint64_t ended = now_ns();

    close(ends[0]);
    if (!went_well(index, status, output))
        return;
    printf("run %d %llu %ld\n", index, (unsigned long long)(ended - started), usage.ru_maxrss);
    if (plan->show_output)
        for (char *rest = output, *line; (line = strsep(&rest, "\n"));)
            if (*line)
                printf("out %d %s\n", index, line);
    fflush(stdout);
}

/* Fisher-Yates with a fixed seed: the same order every time the benchmark is run. */
static void shuffle(int *order, int count, uint32_t *seed)
{
    for (int last = count - 1; last > 0; last--) {
        *seed = *seed * 1664525u + 1013904223u;
        int other = (int)((*seed >> 16) % (uint32_t)(last + 1));
        int kept = order[last];
        order[last] = order[other];
        order[other] = kept;
    }
}

static void run_in_turn(const struct plan *plan)
{
    int order[MAX_COMMANDS];
    for (int i = 0; i < plan->commands; i++)
        order[i] = i;
    uint32_t seed = 1;
    for (long round = 0; round < plan->rounds; round++) {
        shuffle(order, plan->commands, &seed);
        for (int turn = 0; turn < plan->commands; turn++) {
            if (plan->pause_us)
                usleep((useconds_t)plan->pause_us);
            run_one(plan, order[turn]);
        }
    }
}

/* Throughput: keeps `parallel` runs of the first command going. Their output is not looked at. */
static void run_at_once(const struct plan *plan)
{
    char **argv = plan->command[0];
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        fail("/dev/null", errno);
    long started = 0, ended = 0;
    uint64_t begun = now_ns();
    while (ended < plan->rounds) {
        for (; started < plan->rounds && started - ended < plan->parallel; started++)
            spawn(argv, null);
        int status = 0;
        if (wait4(-1, &status, 0, NULL) < 0)
            fail("wait4", errno);
        if (!went_well(0, status, (char[]){"(output not kept)"}))
            exit(1);
        ended++;
    }
    printf("total %llu\n", (unsigned long long)(now_ns() - begun));
    close(null);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: launch [-o] [-g PAUSE_US] [-p PARALLEL] ROUNDS COMMAND [ARGUMENT...] [::: COMMAND ...]...\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct plan plan = {0};
    for (int option; (option = getopt(argc, argv, "+og:p:")) != -1;) {
        if (option == 'o')
            plan.show_output = true;
        else if (option == 'g')
            plan.pause_us = atol(optarg);
        else if (option == 'p')
            plan.parallel = atol(optarg);
        else
            return usage();
    }
    if (argc - optind < 2)
        return usage();
    plan.rounds = atol(argv[optind]);
    char **next = &argv[optind + 1];
    while (*next && plan.commands < MAX_COMMANDS) {
        plan.command[plan.commands++] = next;
        while (*next && strcmp(*next, ":::"))
            next++;
        if (*next)
            *next++ = NULL;
    }
    if (*next || plan.rounds < 1)
        return usage();
    if (plan.parallel > 0)
        run_at_once(&plan);
    else
        run_in_turn(&plan);
    return 0;
}
