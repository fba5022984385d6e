/* Captured output: what is kept below, at and over the cap, compared with a model that simply keeps everything. */
#include "run/capture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct capture *capture, const char *text, size_t length, uint64_t missing)
{
    size_t got_length = 0;
    char *got = capture_text(capture, &got_length);
    assert_non_null(got);
    assert_int_equal(got_length, length);
    assert_memory_equal(got, text, length);
    assert_int_equal(got[got_length], '\0');
    assert_int_equal(capture_missing(capture), missing);
    free(got);
}

#define EXPECT(capture, text, missing) expect(capture, text, strlen(text), missing)

static void test_nothing_written_is_an_empty_text(void **state)
{
    (void)state;
    struct capture capture;
    capture_init(&capture, 10);
    EXPECT(&capture, "", 0);
    assert_int_equal(capture_add(&capture, "x", 0), 0);
    EXPECT(&capture, "", 0);
    capture_release(&capture);
}

static void test_below_and_at_the_cap_everything_is_kept(void **state)
{
    (void)state;
    struct capture capture;
    capture_init(&capture, 10);
    assert_int_equal(capture_add(&capture, "012345678", 9), 0);
    EXPECT(&capture, "012345678", 0);
    assert_int_equal(capture_add(&capture, "9", 1), 0);
    EXPECT(&capture, "0123456789", 0);
    assert_null(capture.ring);
    capture_release(&capture);
}

static void test_one_byte_over_the_cap_leaves_one_out(void **state)
{
    (void)state;
    struct capture capture;
    capture_init(&capture, 10);
    capture_add(&capture, "0123456789", 10);
    capture_add(&capture, "a", 1);
    EXPECT(&capture, "01234\n[hotcell: 1 byte left out]\n6789a", 1);
    capture_release(&capture);
}

static void test_a_cap_of_one_and_of_none_keep_what_they_say(void **state)
{
    (void)state;
    struct capture capture;
    capture_init(&capture, 1);
    capture_add(&capture, "abc", 3);
    EXPECT(&capture, "\n[hotcell: 2 bytes left out]\nc", 2);
    capture_release(&capture);
    capture_init(&capture, 0);
    capture_add(&capture, "abc", 3);
    EXPECT(&capture, "\n[hotcell: 3 bytes left out]\n", 3);
    assert_null(capture.head);
    capture_release(&capture);
}

static void test_the_ring_wraps_around_and_a_huge_piece_replaces_it(void **state)
{
    (void)state;
    struct capture capture;
    capture_init(&capture, 8);
    for (char c = 'a'; c <= 'z'; c++)
        capture_add(&capture, &c, 1);
    EXPECT(&capture, "abcd\n[hotcell: 18 bytes left out]\nwxyz", 18);
    capture_add(&capture, "012", 3);
    EXPECT(&capture, "abcd\n[hotcell: 21 bytes left out]\nz012", 21);
    capture_add(&capture, "ABCDEFGHIJKLMNOP", 16);
    EXPECT(&capture, "abcd\n[hotcell: 37 bytes left out]\nMNOP", 37);
    capture_release(&capture);
}

static void test_nul_bytes_are_kept(void **state)
{
    (void)state;
    struct capture capture;
    capture_init(&capture, 10);
    capture_add(&capture, "a\0b\0", 4);
    expect(&capture, "a\0b\0", 4, 0);
    capture_release(&capture);
}

static void test_a_character_is_not_cut_in_two_at_the_seam(void **state)
{
    (void)state;
    /* Sequences of two, three and four bytes, at every offset to the seam. */
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < 3; i++) {
        size_t size = strlen(characters[i]);
        for (size_t shift = 0; shift < size; shift++) {
            struct capture capture;
            char kept[64] = "";
            capture_init(&capture, 16);
            for (size_t n = 0; n < shift; n++)
                capture_add(&capture, "x", 1);
            for (size_t n = 0; n < 20; n++)
                capture_add(&capture, characters[i], size);
            /* Whole characters only: the head has what fits in 8 bytes, the tail what fits in 8. */
            memset(kept, 'x', shift);
            for (size_t n = 0; n < (8 - shift) / size; n++)
                strcat(kept, characters[i]);
            size_t missing = shift + 20 * size - strlen(kept) - 8 / size * size;
            sprintf(kept + strlen(kept), "\n[hotcell: %zu bytes left out]\n", missing);
            for (size_t n = 0; n < 8 / size; n++)
                strcat(kept, characters[i]);
            EXPECT(&capture, kept, missing);
            capture_release(&capture);
        }
    }
}

static void test_only_the_seam_is_trimmed(void **state)
{
    (void)state;
    struct capture capture;
    capture_init(&capture, 10);
    capture_add(&capture, "\x80 half \xe2\x82", 9); /* under the cap: not ours to change */
    EXPECT(&capture, "\x80 half \xe2\x82", 0);
    capture_release(&capture);
    capture_init(&capture, 4);
    capture_add(&capture, "\x80\x80zzzzz\xe2\x82", 9); /* both ends of the whole stay as they were */
    EXPECT(&capture, "\x80\x80\n[hotcell: 5 bytes left out]\n\xe2\x82", 5);
    capture_release(&capture);
}

static void test_bytes_that_are_no_text_lose_at_most_three_at_each_side(void **state)
{
    (void)state;
    struct capture capture;
    char bytes[100];
    memset(bytes, 0x80, sizeof(bytes));
    capture_init(&capture, 20);
    capture_add(&capture, bytes, sizeof(bytes));
    assert_int_equal(capture_missing(&capture), 83);
    capture_release(&capture);
}

static void test_memory_stays_within_the_cap_whatever_is_written(void **state)
{
    (void)state;
    struct capture capture;
    char piece[1000];
    memset(piece, 'p', sizeof(piece));
    capture_init(&capture, 5000);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(capture_add(&capture, piece, sizeof(piece)), 0);
    assert_int_equal(capture.total, 100000000);
    assert_int_equal(capture.head_length + capture.ring_length, 5000);
    assert_int_equal(capture_missing(&capture), 100000000 - 5000);
    capture_release(&capture);
}

/* ASCII only, so that the seam is where the model has it. */
static void compare_with_model(unsigned seed)
{
    unsigned random = seed * 2654435761u + 1;
    size_t cap = random % 300;
    char *all = malloc(20000);
    size_t total = 0;
    struct capture capture;
    assert_non_null(all);
    capture_init(&capture, cap);
    for (int piece = 0; piece < 60; piece++) {
        char bytes[256];
        random = random * 1103515245u + 12345;
        size_t length = (random >> 16) % (piece % 7 == 0 ? sizeof(bytes) : 9);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (char)('!' + (total + i) % 90);
        assert_int_equal(capture_add(&capture, bytes, length), 0);
        memcpy(all + total, bytes, length);
        total += length;
        char expected[1024];
        size_t expected_length = 0;
        uint64_t missing = total > cap ? total - cap : 0;
        if (missing == 0) {
            memcpy(expected, all, total);
            expected_length = total;
        } else {
            memcpy(expected, all, cap / 2);
            expected_length = cap / 2;
            expected_length += (size_t)sprintf(expected + expected_length, "\n[hotcell: %llu byte%s left out]\n",
                                               (unsigned long long)missing, missing == 1 ? "" : "s");
            memcpy(expected + expected_length, all + total - (cap - cap / 2), cap - cap / 2);
            expected_length += cap - cap / 2;
        }
        expect(&capture, expected, expected_length, missing);
    }
    capture_release(&capture);
    free(all);
}

static void test_it_agrees_with_a_model_that_keeps_everything(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 500; seed++)
        compare_with_model(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_written_is_an_empty_text),
        cmocka_unit_test(test_below_and_at_the_cap_everything_is_kept),
        cmocka_unit_test(test_one_byte_over_the_cap_leaves_one_out),
        cmocka_unit_test(test_a_cap_of_one_and_of_none_keep_what_they_say),
        cmocka_unit_test(test_the_ring_wraps_around_and_a_huge_piece_replaces_it),
        cmocka_unit_test(test_nul_bytes_are_kept),
        cmocka_unit_test(test_a_character_is_not_cut_in_two_at_the_seam),
        cmocka_unit_test(test_only_the_seam_is_trimmed),
        cmocka_unit_test(test_bytes_that_are_no_text_lose_at_most_three_at_each_side),
        cmocka_unit_test(test_memory_stays_within_the_cap_whatever_is_written),
        cmocka_unit_test(test_it_agrees_with_a_model_that_keeps_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
