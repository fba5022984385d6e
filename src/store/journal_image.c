/* See journal_image.h. */
#include "store/journal_image.h"

#include "store/bytes.h"
#include "store/sha256.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BODY = JOURNAL_BLOCK - JOURNAL_BLOCK_HEADER, FORMAT = 1, HEADER_LENGTH = 32 };

static const char MAGIC[16] = "hotcell journal"; /* with its NUL */

struct block_header {
    uint64_t sequence;
    size_t index, count;
};

static struct block_header header_of(const unsigned char *block)
{
    return (struct block_header){bytes_get(block, 8), bytes_get(block + 8, 4), bytes_get(block + 12, 4)};
}

size_t journal_blocks(size_t payload)
{
    return (JOURNAL_LEAD + payload + BODY - 1) / BODY;
}

int journal_entry_build(unsigned char *entry, size_t length, uint64_t id, uint64_t sequence, unsigned char *blocks)
{
    size_t left = JOURNAL_LEAD + length, count = journal_blocks(length);
    bytes_put(entry + SHA256_SIZE, id, 8);
    bytes_put(entry + SHA256_SIZE + 8, sequence, 8);
    bytes_put(entry + SHA256_SIZE + 16, length, 8);
    int status = sha256(entry + SHA256_SIZE, left - SHA256_SIZE, entry);
    for (size_t i = 0; i < count && status == 0; i++) {
        unsigned char *block = blocks + i * JOURNAL_BLOCK;
        size_t part = left < BODY ? left : BODY;
        bytes_put(block, sequence, 8);
        bytes_put(block + 8, i, 4);
        bytes_put(block + 12, count, 4);
        memcpy(block + JOURNAL_BLOCK_HEADER, entry + i * BODY, part);
        memset(block + JOURNAL_BLOCK_HEADER + part, 0, BODY - part);
        left -= part;
    }
    return status;
}

/* Whether all blocks of the entry that this one begins are there. */
static bool is_together(const unsigned char *block, size_t room, const struct block_header *first)
{
    if (first->index != 0 || first->count == 0 || first->count > room)
        return false;
    for (size_t i = 1; i < first->count; i++) {
        struct block_header next = header_of(block + i * JOURNAL_BLOCK);
        if (next.sequence != first->sequence || next.index != i || next.count != first->count)
            return false;
    }
    return true;
}

/* 1 when it is whole: `entry` then shows its payload. 0 when not, or -EIO. */
static int take_entry(unsigned char *block, const struct block_header *first, uint64_t id, struct journal_entry *entry)
{
    unsigned char *lead = block + JOURNAL_BLOCK_HEADER, hash[SHA256_SIZE];
    uint64_t length = bytes_get(lead + SHA256_SIZE + 16, 8);
    if (bytes_get(lead + SHA256_SIZE, 8) != id || bytes_get(lead + SHA256_SIZE + 8, 8) != first->sequence ||
        length > first->count * BODY || journal_blocks(length) != first->count)
        return 0;
    for (size_t i = 1; i < first->count; i++) /* the headers in between are taken out */
        memmove(lead + i * BODY, block + i * JOURNAL_BLOCK + JOURNAL_BLOCK_HEADER, BODY);
    int status = sha256(lead + SHA256_SIZE, JOURNAL_LEAD - SHA256_SIZE + length, hash);
    if (status < 0)
        return status;
    *entry = (struct journal_entry){first->sequence, lead + JOURNAL_LEAD, length};
    return memcmp(hash, lead, SHA256_SIZE) == 0;
}

static int by_sequence(const void *a, const void *b)
{
    uint64_t first = ((const struct journal_entry *)a)->sequence, second = ((const struct journal_entry *)b)->sequence;
    return first < second ? -1 : first > second;
}

int journal_image_read(unsigned char *image, size_t count, uint64_t id, uint64_t after, struct journal_entry *entries)
{
    size_t found = 0, kept = 0;
    for (size_t i = 0; i < count;) {
        unsigned char *block = image + i * JOURNAL_BLOCK;
        struct block_header first = header_of(block);
        bool candidate = first.sequence > after && is_together(block, count - i, &first);
        int whole = candidate ? take_entry(block, &first, id, &entries[found]) : 0;
        if (whole < 0)
            return whole;
        found += (size_t)whole;
        i += candidate ? first.count : 1; /* its headers are gone, and none of its blocks is another's first */
    }
    qsort(entries, found, sizeof *entries, by_sequence);
    for (size_t i = 0; i < found; i++)
        if (kept == 0 || entries[i].sequence != entries[kept - 1].sequence)
            entries[kept++] = entries[i];
    return (int)kept;
}

int journal_header_build(unsigned char block[JOURNAL_BLOCK], uint64_t id)
{
    memset(block, 0, JOURNAL_BLOCK);
    memcpy(block, MAGIC, sizeof MAGIC);
    bytes_put(block + 16, FORMAT, 8);
    bytes_put(block + 24, id, 8);
    return sha256(block, HEADER_LENGTH, block + HEADER_LENGTH);
}

int journal_header_read(const unsigned char block[JOURNAL_BLOCK], uint64_t *id)
{
    static const unsigned char nothing[JOURNAL_BLOCK];
    unsigned char hash[SHA256_SIZE];
    if (memcmp(block, nothing, JOURNAL_BLOCK) == 0)
        return -ENODATA;
    int status = sha256(block, HEADER_LENGTH, hash);
    if (status < 0)
        return status;
    if (memcmp(block, MAGIC, sizeof MAGIC) != 0 || memcmp(hash, block + HEADER_LENGTH, sizeof hash) != 0)
        return -EBADMSG;
    if (bytes_get(block + 16, 8) != FORMAT)
        return -EPROTONOSUPPORT;
    *id = bytes_get(block + 24, 8);
    return 0;
}
