/* Files in and out of a cell, against a real folder: what is made, what is found, and what a guest cannot make us do.
 */
#include "base/fd.h"
#include "cell/archive.h"
#include "cell/glob.h"
#include "run/collected.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct folder {
    char path[64];
    int before; /* the working directory to go back to */
};

static int set_up(void **state)
{
    struct folder *folder = calloc(1, sizeof(*folder));
    if (!folder)
        return -1;
    strcpy(folder->path, "/tmp/hotcell-archive-XXXXXX");
    folder->before = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    *state = folder;
    return mkdtemp(folder->path) && folder->before >= 0 && chdir(folder->path) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int tear_down(void **state)
{
    struct folder *folder = *state;
    int status = fchdir(folder->before);
    status |= nftw(folder->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    close(folder->before);
    free(folder);
    return status;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(hc_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static void expect_file(const char *path, const char *text, unsigned mode)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat stat;
    char *data = NULL;
    size_t length = 0;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &stat), 0);
    assert_int_equal(stat.st_mode & 07777, mode);
    assert_int_equal(hc_read_all(fd, 1 << 20, &data, &length), 0);
    assert_string_equal(data, text);
    free(data);
    close(fd);
}

/* ---- in ---- */

static void add(int archive, enum archive_type type, unsigned mode, const char *path, const char *content)
{
    assert_int_equal(archive_put_header(archive, type, mode, path, strlen(content), 0), 0);
    assert_int_equal(hc_write_all(archive, content, strlen(content)), 0);
}

static int unpack(int archive, struct hc_err *err)
{
    int status = archive_unpack(archive, err);
    close(archive);
    return status;
}

static void test_files_are_unpacked_with_parents_and_modes(void **state)
{
    (void)state;
    mode_t before = umask(077); /* the modes are those of the archive, whatever the mask */
    int archive = hc_memfd_open("test");
    add(archive, ARCHIVE_FILE, 0644, "main.py", "print(42)\n");
    add(archive, ARCHIVE_FILE, 0755, "bin/tools/run.sh", "#!/bin/sh\n");
    add(archive, ARCHIVE_FILE, 0444, "bin/data", "");
    add(archive, ARCHIVE_SYMLINK, 0777, "link", "bin/data");
    assert_int_equal(archive_put_header(archive, ARCHIVE_END, 0, "", 0, 0), 0);
    struct hc_err err = {0};
    assert_int_equal(unpack(archive, &err), 0);
    umask(before);
    expect_file("main.py", "print(42)\n", 0644);
    expect_file("bin/tools/run.sh", "#!/bin/sh\n", 0755);
    expect_file("bin/data", "", 0444);
    char target[64] = "";
    assert_int_equal(readlink("link", target, sizeof(target)), 8);
}

static void test_an_empty_archive_is_fine(void **state)
{
    (void)state;
    assert_int_equal(unpack(hc_memfd_open("test"), NULL), 0);
}

static void test_unpacking_follows_no_symlink_and_overwrites_nothing(void **state)
{
    (void)state;
    struct hc_err err = {0};
    assert_int_equal(mkdir("outside", 0755), 0);
    assert_int_equal(symlink("outside", "folder"), 0);
    assert_int_equal(symlink("outside/target", "file"), 0);
    write_file("there", "mine");
    int archive = hc_memfd_open("test");
    add(archive, ARCHIVE_FILE, 0644, "folder/x", "escaped");
    assert_int_equal(unpack(archive, &err), -ENOTDIR);
    assert_int_equal(access("outside/x", F_OK), -1);
    hc_err_clear(&err);
    archive = hc_memfd_open("test");
    add(archive, ARCHIVE_FILE, 0644, "file", "escaped");
    assert_int_equal(unpack(archive, &err), -EEXIST);
    assert_int_equal(access("outside/target", F_OK), -1);
    hc_err_clear(&err);
    archive = hc_memfd_open("test");
    add(archive, ARCHIVE_FILE, 0644, "there", "yours");
    assert_int_equal(unpack(archive, &err), -EEXIST);
    expect_file("there", "mine", 0644);
    /* Symlink, then a write through it, in one archive. */
    archive = hc_memfd_open("test");
    add(archive, ARCHIVE_SYMLINK, 0777, "s", "outside");
    add(archive, ARCHIVE_FILE, 0644, "s/x", "escaped");
    assert_int_equal(unpack(archive, NULL), -ENOTDIR);
    assert_int_equal(access("outside/x", F_OK), -1);
}

static void test_paths_that_lead_out_are_refused(void **state)
{
    (void)state;
    static const char *const paths[] = {"../x", "/x", "a/../x", "a/./x", ".", "..", "a//x", "a/", "./x"};
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        int archive = hc_memfd_open("test");
        add(archive, ARCHIVE_FILE, 0644, paths[i], "x");
        assert_int_equal(unpack(archive, NULL), -EPROTO);
        assert_int_equal(archive_path_check(paths[i], strlen(paths[i])), -EINVAL);
    }
    assert_int_equal(archive_path_check("a\0b", 3), -EINVAL);
    assert_int_equal(archive_path_check("", 0), -EINVAL);
    assert_int_equal(archive_path_check("...", 3), 0);
    assert_int_equal(archive_path_check("..a/.b/c..", 10), 0);
    char longest[ARCHIVE_PATH_MAX + 2];
    memset(longest, 'p', sizeof(longest));
    for (size_t i = 255; i < sizeof(longest); i += 256)
        longest[i] = '/';
    longest[ARCHIVE_PATH_MAX - 1] = 'p';
    longest[ARCHIVE_PATH_MAX - 2] = '/';
    assert_int_equal(archive_path_check(longest, ARCHIVE_PATH_MAX), 0);
    assert_int_equal(archive_path_check(longest, ARCHIVE_PATH_MAX + 1), -EINVAL);
    memset(longest, 'p', sizeof(longest));
    assert_int_equal(archive_path_check(longest, 255), 0);
    assert_int_equal(archive_path_check(longest, 256), -EINVAL);
}

static void test_an_archive_that_lies_about_lengths_is_refused(void **state)
{
    (void)state;
    static const struct archive_header headers[] = {
        {0x12345678, ARCHIVE_FILE, 0644, 1, 0, 0},
        {ARCHIVE_MAGIC, 0, 0644, 1, 0, 0},
        {ARCHIVE_MAGIC, 9, 0644, 1, 0, 0},
        {ARCHIVE_MAGIC, ARCHIVE_FILE, 0644, 0, 0, 0},
        {ARCHIVE_MAGIC, ARCHIVE_FILE, 0644, ARCHIVE_PATH_MAX + 1, 0, 0},
        {ARCHIVE_MAGIC, ARCHIVE_FILE, 0644, UINT32_MAX, 0, 0},
        {ARCHIVE_MAGIC, ARCHIVE_FILE, 04755, 1, 0, 0},
        {ARCHIVE_MAGIC, ARCHIVE_FILE, 0644, 1, 5, 0},
        {ARCHIVE_MAGIC, ARCHIVE_FILE, 0644, 1, UINT64_MAX, 0},
        {ARCHIVE_MAGIC, ARCHIVE_SYMLINK, 0777, 1, 4096, 0},
        {ARCHIVE_MAGIC, ARCHIVE_END, 0, 1, 0, 0},
        {ARCHIVE_MAGIC, ARCHIVE_END, 0, 0, 1, 0},
    };
    for (size_t i = 0; i < COUNT_OF(headers); i++) {
        int archive = hc_memfd_open("test");
        hc_write_all(archive, &headers[i], sizeof(headers[i]));
        hc_write_all(archive, "x", 1);
        if (unpack(archive, NULL) != -EPROTO)
            fail_msg("header %zu was accepted", i);
    }
    int archive = hc_memfd_open("test");
    hc_write_all(archive, &headers[3], 7);
    assert_int_equal(unpack(archive, NULL), -EPROTO);
}

/* ---- patterns ---- */

static void test_patterns_match_as_people_expect(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool matches;
    } cases[] = {
        {"a", "a", true},
        {"a", "b", false},
        {"a", "a/b", false},
        {"a/b", "a", false},
        {"*", "abc", true},
        {"*", "a/b", false},
        {"*", ".hidden", true},
        {"*.png", "x.png", true},
        {"*.png", "x.jpg", false},
        {"*.png", ".png", true},
        {"out/*.png", "out/a.png", true},
        {"out/*.png", "out/d/a.png", false},
        {"**", "a", true},
        {"**", "a/b/c", true},
        {"**/*.csv", "a.csv", true},
        {"**/*.csv", "a/b/c.csv", true},
        {"**/*.csv", "a/b/c.txt", false},
        {"a/**", "a/b", true},
        {"a/**", "a", false},
        {"a/**/z", "a/z", true},
        {"a/**/z", "a/b/c/z", true},
        {"a/**/z", "a/b/c/y", false},
        {"**/a/**/b", "a/a/b/a/b", true},
        {"**/**", "a", true},
        {"a**b", "axyb", true},
        {"a**b", "a/b", false},
        {"?", "a", true},
        {"?", "ab", false},
        {"?", "\xe2\x82\xac", true},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[a-c]x", "bx", true},
        {"[!a-c]", "d", true},
        {"[!a-c]", "b", false},
        {"[]a]", "]", true},
        {"[a", "[a", true},
        {"[a-]", "-", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"a\\", "a\\", true},
        {"*a*b*c", "xxaxxbxxc", true},
        {"*a*b*c", "xxaxxcxxb", false},
        {"a*", "a", true},
        {"*a", "aaab", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (glob_match(cases[i].pattern, cases[i].path) != cases[i].matches)
            fail_msg("%s against %s", cases[i].pattern, cases[i].path);
        /* Each folder on the way to a match must be entered. */
        char folder[64];
        strcpy(folder, cases[i].path);
        for (char *slash = strrchr(folder, '/'); cases[i].matches && slash; slash = strrchr(folder, '/')) {
            *slash = '\0';
            if (!glob_may_match_below(cases[i].pattern, folder))
                fail_msg("%s does not enter %s", cases[i].pattern, folder);
        }
    }
    assert_false(glob_may_match_below("out/*.png", "tmp"));
    assert_false(glob_may_match_below("out/*.png", "out/deep"));
    assert_false(glob_may_match_below("*.png", "out"));
}

/* An exponential matcher does not come back from these. */
static void test_hostile_patterns_end_soon(void **state)
{
    (void)state;
    char pattern[512] = "", name[256];
    for (int i = 0; i < 60; i++)
        strcat(pattern, "*a");
    strcat(pattern, "b");
    memset(name, 'a', 255);
    name[255] = '\0';
    assert_false(glob_match(pattern, name));
    pattern[0] = '\0';
    for (int i = 0; i < 60; i++)
        strcat(pattern, "**/a/");
    strcat(pattern, "b");
    char path[512] = "a";
    for (int i = 0; i < 250; i++)
        strcat(path, "/a");
    assert_false(glob_match(pattern, path));
}

/* ---- out ---- */

struct reading {
    int fd;
    struct collected collected;
    size_t piece;
    int status;
    size_t bytes;
};

static void *read_stream(void *data)
{
    struct reading *reading = data;
    char piece[65536];
    ssize_t count;
    while ((count = read(reading->fd, piece, reading->piece)) > 0) {
        reading->bytes += (size_t)count;
        if (reading->status == 0)
            reading->status = collected_add(&reading->collected, piece, (size_t)count, NULL);
    }
    return NULL;
}

static void collect_sized(const char *const *patterns, size_t count, uint64_t limit, size_t piece,
                          struct result *result)
{
    int ends[2];
    struct reading reading = {.piece = piece};
    pthread_t thread;
    struct hc_err err = {0};
    memset(result, 0, sizeof(*result));
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    reading.fd = ends[0];
    collected_init(&reading.collected, limit);
    assert_int_equal(pthread_create(&thread, NULL, read_stream, &reading), 0);
    int status = archive_collect(ends[1], (char *const *)patterns, count, limit, &err);
    close(ends[1]);
    pthread_join(thread, NULL);
    close(ends[0]);
    if (status != 0)
        fail_msg("%s", err.message);
    assert_int_equal(reading.status, 0);
    assert_true(reading.collected.ended);
    assert_int_equal(collected_finish(&reading.collected, result, NULL), 0);
}

static void collect(const char *pattern, uint64_t limit, struct result *result)
{
    collect_sized(&pattern, 1, limit, 65536, result);
}

static const struct result_file *find(const struct result *result, const char *path)
{
    for (size_t i = 0; i < result->file_count; i++)
        if (strcmp(result->files[i].path, path) == 0)
            return &result->files[i];
    return NULL;
}

static void test_what_matches_is_collected_and_nothing_else(void **state)
{
    (void)state;
    struct result result;
    mkdir("out", 0755);
    mkdir("out/deep", 0755);
    write_file("out/a.png", "AAA");
    write_file("out/b.txt", "BBB");
    write_file("out/deep/c.png", "CCC");
    write_file("top.png", "TTT");
    write_file("empty.png", "");
    collect("out/*.png", 1000, &result);
    assert_int_equal(result.file_count, 1);
    assert_string_equal(result.files[0].path, "out/a.png");
    assert_string_equal(result.files[0].type, "file");
    assert_int_equal(result.files[0].size, 3);
    assert_string_equal(result.files[0].content.data, "AAA");
    assert_false(result.files[0].truncated);
    result_release(&result);
    /* Every way of cutting the stream into pieces gives the same files, in the same order. */
    for (size_t piece = 1; piece < 64; piece++) {
        const char *const patterns[] = {"**/*.png", "out/b.txt", "nothing"};
        collect_sized(patterns, 3, 1000, piece, &result);
        assert_int_equal(result.file_count, 5);
        assert_string_equal(result.files[0].path, "empty.png");
        assert_string_equal(result.files[1].path, "out/a.png");
        assert_string_equal(result.files[2].path, "out/b.txt");
        assert_string_equal(result.files[3].path, "out/deep/c.png");
        assert_string_equal(result.files[3].content.data, "CCC");
        assert_string_equal(result.files[4].path, "top.png");
        result_release(&result);
    }
}

static void test_symlinks_are_told_and_not_followed(void **state)
{
    (void)state;
    struct result result;
    mkdir("secret", 0700);
    write_file("secret/key", "KEY");
    assert_int_equal(symlink("/etc/passwd", "passwd"), 0);
    assert_int_equal(symlink("secret", "folder"), 0);
    assert_int_equal(symlink("dangling", "dangling"), 0);
    const char *const patterns[] = {"passwd", "folder", "folder/**", "dangling"};
    collect_sized(patterns, 4, 1000, 65536, &result);
    assert_int_equal(result.file_count, 3);
    assert_string_equal(find(&result, "passwd")->type, "symlink");
    assert_string_equal(find(&result, "passwd")->content.data, "/etc/passwd");
    assert_string_equal(find(&result, "folder")->type, "symlink");
    assert_null(find(&result, "folder/key"));
    result_release(&result);
}

static void test_fifos_sockets_and_devices_are_skipped_at_once(void **state)
{
    (void)state;
    struct result result;
    struct timespec start, end;
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    assert_int_equal(mkfifo("fifo", 0666), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
    write_file("plain", "x");
    clock_gettime(CLOCK_MONOTONIC, &start);
    collect("**", 1000, &result);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_int_equal(result.file_count, 1);
    assert_string_equal(result.files[0].path, "plain");
    assert_true((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 < 1000);
    result_release(&result);
}

static void test_a_sparse_terabyte_is_capped(void **state)
{
    (void)state;
    struct result result;
    int fd = open("huge", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
    close(fd);
    write_file("z", "after");
    collect("**", 100000, &result);
    const struct result_file *huge = find(&result, "huge"), *after = find(&result, "z");
    assert_int_equal(huge->size, (uint64_t)1 << 40);
    assert_true(huge->truncated);
    /* Which of the two came first is the folder's business; together they stay within the limit. */
    assert_true(huge->content.length + after->content.length <= 100000);
    assert_true(huge->content.length >= 100000 - 5);
    assert_int_equal(after->size, 5);
    assert_true(after->truncated == (after->content.length < 5));
    result_release(&result);
}

static void test_the_limit_is_exact(void **state)
{
    (void)state;
    struct result result;
    write_file("f", "0123456789");
    collect("f", 10, &result);
    assert_false(result.files[0].truncated);
    assert_int_equal(result.files[0].content.length, 10);
    result_release(&result);
    collect("f", 9, &result);
    assert_true(result.files[0].truncated);
    assert_int_equal(result.files[0].content.length, 9);
    assert_int_equal(result.files[0].size, 10);
    result_release(&result);
    collect("f", 0, &result);
    assert_true(result.files[0].truncated);
    assert_int_equal(result.files[0].content.length, 0);
    result_release(&result);
    assert_int_equal(symlink("0123456789", "l"), 0);
    collect("l", 9, &result); /* half a target would be another link */
    assert_string_equal(result.files[0].type, "symlink");
    assert_int_equal(result.files[0].content.length, 0);
    assert_true(result.files[0].truncated);
    result_release(&result);
}

static void test_depth_costs_neither_stack_nor_descriptors(void **state)
{
    (void)state;
    struct result result;
    int top = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), depth = 0;
    for (; depth < 400; depth++)
        assert_true(mkdir("d", 0755) == 0 && chdir("d") == 0);
    write_file("bottom", "B");
    assert_int_equal(fchdir(top), 0);
    close(top);
    collect("**/bottom", 1000, &result);
    assert_int_equal(result.file_count, 1);
    assert_int_equal(strlen(result.files[0].path), 806);
    result_release(&result);
}

/* The guest's processes are gone when files are collected; this is for a mount that another one writes to. */
static void test_a_file_that_changes_while_it_is_read_still_gives_whole_records(void **state)
{
    (void)state;
    struct result result;
    int fd = open("changing", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(ftruncate(fd, 4 << 20), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (unsigned i = 0;; i++)
            if (ftruncate(fd, (off_t)(i % 5) << 20) < 0)
                _exit(1);
    }
    for (int i = 0; i < 50; i++) {
        collect("changing", 16 << 20, &result);
        assert_int_equal(result.file_count, 1);
        assert_int_equal(result.files[0].content.length, result.files[0].size);
        result_release(&result);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(fd);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_files_are_unpacked_with_parents_and_modes),
        IN_FOLDER(test_an_empty_archive_is_fine),
        IN_FOLDER(test_unpacking_follows_no_symlink_and_overwrites_nothing),
        IN_FOLDER(test_paths_that_lead_out_are_refused),
        IN_FOLDER(test_an_archive_that_lies_about_lengths_is_refused),
        cmocka_unit_test(test_patterns_match_as_people_expect),
        cmocka_unit_test(test_hostile_patterns_end_soon),
        IN_FOLDER(test_what_matches_is_collected_and_nothing_else),
        IN_FOLDER(test_symlinks_are_told_and_not_followed),
        IN_FOLDER(test_fifos_sockets_and_devices_are_skipped_at_once),
        IN_FOLDER(test_a_sparse_terabyte_is_capped),
        IN_FOLDER(test_the_limit_is_exact),
        IN_FOLDER(test_depth_costs_neither_stack_nor_descriptors),
        IN_FOLDER(test_a_file_that_changes_while_it_is_read_still_gives_whole_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
