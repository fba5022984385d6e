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
 * Usage: launch [-o] [-g PAUSE_US] [-p PARALLEL] [-f FROM:TO]... ROUNDS COMMAND [ARGUMENT...] [::: COMMAND ...]...
 *
 * "@post PORT WORD BODY" in the place of a command is a request: BODY is sent to POST /v1/runs of a server on loopback,
 * on a connection that is kept, and timed until the last byte of an answer with WORD in it has been read.
 * Each round has a number, which stands for @COUNT@ in a BODY and in the file FROM, of which TO is written before the
 * round: programs that have not been seen before.
 *
 * Prints "run INDEX NANOSECONDS MAXRSS_KIB" for each run; with -o also each line of its output as "out INDEX LINE".
 * With -p, one command runs PARALLEL times at once until ROUNDS runs have ended, then "total NANOSECONDS" is printed.
 * A run that does not exit with 0 is printed as "fail INDEX WHY" and not timed: a failure must never count as a fast
 * run. With -p it ends the launcher with status 1.
 */
#define _GNU_SOURCE
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MAX_COMMANDS = 32, MAX_OUTPUT = 64 * 1024, MAX_FILES = 8 };

extern char **environ;

struct plan {
    char **command[MAX_COMMANDS];
    int connection[MAX_COMMANDS]; /* of those that are requests */
    int commands;
    char *from[MAX_FILES], *to[MAX_FILES];
    int files;
    long rounds;
    long pause_us;
    long parallel;
    bool show_output;
};

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

/* A copy of the text with the number of the round in it. */
static char *numbered(const char *text, long round)
{
    static const char mark[] = "@COUNT@";
    char *copy = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&copy, &size);
    if (out == NULL)
        fail("open_memstream", errno);
    for (const char *at; (at = strstr(text, mark)) != NULL; text = at + sizeof mark - 1)
        fprintf(out, "%.*s%ld", (int)(at - text), text, round);
    fputs(text, out);
    fclose(out);
    return copy;
}

static void write_file(const char *from, const char *to, long round)
{
    char text[MAX_OUTPUT] = "";
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0 || read(in, text, sizeof text - 1) < 0)
        fail(from, errno);
    close(in);
    char *copy = numbered(text, round);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0 || write(out, copy, strlen(copy)) != (ssize_t)strlen(copy))
        fail(to, errno);
    close(out);
    free(copy);
}

/* The answer's body when it is right; NULL: *wrong says what is not. */
static const char *exchange(int fd, const char *request, size_t length, const char *word, char *answer,
                            const char **wrong)
{
    size_t count = 0;
    const char *body = NULL;
    *wrong = "the connection is broken";
    if (fd < 0 || send(fd, request, length, MSG_NOSIGNAL) != (ssize_t)length)
        return NULL;
    do {
        ssize_t n = read(fd, answer + count, ANSWER_LIMIT - 1 - count);
        if (n <= 0)
            return NULL;
        count += (size_t)n;
        answer[count] = '\0';
        body = http_body(answer, count, word, wrong);
    } while (body == NULL && *wrong == NULL);
    return body;
}

static void post_one(struct plan *plan, int index, long round)
{
    static char request[REQUEST_LIMIT], answer[ANSWER_LIMIT];
    char **argv = plan->command[index];
    int port = atoi(argv[1]);
    if (plan->connection[index] <= 0)
        plan->connection[index] = http_connect(port);
    char *body = numbered(argv[3], round);
    size_t length = http_write(request, port, "POST", "/v1/runs", body);
    free(body);
    if (length == 0)
        fail("the request is too long", E2BIG);
    answer[0] = '\0';
    uint64_t started = now_ns();
    const char *wrong, *result = exchange(plan->connection[index], request, length, argv[2], answer, &wrong);
    uint64_t ended = now_ns();
    if (result != NULL) {
        printf("run %d %llu 0\n", index, (unsigned long long)(ended - started));
        if (plan->show_output)
            printf("out %d %s\n", index, result);
    } else {
        const char *said = strstr(answer, "\r\n\r\n");
        said = said != NULL ? said + 4 : answer;
        printf("fail %d %s: %.*s\n", index, wrong, (int)strcspn(said, "\r\n"), said);
        close(plan->connection[index]);
        plan->connection[index] = 0;
    }
    fflush(stdout);
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

static void run_in_turn(struct plan *plan)
{
    int order[MAX_COMMANDS];
    for (int i = 0; i < plan->commands; i++)
        order[i] = i;
    uint32_t seed = 1;
    for (long round = 0; round < plan->rounds; round++) {
        shuffle(order, plan->commands, &seed);
        for (int i = 0; i < plan->files; i++)
            write_file(plan->from[i], plan->to[i], round);
        for (int turn = 0; turn < plan->commands; turn++) {
            if (plan->pause_us)
                usleep((useconds_t)plan->pause_us);
            if (strcmp(plan->command[order[turn]][0], "@post") == 0)
                post_one(plan, order[turn], round);
            else
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
    fprintf(stderr, "usage: launch [-o] [-g PAUSE_US] [-p PARALLEL] [-f FROM:TO]... ROUNDS COMMAND [ARGUMENT...] [::: "
                    "COMMAND ...]...\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct plan plan = {0};
    for (int option; (option = getopt(argc, argv, "+of:g:p:")) != -1;) {
        if (option == 'o')
            plan.show_output = true;
        else if (option == 'g')
            plan.pause_us = atol(optarg);
        else if (option == 'f' && plan.files < MAX_FILES && strchr(optarg, ':')) {
            plan.from[plan.files] = optarg;
            plan.to[plan.files] = strchr(optarg, ':') + 1;
            plan.to[plan.files++][-1] = '\0';
        } else if (option == 'p')
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
