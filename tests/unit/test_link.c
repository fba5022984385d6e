/* The line to a warden, with a socket pair whose other end is played here: who gets which message, what waits when the
 * socket is full, and what everybody hears when the other side is gone. */
#include "run/link.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct owner {
    struct link_owner link; /* first: the callbacks are given this */
    int messages, gone, code;
    uint32_t type;
    struct link *leaves; /* removes itself when it is spoken to */
};

struct fixture {
    struct hc_loop *loop;
    struct link *link;
    int warden;
    int hellos, gones;
    int hello_code;
    struct pool_facts pool;
};

static void on_hello(void *data, const struct warden_message *message)
{
    struct fixture *fixture = data;
    fixture->hellos++;
    fixture->hello_code = message->err.code;
}

static void on_link_gone(void *data)
{
    struct fixture *fixture = data;
    fixture->gones++;
}

static void on_message(struct link_owner *link, const struct warden_message *message)
{
    struct owner *owner = (struct owner *)link;
    owner->messages++;
    owner->type = message->type;
    if (owner->leaves)
        link_remove(owner->leaves, link);
}

static void on_gone(struct link_owner *link, int code)
{
    struct owner *owner = (struct owner *)link;
    owner->gone++;
    owner->code = code;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    int ends[2];
    if (!fixture || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    fixture->loop = hc_loop_new();
    fixture->warden = ends[1];
    fixture->link = link_new(fixture->loop, ends[0], on_hello, on_link_gone, fixture);
    *state = fixture;
    return fixture->link ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    link_free(fixture->link);
    hc_loop_free(fixture->loop);
    hc_close(fixture->warden);
    free(fixture);
    return 0;
}

static struct owner owner_new(void)
{
    return (struct owner){.link = {.message = on_message, .gone = on_gone}};
}

static void say(struct fixture *fixture, uint32_t type, uint64_t cell)
{
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = type, .cell = cell};
    assert_int_equal(hc_send_fds(fixture->warden, &message, sizeof message, NULL, 0), 0);
}

static void turn(struct fixture *fixture)
{
    assert_int_equal(hc_loop_turn(fixture->loop, 0), 0);
}

static void test_each_owner_gets_what_its_own_cell_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct owner first = owner_new(), second = owner_new();
    link_add(fixture->link, &first.link);
    link_add(fixture->link, &second.link);
    assert_int_not_equal(first.link.cell, second.link.cell);
    say(fixture, WARDEN_CELL_READY, second.link.cell);
    turn(fixture);
    assert_int_equal(first.messages, 0);
    assert_int_equal(second.messages, 1);
    assert_int_equal(second.type, WARDEN_CELL_READY);
    link_remove(fixture->link, &first.link);
    link_remove(fixture->link, &second.link);
}

static void test_what_concerns_a_cell_without_owner_is_ignored(void **state)
{
    struct fixture *fixture = *state;
    struct owner one = owner_new();
    link_add(fixture->link, &one.link);
    one.leaves = fixture->link;
    say(fixture, WARDEN_JOB_ENDED, one.link.cell);
    say(fixture, WARDEN_CELL_GONE, one.link.cell);
    say(fixture, WARDEN_CELL_GONE, 4711);
    for (int i = 0; i < 3; i++)
        turn(fixture);
    assert_int_equal(one.messages, 1);
    assert_true(link_alive(fixture->link));
}

static void test_a_cell_number_is_not_given_twice(void **state)
{
    struct fixture *fixture = *state;
    struct owner one = owner_new();
    link_add(fixture->link, &one.link);
    uint64_t before = one.link.cell;
    link_remove(fixture->link, &one.link);
    link_add(fixture->link, &one.link);
    assert_int_not_equal(one.link.cell, before);
    link_remove(fixture->link, &one.link);
}

static void on_pool(void *data, const struct pool_facts *facts)
{
    struct fixture *fixture = data;
    fixture->pool = *facts;
}

static void test_the_state_of_the_pool_goes_to_the_links_owner(void **state)
{
    struct fixture *fixture = *state;
    struct warden_message message = {
        .protocol = WARDEN_PROTOCOL, .type = WARDEN_POOL, .pool = {.ready = 3, .hits = 1ULL << 40}};
    assert_int_equal(hc_send_fds(fixture->warden, &message, sizeof message, NULL, 0), 0);
    turn(fixture); /* nobody asked to be told */
    assert_int_equal(fixture->pool.ready, 0);
    link_on_pool(fixture->link, on_pool);
    assert_int_equal(hc_send_fds(fixture->warden, &message, sizeof message, NULL, 0), 0);
    turn(fixture);
    assert_int_equal(fixture->pool.ready, 3);
    assert_true(fixture->pool.hits == 1ULL << 40);
}

static void test_the_greeting_goes_to_the_links_owner(void **state)
{
    struct fixture *fixture = *state;
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_HELLO, .err = {.code = EPERM}};
    assert_int_equal(hc_send_fds(fixture->warden, &message, sizeof message, NULL, 0), 0);
    turn(fixture);
    assert_int_equal(fixture->hellos, 1);
    assert_int_equal(fixture->hello_code, EPERM);
}

static void test_a_death_is_told_to_each_owner_once_and_then_to_the_links_owner(void **state)
{
    struct fixture *fixture = *state;
    struct owner first = owner_new(), second = owner_new();
    link_add(fixture->link, &first.link);
    link_add(fixture->link, &second.link);
    say(fixture, WARDEN_JOB_ENDED, first.link.cell);
    fixture->warden = hc_close(fixture->warden);
    for (int i = 0; i < 3; i++)
        turn(fixture);
    assert_int_equal(first.messages, 1); /* what was said before is heard */
    assert_int_equal(first.gone, 1);
    assert_int_equal(second.gone, 1);
    assert_int_equal(second.code, EPIPE);
    assert_int_equal(fixture->gones, 1);
    assert_false(link_alive(fixture->link));
    struct warden_message message = {.type = WARDEN_CELL_DESTROY};
    assert_int_equal(link_send(fixture->link, &first.link, &message, NULL, 0), 0);
}

static void test_a_message_of_another_protocol_ends_the_link(void **state)
{
    struct fixture *fixture = *state;
    struct warden_message message = {.protocol = WARDEN_PROTOCOL + 1, .type = WARDEN_HELLO};
    assert_int_equal(hc_send_fds(fixture->warden, &message, sizeof message, NULL, 0), 0);
    turn(fixture);
    assert_int_equal(fixture->hellos, 0);
    assert_false(link_alive(fixture->link));
}

static void test_what_the_socket_does_not_take_is_sent_later_in_order_and_with_its_fds(void **state)
{
    struct fixture *fixture = *state;
    struct owner one = owner_new();
    enum { MANY = 2000 };
    link_add(fixture->link, &one.link);
    for (int i = 0; i < MANY; i++) {
        hc_cleanup_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* its owner closes it at once */
        struct warden_message message = {.type = WARDEN_JOB_KILL, .job = (uint64_t)i};
        assert_int_equal(link_send(fixture->link, &one.link, &message, &fd, i % 100 == 0), 0);
    }
    for (int i = 0; i < MANY;) {
        struct warden_message message;
        int fds[HC_MAX_FDS];
        size_t count = 0;
        struct timeval none = {.tv_usec = 1000};
        setsockopt(fixture->warden, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
        ssize_t size = hc_recv_fds(fixture->warden, &message, sizeof message, fds, HC_MAX_FDS, &count);
        if (size == -EAGAIN) {
            turn(fixture);
            continue;
        }
        assert_int_equal(size, sizeof message);
        assert_int_equal(message.job, i);
        assert_int_equal(message.cell, one.link.cell);
        assert_int_equal(count, i % 100 == 0);
        for (size_t k = 0; k < count; k++)
            hc_close(fds[k]);
        i++;
    }
    link_remove(fixture->link, &one.link);
}

static void test_freeing_the_link_tells_its_owners(void **state)
{
    struct fixture *fixture = *state;
    struct owner one = owner_new();
    link_add(fixture->link, &one.link);
    link_free(fixture->link);
    fixture->link = NULL;
    assert_int_equal(one.gone, 1);
    assert_int_equal(fixture->gones, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_owner_gets_what_its_own_cell_is_told),
        TEST(test_what_concerns_a_cell_without_owner_is_ignored),
        TEST(test_a_cell_number_is_not_given_twice),
        TEST(test_the_state_of_the_pool_goes_to_the_links_owner),
        TEST(test_the_greeting_goes_to_the_links_owner),
        TEST(test_a_death_is_told_to_each_owner_once_and_then_to_the_links_owner),
        TEST(test_a_message_of_another_protocol_ends_the_link),
        TEST(test_what_the_socket_does_not_take_is_sent_later_in_order_and_with_its_fds),
        TEST(test_freeing_the_link_tells_its_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
