/* The TOML parser from C: the tree, the order, the lines, the messages, and the ceilings. */
#include "base/fd.h"
#include "text/toml.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define CLEANUP_TOML HC_CLEANUP(toml_free_ptr)

static struct toml_value *parse(const char *text)
{
    struct hc_err err = {0};
    struct toml_value *root = NULL;
    if (toml_parse(text, strlen(text), "t", &root, &err) < 0)
        fail_msg("refused: %s", err.message);
    return root;
}

static void assert_refused(const char *text, const char *message)
{
    struct hc_err err = {0};
    struct toml_value *root = (struct toml_value *)&err;
    assert_true(toml_parse(text, strlen(text), "t", &root, &err) < 0);
    assert_ptr_equal(root, &err); /* untouched */
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    assert_string_equal(err.message, message);
}

static void test_scalars_have_their_types_and_values(void **state)
{
    (void)state;
    struct toml_value *root CLEANUP_TOML =
        parse("s = 'text'\ni = -42\nf = 2.5\nb = true\nodt = 2024-01-02 03:04:05.5z\nd = 2024-01-02\n");
    size_t length;
    assert_string_equal(toml_string(toml_get(root, "s"), &length), "text");
    assert_int_equal(length, 4);
    assert_int_equal(toml_integer(toml_get(root, "i")), -42);
    assert_true(toml_float(toml_get(root, "f")) == 2.5);
    assert_true(toml_boolean(toml_get(root, "b")));
    assert_int_equal(toml_type(toml_get(root, "odt")), TOML_OFFSET_DATETIME);
    assert_string_equal(toml_datetime(toml_get(root, "odt")), "2024-01-02T03:04:05.500Z");
    assert_string_equal(toml_type_name(toml_type(toml_get(root, "d"))), "local date");
    assert_null(toml_get(root, "absent"));
}

static void test_members_keep_the_order_of_the_document(void **state)
{
    (void)state;
    struct toml_value *root CLEANUP_TOML = parse("z = 1\na = 2\nm = 3\nlist = [30, 10, 20]\n");
    const char *keys[] = {"z", "a", "m", "list"};
    assert_int_equal(toml_count(root), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(toml_key(root, i, NULL), keys[i]);
    const struct toml_value *list = toml_get(root, "list");
    assert_int_equal(toml_integer(toml_at(list, 0)), 30);
    assert_int_equal(toml_integer(toml_at(list, 2)), 20);
}

static void test_each_value_knows_its_line(void **state)
{
    (void)state;
    struct toml_value *root CLEANUP_TOML =
        parse("a = 1\n\n[t]\nb = \"\"\"\nx\ny\"\"\"\nc = [\n  1,\n  2]\n[[u]]\n[[u]]\n");
    const struct toml_value *table = toml_get(root, "t"), *list = toml_get(table, "c");
    assert_int_equal(toml_line(toml_get(root, "a")), 1);
    assert_int_equal(toml_line(table), 3);
    assert_int_equal(toml_line(toml_get(table, "b")), 4);
    assert_int_equal(toml_line(list), 7);
    assert_int_equal(toml_line(toml_at(list, 1)), 9);
    assert_int_equal(toml_line(toml_at(toml_get(root, "u"), 1)), 11);
}

static void test_strings_and_keys_may_hold_nul(void **state)
{
    (void)state;
    struct toml_value *root CLEANUP_TOML = parse("\"k\\u0000\" = \"a\\u0000b\"\n");
    size_t length;
    assert_null(toml_get(root, "k"));
    assert_memory_equal(toml_key(root, 0, &length), "k\0", 3);
    assert_int_equal(length, 2);
    assert_memory_equal(toml_string(toml_at(root, 0), &length), "a\0b", 4);
    assert_int_equal(length, 3);
}

static void test_messages_name_line_column_and_what_was_found(void **state)
{
    (void)state;
    assert_refused("a = 1\nb = python\n", "t:2:5: 'python' is not a value; a string needs quotes");
    assert_refused("ä = 1\n", "t:1:1: expected a key, found 'ä'");
    assert_refused("'ää' 1\n", "t:1:6: expected '=' after the key, found '1'");
    assert_refused("a =", "t:1:4: expected a value, found the end of the file");
    assert_refused("a = [1, 2", "t:1:5: this array has no closing ]");
    assert_refused("[a]\nb=1\n\n[a]\n", "t:4:2: 'a' is already defined as a table on line 1");
    assert_refused("m = 512m\n", "t:1:5: '512m' is not a valid number; a string needs quotes");
    assert_refused("m = 0777\n", "t:1:5: '0777' has a leading zero");
}

static void test_a_message_never_holds_decoded_control_characters(void **state)
{
    (void)state;
    assert_refused("\"\\u001b[2J\" = 1\n\"\\u001b[2J\" = 2\n",
                   "t:2:1: '\"\\u001b[2J\"' is already defined as an integer on line 1");
}

static void test_depth_is_capped(void **state)
{
    (void)state;
    static char text[200001];
    memset(text, '[', sizeof text - 1);
    memcpy(text, "a =", 3);
    assert_refused(text, "t:1:67: nested deeper than 64 levels");
}

static void test_size_is_capped(void **state)
{
    (void)state;
    size_t length = 1024 * 1024;
    char *text hc_cleanup_free = malloc(length + 1);
    assert_non_null(text);
    memset(text, '\n', length + 1);
    struct hc_err err = {0};
    struct toml_value *root CLEANUP_TOML = NULL;
    assert_int_equal(toml_parse(text, length, "t", &root, &err), 0);
    struct toml_value *none = NULL;
    assert_int_equal(toml_parse(text, length + 1, "t", &none, &err), -EFBIG);
    assert_non_null(strstr(err.message, "1048576"));
}

static void test_the_fullest_document_is_parsed_in_linear_time(void **state)
{
    (void)state;
    size_t size = 1024 * 1024, used = 0;
    char *text hc_cleanup_free = malloc(size + 32);
    assert_non_null(text);
    int keys = 0;
    while (used + 16 < size)
        used += (size_t)sprintf(text + used, "%x=1\n", keys++);
    clock_t before = clock();
    struct hc_err err = {0};
    struct toml_value *root CLEANUP_TOML = NULL;
    assert_int_equal(toml_parse(text, used, "t", &root, &err), 0);
    assert_int_equal(toml_count(root), keys);
    assert_int_equal(toml_integer(toml_get(root, "ffff")), 1);
    /* A lookup by walking would take minutes here; a slow machine under a sanitizer takes a second. */
    assert_true((double)(clock() - before) / CLOCKS_PER_SEC < 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_have_their_types_and_values),
        cmocka_unit_test(test_members_keep_the_order_of_the_document),
        cmocka_unit_test(test_each_value_knows_its_line),
        cmocka_unit_test(test_strings_and_keys_may_hold_nul),
        cmocka_unit_test(test_messages_name_line_column_and_what_was_found),
        cmocka_unit_test(test_a_message_never_holds_decoded_control_characters),
        cmocka_unit_test(test_depth_is_capped),
        cmocka_unit_test(test_size_is_capped),
        cmocka_unit_test(test_the_fullest_document_is_parsed_in_linear_time),
    };
    return cmocka_run_group_tests_name("toml", tests, NULL, NULL);
}
