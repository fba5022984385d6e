/* File descriptors: kernel files, sealed memfds, and fds sent over a socket, with everything that can be cut short. */
#include "base/fd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static size_t open_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    size_t count = 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static bool is_cloexec(int fd)
{
    return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

/* A folder of its own for each test, removed with what is in it. */
static int make_folder(void **state)
{
    char *path = strdup("/tmp/hotcell-test-fd-XXXXXX");
    if (path == NULL || mkdtemp(path) == NULL)
        return -1;
    *state = path;
    return 0;
}

static int remove_folder(void **state)
{
    char *path = *state;
    int folder = open(path, O_DIRECTORY | O_CLOEXEC);
    unlinkat(folder, "file", 0);
    close(folder);
    int status = rmdir(path);
    free(path);
    return status;
}

static int put_file(const char *folder, const char *text)
{
    int dir = open(folder, O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    int fd = openat(dir, "file", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(hc_write_all(fd, text, strlen(text)), 0);
    close(fd);
    return dir;
}

static void test_close_keeps_errno_and_returns_minus_one(void **state)
{
    (void)state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    errno = ENOTTY;
    assert_int_equal(hc_close(fd), -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    errno = ENOTTY;
    assert_int_equal(hc_close(-1), -1);
    assert_int_equal(hc_close(fd), -1); /* EBADF inside */
    assert_int_equal(errno, ENOTTY);
}

static void test_scope_closes_and_take_moves(void **state)
{
    (void)state;
    size_t before = open_fds();
    int kept;
    {
        hc_cleanup_fd int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
        hc_cleanup_fd int moved = open("/dev/null", O_RDONLY | O_CLOEXEC);
        hc_cleanup_free char *freed = strdup("x");
        hc_cleanup_free char *nothing = NULL;
        assert_non_null(freed);
        assert_null(nothing);
        assert_true(closed >= 0);
        kept = HC_TAKE_FD(moved);
        assert_int_equal(moved, -1);
    }
    assert_int_equal(open_fds(), before + 1);
    close(kept);
}

static void test_nonblock_is_set_and_cleared(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(hc_set_nonblock(ends[0], true), 0);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(hc_set_nonblock(ends[0], false), 0);
    assert_int_equal(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(hc_set_nonblock(-1, true), -EBADF);
}

static void *drain(void *data)
{
    static char sink[3000];
    size_t total = 0;
    for (ssize_t got; (got = read(*(int *)data, sink, sizeof sink)) > 0;)
        total += (size_t)got;
    return (void *)total;
}

static void test_write_all_goes_on_after_a_full_pipe(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    size_t size = 1 << 20;
    char *data = calloc(1, size);
    assert_non_null(data);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain, &ends[0]), 0);
    assert_int_equal(hc_write_all(ends[1], data, size), 0);
    close(ends[1]);
    void *total;
    pthread_join(thread, &total);
    assert_int_equal((size_t)total, size);
    close(ends[0]);
    free(data);
    assert_int_equal(hc_write_all(-1, "x", 1), -EBADF);
    assert_int_equal(hc_write_all(-1, "", 0), 0);
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* Each signal cuts a write short, or keeps it from beginning. */
static void test_writev_all_goes_on_where_it_was_cut_short(void **state)
{
    (void)state;
    int ends[2];
    enum { PART = 300000 };
    static char parts[3][PART], got[3 * PART];
    for (size_t i = 0; i < sizeof parts; i++)
        ((char *)parts)[i] = (char)(i * 31 >> 3);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t reader = fork();
    if (reader == 0) {
        close(ends[1]);
        for (size_t at = 0; at < sizeof got; usleep(200)) {
            ssize_t count = read(ends[0], got + at, 7000);
            if (count <= 0)
                break;
            at += (size_t)count;
        }
        _exit(memcmp(got, parts, sizeof got) == 0 ? 0 : 1);
    }
    close(ends[0]);
    struct sigaction act = {.sa_handler = on_alarm}, before;
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(sigaction(SIGALRM, &act, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    struct iovec all[] = {{parts[0], PART}, {NULL, 0}, {parts[1], PART}, {parts[2], PART}, {NULL, 0}};
    int result = hc_writev_all(ends[1], all, 5);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    close(ends[1]);
    int status = -1;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(result, 0);
    assert_int_equal(status, 0);
    assert_int_equal(hc_writev_all(-1, &(struct iovec){"x", 1}, 1), -EBADF);
    assert_int_equal(hc_writev_all(-1, NULL, 0), 0);
}

static void test_pwrite_all_leaves_the_position_where_it_was(void **state)
{
    (void)state;
    int fd = hc_memfd_open("placed");
    char text[8] = "";
    assert_int_equal(hc_pwrite_all(fd, "world", 5, 2), 0);
    assert_int_equal(hc_pwrite_all(fd, "he", 2, 0), 0);
    assert_int_equal(read(fd, text, sizeof text), 7);
    assert_memory_equal(text, "heworld", 7);
    close(fd);
    assert_int_equal(hc_pwrite_all(-1, "x", 1, 0), -EBADF);
}

static void test_read_full_stops_at_size_and_at_end_of_file(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "abcdef", 6), 6);
    char text[16];
    assert_int_equal(hc_read_full(ends[0], text, 4), 4);
    assert_memory_equal(text, "abcd", 4);
    close(ends[1]);
    assert_int_equal(hc_read_full(ends[0], text, sizeof text), 2);
    assert_int_equal(hc_read_full(ends[0], text, sizeof text), 0);
    close(ends[0]);
    assert_int_equal(hc_read_full(-1, text, 1), -EBADF);
}

static void test_write_file_never_creates_one(void **state)
{
    int dir = open(*state, O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(hc_write_file_at(dir, "file", "x"), -ENOENT);
    close(dir);
    dir = put_file(*state, "12345");
    assert_int_equal(hc_write_file_at(dir, "file", "max"), 0);
    char text[16];
    assert_int_equal(hc_read_file_at(dir, "file", text, sizeof text), 5);
    assert_string_equal(text, "max45"); /* as a kernel file: no truncation is asked for */
    close(dir);
}

static void test_read_file_says_when_it_does_not_fit(void **state)
{
    int dir = put_file(*state, "12345");
    char text[8];
    memset(text, 'z', sizeof text);
    assert_int_equal(hc_read_file_at(dir, "file", text, 6), 5);
    assert_string_equal(text, "12345");
    assert_int_equal(hc_read_file_at(dir, "file", text, 5), -E2BIG);
    assert_string_equal(text, "1234");
    assert_int_equal(hc_read_file_at(dir, "file", text, 1), -E2BIG);
    assert_string_equal(text, "");
    assert_int_equal(hc_read_file_at(dir, "file", text, 0), -E2BIG);
    close(dir);
}

static void test_read_file_terminates_also_when_it_fails(void **state)
{
    char text[8] = "zzzzzzz";
    int dir = open(*state, O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(hc_read_file_at(dir, "none", text, sizeof text), -ENOENT);
    assert_string_equal(text, "");
    text[0] = 'z';
    assert_int_equal(hc_read_file_at(dir, ".", text, sizeof text), -EISDIR);
    assert_string_equal(text, "");
    close(dir);
}

static int number_in(const char *folder, const char *content, const char *key, unsigned long long *value)
{
    int dir = put_file(folder, content);
    int status = hc_read_number_at(dir, "file", key, value);
    close(dir);
    return status;
}

static void test_numbers_are_read_alone_and_by_key(void **state)
{
    unsigned long long value = 77;
    assert_int_equal(number_in(*state, "42\n", NULL, &value), 0);
    assert_int_equal(value, 42);
    assert_int_equal(number_in(*state, "18446744073709551615", NULL, &value), 0);
    assert_true(value == UINT64_MAX);
    const char *events = "low 0\nhigh 1\noom 2\noom_kill 3\n";
    assert_int_equal(number_in(*state, events, "oom", &value), 0);
    assert_int_equal(value, 2);
    assert_int_equal(number_in(*state, events, "oom_kill", &value), 0);
    assert_int_equal(value, 3);
    assert_int_equal(number_in(*state, "VmRSS:\t  123 kB\n", "VmRSS:", &value), 0);
    assert_int_equal(value, 123);
}

static void test_what_is_no_number_is_no_data(void **state)
{
    unsigned long long value = 77;
    assert_int_equal(number_in(*state, "max\n", NULL, &value), -ENODATA);
    assert_int_equal(number_in(*state, "", NULL, &value), -ENODATA);
    assert_int_equal(number_in(*state, "-1\n", NULL, &value), -ENODATA);
    assert_int_equal(number_in(*state, "12abc\n", NULL, &value), -ENODATA);
    assert_int_equal(number_in(*state, "oom_kill 3\n", "oom", &value), -ENODATA);
    assert_int_equal(number_in(*state, "kill 3\nx oom 4", "oom", &value), -ENODATA);
    assert_int_equal(number_in(*state, "oom max\n", "oom", &value), -ENODATA);
    assert_int_equal(number_in(*state, "18446744073709551616", NULL, &value), -ERANGE);
    assert_int_equal(hc_read_number_at(AT_FDCWD, "/nowhere/at/all", NULL, &value), -ENOENT);
    assert_int_equal(value, 77);
}

static int pipe_with(size_t size)
{
    int fd = hc_memfd_open("input");
    assert_true(fd >= 0);
    char *data = malloc(size + 1);
    assert_non_null(data);
    memset(data, 'q', size);
    assert_int_equal(hc_write_all(fd, data, size), 0);
    free(data);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static void test_read_all_takes_up_to_the_limit_and_no_more(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 16383, 16384, 16385, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int fd = pipe_with(sizes[i]);
        char *data = NULL;
        size_t length = 77;
        assert_int_equal(hc_read_all(fd, sizes[i], &data, &length), 0);
        assert_int_equal(length, sizes[i]);
        assert_int_equal(strlen(data), sizes[i]);
        free(data);
        if (sizes[i] > 0) {
            lseek(fd, 0, SEEK_SET);
            data = NULL;
            assert_int_equal(hc_read_all(fd, sizes[i] - 1, &data, &length), -EFBIG);
            assert_null(data);
        }
        close(fd);
    }
    char *data = NULL;
    assert_int_equal(hc_read_all(-1, 10, &data, NULL), -EBADF);
    assert_null(data);
}

static void test_sealed_memfd_cannot_be_changed(void **state)
{
    (void)state;
    int fd = hc_memfd_sealed("spec", "hello", 5);
    assert_true(fd >= 0);
    assert_true(is_cloexec(fd));
    size_t length = 0;
    assert_int_equal(hc_memfd_check(fd, &length), 0);
    assert_int_equal(length, 5);
    char text[8] = "";
    assert_int_equal(hc_read_full(fd, text, sizeof text), 5); /* it stands at its beginning */
    assert_string_equal(text, "hello");
    assert_int_equal(pwrite(fd, "j", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 1), -1);
    assert_int_equal(ftruncate(fd, 100), -1);
    assert_ptr_equal(mmap(NULL, 5, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, 0), -1);
    close(fd);
}

static void test_check_refuses_what_can_still_change(void **state)
{
    (void)state;
    size_t length = 77;
    int fd = hc_memfd_open("open");
    assert_true(is_cloexec(fd));
    assert_int_equal(hc_memfd_check(fd, &length), -EINVAL);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
    /* Every seal is asked for, also the one that closes the list of seals. */
    assert_int_equal(hc_memfd_check(fd, &length), -EINVAL);
    assert_int_equal(hc_memfd_seal(fd), 0);
    assert_int_equal(hc_memfd_check(fd, &length), 0);
    close(fd);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    length = 77;
    assert_int_equal(hc_memfd_check(ends[0], &length), -EINVAL);
    assert_int_equal(hc_memfd_check(-1, &length), -EINVAL);
    assert_int_equal(length, 77);
    assert_int_equal(hc_memfd_seal(ends[1]), -EINVAL);
    close(ends[0]);
    close(ends[1]);
}

static void test_seal_fails_while_a_writable_mapping_lives(void **state)
{
    (void)state;
    int fd = hc_memfd_open("mapped");
    assert_int_equal(ftruncate(fd, 4096), 0);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    assert_int_equal(hc_memfd_seal(fd), -EBUSY);
    assert_int_equal(hc_memfd_check(fd, NULL), -EINVAL);
    munmap(page, 4096);
    assert_int_equal(hc_memfd_seal(fd), 0);
    close(fd);
}

static int make_pair(void **state)
{
    int *pair = malloc(2 * sizeof(int));
    if (pair == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    *state = pair;
    return 0;
}

static int close_pair(void **state)
{
    int *pair = *state;
    hc_close(pair[0]);
    hc_close(pair[1]);
    free(pair);
    return 0;
}

static bool same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void test_a_message_travels_with_its_fds(void **state)
{
    int *pair = *state;
    int fds[2] = {hc_memfd_sealed("a", "a", 1), hc_memfd_sealed("b", "b", 1)};
    assert_int_equal(hc_send_fds(pair[0], "hello", 5, fds, 2), 0);
    char text[16] = "";
    int got[4] = {-1, -1, -1, -1};
    size_t count = 77;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, got, 4, &count), 5);
    assert_string_equal(text, "hello");
    assert_int_equal(count, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(same_file(fds[i], got[i]));
        assert_true(is_cloexec(got[i]));
        close(fds[i]);
        close(got[i]);
    }
}

static void test_a_message_without_fds_has_none(void **state)
{
    int *pair = *state;
    assert_int_equal(hc_send_fds(pair[0], "x", 1, NULL, 0), 0);
    char text[16];
    size_t count = 77;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, NULL, 0, &count), 1);
    assert_int_equal(count, 0);
}

static void test_a_message_that_does_not_fit_is_refused_and_its_fds_closed(void **state)
{
    int *pair = *state;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(hc_send_fds(pair[0], "hello", 5, &null, 1), 0);
    size_t before = open_fds();
    char text[4];
    int got[4] = {-1, -1, -1, -1};
    size_t count = 77;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, got, 4, &count), -EPROTO);
    assert_int_equal(open_fds(), before);
    assert_int_equal(got[0], -1);
    assert_int_equal(count, 77);
    close(null);
}

static void test_more_fds_than_wanted_are_refused_and_closed(void **state)
{
    int *pair = *state;
    int fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(hc_send_fds(pair[0], "x", 1, fds, 3), 0);
    assert_int_equal(hc_send_fds(pair[0], "y", 1, fds, 1), 0);
    size_t before = open_fds();
    char text[4];
    int got[2] = {-1, -1};
    size_t count = 77;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, got, 2, &count), -EPROTO);
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, NULL, 0, &count), -EPROTO);
    assert_int_equal(open_fds(), before);
    assert_int_equal(got[0], -1);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

/* Past hc_send_fds: a peer that speaks the kernel's own language and sends more than the control space holds. */
static void test_more_fds_than_the_control_space_are_refused_and_closed(void **state)
{
    int *pair = *state;
    enum { MANY = HC_MAX_FDS + 20 };
    int fds[MANY];
    for (int i = 0; i < MANY; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char control[CMSG_SPACE(sizeof fds)] __attribute__((aligned(8)));
    memset(control, 0, sizeof control);
    struct iovec part = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(header), fds, sizeof fds);
    assert_int_equal(sendmsg(pair[0], &message, 0), 1);
    size_t before = open_fds();
    char text[4];
    int got[HC_MAX_FDS];
    size_t count = 77;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, got, HC_MAX_FDS, &count), -EPROTO);
    assert_int_equal(open_fds(), before);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}

static void test_the_largest_number_of_fds_travels(void **state)
{
    int *pair = *state;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fds[HC_MAX_FDS + 1], got[HC_MAX_FDS];
    for (int i = 0; i <= HC_MAX_FDS; i++)
        fds[i] = null;
    assert_int_equal(hc_send_fds(pair[0], "x", 1, fds, HC_MAX_FDS + 1), -EINVAL);
    assert_int_equal(hc_send_fds(pair[0], "x", 1, fds, HC_MAX_FDS), 0);
    char text[4];
    size_t count = 0;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, got, HC_MAX_FDS, &count), 1);
    assert_int_equal(count, HC_MAX_FDS);
    for (int i = 0; i < HC_MAX_FDS; i++)
        close(got[i]);
    close(null);
}

static void test_end_of_file_and_a_dead_peer(void **state)
{
    int *pair = *state;
    pair[0] = hc_close(pair[0]);
    char text[4];
    size_t count = 77;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, NULL, 0, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(hc_send_fds(pair[1], "x", 1, NULL, 0), -EPIPE); /* and no SIGPIPE */
}

static void test_an_empty_message_is_not_sent_and_not_trusted(void **state)
{
    int *pair = *state;
    assert_int_equal(hc_send_fds(pair[0], "", 0, NULL, 0), -EINVAL);
    assert_int_equal(hc_send_fds(-1, "x", 1, NULL, 0), -EBADF);
    int bad = -1;
    assert_int_equal(hc_send_fds(pair[0], "x", 1, &bad, 1), -EBADF);
}

static void test_an_empty_socket_that_does_not_block_says_so(void **state)
{
    int *pair = *state;
    hc_set_nonblock(pair[1], true);
    char text[4];
    size_t count = 77;
    assert_int_equal(hc_recv_fds(pair[1], text, sizeof text, NULL, 0, &count), -EAGAIN);
    assert_int_equal(count, 77);
}

#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
#define PAIR_TEST(test) cmocka_unit_test_setup_teardown(test, make_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_keeps_errno_and_returns_minus_one),
        cmocka_unit_test(test_scope_closes_and_take_moves),
        cmocka_unit_test(test_nonblock_is_set_and_cleared),
        cmocka_unit_test(test_write_all_goes_on_after_a_full_pipe),
        cmocka_unit_test(test_writev_all_goes_on_where_it_was_cut_short),
        cmocka_unit_test(test_pwrite_all_leaves_the_position_where_it_was),
        cmocka_unit_test(test_read_full_stops_at_size_and_at_end_of_file),
        FOLDER_TEST(test_write_file_never_creates_one),
        FOLDER_TEST(test_read_file_says_when_it_does_not_fit),
        FOLDER_TEST(test_read_file_terminates_also_when_it_fails),
        FOLDER_TEST(test_numbers_are_read_alone_and_by_key),
        FOLDER_TEST(test_what_is_no_number_is_no_data),
        cmocka_unit_test(test_read_all_takes_up_to_the_limit_and_no_more),
        cmocka_unit_test(test_sealed_memfd_cannot_be_changed),
        cmocka_unit_test(test_check_refuses_what_can_still_change),
        cmocka_unit_test(test_seal_fails_while_a_writable_mapping_lives),
        PAIR_TEST(test_a_message_travels_with_its_fds),
        PAIR_TEST(test_a_message_without_fds_has_none),
        PAIR_TEST(test_a_message_that_does_not_fit_is_refused_and_its_fds_closed),
        PAIR_TEST(test_more_fds_than_wanted_are_refused_and_closed),
        PAIR_TEST(test_more_fds_than_the_control_space_are_refused_and_closed),
        PAIR_TEST(test_the_largest_number_of_fds_travels),
        PAIR_TEST(test_end_of_file_and_a_dead_peer),
        PAIR_TEST(test_an_empty_message_is_not_sent_and_not_trusted),
        PAIR_TEST(test_an_empty_socket_that_does_not_block_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
