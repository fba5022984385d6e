/*
 * Feeds bytes to the reader of the journal: as records; as the payload of an entry that is whole; and as the blocks
 * themselves, as they are and with sums that are right, as a disk would not make them. What is accepted is in bounds,
 * in order, and is written again as it was read.
 */
#include "store/bytes.h"
#include "store/journal_image.h"
#include "store/record.h"
#include "store/sha256.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ID = 1, MOST = 64 };

static void check(int holds)
{
    if (!holds)
        abort();
}

/* Text that was read has its NUL. */
static void check_texts(const struct run_row *row)
{
    check(memchr(row->id, 0, sizeof row->id) && memchr(row->tenant, 0, sizeof row->tenant));
    check(memchr(row->status, 0, sizeof row->status) && memchr(row->kind, 0, sizeof row->kind));
    check(memchr(row->error.message, 0, sizeof row->error.message) != NULL);
}

static void check_records(const unsigned char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        struct record record;
        ssize_t used = record_read(bytes + at, length - at, &record);
        if (used < 0)
            return;
        check(used > 0 && (size_t)used <= length - at && record_size(&record) == (size_t)used);
        check_texts(&record.row);
        unsigned char *again = malloc((size_t)used);
        record_write(&record, again);
        check(memcmp(again, bytes + at, (size_t)used) == 0);
        free(again);
        at += (size_t)used;
    }
}

static int check_image(const unsigned char *blocks, size_t count, uint64_t after)
{
    struct journal_entry entries[MOST];
    unsigned char *image = malloc(count * JOURNAL_BLOCK + 1);
    memcpy(image, blocks, count * JOURNAL_BLOCK);
    int found = journal_image_read(image, count, ID, after, entries);
    check(found >= 0 && (size_t)found <= count);
    for (int i = 0; i < found; i++) {
        check(entries[i].sequence > after && (i == 0 || entries[i].sequence > entries[i - 1].sequence));
        check(entries[i].payload >= image && entries[i].payload + entries[i].length <= image + count * JOURNAL_BLOCK);
        check_records(entries[i].payload, entries[i].length);
    }
    free(image);
    return found;
}

/* Every block that could begin an entry gets the id and, where it is one block, the sum. */
static void put_right(unsigned char *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char *lead = blocks + i * JOURNAL_BLOCK + JOURNAL_BLOCK_HEADER;
        uint64_t length = bytes_get(lead + SHA256_SIZE + 16, 8);
        bytes_put(lead + SHA256_SIZE, ID, 8);
        if (length <= JOURNAL_BLOCK - JOURNAL_BLOCK_HEADER - JOURNAL_LEAD)
            sha256(lead + SHA256_SIZE, JOURNAL_LEAD - SHA256_SIZE + length, lead);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t id;
    check_records(data, size);
    if (size >= JOURNAL_BLOCK)
        journal_header_read(data, &id);
    size_t needed = journal_blocks(size), count = size / JOURNAL_BLOCK + 1;
    if (needed > MOST || count > MOST)
        return 0;
    unsigned char *entry = calloc(1, JOURNAL_LEAD + size), *blocks = calloc(needed + count, JOURNAL_BLOCK);
    memcpy(entry + JOURNAL_LEAD, data, size);
    check(journal_entry_build(entry, size, ID, 7, blocks) == 0);
    check(check_image(blocks, needed, 6) == 1 && check_image(blocks, needed, 7) == 0);
    memset(blocks, 0, count * JOURNAL_BLOCK);
    memcpy(blocks, data, size);
    check_image(blocks, count, 0);
    put_right(blocks, count);
    check_image(blocks, count, 0);
    free(entry);
    free(blocks);
    return 0;
}
