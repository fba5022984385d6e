/* The event loop: what is called, in which order, and what may be removed while it is being dispatched. */
#include "base/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PIPES = 8 };

struct fixture {
    struct hc_loop *loop;
    int reading[PIPES], writing[PIPES];
    struct hc_watch *watches[PIPES];
    struct hc_timer *victim;
    int calls;
    uint32_t events;
    char order[64]; /* a letter for each callback, as they came */
};

static int make_fixture(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (fixture == NULL)
        return -1;
    fixture->loop = hc_loop_new();
    for (int i = 0; i < PIPES; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
            return -1;
        fixture->reading[i] = ends[0];
        fixture->writing[i] = ends[1];
    }
    *state = fixture;
    return fixture->loop != NULL ? 0 : -1;
}

static int free_fixture(void **state)
{
    struct fixture *fixture = *state;
    hc_loop_free(fixture->loop);
    for (int i = 0; i < PIPES; i++) {
        close(fixture->reading[i]);
        close(fixture->writing[i]);
    }
    free(fixture);
    return 0;
}

static void note(struct fixture *fixture, char letter)
{
    size_t used = strlen(fixture->order);
    if (used + 1 < sizeof fixture->order)
        fixture->order[used] = letter;
}

static bool readable(struct hc_loop *loop)
{
    struct pollfd entry = {.fd = hc_loop_fd(loop), .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

static void take_byte(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    struct fixture *fixture = data;
    char byte;
    fixture->calls++;
    fixture->events = events;
    if (read(fd, &byte, 1) == 1)
        note(fixture, byte);
}

static void note_a(struct hc_loop *loop, void *data)
{
    (void)loop;
    note(data, 'a');
}

static void note_b(struct hc_loop *loop, void *data)
{
    (void)loop;
    note(data, 'b');
}

static void note_c(struct hc_loop *loop, void *data)
{
    (void)loop;
    note(data, 'c');
}

static void test_a_watch_is_called_when_its_fd_is_ready(void **state)
{
    struct fixture *fixture = *state;
    assert_non_null(hc_loop_watch(fixture->loop, fixture->reading[0], EPOLLIN, take_byte, fixture));
    assert_false(readable(fixture->loop));
    assert_int_equal(hc_loop_turn(fixture->loop, 0), 0);
    assert_int_equal(fixture->calls, 0);
    assert_int_equal(write(fixture->writing[0], "x", 1), 1);
    assert_true(readable(fixture->loop));
    assert_int_equal(hc_loop_turn(fixture->loop, -1), 0);
    assert_int_equal(fixture->calls, 1);
    assert_int_equal(fixture->events, EPOLLIN);
    assert_string_equal(fixture->order, "x");
    assert_false(readable(fixture->loop));
}

static void test_hangup_is_reported_without_being_asked_for(void **state)
{
    struct fixture *fixture = *state;
    struct hc_watch *watch = hc_loop_watch(fixture->loop, fixture->reading[0], 0, take_byte, fixture);
    close(fixture->writing[0]);
    fixture->writing[0] = -1;
    assert_int_equal(hc_loop_turn(fixture->loop, 1000), 0);
    assert_int_equal(fixture->calls, 1);
    assert_true((fixture->events & EPOLLHUP) != 0);
    hc_watch_remove(watch);
}

static void test_watch_set_changes_what_is_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct hc_watch *watch = hc_loop_watch(fixture->loop, fixture->writing[0], 0, take_byte, fixture);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 0);
    assert_int_equal(hc_watch_set(watch, EPOLLOUT), 0);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 1);
    assert_int_equal(fixture->events, EPOLLOUT);
    assert_int_equal(hc_watch_set(watch, 0), 0);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 1);
}

static void test_a_bad_fd_is_refused(void **state)
{
    struct fixture *fixture = *state;
    errno = 0;
    assert_null(hc_loop_watch(fixture->loop, -1, EPOLLIN, take_byte, fixture));
    assert_int_equal(errno, EBADF);
    assert_non_null(hc_loop_watch(fixture->loop, fixture->reading[0], EPOLLIN, take_byte, fixture));
    assert_null(hc_loop_watch(fixture->loop, fixture->reading[0], EPOLLIN, take_byte, fixture));
    assert_int_equal(errno, EEXIST);
}

static void test_a_removed_watch_is_not_called(void **state)
{
    struct fixture *fixture = *state;
    struct hc_watch *watch = hc_loop_watch(fixture->loop, fixture->reading[0], EPOLLIN, take_byte, fixture);
    assert_int_equal(write(fixture->writing[0], "x", 1), 1);
    hc_watch_remove(watch);
    hc_watch_remove(NULL);
    assert_false(readable(fixture->loop));
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 0);
}

static void remove_all(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct fixture *fixture = data;
    fixture->calls++;
    for (int i = 0; i < PIPES; i++) {
        hc_watch_remove(fixture->watches[i]);
        hc_watch_remove(fixture->watches[i]); /* a second time in the same turn does nothing */
        fixture->watches[i] = NULL;
    }
}

static void test_a_callback_may_remove_every_watch_also_its_own(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < PIPES; i++) {
        fixture->watches[i] = hc_loop_watch(fixture->loop, fixture->reading[i], EPOLLIN, remove_all, fixture);
        assert_int_equal(write(fixture->writing[i], "x", 1), 1);
    }
    assert_int_equal(hc_loop_turn(fixture->loop, 0), 0);
    assert_int_equal(fixture->calls, 1); /* the other events were fetched already, and are dropped */
    assert_int_equal(hc_loop_turn(fixture->loop, 0), 0);
    assert_int_equal(fixture->calls, 1);
}

static void replace_all(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    struct fixture *fixture = data;
    remove_all(loop, fd, events, data);
    for (int i = 0; i < PIPES; i++)
        fixture->watches[i] = hc_loop_watch(loop, fixture->reading[i], EPOLLIN, take_byte, fixture);
}

static void test_a_new_watch_does_not_get_the_events_of_the_old_one(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < PIPES; i++) {
        fixture->watches[i] = hc_loop_watch(fixture->loop, fixture->reading[i], EPOLLIN, replace_all, fixture);
        assert_int_equal(write(fixture->writing[i], "x", 1), 1);
    }
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 1);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 1 + PIPES);
}

static void test_timers_fire_in_order_of_time_then_of_making(void **state)
{
    struct fixture *fixture = *state;
    uint64_t now = hc_now();
    assert_non_null(hc_loop_timer(fixture->loop, now + 3000, note_c, fixture));
    assert_non_null(hc_loop_timer(fixture->loop, now + 1000, note_a, fixture));
    assert_non_null(hc_loop_timer(fixture->loop, now + 1000, note_b, fixture));
    while (strlen(fixture->order) < 3)
        assert_int_equal(hc_loop_turn(fixture->loop, 1000), 0);
    assert_string_equal(fixture->order, "abc");
    assert_true(hc_now() >= now + 3000);
}

static void test_a_timer_never_fires_early_and_makes_the_fd_readable(void **state)
{
    struct fixture *fixture = *state;
    uint64_t when = hc_now() + 20000;
    hc_loop_timer(fixture->loop, when, note_a, fixture);
    assert_false(readable(fixture->loop));
    hc_loop_turn(fixture->loop, 0);
    assert_string_equal(fixture->order, "");
    struct pollfd entry = {.fd = hc_loop_fd(fixture->loop), .events = POLLIN};
    assert_int_equal(poll(&entry, 1, 5000), 1);
    assert_true(hc_now() >= when);
    hc_loop_turn(fixture->loop, 0);
    assert_string_equal(fixture->order, "a");
    assert_false(readable(fixture->loop));
}

static void test_a_time_in_the_past_and_zero_fire_at_once(void **state)
{
    struct fixture *fixture = *state;
    hc_loop_timer(fixture->loop, 0, note_a, fixture);
    hc_loop_timer(fixture->loop, 1, note_b, fixture);
    hc_loop_timer(fixture->loop, UINT64_MAX, note_c, fixture);
    assert_true(readable(fixture->loop));
    hc_loop_turn(fixture->loop, -1);
    assert_string_equal(fixture->order, "ab");
    assert_false(readable(fixture->loop));
}

static void test_a_removed_timer_does_not_fire_nor_wake(void **state)
{
    struct fixture *fixture = *state;
    struct hc_timer *timer = hc_loop_timer(fixture->loop, 0, note_a, fixture);
    hc_timer_remove(timer);
    hc_timer_remove(NULL);
    assert_false(readable(fixture->loop));
    hc_loop_turn(fixture->loop, 0);
    assert_string_equal(fixture->order, "");
}

/* The heap under load: many timers in a scrambled order, some of them removed from the middle. */
static uint64_t last_fired;
static int fired;

static void check_order(struct hc_loop *loop, void *data)
{
    (void)loop;
    uint64_t when = (uint64_t)(uintptr_t)data;
    assert_true(when >= last_fired);
    last_fired = when;
    fired++;
}

static void test_many_timers_keep_their_order_after_removals(void **state)
{
    struct fixture *fixture = *state;
    enum { MANY = 2000 };
    static struct hc_timer *timers[MANY];
    uint32_t random = 12345;
    last_fired = 0;
    fired = 0;
    for (int i = 0; i < MANY; i++) {
        random = random * 1664525 + 1013904223;
        uint64_t when = 1 + (random >> 16);
        timers[i] = hc_loop_timer(fixture->loop, when, check_order, (void *)(uintptr_t)when);
        assert_non_null(timers[i]);
    }
    for (int i = 0; i < MANY; i += 3)
        hc_timer_remove(timers[i]);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fired, MANY - (MANY + 2) / 3);
    assert_false(readable(fixture->loop));
}

static void again(struct hc_loop *loop, void *data)
{
    struct fixture *fixture = data;
    fixture->calls++;
    hc_loop_timer(loop, 0, again, fixture);
}

static void test_a_timer_that_renews_itself_starves_nobody(void **state)
{
    struct fixture *fixture = *state;
    hc_loop_timer(fixture->loop, 0, again, fixture);
    hc_loop_timer(fixture->loop, hc_now(), note_a, fixture);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 1);
    assert_string_equal(fixture->order, "a");
    assert_true(readable(fixture->loop));
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->calls, 2);
}

static void remove_victim(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct fixture *fixture = data;
    hc_timer_remove(fixture->victim);
    note(fixture, 'v');
}

static void test_a_timer_may_remove_another_that_is_also_due(void **state)
{
    struct fixture *fixture = *state;
    hc_loop_timer(fixture->loop, 1, remove_victim, fixture);
    fixture->victim = hc_loop_timer(fixture->loop, 2, note_a, fixture);
    hc_loop_timer(fixture->loop, 3, note_b, fixture);
    hc_loop_turn(fixture->loop, 0);
    assert_string_equal(fixture->order, "vb");
}

static void drop_deadline(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    take_byte(loop, fd, events, data);
    hc_timer_remove(((struct fixture *)data)->victim);
}

/* The end of a program and its deadline in one turn: the end is seen first, and takes the deadline away. */
static void test_fds_go_before_timers_that_are_due_in_the_same_turn(void **state)
{
    struct fixture *fixture = *state;
    fixture->victim = hc_loop_timer(fixture->loop, 0, note_a, fixture);
    hc_loop_watch(fixture->loop, fixture->reading[0], EPOLLIN, drop_deadline, fixture);
    assert_int_equal(write(fixture->writing[0], "x", 1), 1);
    hc_loop_turn(fixture->loop, 0);
    assert_string_equal(fixture->order, "x");
    assert_false(readable(fixture->loop));
}

static void remove_watches(struct hc_loop *loop, void *data)
{
    remove_all(loop, -1, 0, data);
}

static void test_a_timer_may_remove_watches(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < PIPES; i++)
        fixture->watches[i] = hc_loop_watch(fixture->loop, fixture->reading[i], EPOLLIN, take_byte, fixture);
    hc_loop_timer(fixture->loop, 0, remove_watches, fixture);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(write(fixture->writing[0], "x", 1), 1);
    assert_false(readable(fixture->loop));
}

static void turn_inner(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    hc_loop_turn(data, 0);
}

static void test_a_loop_nests_in_another(void **state)
{
    struct fixture *fixture = *state;
    struct hc_loop *outer = hc_loop_new();
    assert_non_null(outer);
    hc_loop_watch(outer, hc_loop_fd(fixture->loop), EPOLLIN, turn_inner, fixture->loop);
    hc_loop_timer(fixture->loop, hc_now() + 1000, note_a, fixture);
    hc_loop_turn(outer, 5000);
    assert_string_equal(fixture->order, "a");
    hc_loop_watch(fixture->loop, fixture->reading[0], EPOLLIN, take_byte, fixture);
    assert_int_equal(write(fixture->writing[0], "x", 1), 1);
    hc_loop_turn(outer, 5000);
    assert_string_equal(fixture->order, "ax");
    hc_loop_free(outer);
}

static void turn_again(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    struct fixture *fixture = data;
    remove_all(loop, fd, events, data);
    hc_loop_turn(loop, 0); /* must not free what the outer turn still holds */
    note(fixture, 't');
}

static void test_a_callback_may_turn_its_own_loop(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < PIPES; i++) {
        fixture->watches[i] = hc_loop_watch(fixture->loop, fixture->reading[i], EPOLLIN, turn_again, fixture);
        assert_int_equal(write(fixture->writing[i], "x", 1), 1);
    }
    hc_loop_turn(fixture->loop, 0);
    assert_string_equal(fixture->order, "t");
}

static void test_a_turn_ends_when_its_time_is_up(void **state)
{
    struct fixture *fixture = *state;
    uint64_t before = hc_now();
    assert_int_equal(hc_loop_turn(fixture->loop, 30), 0);
    assert_true(hc_now() - before >= 29000);
}

static void ignore(int signal)
{
    (void)signal;
}

static void test_a_signal_ends_the_turn_without_an_error(void **state)
{
    struct fixture *fixture = *state;
    struct sigaction action = {.sa_handler = ignore}, old;
    sigaction(SIGALRM, &action, &old);
    struct itimerval soon = {.it_value.tv_usec = 20000};
    setitimer(ITIMER_REAL, &soon, NULL);
    uint64_t before = hc_now();
    assert_int_equal(hc_loop_turn(fixture->loop, 10000), 0);
    assert_true(hc_now() - before < 5000000);
    sigaction(SIGALRM, &old, NULL);
}

static void test_free_takes_what_is_left_and_null(void **state)
{
    struct fixture *fixture = *state;
    hc_loop_watch(fixture->loop, fixture->reading[0], EPOLLIN, take_byte, fixture);
    hc_loop_timer(fixture->loop, UINT64_MAX, note_a, fixture);
    hc_loop_free(fixture->loop);
    hc_loop_free(NULL);
    assert_int_equal(fcntl(fixture->reading[0], F_GETFD), FD_CLOEXEC); /* watched fds stay open */
    fixture->loop = hc_loop_new();
    assert_non_null(fixture->loop);
    assert_true((fcntl(hc_loop_fd(fixture->loop), F_GETFD) & FD_CLOEXEC) != 0);
}

#define LOOP_TEST(test) cmocka_unit_test_setup_teardown(test, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_a_watch_is_called_when_its_fd_is_ready),
        LOOP_TEST(test_hangup_is_reported_without_being_asked_for),
        LOOP_TEST(test_watch_set_changes_what_is_waited_for),
        LOOP_TEST(test_a_bad_fd_is_refused),
        LOOP_TEST(test_a_removed_watch_is_not_called),
        LOOP_TEST(test_a_callback_may_remove_every_watch_also_its_own),
        LOOP_TEST(test_a_new_watch_does_not_get_the_events_of_the_old_one),
        LOOP_TEST(test_timers_fire_in_order_of_time_then_of_making),
        LOOP_TEST(test_a_timer_never_fires_early_and_makes_the_fd_readable),
        LOOP_TEST(test_a_time_in_the_past_and_zero_fire_at_once),
        LOOP_TEST(test_a_removed_timer_does_not_fire_nor_wake),
        LOOP_TEST(test_many_timers_keep_their_order_after_removals),
        LOOP_TEST(test_a_timer_that_renews_itself_starves_nobody),
        LOOP_TEST(test_a_timer_may_remove_another_that_is_also_due),
        LOOP_TEST(test_fds_go_before_timers_that_are_due_in_the_same_turn),
        LOOP_TEST(test_a_timer_may_remove_watches),
        LOOP_TEST(test_a_loop_nests_in_another),
        LOOP_TEST(test_a_callback_may_turn_its_own_loop),
        LOOP_TEST(test_a_turn_ends_when_its_time_is_up),
        LOOP_TEST(test_a_signal_ends_the_turn_without_an_error),
        LOOP_TEST(test_free_takes_what_is_left_and_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
