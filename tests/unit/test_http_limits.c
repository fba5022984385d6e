/*
 * What the HTTP server does at its limits: deadlines, sizes, slow clients, too many connections, no file descriptors
 * left, ten thousand idle connections.
 */
#include "http_fixture.h"
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char GET[] = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

static void set(struct fixture *fixture)
{
    http_server_set_limits(fixture->server, &fixture->limits);
}

static struct http_counts counts_of(struct fixture *fixture)
{
    struct http_counts counts;
    http_server_counts(fixture->server, &counts);
    return counts;
}

/* ---- deadlines ---- */

/* A byte now and then does not help: the time is that of the whole head, or of the whole body. */
static void drip_until_closed(struct client *client, const char *drip)
{
    uint64_t end = hc_now() + MS(5000);
    for (size_t i = 0; !client->closed; i++) {
        assert_true(hc_now() < end);
        send_bytes(client, &drip[i % strlen(drip)], 1);
        pump_for(client, MS(20));
    }
}

static void test_slow_headers_are_408(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.header_time = MS(150);
    set(fixture);
    hc_cleanup_client struct client client = connect_client(fixture);
    uint64_t start = hc_now();
    say(&client, "GET / HTTP/1.1\r\n");
    drip_until_closed(&client, "A: b\r\n");
    expect_refusal(&client, 408, "invalid_request");
    assert_true(hc_now() - start >= MS(150));
    assert_true(hc_now() - start < MS(2000));
}

static void test_a_slow_body_is_408(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.body_time = MS(150);
    set(fixture);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    drip_until_closed(&client, "x");
    expect_refusal(&client, 408, "invalid_request");
    hc_cleanup_client struct client chunks = connect_client(fixture);
    say(&chunks, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    drip_until_closed(&chunks, "1\r\nx\r\n");
    expect_refusal(&chunks, 408, "invalid_request");
    assert_int_equal(counts_of(fixture).body_bytes, 0);
    assert_int_equal(fixture->handled, 0);
}

static void test_the_silent_and_the_idle_are_closed_without_a_word(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.header_time = fixture->limits.idle_time = MS(100);
    set(fixture);
    hc_cleanup_client struct client silent = connect_client(fixture), idle = connect_client(fixture);
    size_t at = 0;
    say(&idle, GET);
    expect_reply(&idle, &at, 200, "");
    until(&silent, silent.closed);
    until(&idle, idle.closed);
    assert_int_equal(silent.got.length, 0);
    assert_int_equal(idle.got.length, at);
    assert_int_equal(counts_of(fixture).connections, 0);
}

static void test_a_kept_request_has_no_deadline_of_ours(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.header_time = fixture->limits.body_time = MS(50);
    fixture->limits.idle_time = fixture->limits.write_time = MS(50);
    set(fixture);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->kept != NULL);
    pump_for(&client, MS(200));
    http_reply(HC_TAKE_PTR(fixture->kept), 200, "text/plain", "late", 4);
    size_t at = 0;
    expect_reply(&client, &at, 200, "late");
}

static void test_limits_that_are_shortened_hold_for_those_who_wait(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.idle_time = MS(3600000);
    set(fixture);
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    say(&client, GET);
    expect_reply(&client, &at, 200, "");
    fixture->limits.idle_time = MS(50);
    set(fixture);
    until(&client, client.closed);
}

static void test_a_client_that_does_not_read_is_closed(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.write_time = MS(150);
    set(fixture);
    hc_cleanup_client struct client reply = connect_client(fixture), stream = connect_client(fixture);
    reply.paused = stream.paused = true;
    say(&reply, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    say(&stream, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&stream, fixture->kept != NULL);
    http_stream_write(fixture->kept, fixture->big, BIG); /* one piece may be larger than the backlog */
    assert_true(http_stream_pending(fixture->kept) > 0);
    until(&stream, fixture->gone == 1);
    until(&reply, counts_of(fixture).connections == 0);
    reply.paused = false;
    until(&reply, reply.closed);
    assert_true(reply.got.length < BIG); /* half a reply, and the end */
}

static void test_a_stream_that_is_too_far_ahead_is_dropped_from_the_loop(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    client.paused = true;
    say(&client, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->kept != NULL);
    struct http_request *request = fixture->kept;
    size_t written = 0;
    while (http_stream_write(request, fixture->big, 4096) == 0) {
        written += 4096;
        assert_true(written < 64 << 20);
    }
    assert_true(http_stream_pending(request) <= fixture->limits.write_backlog + 8192);
    assert_int_equal(fixture->gone, 0); /* not from inside the call */
    assert_int_equal(http_stream_write(request, "x", 1), -EPIPE);
    until(&client, fixture->gone == 1);
    assert_int_equal(counts_of(fixture).connections, 0);
}

static void test_a_dropped_stream_may_still_be_ended(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    client.paused = true;
    say(&client, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&client, fixture->kept != NULL);
    while (http_stream_write(fixture->kept, fixture->big, 65536) == 0)
        ;
    http_stream_end(HC_TAKE_PTR(fixture->kept));
    until(&client, counts_of(fixture).connections == 0);
    assert_int_equal(fixture->gone, 0);
}

/* ---- sizes ---- */

static void test_a_body_too_large_is_413_before_it_is_read(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10737418240\r\n\r\n");
    expect_refusal(&client, 413, "too_large");
    assert_int_equal(fixture->admitted, 1); /* which decides whether its body is streamed */
    assert_int_equal(fixture->handled, 0);
    /* One that sends it all before it reads gets the answer too. */
    hc_cleanup_client struct client sender = connect_client(fixture);
    say(&sender, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n");
    send_bytes(&sender, fixture->big, BIG);
    assert_false(sender.cut_off);
    expect_refusal(&sender, 413, "too_large");
    hc_cleanup_client struct client chunks = connect_client(fixture);
    say(&chunks, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n800000\r\n");
    send_bytes(&chunks, fixture->big, BIG);
    expect_refusal(&chunks, 413, "too_large");
    assert_int_equal(counts_of(fixture).body_bytes, 0);
}

static void test_chunks_that_add_up_to_too_much_are_413(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.body_bytes = 1 << 20;
    set(fixture);
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 40 && !client.closed; i++) {
        say(&client, "10000\r\n");
        send_bytes(&client, fixture->big, 65536);
        say(&client, "\r\n");
        assert_true(counts_of(fixture).body_bytes <= (1 << 20) + 1);
    }
    expect_refusal(&client, 413, "too_large");
}

static void test_headers_too_large_or_too_many_are_431(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client many = connect_client(fixture), large = connect_client(fixture);
    say(&many, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 10000 && !many.closed; i++) {
        say(&many, "A: b\r\n");
        if (i % 100 == 0)
            pump(&many);
    }
    expect_refusal(&many, 431, "too_large");
    say(&large, "GET / HTTP/1.1\r\nHost: a\r\nA: ");
    send_bytes(&large, fixture->big, BIG);
    expect_refusal(&large, 431, "too_large");
}

static void test_bodies_of_all_requests_together_are_bounded(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.body_total = 1 << 20;
    set(fixture);
    hc_cleanup_client struct client holder = connect_client(fixture), other = connect_client(fixture);
    say(&holder, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n");
    send_bytes(&holder, fixture->big, 900000);
    until(&holder, fixture->kept != NULL);
    assert_int_equal(fixture->kept->body_length, 900000);
    assert_true(counts_of(fixture).body_bytes >= 900000);
    say(&other, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n");
    expect_refusal(&other, 503, "overloaded");
    assert_non_null(strstr(other.got.data, "Retry-After: "));
    hc_cleanup_client struct client chunks = connect_client(fixture);
    say(&chunks, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n80000\r\n");
    send_bytes(&chunks, fixture->big, 0x80000);
    expect_refusal(&chunks, 503, "overloaded");
    /* A small one still fits, and all is given back. */
    hc_cleanup_client struct client small = connect_client(fixture);
    size_t at = 0;
    say(&small, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    expect_reply(&small, &at, 200, "hello");
    http_reply(HC_TAKE_PTR(fixture->kept), 200, NULL, NULL, 0);
    assert_int_equal(counts_of(fixture).body_bytes, 0);
}

static void test_a_claimed_length_holds_no_memory(void **state)
{
    struct fixture *fixture = *state;
    struct client clients[20];
    for (int i = 0; i < 20; i++) { /* 80 MiB are claimed, of the 16 that are there for all */
        clients[i] = connect_client(fixture);
        say(&clients[i], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4194304\r\n\r\nx");
        pump_for(&clients[i], MS(5));
    }
    assert_int_equal(counts_of(fixture).requests_active, 20);
    assert_true(counts_of(fixture).body_bytes < 4096);
    for (int i = 0; i < 20; i++)
        release_client(&clients[i]);
}

/* ---- connections ---- */

static void test_the_longest_idle_connection_makes_room(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.connections = 3;
    set(fixture);
    struct client clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = connect_client(fixture);
        size_t at = 0;
        say(&clients[i], i == 1 ? "GET /later HTTP/1.1\r\nHost: a\r\n\r\n" : GET);
        if (i != 1)
            expect_reply(&clients[i], &at, 200, "");
        else
            until(&clients[i], fixture->kept != NULL);
    }
    hc_cleanup_client struct client fourth = connect_client(fixture);
    size_t at = 0;
    say(&fourth, GET);
    expect_reply(&fourth, &at, 200, "");
    until(&clients[0], clients[0].closed);
    pump(&clients[2]);
    assert_false(clients[2].closed);
    assert_int_equal(counts_of(fixture).connections, 3);
    assert_int_equal(fixture->gone, 0);
    for (int i = 0; i < 3; i++)
        release_client(&clients[i]);
}

static void test_without_room_a_newcomer_is_told_503(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.connections = 1;
    set(fixture);
    hc_cleanup_client struct client worker = connect_client(fixture);
    say(&worker, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&worker, fixture->kept != NULL);
    for (int i = 0; i < 200; i++) { /* more than may linger at a time */
        hc_cleanup_client struct client newcomer = connect_client(fixture);
        say(&newcomer, GET);
        if (i % 50 != 0)
            continue; /* most leave at once */
        expect_refusal(&newcomer, 503, "overloaded");
        assert_non_null(strstr(newcomer.got.data, "Retry-After: "));
    }
    pump_for(&worker, MS(50));
    assert_true(counts_of(fixture).connections <= 1 + 64);
    http_reply(HC_TAKE_PTR(fixture->kept), 200, "text/plain", "done", 4);
    size_t at = 0;
    expect_reply(&worker, &at, 200, "done");
    assert_int_equal(fixture->handled, 1);
}

/* Leaves no file descriptor below `lowest` free, or gives back what there was. */
static void limit_descriptors(struct rlimit *before, int lowest)
{
    struct rlimit limit = {.rlim_cur = lowest >= 0 ? (rlim_t)lowest : before->rlim_cur, .rlim_max = before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void test_without_file_descriptors_a_newcomer_is_told_503(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client worker = connect_client(fixture);
    say(&worker, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&worker, fixture->kept != NULL);
    hc_cleanup_client struct client newcomer = connect_client(fixture);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = dup(0); /* the first that is free: with a limit there, none is */
    hc_close(lowest);
    limit_descriptors(&before, lowest);
    say(&newcomer, GET);
    for (int i = 0; i < 500 && !newcomer.closed; i++)
        pump(&newcomer);
    limit_descriptors(&before, -1);
    assert_true(newcomer.closed);
    assert_non_null(strstr(newcomer.got.data, "HTTP/1.1 503 "));
    assert_non_null(strstr(newcomer.got.data, "Retry-After: "));
    assert_non_null(strstr(newcomer.got.data, "\"code\":\"overloaded\"}"));
    const char *body = strstr(newcomer.got.data, "\r\n\r\n") + 4;
    assert_int_equal(strlen(body), strtoul(strstr(newcomer.got.data, "Content-Length: ") + 16, NULL, 10));
    http_reply(HC_TAKE_PTR(fixture->kept), 200, "text/plain", "done", 4);
    size_t at = 0;
    expect_reply(&worker, &at, 200, "done");
}

static void test_a_newcomer_that_cannot_be_accepted_at_all_does_not_make_the_loop_spin(void **state)
{
    struct fixture *fixture = *state;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, GET);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit_descriptors(&before, 0); /* now not even the spare one helps */
    int turns = 0;
    for (uint64_t end = hc_now() + MS(250); hc_now() < end; turns++)
        hc_loop_turn(fixture->loop, 50);
    limit_descriptors(&before, -1);
    assert_int_equal(counts_of(fixture).accepted, 0);
    assert_true(turns < 30);
    size_t at = 0;
    expect_reply(&client, &at, 200, "");
}

/* ---- ten thousand ---- */

/* The sanitizers have memory and time of their own to spend. */
#if !defined(__SANITIZE_ADDRESS__)
enum { CROWD = 10000 };

static size_t resident(void)
{
    char text[128];
    unsigned long pages = 0;
    assert_true(hc_read_file_at(AT_FDCWD, "/proc/self/statm", text, sizeof text) > 0);
    assert_int_equal(sscanf(text, "%*u %lu", &pages), 1);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a process of its own, because one has not enough file descriptors for both ends. Says so when all are there. */
static pid_t start_crowd(uint16_t port, int *ready)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test fails */
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
        int opened = 0;
        for (; opened < CROWD; opened++) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            char reply[512];
            if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
                send(fd, GET, sizeof GET - 1, MSG_NOSIGNAL) < 0 || recv(fd, reply, sizeof reply, 0) <= 0)
                break;
        }
        ssize_t told = write(ends[1], &opened, sizeof opened);
        (void)told;
        for (;;)
            pause();
    }
    hc_close(ends[1]);
    *ready = ends[0];
    return pid;
}

static void test_ten_thousand_idle_connections_cost_little(void **state)
{
    struct fixture *fixture = *state;
    fixture->limits.connections = CROWD + 100;
    fixture->limits.idle_time = MS(60000);
    set(fixture);
    struct rlimit before, enough;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    enough = before;
    enough.rlim_cur = enough.rlim_cur > CROWD + 200 ? enough.rlim_cur : CROWD + 200;
    enough.rlim_max = enough.rlim_max > enough.rlim_cur ? enough.rlim_max : enough.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &enough), 0);
    malloc_trim(0);
    size_t first = resident();
    hc_cleanup_fd int ready = -1;
    pid_t pid = start_crowd(fixture->port, &ready);
    uint64_t end = hc_now() + MS(60000);
    struct pollfd waiting = {.fd = ready, .events = POLLIN};
    while (poll(&waiting, 1, 0) == 0 && hc_now() < end)
        hc_loop_turn(fixture->loop, 20);
    int opened = 0;
    ssize_t got = poll(&waiting, 1, 0) == 1 ? read(ready, &opened, sizeof opened) : 0;
    size_t grown = resident() - first;
    uint64_t connections = counts_of(fixture).connections;
    /* One more is served at once, and the others cost no time while they wait. */
    struct timespec cpu_before, cpu_after;
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = 0;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_before);
    say(&client, GET);
    expect_reply(&client, &at, 200, "");
    pump_for(&client, MS(100));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_after);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    setrlimit(RLIMIT_NOFILE, &before);
    print_message("# %llu idle connections: %zu KiB\n", (unsigned long long)connections, grown / 1024);
    assert_int_equal(got, sizeof opened);
    assert_int_equal(opened, CROWD);
    assert_int_equal(connections, CROWD);
    assert_true(grown < 16 << 20);
    double spent =
        (double)(cpu_after.tv_sec - cpu_before.tv_sec) + (double)(cpu_after.tv_nsec - cpu_before.tv_nsec) / 1e9;
    assert_true(spent < 0.05);
}
#endif

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_slow_headers_are_408),
        TEST(test_a_slow_body_is_408),
        TEST(test_the_silent_and_the_idle_are_closed_without_a_word),
        TEST(test_a_kept_request_has_no_deadline_of_ours),
        TEST(test_limits_that_are_shortened_hold_for_those_who_wait),
        TEST(test_a_client_that_does_not_read_is_closed),
        TEST(test_a_stream_that_is_too_far_ahead_is_dropped_from_the_loop),
        TEST(test_a_dropped_stream_may_still_be_ended),
        TEST(test_a_body_too_large_is_413_before_it_is_read),
        TEST(test_chunks_that_add_up_to_too_much_are_413),
        TEST(test_headers_too_large_or_too_many_are_431),
        TEST(test_bodies_of_all_requests_together_are_bounded),
        TEST(test_a_claimed_length_holds_no_memory),
        TEST(test_the_longest_idle_connection_makes_room),
        TEST(test_without_room_a_newcomer_is_told_503),
        TEST(test_without_file_descriptors_a_newcomer_is_told_503),
        TEST(test_a_newcomer_that_cannot_be_accepted_at_all_does_not_make_the_loop_spin),
#if !defined(__SANITIZE_ADDRESS__)
        TEST(test_ten_thousand_idle_connections_cost_little),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
