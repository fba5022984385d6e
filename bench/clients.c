/*
 * clients: HTTP clients that keep their connections and ask for the same thing again as soon as they have the answer.
 *
 * Usage: clients [-a] [-c CLIENTS] [-g PAUSE_US] [-w WORD] (-n COUNT | -s SECONDS) PORT METHOD PATH [BODY]
 *
 * One client that asks COUNT times, with a pause before each: every answer is printed as "answer NANOSECONDS BODY". The
 * time is from just before the request is written until the last byte of the answer has been read. Several clients, or
 * a time: they ask until there were COUNT answers or SECONDS have passed; what is under way then is waited for and
 * counts, as does the time; "total COUNT NANOSECONDS" is printed, and with -a before it "answer NANOSECONDS" for each.
 *
 * What always holds: only an answer with status 200 and, given -w, with WORD in its body counts. Any other is printed
 * as "fail WHY" and ends the program with status 1: a failure must never count as a fast run.
 */
#define _GNU_SOURCE
#include "http.h"

#include <errno.h>
#include <poll.h>

enum { MAX_CLIENTS = 256 };

struct plan {
    long clients, count, pause_us;
    bool each; /* every answer's time is printed */
    double seconds;
    const char *word;
    char request[REQUEST_LIMIT];
    size_t request_length;
};

struct client {
    int fd;
    size_t length; /* of what has come of the answer */
    uint64_t asked_at;
    char answer[ANSWER_LIMIT];
};

static void fail(const char *what, const char *why)
{
    printf("fail %s: %s\n", what, why);
    exit(1);
}

static void ask(const struct plan *plan, struct client *client)
{
    client->length = 0;
    client->asked_at = now_ns();
    ssize_t n = send(client->fd, plan->request, plan->request_length, MSG_NOSIGNAL);
    if (n != (ssize_t)plan->request_length)
        fail("send", n < 0 ? strerror(errno) : "cut short");
}

/* The body of an answer that is whole and right; NULL: there is more to come. */
static const char *body_of(const struct plan *plan, const struct client *client)
{
    const char *wrong, *body = http_body(client->answer, client->length, plan->word, &wrong);
    if (wrong)
        fail(wrong, client->answer);
    return body;
}

/* Reads what is there. Returns the body when the answer is whole. */
static const char *hear(const struct plan *plan, struct client *client)
{
    ssize_t n = read(client->fd, client->answer + client->length, ANSWER_LIMIT - 1 - client->length);
    if (n <= 0)
        fail("read", n < 0 ? strerror(errno) : "the server has closed the connection, or the answer is too long");
    client->length += (size_t)n;
    client->answer[client->length] = '\0';
    return body_of(plan, client);
}

static void ask_one_by_one(const struct plan *plan, struct client *client)
{
    for (long i = 0; i < plan->count; i++) {
        if (plan->pause_us)
            usleep((useconds_t)plan->pause_us);
        const char *body;
        ask(plan, client);
        while ((body = hear(plan, client)) == NULL)
            ;
        uint64_t took = now_ns() - client->asked_at;
        printf("answer %llu %s\n", (unsigned long long)took, body);
    }
}

/* Whether there is more to ask, by time or by count. */
static bool goes_on(const struct plan *plan, long asked, uint64_t begun)
{
    return plan->count > 0 ? asked < plan->count : now_ns() - begun < (uint64_t)(plan->seconds * 1e9);
}

static void ask_at_once(const struct plan *plan, struct client *clients)
{
    struct pollfd polled[MAX_CLIENTS];
    long asked = 0, answers = 0;
    uint64_t begun = now_ns();
    for (long i = 0; i < plan->clients; i++, asked++) {
        polled[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
        ask(plan, &clients[i]);
    }
    while (answers < asked) {
        if (poll(polled, (nfds_t)plan->clients, -1) < 0)
            fail("poll", strerror(errno));
        for (long i = 0; i < plan->clients; i++) {
            if (polled[i].revents == 0 || hear(plan, &clients[i]) == NULL)
                continue;
            answers++;
            if (plan->each)
                printf("answer %llu\n", (unsigned long long)(now_ns() - clients[i].asked_at));
            if (!goes_on(plan, asked, begun)) {
                polled[i].fd = -1;
                continue;
            }
            ask(plan, &clients[i]);
            asked++;
        }
    }
    printf("total %ld %llu\n", answers, (unsigned long long)(now_ns() - begun));
}

static int usage(void)
{
    fprintf(stderr, "usage: clients [-a] [-c CLIENTS] [-g PAUSE_US] [-w WORD] (-n COUNT | -s SECONDS) PORT METHOD PATH "
                    "[BODY]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static struct plan plan = {.clients = 1};
    for (int option; (option = getopt(argc, argv, "+ac:g:n:s:w:")) != -1;) {
        if (option == 'a')
            plan.each = true;
        else if (option == 'c')
            plan.clients = atol(optarg);
        else if (option == 'g')
            plan.pause_us = atol(optarg);
        else if (option == 'n')
            plan.count = atol(optarg);
        else if (option == 's')
            plan.seconds = atof(optarg);
        else if (option == 'w')
            plan.word = optarg;
        else
            return usage();
    }
    bool timed = plan.seconds > 0;
    if (argc - optind < 3 || timed == (plan.count > 0) || plan.clients < 1 || plan.clients > MAX_CLIENTS)
        return usage();
    const char *body = argc - optind > 3 ? argv[optind + 3] : "";
    int port = atoi(argv[optind]);
    plan.request_length = http_write(plan.request, port, argv[optind + 1], argv[optind + 2], body);
    if (plan.request_length == 0)
        return usage();

    struct client *clients = calloc((size_t)plan.clients, sizeof *clients);
    if (clients == NULL)
        fail("calloc", strerror(errno));
    for (long i = 0; i < plan.clients; i++)
        if ((clients[i].fd = http_connect(port)) < 0)
            fail("connect", strerror(errno));
    if (timed || plan.clients > 1)
        ask_at_once(&plan, clients);
    else
        ask_one_by_one(&plan, clients);
    free(clients);
    return 0;
}
