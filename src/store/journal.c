/* See journal.h. */
#include "store/journal.h"

#include "base/fd.h"
#include "base/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RING_BYTES = JOURNAL_BLOCKS * JOURNAL_BLOCK,
    FILE_BYTES = JOURNAL_BLOCK + RING_BYTES,
    BLOCKS_AT_ONCE = JOURNAL_PAYLOAD / (JOURNAL_BLOCK - JOURNAL_BLOCK_HEADER) + 2,
    OWN_US = 5 * 1000 * 1000,
    OWN_STEP_US = 10 * 1000,
    TRIES = 8,             /* each way, before one is chosen */
    TRY_AGAIN = 512,       /* so often, as many of the other way */
    SLOW_APPEND_US = 1000, /* nobody is to wait for that long ahead */
};

/* How long it takes to append one that was expected: with what could be written ahead, and without. */
struct habit {
    bool expected, ahead; /* the next one */
    unsigned count;
    uint64_t usual[2]; /* µs; [ahead] */
};

/* Head and tail count blocks and never go back; a place in the ring is what remains by its size. */
struct journal {
    int fd;
    uint64_t id, sequence;
    _Atomic uint64_t head, tail;
    size_t reached; /* the highest block that may not be zeros, and one */
    bool blank;     /* when it was read, there was nothing but zeros in it */
    int doubt;      /* of what was written ahead */
    struct habit habit;
    unsigned char *entry, *blocks;
};

static int sync_data(int fd)
{
    return fdatasync(fd) < 0 ? -errno : 0;
}

/* -ENODATA: it is shorter. */
static int read_at(int fd, unsigned char *bytes, size_t length, off_t at)
{
    while (length > 0) {
        ssize_t done = pread(fd, bytes, length, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -ENODATA;
        bytes += done;
        length -= (size_t)done;
        at += done;
    }
    return 0;
}

static int write_zeros(int fd, size_t length, off_t at)
{
    static const unsigned char zeros[64 * 1024];
    int status = 0;
    for (size_t part; length > 0 && status == 0; length -= part, at += (off_t)part) {
        part = length < sizeof zeros ? length : sizeof zeros;
        status = hc_pwrite_all(fd, zeros, part, at);
    }
    return status;
}

/* Written, not only reserved: the first write to a reserved block would change metadata. The header comes last: with it
 * the file is one. */
static int fill(int fd, uint64_t *id)
{
    unsigned char header[JOURNAL_BLOCK];
    if (getrandom(id, sizeof *id, 0) != (ssize_t)sizeof *id)
        return -EIO;
    *id = (*id & INT64_MAX) | 1; /* SQLite has signed numbers, and 0 means none */
    int status = write_zeros(fd, FILE_BYTES, 0);
    if (status == 0)
        status = sync_data(fd);
    if (status == 0)
        status = journal_header_build(header, *id);
    if (status == 0)
        status = hc_pwrite_all(fd, header, sizeof header, 0);
    if (status == 0)
        status = sync_data(fd);
    if (status < 0 && ftruncate(fd, 0) < 0) /* room for others; what is left of it is no journal either way */
        return status;
    return status;
}

static int identify(int fd, uint64_t *id)
{
    unsigned char header[JOURNAL_BLOCK];
    struct stat file;
    if (fstat(fd, &file) < 0)
        return -errno;
    if (!S_ISREG(file.st_mode))
        return -EBADMSG;
    int status = file.st_size < FILE_BYTES ? -ENODATA : read_at(fd, header, sizeof header, 0);
    return status < 0 ? status : journal_header_read(header, id);
}

static int own(int fd)
{
    uint64_t deadline = hc_now() + OWN_US;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (hc_now() > deadline)
            return -EBUSY;
        usleep(OWN_STEP_US);
    }
    return 0;
}

static int fail(const char *path, int status, struct hc_err *err)
{
    hc_fail_errno(err, HC_CLASS_HOST, -status, "the journal %s", path);
    if (status == -EBADMSG || status == -EPROTONOSUPPORT)
        hc_err_remedy(err,
                      "nothing was changed; move it away, and what it held of the last runs is not in the history");
    return status;
}

static int allocate(struct journal *journal)
{
    journal->entry = malloc(JOURNAL_LEAD + JOURNAL_PAYLOAD);
    journal->blocks = malloc((size_t)BLOCKS_AT_ONCE * JOURNAL_BLOCK);
    return journal->entry != NULL && journal->blocks != NULL ? 0 : -ENOMEM;
}

static int open_file(const char *path, bool writing, struct journal **out)
{
    struct journal *journal = calloc(1, sizeof *journal);
    if (journal == NULL)
        return -ENOMEM;
    *out = journal;
    journal->fd = open(path, (writing ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int status = journal->fd < 0 ? -errno : writing ? allocate(journal) : 0;
    if (status == 0 && writing)
        status = own(journal->fd);
    if (status == 0)
        status = identify(journal->fd, &journal->id);
    if (status == -ENODATA && writing)
        status = fill(journal->fd, &journal->id);
    return status == -ENODATA ? -ENOENT : status;
}

int journal_open(const char *path, struct journal **out, struct hc_err *err)
{
    struct journal *journal = NULL;
    int status = open_file(path, true, &journal);
    if (status < 0) {
        journal_close(journal);
        return fail(path, status, err);
    }
    *out = journal;
    return 0;
}

int journal_look(const char *path, struct journal **out, struct hc_err *err)
{
    struct journal *journal = NULL;
    int status = open_file(path, false, &journal);
    if (status < 0) {
        journal_close(journal);
        return status == -ENOENT ? status : fail(path, status, err);
    }
    *out = journal;
    return 0;
}

int journal_try_own(struct journal *journal)
{
    if (flock(journal->fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return errno == EWOULDBLOCK ? -EBUSY : -errno;
}

void journal_close(struct journal *journal)
{
    if (journal == NULL)
        return;
    hc_close(journal->fd);
    free(journal->entry);
    free(journal->blocks);
    free(journal);
}

uint64_t journal_id(const struct journal *journal)
{
    return journal->id;
}

static bool is_blank(const unsigned char *image)
{
    return image[0] == 0 && memcmp(image, image + 1, RING_BYTES - 1) == 0;
}

int journal_read(struct journal *journal, uint64_t after, struct journal_content *content)
{
    *content = (struct journal_content){.image = malloc(RING_BYTES)};
    content->entries = calloc(JOURNAL_BLOCKS, sizeof *content->entries);
    if (content->image == NULL || content->entries == NULL)
        return -ENOMEM;
    int status = read_at(journal->fd, content->image, RING_BYTES, JOURNAL_BLOCK);
    journal->blank = status == 0 && is_blank(content->image);
    if (status == 0)
        status = journal_image_read(content->image, JOURNAL_BLOCKS, journal->id, after, content->entries);
    content->count = status > 0 ? (size_t)status : 0;
    return status < 0 ? status : 0;
}

void journal_release(struct journal_content *content)
{
    free(content->image);
    free(content->entries);
    *content = (struct journal_content){0};
}

void journal_begin(struct journal *journal, uint64_t applied, uint64_t last)
{
    journal->sequence = last > applied ? last : applied;
    journal->head = JOURNAL_BLOCKS;
    journal->tail = 0;
    journal->reached = journal->blank ? 0 : JOURNAL_BLOCKS; /* how much of it an earlier owner used is not known */
}

/* Where an entry of so many blocks would begin: not around the end. */
static uint64_t place_for(const struct journal *journal, size_t blocks)
{
    size_t at = journal->head % JOURNAL_BLOCKS;
    return at + blocks <= JOURNAL_BLOCKS ? journal->head : journal->head + JOURNAL_BLOCKS - at;
}

static bool fits(const struct journal *journal, size_t payload)
{
    size_t blocks = journal_blocks(payload);
    return place_for(journal, blocks) + blocks - journal->tail <= JOURNAL_BLOCKS;
}

size_t journal_room(const struct journal *journal)
{
    for (size_t payload = JOURNAL_PAYLOAD; payload >= JOURNAL_BLOCK; payload /= 2)
        if (fits(journal, payload))
            return payload;
    return 0;
}

unsigned char *journal_payload(struct journal *journal)
{
    return journal->entry + JOURNAL_LEAD;
}

/* A file system without a journal of its own (ext4 in many virtual machines) writes the inode with every fdatasync
 * after which its time is another: one round trip to the disk of three. */
static bool is_worth_it(const struct habit *habit)
{
    if (habit->count < 2 * TRIES)
        return habit->count % 2;
    bool better = 5 * habit->usual[true] < 4 * habit->usual[false];
    return habit->count % TRY_AGAIN < TRIES ? !better : better;
}

void journal_expect(struct journal *journal)
{
    struct habit *habit = &journal->habit;
    habit->expected = true;
    habit->ahead = habit->usual[false] < SLOW_APPEND_US && is_worth_it(habit);
    if (habit->ahead && futimens(journal->fd, NULL) == 0 && fdatasync(journal->fd) < 0)
        journal->doubt = -errno; /* the kernel tells of it once */
}

/* Half of them take less than what is usual, and half take more, whatever the slow ones take. */
static void learn(struct habit *habit, uint64_t took)
{
    if (!habit->expected)
        return;
    uint64_t *usual = &habit->usual[habit->ahead], step = *usual / 16 + 1;
    if (habit->count < 2 * TRIES)
        *usual = *usual == 0 || took < *usual ? took : *usual;
    else
        *usual = took > *usual ? *usual + step : *usual > step ? *usual - step : 1;
    habit->expected = false;
    habit->count++;
}

int journal_append(struct journal *journal, size_t length)
{
    uint64_t begun = hc_now();
    size_t blocks = journal_blocks(length);
    uint64_t place = place_for(journal, blocks), sequence = ++journal->sequence;
    off_t at = JOURNAL_BLOCK + (off_t)(place % JOURNAL_BLOCKS) * JOURNAL_BLOCK;
    journal->head = place + blocks;
    size_t end = place % JOURNAL_BLOCKS + blocks;
    if (journal->reached < end)
        journal->reached = end;
    int status = journal_entry_build(journal->entry, length, journal->id, sequence, journal->blocks);
    if (status == 0)
        status = hc_pwrite_all(journal->fd, journal->blocks, blocks * JOURNAL_BLOCK, at);
    if (status == 0)
        status = sync_data(journal->fd);
    if (status == 0)
        status = journal->doubt;
    journal->doubt = 0;
    learn(&journal->habit, hc_now() - begun);
    return status;
}

uint64_t journal_last(const struct journal *journal)
{
    return journal->sequence;
}

uint64_t journal_mark(const struct journal *journal)
{
    return journal->head;
}

void journal_give_up(struct journal *journal, uint64_t mark)
{
    if (mark > journal->tail)
        journal->tail = mark;
}

size_t journal_used(const struct journal *journal)
{
    return journal->head - journal->tail;
}

int journal_wipe(struct journal *journal)
{
    if (journal->reached == 0)
        return 0;
    int status = write_zeros(journal->fd, journal->reached * JOURNAL_BLOCK, JOURNAL_BLOCK);
    if (status == 0)
        status = sync_data(journal->fd);
    if (status == 0)
        journal->reached = 0;
    return status;
}
