/* What moves from one cell to another is whole, or it is said what is not. */
#include "run/snapshot.h"

#include "base/fd.h"
#include "cell/archive.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state)
{
    struct snapshot *snapshot = malloc(sizeof *snapshot);
    if (!snapshot)
        return -1;
    snapshot_init(snapshot);
    *state = snapshot;
    return snapshot_begin(snapshot);
}

static int tear_down(void **state)
{
    snapshot_release(*state);
    free(*state);
    return 0;
}

static void put(struct snapshot *snapshot, enum archive_type type, const char *path, size_t length, uint64_t true_size)
{
    struct archive_header header = {.magic = ARCHIVE_MAGIC,
                                    .type = type,
                                    .mode = type == ARCHIVE_END ? 0 : 0755,
                                    .path_length = (uint32_t)strlen(path),
                                    .content_length = length,
                                    .true_size = true_size};
    snapshot_add(snapshot, (const char *)&header, sizeof header);
    snapshot_add(snapshot, path, strlen(path));
    while (length-- > 0)
        snapshot_add(snapshot, "x", 1);
}

static void test_a_whole_one_is_sealed_and_its_room_is_counted(void **state)
{
    struct snapshot *snapshot = *state;
    struct hc_err err = {0};
    put(snapshot, ARCHIVE_FILE, "workspace/a/b", 5000, 5000);
    put(snapshot, ARCHIVE_SYMLINK, "tmp/l", 3, 3);
    put(snapshot, ARCHIVE_END, "", 0, 0);
    assert_int_equal(snapshot_finish(snapshot, &err), 0);
    size_t length;
    assert_int_equal(hc_memfd_check(snapshot->fd, &length), 0);
    assert_int_equal(length, snapshot->size);
    assert_int_equal(snapshot->disk, 8192 + 4096);
    assert_int_equal(snapshot->inodes, 3 + 2);
}

static void test_a_file_that_is_not_all_there_is_named(void **state)
{
    struct snapshot *snapshot = *state;
    struct hc_err err = {0};
    put(snapshot, ARCHIVE_FILE, "workspace/good", 3, 3);
    put(snapshot, ARCHIVE_FILE, "workspace/huge", 3, 4);
    put(snapshot, ARCHIVE_END, "", 0, 0);
    assert_int_equal(snapshot_finish(snapshot, &err), -EFBIG);
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    assert_non_null(strstr(err.message, "workspace/huge"));
}

static void test_one_that_breaks_off_is_no_snapshot(void **state)
{
    struct snapshot *snapshot = *state;
    struct hc_err err = {0};
    put(snapshot, ARCHIVE_FILE, "workspace/good", 3, 3);
    assert_int_equal(snapshot_finish(snapshot, &err), -EPROTO);
}

static void test_one_that_claims_more_than_it_has_is_no_snapshot(void **state)
{
    struct snapshot *snapshot = *state;
    struct hc_err err = {0};
    struct archive_header header = {.magic = ARCHIVE_MAGIC,
                                    .type = ARCHIVE_FILE,
                                    .path_length = 1,
                                    .content_length = UINT64_MAX,
                                    .true_size = UINT64_MAX};
    snapshot_add(snapshot, (const char *)&header, sizeof header);
    snapshot_add(snapshot, "abc", 3);
    assert_int_equal(snapshot_finish(snapshot, &err), -EPROTO);
}

static void test_an_empty_stream_is_no_snapshot(void **state)
{
    struct hc_err err = {0};
    assert_int_equal(snapshot_finish(*state, &err), -EPROTO);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_whole_one_is_sealed_and_its_room_is_counted),
        TEST(test_a_file_that_is_not_all_there_is_named),
        TEST(test_one_that_breaks_off_is_no_snapshot),
        TEST(test_one_that_claims_more_than_it_has_is_no_snapshot),
        TEST(test_an_empty_stream_is_no_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
