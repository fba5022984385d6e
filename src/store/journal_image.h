/*
 * How entries lie in the journal, without the file: pure functions over memory, for journal.c, its tests and its
 * fuzzer.
 *
 * The file is one block that says what it is, and behind it a ring of JOURNAL_BLOCKS blocks. An entry takes whole
 * blocks, one behind the other, never around the end: so no block that holds something acknowledged is written again
 * before all of it has been given up, whatever a disk does to the sector that it was writing when the power failed.
 *
 *   block:  sequence u64, index u32 (from 0), count u32 (of the entry's blocks), then 4080 bytes of the entry
 *   entry:  SHA-256 of what follows, journal's id u64, sequence u64, length u64, payload
 *
 * Numbers are little-endian. The header of each block is why a payload cannot pass for an entry: what a guest printed
 * never stands where an index is read, also not in what is left of an entry that is half overwritten.
 *
 * Which entries count is decided by their sequence alone: those above what the database says it has. So nothing needs
 * to be removed, and a ring that was overwritten anywhere, torn, or damaged gives what is whole in it.
 */
#ifndef HC_STORE_JOURNAL_IMAGE_H
#define HC_STORE_JOURNAL_IMAGE_H

#include <stddef.h>
#include <stdint.h>

enum {
    JOURNAL_BLOCK = 4096,
    JOURNAL_BLOCKS = 512, /* of the ring */
    JOURNAL_BLOCK_HEADER = 16,
    JOURNAL_LEAD = 56, /* what stands before the payload in an entry */
};

size_t journal_blocks(size_t payload); /* how many an entry takes */

/* `entry`: JOURNAL_LEAD bytes that are filled, then the payload. `blocks`: journal_blocks(length) of them. 0, or -EIO
 * where OpenSSL does not give SHA-256. */
int journal_entry_build(unsigned char *entry, size_t length, uint64_t id, uint64_t sequence, unsigned char *blocks);

struct journal_entry {
    uint64_t sequence;
    unsigned char *payload; /* in the image */
    size_t length;
};
/* Those of this journal that are whole and above `after`, in their order, none twice. `image` has `count` blocks and is
 * written to; `entries` has room for as many. How many there are, or -EIO as above. */
int journal_image_read(unsigned char *image, size_t count, uint64_t id, uint64_t after, struct journal_entry *entries);

/* The first block of the file. -ENODATA: nothing but zeros, so it was never finished; -EPROTONOSUPPORT: of a newer
 * hotcell; -EBADMSG: anything else that is not as it was written. */
int journal_header_build(unsigned char block[JOURNAL_BLOCK], uint64_t id);
int journal_header_read(const unsigned char block[JOURNAL_BLOCK], uint64_t *id);

#endif
