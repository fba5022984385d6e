/* Tables: aligned, without blanks at the ends of lines, and safe to show whatever is in them. */
#include "cli/table.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* What table_print writes to stdout. */
static const char *printed(struct table *table)
{
    static char text[4096];
    int pipe_fds[2], saved = dup(STDOUT_FILENO);

    assert_int_equal(pipe(pipe_fds), 0);
    dup2(pipe_fds[1], STDOUT_FILENO);
    int status = table_print(table);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(pipe_fds[1]);
    ssize_t count = read(pipe_fds[0], text, sizeof text - 1);
    close(pipe_fds[0]);
    assert_int_equal(status, 0);
    assert_true(count >= 0);
    text[count] = '\0';
    return text;
}

static void fill(struct table *table, bool colour, const char *const *cells, size_t count)
{
    table_start(table, 3, colour);
    for (size_t i = 0; i < count; i++)
        table_add(table, i == 0 ? TABLE_BAD : TABLE_PLAIN, cells[i]);
}

static void test_columns_are_aligned_and_lines_end_clean(void **state)
{
    (void)state;
    struct table table;
    fill(&table, false, (const char *const[]){"A", "LONGER", "C", "long", "b", "", "", "", "x"}, 9);
    assert_string_equal(printed(&table), "A     LONGER  C\nlong  b\n              x\n");
}

static void test_width_is_counted_in_characters(void **state)
{
    (void)state;
    struct table table;
    fill(&table, false, (const char *const[]){"é…", "1", "", "abc", "2", ""}, 6);
    assert_string_equal(printed(&table), "é…   1\nabc  2\n");
}

static void test_colour_does_not_change_the_alignment(void **state)
{
    (void)state;
    struct table table;
    fill(&table, true, (const char *const[]){"A", "1", "", "abc", "2", ""}, 6);
    assert_string_equal(printed(&table), "\033[31mA\033[0m    1\nabc  2\n");
}

static void test_an_unfinished_row_is_printed(void **state)
{
    (void)state;
    struct table table;
    fill(&table, false, (const char *const[]){"a", "b", "c", "d"}, 4);
    assert_string_equal(printed(&table), "a  b  c\nd\n");
}

static void test_control_characters_are_not_passed_on(void **state)
{
    (void)state;
    struct hc_buf buf = HC_BUF_INIT(100);
    table_add_printable(&buf, "a\033[31m\nb\x7f-\xc2\x9b!é");
    assert_string_equal(buf.data, "a?[31m?b?-?!é");
    hc_buf_release(&buf);
}

static void test_no_colour_without_a_terminal(void **state)
{
    (void)state;
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    assert_false(table_colour(pipe_fds[1]));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_aligned_and_lines_end_clean),
        cmocka_unit_test(test_width_is_counted_in_characters),
        cmocka_unit_test(test_colour_does_not_change_the_alignment),
        cmocka_unit_test(test_an_unfinished_row_is_printed),
        cmocka_unit_test(test_control_characters_are_not_passed_on),
        cmocka_unit_test(test_no_colour_without_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
