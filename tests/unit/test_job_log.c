/* The memory of a job's output: sandbox/log.h. */
#include "sandbox/log.h"

#include "base/fd.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void expect(const struct job_log *log, int stream, uint64_t from, uint64_t start, const char *text)
{
    size_t length = 0;
    hc_cleanup_free char *found = job_log_read(log, stream, &from, &length);
    assert_non_null(found);
    assert_int_equal(from, start);
    assert_int_equal(length, strlen(text));
    assert_string_equal(found, text);
}

static void test_what_was_written_is_read_from_anywhere(void **state)
{
    (void)state;
    struct job_log *log = job_log_new(4096);
    job_log_add(log, 0, "hello ", 6);
    job_log_add(log, 0, "world", 5);
    job_log_add(log, 1, "err", 3);
    assert_int_equal(job_log_end(log, 0), 11);
    expect(log, 0, 0, 0, "hello world");
    expect(log, 0, 6, 6, "world");
    expect(log, 0, 11, 11, "");
    expect(log, 0, 99, 11, ""); /* from beyond its end: nothing, at its end */
    expect(log, 1, 0, 0, "err");
    job_log_free(log);
}

static void test_the_oldest_is_forgotten_and_positions_stay(void **state)
{
    (void)state;
    struct job_log *log = job_log_new(1); /* no less than a page */
    char piece[1000];
    for (int i = 0; i < 10; i++) {
        memset(piece, 'a' + i, sizeof piece);
        job_log_add(log, 0, piece, sizeof piece);
    }
    uint64_t from = 0;
    size_t length = 0;
    hc_cleanup_free char *found = job_log_read(log, 0, &from, &length);
    assert_int_equal(job_log_end(log, 0), 10000);
    assert_int_equal(from, 10000 - 4096);
    assert_int_equal(length, 4096);
    assert_int_equal(found[0], 'f');
    assert_int_equal(found[4095], 'j');
    for (size_t i = 0; i < length; i++)
        assert_int_equal(found[i], 'a' + (char)((from + i) / 1000));
    job_log_free(log);
}

static void test_a_piece_that_is_larger_than_all_of_it_leaves_its_end(void **state)
{
    (void)state;
    struct job_log *log = job_log_new(4096);
    hc_cleanup_free char *large = malloc(100000);
    for (int i = 0; i < 100000; i++)
        large[i] = (char)('0' + i % 10);
    job_log_add(log, 1, "x", 1);
    job_log_add(log, 1, large, 100000);
    uint64_t from = 0;
    size_t length = 0;
    hc_cleanup_free char *found = job_log_read(log, 1, &from, &length);
    assert_int_equal(from, 100001 - 4096);
    assert_memory_equal(found, large + 100000 - 4096, 4096);
    job_log_free(log);
}

static void test_the_next_gateway_finds_it_by_its_fd(void **state)
{
    (void)state;
    struct job_log *log = job_log_new(8192);
    job_log_add(log, 0, "before", 6);
    struct job_log *again = job_log_open(fcntl(job_log_fd(log), F_DUPFD_CLOEXEC, 3));
    job_log_free(log);
    assert_non_null(again);
    expect(again, 0, 0, 0, "before");
    job_log_add(again, 0, " and after", 10);
    expect(again, 0, 3, 3, "ore and after");
    job_log_free(again);
}

static void test_an_fd_that_is_no_log_is_refused(void **state)
{
    (void)state;
    static const char junk[9000] = "not a log";
    assert_null(job_log_open(open("/dev/null", O_RDWR | O_CLOEXEC)));
    assert_null(job_log_open(hc_memfd_sealed("junk", "short", 5)));
    assert_null(job_log_open(hc_memfd_sealed("junk", junk, sizeof junk)));
    int open_end = hc_memfd_open("unsealed"); /* could shrink under its reader */
    assert_int_equal(ftruncate(open_end, 9000), 0);
    assert_null(job_log_open(open_end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read_from_anywhere),
        cmocka_unit_test(test_the_oldest_is_forgotten_and_positions_stay),
        cmocka_unit_test(test_a_piece_that_is_larger_than_all_of_it_leaves_its_end),
        cmocka_unit_test(test_the_next_gateway_finds_it_by_its_fd),
        cmocka_unit_test(test_an_fd_that_is_no_log_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
