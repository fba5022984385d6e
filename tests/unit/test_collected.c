/* The reader of collected files, against streams that no helper of ours would write. */
#include "run/collected.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct result_file *find(const struct result *result, const char *path)
{
    for (size_t i = 0; i < result->file_count; i++)
        if (strcmp(result->files[i].path, path) == 0)
            return &result->files[i];
    return NULL;
}

static int feed(struct collected *collected, const struct archive_header *header, const char *rest)
{
    int status = collected_add(collected, (const char *)header, sizeof(*header), NULL);
    return status < 0 ? status : collected_add(collected, rest, strlen(rest), NULL);
}

static struct archive_header header_for(uint32_t type, uint32_t path_length, uint64_t content_length)
{
    return (struct archive_header){ARCHIVE_MAGIC, type, 0644, path_length, content_length, content_length};
}

static void test_a_forged_length_allocates_nothing(void **state)
{
    (void)state;
    struct collected collected;
    struct result result = {0};
    struct archive_header header = header_for(ARCHIVE_FILE, 1, UINT64_MAX);
    collected_init(&collected, UINT64_MAX);
    assert_int_equal(feed(&collected, &header, "xabc"), 0);
    assert_int_equal(collected_finish(&collected, &result, NULL), 0);
    assert_int_equal(result.file_count, 1);
    assert_int_equal(result.files[0].content.length, 3);
    assert_true(result.files[0].truncated);
    result_release(&result);
}

static void test_the_reader_has_its_own_cap(void **state)
{
    (void)state;
    struct collected collected;
    struct result result = {0};
    struct archive_header header = header_for(ARCHIVE_FILE, 1, 6);
    collected_init(&collected, 8);
    assert_int_equal(feed(&collected, &header, "a123456"), 0);
    assert_int_equal(feed(&collected, &header, "b123456"), 0);
    assert_int_equal(collected_finish(&collected, &result, NULL), 0);
    assert_false(find(&result, "a")->truncated);
    assert_true(find(&result, "b")->truncated);
    assert_string_equal(find(&result, "b")->content.data, "12");
    assert_int_equal(find(&result, "b")->size, 6);
    result_release(&result);
}

static void test_paths_that_clash_are_refused_whole(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"a", "a"}, {"a", "a/b"}, {"a/b", "a"}, {"d/a", "d/a/x/y"}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        struct collected collected;
        struct result result = {0};
        collected_init(&collected, 100);
        const char *between[] = {pairs[i][0], "a!", "a-b", "a.b", "a0", pairs[i][1]};
        for (size_t j = 0; j < COUNT_OF(between); j++) {
            struct archive_header header = header_for(ARCHIVE_FILE, (uint32_t)strlen(between[j]), 0);
            assert_int_equal(feed(&collected, &header, between[j]), 0);
        }
        assert_int_equal(collected_finish(&collected, &result, NULL), -EPROTO);
        assert_int_equal(result.file_count, 0);
        collected_release(&collected);
    }
}

static void test_a_forged_stream_is_refused_and_what_came_before_is_released(void **state)
{
    (void)state;
    struct collected collected;
    struct archive_header header = header_for(ARCHIVE_FILE, 4, 0), end = header_for(ARCHIVE_END, 0, 0);
    collected_init(&collected, 100);
    assert_int_equal(feed(&collected, &header, "good"), 0);
    assert_int_equal(feed(&collected, &header, "../x"), -EPROTO);
    collected_release(&collected);
    collected_init(&collected, 100);
    assert_int_equal(feed(&collected, &end, "more"), -EPROTO);
    collected_release(&collected);
    header.magic = 1;
    collected_init(&collected, 100);
    assert_int_equal(feed(&collected, &header, ""), -EPROTO);
    collected_release(&collected);
}

static void test_the_number_of_files_is_bounded_and_the_rest_is_counted(void **state)
{
    (void)state;
    struct collected collected;
    struct result result = {0};
    collected_init(&collected, 1 << 20);
    for (int i = 0; i < COLLECTED_MAX_FILES + 10; i++) {
        char rest[32];
        snprintf(rest, sizeof(rest), "f%06dx", i);
        struct archive_header header = header_for(ARCHIVE_FILE, 7, 1);
        assert_int_equal(feed(&collected, &header, rest), 0);
    }
    assert_int_equal(collected.skipped, 10);
    assert_int_equal(collected_finish(&collected, &result, NULL), 0);
    assert_int_equal(result.file_count, COLLECTED_MAX_FILES);
    assert_int_equal(result.files_skipped, 10);
    char text[256], *json = result_to_json(&result, false);
    assert_string_equal(result_summary(&result, text, sizeof(text)),
                        "collect: 10 files over the first 4096 were left out; collect fewer");
    assert_non_null(strstr(json, "\"truncated\":{\"stdout\":0,\"stderr\":0,\"files\":10}"));
    free(json);
    result_release(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_forged_length_allocates_nothing),
        cmocka_unit_test(test_the_reader_has_its_own_cap),
        cmocka_unit_test(test_paths_that_clash_are_refused_whole),
        cmocka_unit_test(test_a_forged_stream_is_refused_and_what_came_before_is_released),
        cmocka_unit_test(test_the_number_of_files_is_bounded_and_the_rest_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
