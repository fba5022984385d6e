/* Files from a cell: whatever their names, they land below the folder or nowhere. */
#include "cli/run.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    char path[64];
    int folder; /* path/in, the folder that files go to; path is outside it */
};

static int make_place(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    char in[80];

    assert_non_null(place);
    strcpy(place->path, "/tmp/hotcell-collect-XXXXXX");
    assert_non_null(mkdtemp(place->path));
    snprintf(in, sizeof in, "%s/in", place->path);
    place->folder = collect_open(in, NULL);
    assert_true(place->folder >= 0);
    *state = place;
    return 0;
}

static int clear_place(void **state)
{
    struct place *place = *state;
    char command[96];

    close(place->folder);
    snprintf(command, sizeof command, "rm -rf %s", place->path);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a path of our own */
    free(place);
    return 0;
}

static void expect_content(int folder, const char *path, const char *content)
{
    char text[64] = "";
    int fd = openat(folder, path, O_RDONLY | O_NOFOLLOW);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof text - 1) >= 0);
    close(fd);
    assert_string_equal(text, content);
}

static void test_folders_are_made(void **state)
{
    struct place *place = *state;
    assert_int_equal(collect_file(place->folder, "a/b/c", "new", 3, false), 0);
    expect_content(place->folder, "a/b/c", "new");
    assert_int_equal(collect_file(place->folder, "a/b/d", "", 0, false), 0);
    expect_content(place->folder, "a/b/d", "");
}

static void test_no_name_leaves_the_folder(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"../x", "a/../../x", "/x", "a//x", "..", ".", "", "a/", "./x", "a/./x", "a/.."};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int force = 0; force < 2; force++)
            assert_int_equal(collect_file(place->folder, names[i], "x", 1, force), -EINVAL);
    assert_int_equal(faccessat(place->folder, "../x", F_OK, 0), -1);
    assert_int_equal(access("/x", F_OK), -1);
}

static void test_no_link_is_followed(void **state)
{
    struct place *place = *state;
    int outside = open(place->path, O_RDONLY | O_DIRECTORY);

    assert_int_equal(collect_file(outside, "kept", "kept", 4, false), 0);
    assert_int_equal(symlinkat("..", place->folder, "up"), 0);
    assert_int_equal(symlinkat("../kept", place->folder, "file"), 0);
    assert_int_equal(symlinkat("../made", place->folder, "dangling"), 0);
    for (int force = 0; force < 2; force++)
        assert_true(collect_file(place->folder, "up/kept", "x", 1, force) < 0);
    assert_int_equal(collect_file(place->folder, "file", "x", 1, false), -EEXIST);
    assert_int_equal(collect_file(place->folder, "dangling", "x", 1, false), -EEXIST);
    assert_int_equal(collect_file(place->folder, "file", "mine", 4, true), 0);
    expect_content(place->folder, "file", "mine");
    expect_content(outside, "kept", "kept");
    assert_int_equal(faccessat(outside, "made", F_OK, 0), -1);
    close(outside);
}

static void test_what_exists_stays_unless_forced(void **state)
{
    struct place *place = *state;
    assert_int_equal(collect_file(place->folder, "a", "old", 3, false), 0);
    assert_int_equal(linkat(place->folder, "a", place->folder, "other-name", 0), 0);
    assert_int_equal(collect_file(place->folder, "a", "new", 3, false), -EEXIST);
    expect_content(place->folder, "a", "old");
    assert_int_equal(collect_file(place->folder, "a", "new", 3, true), 0);
    expect_content(place->folder, "a", "new");
    expect_content(place->folder, "other-name", "old");
}

static void test_nothing_is_left_of_a_file_that_cannot_be_put_in_place(void **state)
{
    struct place *place = *state;
    struct stat info;
    assert_int_equal(mkdirat(place->folder, "a", 0777), 0);
    assert_int_equal(mkdirat(place->folder, "a/b", 0777), 0);
    assert_true(collect_file(place->folder, "a", "x", 1, true) < 0);
    assert_int_equal(fstat(place->folder, &info), 0);
    assert_int_equal(info.st_nlink, 3); /* ".", its name, and a's ".." */
    assert_int_equal(unlinkat(place->folder, "a/b", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(place->folder, "a", AT_REMOVEDIR), 0);
    char in[80];
    snprintf(in, sizeof in, "%s/in", place->path);
    assert_int_equal(rmdir(in), 0); /* it was empty */
}

static void test_a_fifo_does_not_stop_it(void **state)
{
    struct place *place = *state;
    assert_int_equal(mkfifoat(place->folder, "pipe", 0666), 0);
    assert_int_equal(collect_file(place->folder, "pipe", "x", 1, false), -EEXIST);
    assert_int_equal(collect_file(place->folder, "pipe", "x", 1, true), 0);
    expect_content(place->folder, "pipe", "x");
}

static void test_a_name_that_is_too_long_is_an_error(void **state)
{
    struct place *place = *state;
    static char name[PATH_MAX + 10];
    memset(name, 'a', sizeof name - 1);
    assert_int_equal(collect_file(place->folder, name, "x", 1, false), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folders_are_made, make_place, clear_place),
        cmocka_unit_test_setup_teardown(test_no_name_leaves_the_folder, make_place, clear_place),
        cmocka_unit_test_setup_teardown(test_no_link_is_followed, make_place, clear_place),
        cmocka_unit_test_setup_teardown(test_what_exists_stays_unless_forced, make_place, clear_place),
        cmocka_unit_test_setup_teardown(test_nothing_is_left_of_a_file_that_cannot_be_put_in_place, make_place,
                                        clear_place),
        cmocka_unit_test_setup_teardown(test_a_fifo_does_not_stop_it, make_place, clear_place),
        cmocka_unit_test_setup_teardown(test_a_name_that_is_too_long_is_an_error, make_place, clear_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
