/* Refused calls that are reported: how they are counted, what of a count is believed, and that nothing but a refusal
 * comes of them. */
#include "base/fd.h"
#include "cell/witness.h"
#include "kernel/seccomp.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- counts ---- */

static void test_the_calls_have_names_and_errors(void **state)
{
    (void)state;
    int mount = reported_index(SYS_mount), socket = reported_index(SYS_socket);
    assert_true(mount >= 0 && socket >= 0 && mount != socket);
    assert_string_equal(reported_name((unsigned)mount), "mount");
    assert_int_equal(reported_error((unsigned)mount), EPERM);
    assert_int_equal(reported_error((unsigned)socket), EAFNOSUPPORT);
    assert_int_equal(reported_index(SYS_read), -1);
    assert_int_equal(reported_index(-1), -1);
    assert_int_equal(reported_index(425 /* io_uring_setup: libuv tries it */), -1);
    assert_null(reported_name(REPORTED_MAX));
}

static void test_a_count_stops_at_its_end(void **state)
{
    (void)state;
    struct reported row = {{0}}, more = {{0}};
    assert_false(reported_any(&row));
    for (int i = 0; i < REPORTED_MOST + 5; i++)
        reported_add(&row, 3);
    assert_int_equal(row.count[3], REPORTED_MOST);
    assert_true(reported_any(&row));
    more.count[3] = 7;
    more.count[4] = 9;
    reported_sum(&row, &more);
    assert_int_equal(row.count[3], REPORTED_MOST);
    assert_int_equal(row.count[4], 9);
}

static void test_only_what_is_new_is_told_again(void **state)
{
    (void)state;
    struct reported before = {{0}}, now = {{0}};
    before.count[1] = 5;
    now.count[1] = 7;
    now.count[2] = 1;
    before.count[3] = 4; /* of a row that was used anew */
    struct reported more = reported_since(&now, &before);
    assert_int_equal(more.count[1], 2);
    assert_int_equal(more.count[2], 1);
    assert_int_equal(more.count[3], 0);
}

static void test_counts_that_cannot_be_are_not_believed(void **state)
{
    (void)state;
    struct reported row;
    memset(&row, 0xff, sizeof row);
    reported_check(&row);
    for (unsigned i = 0; i < REPORTED_MAX; i++)
        assert_int_equal(row.count[i], reported_name(i) ? REPORTED_MOST : 0);
}

/* ---- the book ---- */

static void test_a_row_is_read_by_its_job_alone(void **state)
{
    (void)state;
    hc_cleanup_fd int book = memfd_create("book", MFD_CLOEXEC);
    struct witness_row row = {.job = 7};
    struct reported calls;
    row.calls.count[2] = 3;
    witness_read(book, 7, &calls);
    assert_false(reported_any(&calls)); /* nothing was ever written */
    witness_write(book, &row);
    witness_read(book, 7, &calls);
    assert_int_equal(calls.count[2], 3);
    static const uint64_t others[] = {0, 6, 8, 7 + WITNESS_ROWS, UINT64_MAX};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        witness_read(book, others[i], &calls);
        assert_false(reported_any(&calls));
    }
    row.job += WITNESS_ROWS; /* the same place */
    witness_write(book, &row);
    witness_read(book, 7, &calls);
    assert_false(reported_any(&calls));
}

static void test_a_book_that_is_cut_off_reads_as_nothing(void **state)
{
    (void)state;
    hc_cleanup_fd int book = memfd_create("book", MFD_CLOEXEC);
    struct witness_row row = {.job = 1};
    struct reported calls;
    memset(&row.calls, 0xff, sizeof row.calls);
    witness_write(book, &row);
    witness_read(book, 1, &calls);
    assert_true(reported_any(&calls) && calls.count[0] == REPORTED_MOST && calls.count[REPORTED_MAX - 1] == 0);
    assert_int_equal(ftruncate(book, 2 * (off_t)sizeof row - 1), 0);
    witness_read(book, 1, &calls);
    assert_false(reported_any(&calls));
    witness_read(-1, 1, &calls);
    assert_false(reported_any(&calls));
}

/* ---- a call, from the filter to its answer ---- */

static int call_mount(void)
{
    return syscall(SYS_mount, NULL, NULL, NULL, 0, NULL) < 0 ? errno : 0;
}

/* A filter of the guest's own that leaves mount to a listener, as ours does. */
static int own_filter(unsigned flags)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};
    long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    return result < 0 ? errno : 0;
}

static int open_count(void)
{
    int count = 0;
    for (int fd = 0; fd < 64; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

struct seen {
    int handed, fds_before, fds_after; /* of the job */
    int answered, listener, filter, own, alone;
};

/* The job: `tell` after each step that the other side has to act on. */
static void be_job(const struct witness *witness, int tell, int wait)
{
    struct seen seen = {0};
    struct hc_err err = {0};
    char byte;
    seen.fds_before = open_count();
    int door = dup(witness->door), bell = dup(witness->bell);
    int listener = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? hc_seccomp_load_reporting(SECCOMP_WAIT_ANY, &err) : -1;
    seen.handed = listener >= 0 ? witness_hand(door, bell, listener, 42, 0, &err) : -1;
    seen.fds_after = open_count();
    seen.answered = call_mount();
    seen.listener = own_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
    if (write(tell, &seen, sizeof seen) != sizeof seen || read(wait, &byte, 1) != 1)
        _exit(1);
    seen.alone = call_mount(); /* nobody listens any more */
    seen.listener = seen.listener == EBUSY ? own_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER) : 0;
    seen.filter = own_filter(0);
    seen.own = call_mount();
    _exit(write(tell, &seen, sizeof seen) == sizeof seen ? 0 : 1);
}

static void test_a_call_is_asked_about_and_refused_and_nothing_else(void **state)
{
    (void)state;
    struct witness witness;
    struct hc_err err = {0};
    struct seen seen;
    int inside, told[2], go[2];
    assert_int_equal(witness_make(&witness, &inside, &err), 0);
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (child == 0)
        be_job(&witness, told[1], go[0]);
    /* The bell rings by the call, and the listener lies in the door. */
    struct pollfd bell = {.fd = witness.bell, .events = POLLIN};
    assert_int_equal(poll(&bell, 1, 10000), 1);
    struct witness_word word = {0};
    int listener = -1;
    size_t count = 0;
    assert_int_equal(hc_recv_fds(inside, &word, sizeof word, &listener, 1, &count), sizeof word);
    assert_true(word.job == 42 && count == 1);
    struct seccomp_notif call = {0};
    assert_int_equal(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call), 0);
    assert_int_equal(call.data.nr, SYS_mount);
    struct seccomp_notif_resp answer = {.id = call.id, .error = -EPERM};
    assert_int_equal(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer), 0);
    assert_int_equal(read(told[0], &seen, sizeof seen), sizeof seen);
    assert_int_equal(seen.handed, 0);
    assert_int_equal(seen.fds_after, seen.fds_before); /* listener, door and bell are closed in the job */
    assert_int_equal(seen.answered, EPERM);
    assert_int_equal(seen.listener, EBUSY);
    close(listener);
    assert_int_equal(write(go[1], "g", 1), 1);
    assert_int_equal(read(told[0], &seen, sizeof seen), sizeof seen);
    assert_int_equal(seen.alone, ENOSYS);
    assert_int_equal(seen.listener, EBUSY); /* although the kernel would let it have one now */
    assert_int_equal(seen.filter, 0);
    assert_int_equal(seen.own, ENOSYS); /* its own filter comes first, and has no listener */
    assert_int_equal(waitpid(child, NULL, 0), child);
    int fds[] = {told[0], told[1], go[0], go[1], inside};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        close(fds[i]);
    witness_close(&witness);
}

/* The control of the one above: where only the kernel's own rule is in the way, whoever comes after our listener can
 * have one, and with it let the call happen. That is why the table refuses listeners. */
static void test_without_our_rule_a_listener_could_be_had(void **state)
{
    (void)state;
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        int code[2] = {-1, -1};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
            code[0] = own_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
            for (int fd = 3; fd < 64; fd++)
                if (fd != told[1])
                    close(fd); /* the listener is one of them */
            code[1] = own_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
        }
        _exit(write(told[1], code, sizeof code) == sizeof code ? 0 : 1);
    }
    int code[2];
    assert_int_equal(read(told[0], code, sizeof code), sizeof code);
    assert_int_equal(code[0], 0);
    assert_int_equal(code[1], 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(told[0]);
    close(told[1]);
}

/* As many as there is room for, when nobody takes them; one more once somebody has heard the bell. */
static void test_a_door_that_is_full_is_emptied_by_the_bell(void **state)
{
    (void)state;
    struct witness witness;
    struct hc_err err = {0};
    struct witness_word word = {.job = 1};
    int inside, event = eventfd(0, EFD_CLOEXEC), many = 0;
    assert_int_equal(witness_make(&witness, &inside, &err), 0);
    while (hc_try_send_fds(witness.door, &word, sizeof word, &event, 1) == 0)
        many++;
    assert_true(many > 100);
    pid_t child = fork();
    if (child == 0) { /* pid 1 */
        struct epoll_event rung;
        int fd;
        size_t count;
        int heard = epoll_wait(witness.bell, &rung, 1, 10000);
        while (hc_recv_fds(inside, &word, sizeof word, &fd, 1, &count) == sizeof word)
            close(fd);
        _exit(heard == 1 && epoll_wait(witness.bell, &rung, 1, 0) == 0 ? 0 : 1); /* once, and not again and again */
    }
    int result = witness_hand(dup(witness.door), dup(witness.bell), dup(event), 2, 0, &err), status = 1;
    assert_int_equal(result, 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(event);
    close(inside);
    witness_close(&witness);
}

static void test_a_door_that_nobody_empties_starts_nothing(void **state)
{
    (void)state;
    struct witness witness;
    struct hc_err err = {0};
    struct witness_word word = {.job = 1};
    int inside, event = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(witness_make(&witness, &inside, &err), 0);
    while (hc_try_send_fds(witness.door, &word, sizeof word, &event, 1) == 0)
        continue;
    int before = open_count();
    assert_int_equal(witness_hand(dup(witness.door), dup(witness.bell), dup(event), 2, 0, &err), -EAGAIN);
    assert_int_equal(open_count(), before);
    close(event);
    close(inside);
    witness_close(&witness);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_calls_have_names_and_errors),
        cmocka_unit_test(test_a_count_stops_at_its_end),
        cmocka_unit_test(test_only_what_is_new_is_told_again),
        cmocka_unit_test(test_counts_that_cannot_be_are_not_believed),
        cmocka_unit_test(test_a_row_is_read_by_its_job_alone),
        cmocka_unit_test(test_a_book_that_is_cut_off_reads_as_nothing),
        cmocka_unit_test(test_a_call_is_asked_about_and_refused_and_nothing_else),
        cmocka_unit_test(test_without_our_rule_a_listener_could_be_had),
        cmocka_unit_test(test_a_door_that_is_full_is_emptied_by_the_bell),
        cmocka_unit_test(test_a_door_that_nobody_empties_starts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
