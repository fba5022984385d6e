/* Which pages of files a process looks at, to the page; and that a child is born with these and no others. */
#include "cell/warm_files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGES = 200 };
static const unsigned looked_at[] = {3, 4, 50, 101, 199};
enum { LOOKED_AT = sizeof looked_at / sizeof *looked_at };

static char *map_file(void)
{
    char path[] = "/tmp/hotcell-warm-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    char page[WARM_PAGE] = "x";
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(write(fd, page, sizeof page), sizeof page);
    char *at = mmap(NULL, PAGES * WARM_PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(at != MAP_FAILED);
    close(fd);
    return at;
}

static void look(const char *at)
{
    for (unsigned i = 0; i < LOOKED_AT; i++)
        assert_int_equal(*(const volatile char *)(at + (size_t)looked_at[i] * WARM_PAGE), 'x');
}

static bool is_looked_at(unsigned page)
{
    for (unsigned i = 0; i < LOOKED_AT; i++)
        if (looked_at[i] == page)
            return true;
    return false;
}

static bool has_page(const struct warm_ranges *found, uint64_t address)
{
    for (size_t i = 0; i < found->count; i++)
        if (address >= found->range[i].start && address < found->range[i].start + found->range[i].length)
            return true;
    return false;
}

/* In a process of its own: all its mappings are split. 0, or the number of a page that it is wrong about, and one. */
static int rehearse(const char *at)
{
    static struct warm_ranges found;
    *(volatile const char *)(at + (size_t)120 * WARM_PAGE); /* and its neighbours: before the rehearsal */
    warm_files_begin();
    look(at);
    warm_files_find(&found);
    for (unsigned page = 0; page < PAGES; page++)
        if (has_page(&found, (uint64_t)(uintptr_t)at + (uint64_t)page * WARM_PAGE) != is_looked_at(page))
            return (int)page + 1;
    return 0;
}

static int run_apart(int (*what)(const char *at), const char *at)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(what(at));
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_a_rehearsal_tells_the_pages_that_were_looked_at_and_no_neighbours(void **state)
{
    (void)state;
    char *at = map_file();
    assert_int_equal(run_apart(rehearse, at), 0);
    munmap(at, PAGES * WARM_PAGE);
}

static bool is_there(int map, const char *at)
{
    uint64_t entry = 0;
    assert_int_equal(pread(map, &entry, sizeof entry, (off_t)((uintptr_t)at / WARM_PAGE * sizeof entry)), sizeof entry);
    return entry & WARM_IS_PRESENT;
}

/* The first page is the zygote's own from then on, which is what makes the kernel hand down the others. */
static int count_wrong(const char *at)
{
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), wrong = 0;
    for (unsigned page = 1; page < PAGES; page++)
        wrong += is_there(map, at + (size_t)page * WARM_PAGE) != is_looked_at(page);
    return wrong;
}

static int hand_down(const char *at)
{
    static struct warm_ranges found;
    for (unsigned i = 0; i < LOOKED_AT; i++)
        warm_maps_add(&found, (uint64_t)(uintptr_t)at + (uint64_t)looked_at[i] * WARM_PAGE, false);
    warm_files_hand_down(&found);
    warm_files_settle();
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(count_wrong(at));
    waitpid(pid, &status, 0);
    look(at);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void test_children_are_born_with_these_pages_and_no_others(void **state)
{
    (void)state;
    char *at = map_file();
    assert_int_equal(run_apart(hand_down, at), 0);
    munmap(at, PAGES * WARM_PAGE);
}

static int count_pieces(const char *at)
{
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end, begin = (uint64_t)(uintptr_t)at;
    int count = 0;
    while (warm_maps_next(list, line, sizeof line, &start, &end, &rest))
        count += start >= begin && start < begin + PAGES * WARM_PAGE;
    if (list)
        fclose(list);
    return count;
}

static int hand_down_and_count(const char *at)
{
    hand_down(at);
    return count_pieces(at);
}

static void test_mappings_are_whole_again_when_children_are_born(void **state)
{
    (void)state;
    char *at = map_file();
    assert_int_equal(run_apart(count_pieces, at), 1);
    assert_int_equal(run_apart(hand_down_and_count, at), 1);
    munmap(at, PAGES * WARM_PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rehearsal_tells_the_pages_that_were_looked_at_and_no_neighbours),
        cmocka_unit_test(test_children_are_born_with_these_pages_and_no_others),
        cmocka_unit_test(test_mappings_are_whole_again_when_children_are_born),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
