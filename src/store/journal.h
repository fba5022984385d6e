/*
 * The journal: a file in front of the database (history.db-runs), so that a change is on disk for the price of one
 * write over blocks that are there already, and one fdatasync; no metadata moves. The database gets the same change
 * later, many in a commit. journal_image.h has the format; what is in an entry is not looked at here.
 *
 * Theory of operation. Entries have sequence numbers, which only grow. The database knows up to which one it has them
 * (`journal_applied`, in the transaction that applies them), so applying again what the journal still holds does
 * nothing, and the journal never has to say what is done. Its blocks are a ring: entries are added at the head, and are
 * given up, from the tail, only when the database has them durably.
 *
 * What always holds:
 * - An entry whose journal_append returned 0 is on disk, and stays there until journal_give_up reaches it.
 * - A sequence number is used once, also when writing it failed: what may be on disk of such an entry can never be
 *   taken for another.
 * - One process owns a journal (flock), and it alone writes to it; others may read it at any time.
 */
#ifndef HC_STORE_JOURNAL_H
#define HC_STORE_JOURNAL_H

#include "base/err.h"
#include "store/journal_image.h"
#include <stdbool.h>

struct journal;

/* To write: the file exists (empty at first, then it is filled); waits up to five seconds for whoever has it. -EBUSY:
 * somebody else has it; -ENOSPC, -EDQUOT: there is no room to make it, and the file is empty; -EBADMSG: it is not as it
 * was written. Nothing that it holds is given up yet: read it, then call journal_begin. */
int journal_open(const char *path, struct journal **out, struct hc_err *err);
/* To read, beside whoever owns it. -ENOENT: there is none, or nothing was ever written to it. */
int journal_look(const char *path, struct journal **out, struct hc_err *err);
int journal_try_own(struct journal *journal); /* of one that was opened to read: 0, or -EBUSY */
void journal_close(struct journal *journal);

uint64_t journal_id(const struct journal *journal); /* not 0; random, so that a journal of another database is known */

struct journal_content {
    unsigned char *image;
    struct journal_entry *entries;
    size_t count;
};
/* The whole entries above `after`, in order. To be released, also on failure. */
int journal_read(struct journal *journal, uint64_t after, struct journal_content *content);
void journal_release(struct journal_content *content);

/* After it was read: what comes next has a number above `applied`, and above `last`, the last one that was found. It is
 * full until journal_give_up(journal_mark()) says that the database has durably what there is: what it had from a
 * process that was killed may be in the kernel's memory alone. */
void journal_begin(struct journal *journal, uint64_t applied, uint64_t last);

/* How many bytes may be appended now, at most JOURNAL_PAYLOAD; 0: it is full. */
enum { JOURNAL_PAYLOAD = 256 * 1024 };
size_t journal_room(const struct journal *journal);
/* Where the payload of the next entry is put together: JOURNAL_PAYLOAD bytes. */
unsigned char *journal_payload(struct journal *journal);
/* Writes `length` bytes of it, which is at most journal_room(), and waits until they are on disk. On -errno they may be
 * there or not, the number is used up, and the next one goes elsewhere. */
int journal_append(struct journal *journal, size_t length);
/* One is about to be appended. What the kernel writes with it on some file systems, the time of the file's last change,
 * is then written ahead, if that has been seen to make appending quicker here. Takes as long as appending does. */
void journal_expect(struct journal *journal);
uint64_t journal_last(const struct journal *journal); /* the last number that was used */

/* The place behind the last entry; and: what is before it is in the database, durably. Of the three above and these
 * two, journal_room, journal_used and journal_give_up may be called by one thread while another one appends. */
uint64_t journal_mark(const struct journal *journal);
void journal_give_up(struct journal *journal, uint64_t mark);
size_t journal_used(const struct journal *journal); /* blocks that are not given up */

/* Overwrites what is left of entries that are all given up: they hold code and output of runs. */
int journal_wipe(struct journal *journal);

#endif
