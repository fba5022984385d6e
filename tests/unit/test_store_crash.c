/*
 * A store whose process is killed at any moment: a child writes rows and says each number once it was told that the row
 * is on disk; it is killed in the middle; what it had said is there. And files that were copied from under a writer,
 * with the end of the write-ahead log cut, torn or overwritten behind its last commit.
 */
#include "base/fd.h"
#include "store_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { ROUNDS = 16, IN_FLIGHT = 16, COPIES = 9 };

struct writer {
    struct store *store;
    uint32_t next; /* number of the next row */
    int out;
};

struct sent {
    struct writer *writer;
    uint32_t number;
};

static void write_next(struct writer *writer);

static void said(void *data, int result)
{
    struct sent *sent = data;
    struct writer *writer = sent->writer;
    uint32_t number = sent->number;
    free(sent);
    if (result != 0 || write(writer->out, &number, sizeof number) != (ssize_t)sizeof number)
        _exit(3);
    write_next(writer);
}

/* Rows of many sizes: within a page, over several, more than a checkpoint's worth. */
static void write_next(struct writer *writer)
{
    static char text[120001];
    static const size_t sizes[] = {10, 900, 5000, 30000, 120000};
    struct sent *sent = malloc(sizeof *sent);
    *sent = (struct sent){writer, writer->next++};
    memset(text, 'a' + (int)(sent->number % 26), sizeof text);
    text[sizes[sent->number % 5]] = '\0';
    struct run_row row = row_ended(sent->number, text);
    /* Half of them are known before they end, as in a server. */
    if (sent->number % 2 == 0) {
        struct run_row queued = row_queued(sent->number);
        store_run_insert(writer->store, &queued, NULL, NULL);
    }
    if (store_run_finish(writer->store, &row, said, sent) < 0)
        _exit(4);
}

static void write_until_killed(const struct folder *folder, uint32_t first, int out)
{
    struct hc_loop *loop = hc_loop_new();
    struct writer writer = {.next = first, .out = out};
    struct hc_err err = {0};
    if (loop == NULL || store_open(folder->path, loop, false, &writer.store, &err) < 0)
        _exit(2);
    for (int i = 0; i < IN_FLIGHT; i++)
        write_next(&writer);
    for (;;)
        hc_loop_turn(loop, -1);
}

struct child {
    pid_t pid;
    int out;
};

static struct child start(const struct folder *folder, uint32_t first)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        write_until_killed(folder, first, ends[1]);
    }
    close(ends[1]);
    return (struct child){pid, ends[0]};
}

/* Everything that it has said so far, added to the list; at most `milliseconds` for the first. */
static size_t listen_to(const struct child *child, int milliseconds, uint32_t *numbers, size_t count, size_t max)
{
    struct pollfd ready = {.fd = child->out, .events = POLLIN};
    while (count < max && poll(&ready, 1, milliseconds) > 0) {
        ssize_t length = read(child->out, numbers + count, (max - count) * sizeof *numbers);
        if (length <= 0)
            break;
        assert_int_equal((size_t)length % sizeof *numbers, 0);
        count += (size_t)length / sizeof *numbers;
        milliseconds = 0;
    }
    return count;
}

static void kill_child(struct child *child)
{
    int status;
    kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    assert_true(WIFSIGNALED(status)); /* it had not given up by itself */
}

struct expected {
    size_t length;
    char letter;
};

static int check_row(void *data, const struct run_row *row)
{
    const struct expected *expected = data;
    assert_int_equal(row->result_length, expected->length);
    for (size_t i = 0; i < row->result_length; i++)
        if (row->result[i] != expected->letter)
            fail_msg("%s: its result is damaged at %zu", row->id, i);
    return 0;
}

static void check_rows(const struct folder *folder, const uint32_t *numbers, size_t count, bool read_only)
{
    static const size_t sizes[] = {10, 900, 5000, 30000, 120000};
    struct store *store = NULL;
    struct hc_err err = {0};
    if (store_open(folder->path, NULL, read_only, &store, &err) < 0)
        fail_msg("cannot be opened: %s", err.message);
    for (size_t i = 0; i < count; i++) {
        char id[40];
        struct expected expected = {sizes[numbers[i] % 5], (char)('a' + (int)(numbers[i] % 26))};
        snprintf(id, sizeof id, "run_%08u", numbers[i]);
        if (store_run_get(store, NULL, id, check_row, &expected) != 1)
            fail_msg("%s was acknowledged and is lost", id);
    }
    store_close(store);
}

enum { MAX_NUMBERS = 200000 };

/* Two folders: one that is written to, one for copies. */
static int set_up(void **state)
{
    struct folder *folders = calloc(2, sizeof *folders);
    *state = folders;
    return folders != NULL && folder_make(&folders[0]) == 0 ? folder_make(&folders[1]) : -1;
}

static int tear_down(void **state)
{
    struct folder *folders = *state;
    folder_remove(&folders[0]);
    folder_remove(&folders[1]);
    free(folders);
    return 0;
}

static void test_nothing_acknowledged_is_lost_when_the_writer_is_killed(void **state)
{
    struct folder *folder = *state;
    uint32_t *numbers hc_cleanup_free = malloc(MAX_NUMBERS * sizeof *numbers);
    unsigned seed = 7;
    size_t count = 0, before = 0;
    uint32_t first = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct child child = start(folder, first);
        count = listen_to(&child, 5000, numbers, count, MAX_NUMBERS);
        assert_true(count > before);
        usleep((useconds_t)(rand_r(&seed) % 60000));
        kill_child(&child);
        count = listen_to(&child, 0, numbers, count, MAX_NUMBERS); /* what was in the pipe when it died */
        close(child.out);
        first += 1000000; /* rows that were never acknowledged may be there or not */
        before = count;
        /* Every other time the next writer finds the log as the kill has left it. */
        if (round % 2 == 0)
            check_rows(folder, numbers, count, round % 4 == 0);
    }
    check_rows(folder, numbers, count, false);
}

/* By another process: closing a second descriptor of a database drops the locks that a process holds on it. */
static void copy_files(const struct folder *from, const struct folder *to)
{
    static const char *const names[] = {"history.db", "history.db-wal", "history.db-runs"};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char path[128], copy[128];
            folder_file(from, names[i], path, sizeof path);
            folder_file(to, names[i], copy, sizeof copy);
            hc_cleanup_fd int in = open(path, O_RDONLY | O_CLOEXEC);
            hc_cleanup_fd int out = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            if (in < 0 || out < 0 || hc_copy_all(in, out) < 0)
                _exit(1);
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static uint32_t big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Where the last valid commit of a write-ahead log ends, by its format (sqlite.org/fileformat2.html#walformat): frames
 * carry the salts of the header, and the last one of a transaction the size of the database. */
static off_t end_of_commits(int fd)
{
    enum { HEADER = 32, FRAME = 24 };
    unsigned char header[HEADER], frame[FRAME];
    if (pread(fd, header, sizeof header, 0) != HEADER)
        return 0;
    off_t page = big_endian(header + 8), end = HEADER;
    for (off_t at = HEADER; pread(fd, frame, sizeof frame, at) == FRAME; at += FRAME + page) {
        if (memcmp(frame + 8, header + 16, 8) != 0)
            break;
        if (big_endian(frame + 4) != 0)
            end = at + FRAME + page;
    }
    return end;
}

/* Cuts, tears or overwrites what is behind the last commit; puts something there when there is nothing. */
static void damage_tail(const struct folder *folder, int kind, unsigned *seed)
{
    char path[128], rubbish[6000];
    folder_file(folder, "history.db-wal", path, sizeof path);
    hc_cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t end = end_of_commits(fd);
    struct stat file;
    assert_int_equal(fstat(fd, &file), 0);
    for (size_t i = 0; i < sizeof rubbish; i++)
        rubbish[i] = (char)rand_r(seed);
    off_t length = 1 + rand_r(seed) % (off_t)sizeof rubbish;
    if (kind == 0 || file.st_size < end) {
        assert_int_equal(ftruncate(fd, end), 0);
    } else if (kind == 1) { /* a frame that had begun, with the salts of this log */
        assert_int_equal(pread(fd, rubbish + 8, 8, 16), 8);
        assert_int_equal(ftruncate(fd, end), 0);
        assert_int_equal(pwrite(fd, rubbish, (size_t)length, end), length);
    } else {
        assert_int_equal(pwrite(fd, rubbish, (size_t)length, end), length);
    }
}

static void test_a_torn_log_is_recovered_to_its_last_commit(void **state)
{
    struct folder *folder = *state, *copy = folder + 1;
    uint32_t *numbers hc_cleanup_free = malloc(MAX_NUMBERS * sizeof *numbers);
    unsigned seed = 11;
    size_t count = 0;
    for (int round = 0; round < COPIES; round++) {
        struct child child = start(folder, (uint32_t)round * 1000000);
        count = listen_to(&child, 5000, numbers, count, MAX_NUMBERS);
        usleep((useconds_t)(rand_r(&seed) % 40000));
        kill(child.pid, SIGSTOP); /* so that database and log are copied at one moment */
        waitpid(child.pid, NULL, WUNTRACED);
        count = listen_to(&child, 0, numbers, count, MAX_NUMBERS);
        copy_files(folder, copy);
        kill_child(&child);
        close(child.out);
        damage_tail(copy, round % 3, &seed);
        check_rows(copy, numbers, count, false);
        folder_empty(copy);
    }
    assert_true(count > COPIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_acknowledged_is_lost_when_the_writer_is_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_torn_log_is_recovered_to_its_last_commit, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
