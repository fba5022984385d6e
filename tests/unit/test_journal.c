/* The journal by itself: what is whole is read, whatever was cut, torn, damaged or overwritten; and its records. */
#include "store/journal.h"

#include "base/fd.h"
#include "store/record.h"
#include "store_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { ID = 77, SMALL = 12, BODY = JOURNAL_BLOCK - JOURNAL_BLOCK_HEADER };

/* ---- the image ---- */

/* An entry of these many bytes, all of one value, at a block of the image. The block behind it. */
static size_t put(unsigned char *image, size_t at, uint64_t sequence, unsigned char value, size_t length)
{
    unsigned char *entry = malloc(JOURNAL_LEAD + length);
    memset(entry + JOURNAL_LEAD, value, length);
    assert_int_equal(journal_entry_build(entry, length, ID, sequence, image + at * JOURNAL_BLOCK), 0);
    free(entry);
    return at + journal_blocks(length);
}

static bool is_all(const struct journal_entry *entry, unsigned char value, size_t length)
{
    bool same = entry->length == length;
    for (size_t i = 0; i < entry->length && same; i++)
        same = entry->payload[i] == value;
    return same;
}

static const size_t LENGTHS[] = {100, BODY - JOURNAL_LEAD, BODY - JOURNAL_LEAD + 1, 9000};
enum { LENGTH_COUNT = sizeof LENGTHS / sizeof *LENGTHS };

/* Entries 1 to 4; the end of each, in blocks. */
static void put_four(unsigned char *image, size_t ends[LENGTH_COUNT])
{
    size_t at = 0;
    memset(image, 0, (size_t)SMALL * JOURNAL_BLOCK);
    for (size_t i = 0; i < LENGTH_COUNT; i++)
        at = ends[i] = put(image, at, i + 1, (unsigned char)('a' + i), LENGTHS[i]);
}

/* How many of the four are in it; those that are, are as they were written. */
static int read_four(const unsigned char *image, uint64_t after)
{
    static unsigned char copy[SMALL * JOURNAL_BLOCK];
    struct journal_entry entries[SMALL];
    memcpy(copy, image, sizeof copy);
    int count = journal_image_read(copy, SMALL, ID, after, entries);
    for (int i = 0; i < count; i++) {
        size_t which = entries[i].sequence - 1;
        assert_in_range(which, 0, LENGTH_COUNT - 1);
        assert_true(i == 0 || entries[i].sequence > entries[i - 1].sequence);
        assert_true(is_all(&entries[i], (unsigned char)('a' + which), LENGTHS[which]));
    }
    return count;
}

static void test_entries_are_read_in_order_above_a_number(void **state)
{
    static unsigned char image[SMALL * JOURNAL_BLOCK];
    size_t ends[LENGTH_COUNT];
    (void)state;
    put_four(image, ends);
    for (uint64_t after = 0; after <= LENGTH_COUNT; after++)
        assert_int_equal(read_four(image, after), (int)(LENGTH_COUNT - after));
}

static void test_what_is_cut_at_any_byte_leaves_what_is_whole(void **state)
{
    static unsigned char image[SMALL * JOURNAL_BLOCK], cut[SMALL * JOURNAL_BLOCK];
    size_t ends[LENGTH_COUNT];
    (void)state;
    put_four(image, ends);
    for (size_t at = 0; at <= ends[LENGTH_COUNT - 1] * JOURNAL_BLOCK; at += at % 512 == 0 ? 1 : at % 7 + 1) {
        int least = 0, found;
        memcpy(cut, image, at);
        memset(cut + at, 0, sizeof cut - at);
        while (least < LENGTH_COUNT && ends[least] * JOURNAL_BLOCK <= at)
            least++;
        found = read_four(cut, 0);
        /* The last one is also whole when only zeros of its last block are missing. */
        assert_in_range(found, least, least + 1);
    }
}

static void test_a_byte_that_changed_costs_its_own_entry_alone(void **state)
{
    static unsigned char image[SMALL * JOURNAL_BLOCK];
    size_t ends[LENGTH_COUNT];
    (void)state;
    put_four(image, ends);
    for (size_t at = 0; at < ends[LENGTH_COUNT - 1] * JOURNAL_BLOCK; at++) {
        image[at] ^= 0x41;
        assert_in_range(read_four(image, 0), LENGTH_COUNT - 1, LENGTH_COUNT);
        image[at] ^= 0x41;
    }
}

static void test_a_write_that_came_in_parts_is_no_entry(void **state)
{
    static unsigned char old[SMALL * JOURNAL_BLOCK], new[SMALL * JOURNAL_BLOCK], mixed[SMALL * JOURNAL_BLOCK];
    enum { BLOCKS = 3 };
    struct journal_entry entries[SMALL];
    (void)state;
    put(old, 0, 1, 'a', BLOCKS * (size_t)BODY - JOURNAL_LEAD);
    put(new, 0, 2, 'b', BLOCKS * (size_t)BODY - JOURNAL_LEAD);
    for (unsigned parts = 0; parts < 1 << BLOCKS; parts++) {
        for (size_t i = 0; i < BLOCKS; i++)
            memcpy(mixed + i * JOURNAL_BLOCK, (parts & 1 << i ? new : old) + i * JOURNAL_BLOCK, JOURNAL_BLOCK);
        int count = journal_image_read(mixed, SMALL, ID, 0, entries);
        assert_int_equal(count, parts == 0 || parts == (1 << BLOCKS) - 1);
    }
}

/* What a guest prints is in entries: it may look like any block, also where the entry around it is half gone. */
static void test_a_payload_does_not_pass_for_an_entry(void **state)
{
    static unsigned char image[SMALL * JOURNAL_BLOCK], forged[JOURNAL_BLOCK], entry[JOURNAL_LEAD + 6 * JOURNAL_BLOCK];
    struct journal_entry entries[SMALL];
    (void)state;
    put(forged, 0, 1000, 'f', 100);
    for (size_t shift = 0; shift < JOURNAL_BLOCK; shift++) {
        memset(entry, 0, sizeof entry);
        for (size_t at = shift; at + JOURNAL_BLOCK <= (size_t)6 * JOURNAL_BLOCK; at += JOURNAL_BLOCK)
            memcpy(entry + JOURNAL_LEAD + at, forged, JOURNAL_BLOCK);
        assert_int_equal(journal_entry_build(entry, (size_t)6 * JOURNAL_BLOCK, ID, 1, image), 0);
        put(image, 0, 2, 'n', 10); /* the ring came round: its first block is gone */
        assert_int_equal(journal_image_read(image, SMALL, ID, 0, entries), 1);
        assert_int_equal(entries[0].sequence, 2);
    }
}

static void test_another_journals_entries_are_not_read(void **state)
{
    static unsigned char image[SMALL * JOURNAL_BLOCK];
    struct journal_entry entries[SMALL];
    (void)state;
    put(image, 0, 1, 'a', 10);
    assert_int_equal(journal_image_read(image, SMALL, ID + 1, 0, entries), 0);
}

/* ---- the file ---- */

struct fixture {
    struct folder folder;
    char path[128];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    *state = fixture;
    if (fixture == NULL || folder_make(&fixture->folder) < 0)
        return -1;
    folder_file(&fixture->folder, "journal", fixture->path, sizeof fixture->path);
    return hc_close(open(fixture->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) == -1 ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    folder_remove(&fixture->folder);
    free(fixture);
    return 0;
}

static struct journal *open_journal(const struct fixture *fixture)
{
    struct journal *journal = NULL;
    struct hc_err err = {0};
    assert_int_equal(journal_open(fixture->path, &journal, &err), 0);
    return journal;
}

static struct journal *open_empty(const struct fixture *fixture)
{
    struct journal *journal = open_journal(fixture);
    journal_begin(journal, 0, 0);
    assert_int_equal(journal_room(journal), 0);
    journal_give_up(journal, journal_mark(journal));
    return journal;
}

static int append(struct journal *journal, unsigned char value, size_t length)
{
    memset(journal_payload(journal), value, length);
    return journal_append(journal, length);
}

/* The entries above `after` are `count`, the last one `last`. */
static void holds(struct journal *journal, uint64_t after, size_t count, uint64_t last)
{
    struct journal_content content;
    assert_int_equal(journal_read(journal, after, &content), 0);
    assert_int_equal(content.count, count);
    if (count > 0)
        assert_int_equal(content.entries[count - 1].sequence, last);
    journal_release(&content);
}

static void test_what_was_appended_is_there_when_it_is_opened_again(void **state)
{
    struct fixture *fixture = *state;
    struct journal *journal = open_empty(fixture);
    uint64_t id = journal_id(journal);
    holds(journal, 0, 0, 0);
    assert_int_equal(append(journal, 'a', 100), 0);
    assert_int_equal(append(journal, 'b', JOURNAL_PAYLOAD), 0);
    assert_int_equal(journal_last(journal), 2);
    journal_close(journal);
    journal = open_journal(fixture);
    assert_true(journal_id(journal) == id && id != 0);
    holds(journal, 0, 2, 2);
    holds(journal, 1, 1, 2);
    journal_begin(journal, 1, 2);
    assert_int_equal(journal_room(journal), 0); /* before what it holds is given up */
    journal_give_up(journal, journal_mark(journal));
    assert_int_equal(journal_room(journal), JOURNAL_PAYLOAD);
    assert_int_equal(append(journal, 'c', 1), 0);
    assert_int_equal(journal_last(journal), 3);
    journal_close(journal);
}

static void test_it_fills_and_goes_round_and_keeps_what_is_not_given_up(void **state)
{
    struct journal *journal = open_empty(*state);
    size_t count = 0;
    while (journal_room(journal) >= 20000) {
        assert_int_equal(append(journal, (unsigned char)count, 20000), 0);
        count++;
    }
    assert_in_range(count, 90, JOURNAL_BLOCKS / 5);
    holds(journal, 0, count, count);
    uint64_t mark = journal_mark(journal);
    assert_true(journal_used(journal) <= JOURNAL_BLOCKS);
    journal_give_up(journal, mark);
    assert_int_equal(journal_used(journal), 0);
    for (uint64_t i = 0; i < 1000; i++) { /* always the last three are kept */
        uint64_t before = journal_mark(journal);
        assert_int_equal(append(journal, (unsigned char)i, 1 + i * 37 % 30000), 0);
        if (i % 3 == 2)
            journal_give_up(journal, before);
        holds(journal, count + i - i % 3, i % 3 + 1, count + i + 1);
    }
    journal_close(journal);
}

static void test_numbers_go_on_above_what_the_database_and_the_journal_know(void **state)
{
    struct journal *journal = open_journal(*state);
    journal_begin(journal, 41, 0);
    journal_give_up(journal, journal_mark(journal));
    assert_int_equal(append(journal, 'a', 1), 0);
    assert_int_equal(journal_last(journal), 42);
    journal_begin(journal, 41, 42);
    journal_give_up(journal, journal_mark(journal));
    assert_int_equal(append(journal, 'a', 1), 0);
    assert_int_equal(journal_last(journal), 43);
    journal_close(journal);
}

static void test_nothing_is_left_of_it_when_it_was_wiped(void **state)
{
    struct fixture *fixture = *state;
    char *text hc_cleanup_free = NULL;
    size_t length = 0;
    struct journal *journal = open_empty(fixture);
    for (int i = 0; i < 700; i++) {
        assert_int_equal(append(journal, 'q', 3000), 0);
        journal_give_up(journal, journal_mark(journal));
    }
    assert_int_equal(journal_wipe(journal), 0);
    assert_int_equal(append(journal, 'z', 3000), 0);
    assert_int_equal(journal_last(journal), 701);
    journal_close(journal);
    hc_cleanup_fd int fd = open(fixture->path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(hc_read_all(fd, 1 << 24, &text, &length), 0);
    assert_null(memmem(text, length, "qqqq", 4));
    assert_non_null(memmem(text, length, "zzzz", 4));
}

static void overwrite(const struct fixture *fixture, off_t at, const void *bytes, size_t length)
{
    hc_cleanup_fd int fd = open(fixture->path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, bytes, length, at), (ssize_t)length);
}

static void test_a_file_that_was_never_finished_is_made_anew_and_a_damaged_one_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    unsigned char header[JOURNAL_BLOCK] = {0};
    struct journal *journal = NULL;
    struct hc_err err = {0};
    uint64_t id = 0;
    assert_int_equal(journal_look(fixture->path, &journal, &err), -ENOENT);
    assert_int_equal(truncate(fixture->path, 1000000), 0); /* the power failed while it was made */
    assert_int_equal(journal_look(fixture->path, &journal, &err), -ENOENT);
    journal_close(open_empty(fixture));
    overwrite(fixture, 0, header, sizeof header);
    journal_close(open_empty(fixture));
    overwrite(fixture, 20, "x", 1);
    assert_int_equal(journal_open(fixture->path, &journal, &err), -EBADMSG);
    assert_non_null(strstr(err.message, fixture->path));
    assert_true(err.remedy[0] != '\0');
    assert_int_equal(journal_header_build(header, ID), 0);
    assert_int_equal(journal_header_read(header, &id), 0);
    assert_int_equal(id, ID);
    for (size_t i = 0; i < 64; i++) {
        header[i] ^= 1;
        assert_int_equal(journal_header_read(header, &id), -EBADMSG);
        header[i] ^= 1;
    }
}

static void test_one_has_it_and_others_read_it(void **state)
{
    struct fixture *fixture = *state;
    struct journal *owner = open_empty(fixture), *reader = NULL;
    struct hc_err err = {0};
    assert_int_equal(journal_look(fixture->path, &reader, &err), 0);
    assert_int_equal(journal_try_own(reader), -EBUSY);
    assert_int_equal(append(owner, 'a', 5000), 0);
    holds(reader, 0, 1, 1);
    journal_close(owner);
    assert_int_equal(journal_try_own(reader), 0);
    journal_close(reader);
}

static void test_a_symbolic_link_is_not_followed(void **state)
{
    struct fixture *fixture = *state;
    struct journal *journal = NULL;
    struct hc_err err = {0};
    char link[128];
    folder_file(&fixture->folder, "link", link, sizeof link);
    assert_int_equal(symlink(fixture->path, link), 0);
    assert_int_equal(journal_open(link, &journal, &err), -ELOOP);
    assert_null(journal);
}

/* ---- records ---- */

static struct record full_record(enum record_kind kind)
{
    struct record record = {.kind = kind, .row = row_ended(7, "{\"ok\":1}"), .day = -3, .runs = UINT64_MAX};
    record.row.exit_code = -1;
    record.row.keep_going = true;
    record.row.request = "";
    record.row.log = "a\0b";
    record.row.log_length = 3;
    record.row.shape = "{}";
    record.shape_length = 2;
    record.row.has_shape = true;
    record.row.code_shape[63] = UINT32_MAX;
    snprintf(record.row.error.message, sizeof record.row.error.message, "%0255d", 1);
    return record;
}

static void test_a_record_is_read_as_it_was_written(void **state)
{
    unsigned char bytes[4096], again[4096];
    (void)state;
    for (int kind = RECORD_INSERT; kind < RECORD_KINDS; kind++) {
        struct record record = full_record((enum record_kind)kind), read;
        size_t size = record_size(&record);
        record_write(&record, bytes);
        assert_int_equal(record_read(bytes, sizeof bytes, &read), size);
        assert_int_equal(read.kind, kind);
        assert_int_equal(record_size(&read), size);
        record_write(&read, again);
        assert_memory_equal(bytes, again, size);
    }
    struct record record = full_record(RECORD_FINISH), read;
    record_write(&record, bytes);
    assert_true(record_read(bytes, sizeof bytes, &read) > 0);
    assert_string_equal(read.row.id, record.row.id);
    assert_true(read.row.request != NULL && read.row.request_length == 0);
    assert_memory_equal(read.row.log, "a\0b", 3);
    assert_int_equal(read.row.exit_code, -1);
    assert_string_equal(read.row.error.message, record.row.error.message);
    assert_memory_equal(read.row.code_shape, record.row.code_shape, sizeof record.row.code_shape);
}

static void test_a_record_that_is_cut_or_of_no_known_kind_is_refused(void **state)
{
    unsigned char bytes[4096];
    (void)state;
    for (int kind = RECORD_INSERT; kind < RECORD_KINDS; kind++) {
        struct record record = full_record((enum record_kind)kind), read;
        size_t size = record_size(&record);
        record_write(&record, bytes);
        for (size_t length = 0; length < size; length++)
            assert_int_equal(record_read(bytes, length, &read), -EBADMSG);
        bytes[0] = 0;
        assert_int_equal(record_read(bytes, size, &read), -EBADMSG);
        bytes[0] = RECORD_KINDS;
        assert_int_equal(record_read(bytes, size, &read), -EBADMSG);
    }
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries_are_read_in_order_above_a_number),
        cmocka_unit_test(test_what_is_cut_at_any_byte_leaves_what_is_whole),
        cmocka_unit_test(test_a_byte_that_changed_costs_its_own_entry_alone),
        cmocka_unit_test(test_a_write_that_came_in_parts_is_no_entry),
        cmocka_unit_test(test_a_payload_does_not_pass_for_an_entry),
        cmocka_unit_test(test_another_journals_entries_are_not_read),
        FILE_TEST(test_what_was_appended_is_there_when_it_is_opened_again),
        FILE_TEST(test_it_fills_and_goes_round_and_keeps_what_is_not_given_up),
        FILE_TEST(test_numbers_go_on_above_what_the_database_and_the_journal_know),
        FILE_TEST(test_nothing_is_left_of_it_when_it_was_wiped),
        FILE_TEST(test_a_file_that_was_never_finished_is_made_anew_and_a_damaged_one_is_left_alone),
        FILE_TEST(test_one_has_it_and_others_read_it),
        FILE_TEST(test_a_symbolic_link_is_not_followed),
        cmocka_unit_test(test_a_record_is_read_as_it_was_written),
        cmocka_unit_test(test_a_record_that_is_cut_or_of_no_known_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
