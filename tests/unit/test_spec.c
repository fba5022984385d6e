/* What the warden refuses before it makes a cell, whoever asks. */
#include "cell/spec.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct cell_spec good_spec(void)
{
    struct cell_spec spec = {.disk = 1 << 20, .inodes = 100, .hostname = "hotcell", .work_dir = "/workspace"};
    return spec;
}

static struct job_limits good_limits(void)
{
    struct job_limits limits = {
        .memory = 64 << 20, .pids = 10, .files_open = 64, .file_size = 1 << 20, .cpu_shares = 1024};
    return limits;
}

static void test_an_ordinary_cell_is_accepted(void **state)
{
    (void)state;
    struct cell_spec spec = good_spec();
    struct hc_err err = {0};
    assert_int_equal(cell_spec_check(&spec, NULL, &err), 0);
    assert_int_equal(err.code, 0);
}

static void test_a_name_without_an_end_is_refused(void **state)
{
    (void)state;
    struct cell_spec spec = good_spec();
    struct hc_err err = {0};
    memset(spec.hostname, 'x', sizeof spec.hostname);
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -EINVAL);
    spec = good_spec();
    memset(spec.work_dir, '/', sizeof spec.work_dir);
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -EINVAL);
}

static void test_a_working_directory_that_is_not_clean_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "/", "work", "/a/../b", "/a/./b", "/a//b", "/a/", "/..", "//"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cell_spec spec = good_spec();
        struct hc_err err = {0};
        snprintf(spec.work_dir, sizeof spec.work_dir, "%s", bad[i]);
        assert_int_equal(cell_spec_check(&spec, NULL, &err), -EINVAL);
    }
}

static void test_sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    struct hc_err err = {0};
    struct cell_spec spec = good_spec();
    spec.disk = 0;
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -ERANGE);
    spec = good_spec();
    spec.disk = UINT64_MAX;
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -ERANGE);
    spec = good_spec();
    spec.inodes = 0;
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -ERANGE);
}

static void test_unknown_flags_and_too_many_mounts_are_refused(void **state)
{
    (void)state;
    struct hc_err err = {0};
    struct cell_spec spec = good_spec();
    spec.flags = 1u << 30;
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -EINVAL);
    spec = good_spec();
    spec.mount_count = CELL_MAX_MOUNTS + 1;
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -E2BIG);
    spec.mount_count = 0;
    spec.lookups = CELL_MAX_LOOKUPS;
    assert_int_equal(cell_spec_check(&spec, NULL, &err), 0);
    spec.lookups++;
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, NULL, &err), -E2BIG);
}

static void test_a_mount_is_clean_and_its_source_exists(void **state)
{
    (void)state;
    struct cell_spec spec = good_spec();
    struct cell_mount mount = {.path = "/data", .host = 0};
    struct hc_err err = {0};
    spec.mount_count = 1;
    assert_int_equal(cell_spec_check(&spec, &mount, &err), 0);
    mount.host = CELL_MAX_HOSTS;
    assert_int_equal(cell_spec_check(&spec, &mount, &err), -EINVAL);
    mount.host = CELL_FIRST_VOLUME - 1;
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, &mount, &err), -EINVAL);
    mount.host = CELL_FIRST_VOLUME;
    assert_int_equal(cell_spec_check(&spec, &mount, NULL), 0);
    mount = (struct cell_mount){.path = "/data/../etc"};
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, &mount, &err), -EINVAL);
    memset(mount.path, 'a', sizeof mount.path);
    hc_err_clear(&err);
    assert_int_equal(cell_spec_check(&spec, &mount, &err), -EINVAL);
}

static void test_limits_are_never_unlimited_by_accident(void **state)
{
    (void)state;
    struct job_limits limits = good_limits();
    struct hc_err err = {0};
    assert_int_equal(job_limits_check(&limits, &err), 0);
    limits.memory = 0;
    assert_int_equal(job_limits_check(&limits, &err), -ERANGE);
    limits = good_limits();
    limits.memory = UINT64_MAX;
    hc_err_clear(&err);
    assert_int_equal(job_limits_check(&limits, &err), -ERANGE);
    limits = good_limits();
    limits.pids = 0;
    hc_err_clear(&err);
    assert_int_equal(job_limits_check(&limits, &err), -ERANGE);
    limits = good_limits();
    limits.wall = UINT64_MAX;
    hc_err_clear(&err);
    assert_int_equal(job_limits_check(&limits, &err), -ERANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_ordinary_cell_is_accepted),
        cmocka_unit_test(test_a_name_without_an_end_is_refused),
        cmocka_unit_test(test_a_working_directory_that_is_not_clean_is_refused),
        cmocka_unit_test(test_sizes_out_of_range_are_refused),
        cmocka_unit_test(test_unknown_flags_and_too_many_mounts_are_refused),
        cmocka_unit_test(test_a_mount_is_clean_and_its_source_exists),
        cmocka_unit_test(test_limits_are_never_unlimited_by_accident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
