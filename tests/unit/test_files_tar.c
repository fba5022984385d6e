/* The parts that tar archives are read and written with: numbers, checksums, pax records, paths, headers. */
#include "cell/files_tar.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct memory {
    const char *data;
    size_t length, at, piece;
};

static ssize_t read_memory(void *data, void *bytes, size_t size)
{
    struct memory *memory = data;
    size_t left = memory->length - memory->at;
    size_t part = left < size ? left : size;
    if (memory->piece && part > memory->piece)
        part = memory->piece;
    memcpy(bytes, memory->data + memory->at, part);
    memory->at += part;
    return (ssize_t)part;
}

static void test_numbers_in_octal_and_base_256(void **state)
{
    int64_t value;
    (void)state;
    assert_int_equal(tar_number("0000644\0", 8, &value), 0);
    assert_int_equal(value, 0644);
    assert_int_equal(tar_number("  12 \0\0\0", 8, &value), 0);
    assert_int_equal(value, 012);
    assert_int_equal(tar_number("\0\0\0\0\0\0\0\0", 8, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(tar_number("77777777", 8, &value), 0);
    assert_int_equal(value, 077777777);
    assert_int_equal(tar_number("\x80\0\0\0\0\0\0\x02\0\0\0\0", 12, &value), 0);
    assert_true(value == INT64_C(0x200000000));
    assert_int_equal(tar_number("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfb", 12, &value), 0);
    assert_int_equal(value, -5);
    assert_int_equal(tar_number("\x80\0\0\x01\0\0\0\0\0\0\0\0", 12, &value), -ERANGE);
    assert_int_equal(tar_number("\x80\0\0\0\x80\0\0\0\0\0\0\0", 12, &value), -ERANGE);
    assert_int_equal(tar_number("0000648\0", 8, &value), -EINVAL);
    assert_int_equal(tar_number("12 34\0\0\0", 8, &value), -EINVAL);
    assert_int_equal(tar_number("-1\0\0\0\0\0\0", 8, &value), -EINVAL);
}

static void test_paths_are_cleaned_or_refused(void **state)
{
    static const struct {
        const char *raw, *clean; /* NULL: refused */
    } rows[] = {
        {"a", "a"},       {"./a/b", "a/b"}, {"a//b/", "a/b"}, {".", ""},        {"./", ""},     {"", ""},
        {"a/./b", "a/b"}, {"...", "..."},   {"..a", "..a"},   {"..", NULL},     {"a/..", NULL}, {"../a", NULL},
        {"/a", NULL},     {"/", NULL},      {"//", NULL},     {"a/../b", NULL}, {".a", ".a"},   {"a\nb", "a\nb"},
    };
    struct hc_buf path = HC_BUF_INIT(TAR_NAME_MAX);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hc_err err = {0};
        int status = tar_clean_path(rows[i].raw, strlen(rows[i].raw), &path, &err);
        if (rows[i].clean) {
            assert_int_equal(status, 0);
            assert_string_equal(path.data, rows[i].clean);
        } else {
            assert_int_equal(status, -EINVAL);
            assert_non_null(strstr(err.message, rows[i].raw));
        }
    }
    hc_buf_release(&path);
}

static int read_pax(struct tar_reader *reader, const char *text, size_t length)
{
    struct hc_err err = {0};
    reader->has_path = reader->has_target = reader->has_size = reader->has_mtime = false;
    return tar_read_pax(reader, text, length, &err);
}

#define PAX(reader, text) read_pax(reader, text, sizeof(text) - 1)

static void test_pax_records(void **state)
{
    struct tar_reader *reader = malloc(sizeof *reader);
    (void)state;
    assert_non_null(reader);
    tar_reader_init(reader, NULL, NULL);
    assert_int_equal(PAX(reader, "10 path=a\n15 size=123456\n13 mtime=-5\n"), -EBADMSG); /* 9 and 12 are right */
    assert_int_equal(PAX(reader, "9 path=a\n15 size=123456\n12 mtime=-5\n"), 0);
    assert_true(reader->has_path && reader->has_size && reader->has_mtime && !reader->has_target);
    assert_string_equal(reader->long_path.data, "a");
    assert_int_equal(reader->pax_size, 123456);
    assert_int_equal(reader->pax_mtime, -5);
    assert_int_equal(PAX(reader, "17 mtime=12.3456\n11 linkpath\n"), -EBADMSG);
    assert_int_equal(PAX(reader, "17 mtime=12.3456\n17 linkpath=to/x\n"), 0);
    assert_int_equal(reader->pax_mtime, 12);
    assert_string_equal(reader->long_target.data, "to/x");
    assert_int_equal(PAX(reader, ""), 0);
    assert_int_equal(PAX(reader, "20 comment=anything\n"), 0);
    assert_int_equal(PAX(reader, "12 path=a\0b\n"), -EBADMSG);
    assert_int_equal(PAX(reader, "9 size=-\n"), -EBADMSG);
    assert_int_equal(PAX(reader, "11 size=-1\n"), -EBADMSG);
    assert_int_equal(PAX(reader, "32 size=99999999999999999999999\n"), -EBADMSG);
    assert_int_equal(PAX(reader, "9999999 path=a\n"), -EBADMSG);
    assert_int_equal(PAX(reader, "0 \n"), -EBADMSG);
    assert_int_equal(PAX(reader, "path=a\n"), -EBADMSG);
    assert_int_equal(PAX(reader, "22 GNU.sparse.major=1\n"), -EINVAL);
    tar_reader_release(reader);
    free(reader);
}

struct sample {
    char type;
    const char *path, *target, *content;
    int64_t mtime;
};

/* Writes an archive of the samples, whole. */
static void write_samples(struct hc_buf *out, const struct sample *samples, size_t count)
{
    static const char zeros[2 * TAR_BLOCK];
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(samples[i].content);
        struct stat stat = {.st_mode = 0640, .st_size = (off_t)length, .st_mtim = {.tv_sec = samples[i].mtime}};
        assert_int_equal(tar_put_header(out, samples[i].type, samples[i].path, samples[i].target, &stat), 0);
        hc_buf_add(out, samples[i].content, length);
        hc_buf_add(out, zeros, (TAR_BLOCK - length % TAR_BLOCK) % TAR_BLOCK);
    }
    hc_buf_add(out, zeros, sizeof zeros);
}

static void check_samples(struct memory *memory, const struct sample *samples, size_t count)
{
    struct tar_reader *reader = malloc(sizeof *reader);
    struct tar_entry entry;
    struct hc_err err = {0};
    char content[64];
    assert_non_null(reader);
    tar_reader_init(reader, read_memory, memory);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tar_next(reader, &entry, &err), 1);
        assert_string_equal(entry.path, samples[i].path);
        assert_string_equal(entry.target, samples[i].target);
        assert_int_equal(entry.mode, 0640);
        assert_int_equal(entry.mtime, samples[i].mtime);
        assert_int_equal(entry.size, strlen(samples[i].content));
        if (i % 2 == 0) /* every second one's content is passed over */
            continue;
        ssize_t got = tar_content(reader, content, sizeof content, &err);
        assert_int_equal(got, entry.size);
        assert_memory_equal(content, samples[i].content, (size_t)got);
    }
    assert_int_equal(tar_next(reader, &entry, &err), 0);
    tar_reader_release(reader);
    free(reader);
}

static void test_what_is_written_is_read_again(void **state)
{
    char long_name[400], cut_name[240], hundred[101];
    (void)state;
    memset(long_name, 'l', sizeof long_name);
    memset(cut_name, 'c', sizeof cut_name);
    memset(hundred, 'h', 100);
    for (size_t i = 200; i < sizeof long_name; i += 201)
        long_name[i] = '/';
    cut_name[150] = '/';
    long_name[399] = cut_name[239] = hundred[100] = '\0';
    const struct sample samples[] = {
        {'0', "plain", "", "text", 5},
        {'0', hundred, "", "x", 0},
        {'0', cut_name, "", "", 077777777777},
        {'0', long_name, "", "long", -1},
        {'2', "link", long_name, "", 0100000000000},
        {'2', "\xff", hundred, "", 1},
        {'0', "new\nline", "", "1234567890", 1},
    };
    struct hc_buf out = HC_BUF_INIT(1 << 20);
    write_samples(&out, samples, sizeof samples / sizeof samples[0]);
    for (size_t piece = 0; piece < 700; piece += 99) {
        struct memory memory = {.data = out.data, .length = out.length, .piece = piece};
        check_samples(&memory, samples, sizeof samples / sizeof samples[0]);
    }
    hc_buf_release(&out);
}

/* Cut anywhere, an archive is either whole up to there or refused; it never gives more than is there. */
static void test_an_archive_cut_anywhere_is_told(void **state)
{
    const struct sample samples[] = {{'0', "a", "", "text", 5}, {'0', "\xff", "", "more", 5}};
    struct hc_buf out = HC_BUF_INIT(1 << 20);
    struct tar_reader *reader = malloc(sizeof *reader);
    (void)state;
    assert_non_null(reader);
    write_samples(&out, samples, 2);
    size_t ends[] = {1024, 3072}; /* of the first entry; of the second, with its pax header */
    for (size_t length = 0; length < out.length; length++) {
        struct memory memory = {.data = out.data, .length = length};
        struct tar_entry entry;
        struct hc_err err = {0};
        int status;
        tar_reader_init(reader, read_memory, &memory);
        while ((status = tar_next(reader, &entry, &err)) > 0)
            ;
        bool whole = length == ends[0] || length == ends[1] || length >= ends[1] + TAR_BLOCK;
        if (status != (whole ? 0 : -EBADMSG))
            fail_msg("%zu bytes: %d %s", length, status, err.message);
        tar_reader_release(reader);
    }
    hc_buf_release(&out);
    free(reader);
}

static void test_a_flipped_bit_in_a_header_is_noticed(void **state)
{
    const struct stat stat = {.st_mode = 0644};
    struct hc_buf out = HC_BUF_INIT(4096);
    (void)state;
    assert_int_equal(tar_put_header(&out, '0', "name", "", &stat), 0);
    assert_true(tar_checksum_holds(out.data));
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        out.data[i] ^= 1;
        if (i != 154 && i != 155) /* what ends the checksum is any blank; NUL to 1 is none, and is noticed too */
            assert_false(tar_checksum_holds(out.data));
        out.data[i] ^= 1;
    }
    hc_buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_in_octal_and_base_256),
        cmocka_unit_test(test_paths_are_cleaned_or_refused),
        cmocka_unit_test(test_pax_records),
        cmocka_unit_test(test_what_is_written_is_read_again),
        cmocka_unit_test(test_an_archive_cut_anywhere_is_told),
        cmocka_unit_test(test_a_flipped_bit_in_a_header_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
