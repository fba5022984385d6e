/* A lasting cell as its client has it, over a socket pair whose other end is played here: what the warden is sent, and
 * that ends and answers come exactly once, whatever goes first. */
#include "sandbox/box.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct hc_loop *loop;
    struct link *link;
    int warden;
    struct box *box;
    uint64_t cell;
    int ready, gone, gone_code;
};

struct job {
    struct box_job box; /* first: the callbacks are given this */
    int started, ended;
    struct warden_message last;
};

struct answer {
    int calls, code;
    uint64_t memory;
};

static void on_ready(void *data)
{
    struct fixture *fixture = data;
    fixture->ready++;
}

static void on_gone(void *data, const struct hc_err *why)
{
    struct fixture *fixture = data;
    fixture->gone++;
    fixture->gone_code = why->code;
    fixture->box = NULL;
}

static void on_started(struct box_job *box, const struct warden_message *message)
{
    struct job *job = (struct job *)box;
    (void)message;
    job->started++;
}

static void on_ended(struct box_job *box, const struct warden_message *message)
{
    struct job *job = (struct job *)box;
    job->ended++;
    job->last = *message;
}

static void on_answer(void *data, const struct warden_message *message)
{
    struct answer *answer = data;
    answer->calls++;
    answer->code = message->err.code;
    answer->memory = message->usage.memory;
}

static struct box_events events_of(struct fixture *fixture)
{
    return (struct box_events){.data = fixture, .ready = on_ready, .gone = on_gone};
}

static struct job job_new(void)
{
    return (struct job){.box = {.started = on_started, .ended = on_ended}};
}

/* The next message that the warden gets; type 0: none. */
static struct warden_message heard(struct fixture *fixture, size_t *count)
{
    struct warden_message message = {0};
    int fds[HC_MAX_FDS];
    size_t received = 0;
    ssize_t size = hc_recv_fds(fixture->warden, &message, sizeof message, fds, HC_MAX_FDS, &received);
    if (size == -EAGAIN)
        return (struct warden_message){0};
    assert_int_equal(size, sizeof message);
    assert_int_equal(message.protocol, WARDEN_PROTOCOL);
    for (size_t i = 0; i < received; i++)
        hc_close(fds[i]);
    if (count)
        *count = received;
    return message;
}

static void say(struct fixture *fixture, struct warden_message message)
{
    message.protocol = WARDEN_PROTOCOL;
    message.cell = fixture->cell;
    assert_int_equal(hc_send_fds(fixture->warden, &message, sizeof message, NULL, 0), 0);
    assert_int_equal(hc_loop_turn(fixture->loop, 0), 0);
}

static void start(struct fixture *fixture, struct job *job)
{
    hc_cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int fds[4] = {null, null, null, null};
    struct job_spec spec = {.kind = JOB_PROGRAM};
    size_t count = 0;
    assert_int_equal(box_start(fixture->box, &job->box, &spec, fds, 4), 0);
    struct warden_message message = heard(fixture, &count);
    assert_int_equal(message.type, WARDEN_JOB_START);
    assert_true(message.cell == fixture->cell && message.job == job->box.number && message.job != 0);
    assert_int_equal(count, 4);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    int ends[2];
    if (!fixture || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    fixture->loop = hc_loop_new();
    fixture->warden = ends[1];
    hc_set_nonblock(fixture->warden, true);
    fixture->link = link_new(fixture->loop, ends[0], NULL, NULL, fixture);
    *state = fixture;
    struct box_events events = events_of(fixture);
    struct cell_spec spec = {.disk = 1 << 20};
    struct job_limits limits = {.memory = 64 << 20};
    if (!fixture->link || box_new(fixture->link, &spec, NULL, &limits, ISOLATION_NET, &events, &fixture->box) < 0)
        return -1;
    struct warden_message message = heard(fixture, NULL);
    fixture->cell = message.cell;
    return message.type == WARDEN_CELL_NEW && message.lasting && (message.cell & WARDEN_LASTING) &&
                   message.isolation == ISOLATION_NET && message.cell_limits.memory == 64 << 20
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->box)
        box_drop(fixture->box);
    link_free(fixture->link);
    hc_loop_free(fixture->loop);
    hc_close(fixture->warden);
    free(fixture);
    return 0;
}

static void test_the_end_of_a_job_is_told_once_and_the_warden_may_forget_it(void **state)
{
    struct fixture *fixture = *state;
    struct job one = job_new(), other = job_new();
    say(fixture, (struct warden_message){.type = WARDEN_CELL_READY});
    assert_int_equal(fixture->ready, 1);
    start(fixture, &one);
    start(fixture, &other);
    assert_int_not_equal(one.box.number, other.box.number);
    say(fixture, (struct warden_message){.type = WARDEN_JOB_STARTED, .job = one.box.number});
    assert_int_equal(one.started, 1);
    assert_int_equal(other.started, 0);
    for (int i = 0; i < 2; i++) { /* one that is told again is forgotten again, and no news */
        say(fixture,
            (struct warden_message){.type = WARDEN_JOB_ENDED, .job = one.box.number, .facts = {.exit_code = 7}});
        struct warden_message message = heard(fixture, NULL);
        assert_int_equal(message.type, WARDEN_JOB_FORGET);
        assert_true(message.job == one.box.number);
        assert_int_equal(one.ended, 1);
    }
    assert_int_equal(one.last.facts.exit_code, 7);
    assert_int_equal(other.ended, 0);
    assert_int_equal(heard(fixture, NULL).type, 0);
}

static void test_a_box_that_dies_ends_its_jobs_and_answers_its_questions(void **state)
{
    struct fixture *fixture = *state;
    struct job one = job_new(), other = job_new();
    struct answer usage = {0}, freeze = {0};
    start(fixture, &one);
    start(fixture, &other);
    assert_int_equal(box_ask_usage(fixture->box, on_answer, &usage), 0);
    assert_int_equal(box_freeze(fixture->box, true, on_answer, &freeze), 0);
    assert_int_equal(heard(fixture, NULL).type, WARDEN_CELL_USAGE);
    assert_int_equal(heard(fixture, NULL).type, WARDEN_CELL_FREEZE);
    say(fixture, (struct warden_message){.type = WARDEN_CELL_GONE, .err = {.code = EIO}});
    assert_int_equal(heard(fixture, NULL).type, WARDEN_CELL_DESTROY); /* we know: it need not remember */
    assert_int_equal(one.ended, 1);
    assert_int_equal(other.ended, 1);
    assert_int_equal(one.last.facts.end, JOB_NOT_STARTED);
    assert_int_equal(one.last.err.code, EIO);
    assert_true(usage.calls == 1 && usage.code == EIO);
    assert_true(freeze.calls == 1 && freeze.code == EIO);
    assert_true(fixture->gone == 1 && fixture->gone_code == EIO);
}

static void test_a_warden_that_dies_takes_the_box_along(void **state)
{
    struct fixture *fixture = *state;
    struct job job = job_new();
    struct answer usage = {0};
    start(fixture, &job);
    assert_int_equal(box_ask_usage(fixture->box, on_answer, &usage), 0);
    fixture->warden = hc_close(fixture->warden);
    for (int i = 0; i < 3; i++)
        assert_int_equal(hc_loop_turn(fixture->loop, 0), 0);
    assert_int_equal(job.ended, 1);
    assert_int_not_equal(job.last.err.code, 0);
    assert_true(usage.calls == 1 && usage.code != 0);
    assert_true(fixture->gone == 1 && fixture->gone_code != 0);
}

static void test_a_box_that_was_destroyed_is_gone_as_asked(void **state)
{
    struct fixture *fixture = *state;
    box_destroy(fixture->box);
    box_destroy(fixture->box);
    assert_int_equal(heard(fixture, NULL).type, WARDEN_CELL_DESTROY);
    assert_int_equal(heard(fixture, NULL).type, 0);
    say(fixture, (struct warden_message){.type = WARDEN_CELL_GONE});
    assert_true(fixture->gone == 1 && fixture->gone_code == 0);
    assert_int_equal(heard(fixture, NULL).type, 0);
}

static void test_answers_come_in_the_order_of_asking_and_not_to_who_has_left(void **state)
{
    struct fixture *fixture = *state;
    struct answer first = {0}, left = {0}, last = {0};
    assert_int_equal(box_ask_usage(fixture->box, on_answer, &first), 0);
    assert_int_equal(box_ask_usage(fixture->box, on_answer, &left), 0);
    assert_int_equal(box_ask_usage(fixture->box, on_answer, &last), 0);
    box_unask(fixture->box, &left);
    for (uint64_t i = 1; i <= 4; i++) /* nobody asked for the fourth */
        say(fixture, (struct warden_message){.type = WARDEN_CELL_USAGE, .usage = {.memory = i}});
    assert_true(first.calls == 1 && first.memory == 1);
    assert_int_equal(left.calls, 0);
    assert_true(last.calls == 1 && last.memory == 3);
}

static void test_what_is_asked_of_a_job_names_it(void **state)
{
    struct fixture *fixture = *state;
    struct job job = job_new();
    start(fixture, &job);
    box_kill(&job.box, JOB_OUTPUT);
    struct warden_message message = heard(fixture, NULL);
    assert_true(message.type == WARDEN_JOB_KILL && message.job == job.box.number && message.reason == JOB_OUTPUT);
    box_signal(fixture->box, job.box.number, SIGINT);
    message = heard(fixture, NULL);
    assert_true(message.type == WARDEN_JOB_SIGNAL && message.job == job.box.number && message.signal == SIGINT);
    box_sweep(&job.box, SIGTERM, 4711);
    message = heard(fixture, NULL);
    assert_true(message.type == WARDEN_JOB_SWEEP && message.signal == SIGTERM && message.since == 4711);
    size_t count = 0;
    int kept[2] = {fixture->warden, fixture->warden};
    assert_int_equal(box_keep(fixture->box, NULL, kept, 2), 0);
    message = heard(fixture, &count);
    assert_true(message.type == WARDEN_KEEP && message.job == 0 && count == 2);
}

static void test_an_adopted_box_goes_on_with_its_jobs_and_gives_no_number_twice(void **state)
{
    struct fixture *fixture = *state;
    box_drop(fixture->box);
    struct warden_message held = {.type = WARDEN_HELD, .cell = fixture->cell};
    struct box_events events = events_of(fixture);
    fixture->box = box_adopt(fixture->link, &held, &events);
    assert_non_null(fixture->box);
    struct job found = job_new(), over = job_new(), fresh = job_new();
    box_adopt_job(fixture->box, &found.box, 5);
    box_adopt_job(fixture->box, &over.box, 2);
    struct warden_message ended = {.type = WARDEN_HELD, .job = 2, .over = 1, .facts = {.exit_code = 3}};
    box_over(fixture->box, &ended);
    assert_true(over.ended == 1 && over.last.facts.exit_code == 3);
    struct warden_message message = heard(fixture, NULL);
    assert_true(message.type == WARDEN_JOB_FORGET && message.job == 2 && message.cell == fixture->cell);
    start(fixture, &fresh);
    assert_int_equal(fresh.box.number, 6);
    say(fixture, (struct warden_message){.type = WARDEN_JOB_ENDED, .job = 5});
    assert_true(found.ended == 1 && fresh.ended == 0 && fixture->ready == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_end_of_a_job_is_told_once_and_the_warden_may_forget_it),
        TEST(test_a_box_that_dies_ends_its_jobs_and_answers_its_questions),
        TEST(test_a_warden_that_dies_takes_the_box_along),
        TEST(test_a_box_that_was_destroyed_is_gone_as_asked),
        TEST(test_answers_come_in_the_order_of_asking_and_not_to_who_has_left),
        TEST(test_what_is_asked_of_a_job_names_it),
        TEST(test_an_adopted_box_goes_on_with_its_jobs_and_gives_no_number_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
