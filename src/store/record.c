/*
 * See record.h. A record is its kind (u8), the length of what follows (u32), and the fields of its kind. Measuring,
 * writing and reading are the same walk over the fields, so they cannot disagree about the order.
 */
#include "store/record.h"

#include "store/bytes.h"
#include <errno.h>
#include <string.h>

enum { HEADER = 5, ABSENT = 0xffffffff };

/* Reading when `in` is set, writing when `out` is; measuring otherwise. */
struct walk {
    const unsigned char *in;
    unsigned char *out;
    size_t at, length; /* `length`: of what is read */
    bool bad;
};

/* The place of the next `size` bytes to be read, or NULL when they are not there. */
static const unsigned char *read_next(struct walk *walk, size_t size)
{
    if (walk->bad || size > walk->length - walk->at) {
        walk->bad = true;
        return NULL;
    }
    walk->at += size;
    return walk->in + walk->at - size;
}

static void write_next(struct walk *walk, const void *bytes, size_t size)
{
    if (walk->out != NULL && size > 0)
        memcpy(walk->out + walk->at, bytes, size);
    walk->at += size;
}

static uint64_t walk_number(struct walk *walk, uint64_t number, size_t size)
{
    unsigned char bytes[8];
    if (walk->in != NULL) {
        const unsigned char *found = read_next(walk, size);
        return found != NULL ? bytes_get(found, size) : 0;
    }
    bytes_put(bytes, number, size);
    write_next(walk, bytes, size);
    return number;
}

static void walk_signed(struct walk *walk, int64_t *number)
{
    *number = (int64_t)walk_number(walk, (uint64_t)*number, 8);
}

static void walk_unsigned(struct walk *walk, uint64_t *number)
{
    *number = walk_number(walk, *number, 8);
}

static void walk_flag(struct walk *walk, bool *flag)
{
    uint64_t number = walk_number(walk, *flag, 1);
    walk->bad |= number > 1;
    *flag = number == 1;
}

/* A char array, which ends with a NUL that is not written. */
static void walk_text(struct walk *walk, char *text, size_t size)
{
    size_t length = walk_number(walk, walk->in == NULL ? strnlen(text, size - 1) : 0, 2);
    if (walk->in == NULL) {
        write_next(walk, text, length);
        return;
    }
    const unsigned char *found = length < size ? read_next(walk, length) : NULL;
    walk->bad |= found == NULL || memchr(found, '\0', length) != NULL;
    if (!walk->bad) {
        memset(text, 0, size);
        memcpy(text, found, length);
    }
}

static void walk_bytes(struct walk *walk, const char **bytes, size_t *length)
{
    uint64_t count = walk_number(walk, *bytes == NULL ? ABSENT : *length, 4);
    bool absent = count == ABSENT;
    if (walk->in == NULL) {
        write_next(walk, *bytes, absent ? 0 : count);
        return;
    }
    *bytes = absent ? NULL : (const char *)read_next(walk, count);
    *length = *bytes == NULL ? 0 : count;
}

static void walk_row(struct walk *walk, struct record *record)
{
    struct run_row *row = &record->row;
    walk_text(walk, row->id, sizeof row->id);
    walk_text(walk, row->tenant, sizeof row->tenant);
    walk_text(walk, row->kind, sizeof row->kind);
    walk_text(walk, row->status, sizeof row->status);
    walk_text(walk, row->language, sizeof row->language);
    row->exit_code = (int32_t)walk_number(walk, (uint32_t)row->exit_code, 4);
    walk_signed(walk, &row->created_at);
    walk_signed(walk, &row->started_at);
    walk_signed(walk, &row->ended_at);
    walk_unsigned(walk, &row->wall_us);
    walk_unsigned(walk, &row->cpu_us);
    walk_unsigned(walk, &row->queue_us);
    walk_unsigned(walk, &row->memory_peak);
    walk_flag(walk, &row->keep_going);
    walk_bytes(walk, &row->shape, &record->shape_length);
    walk_bytes(walk, &row->request, &row->request_length);
    walk_bytes(walk, &row->result, &row->result_length);
    walk_bytes(walk, &row->log, &row->log_length);
    walk_text(walk, row->error.fingerprint, sizeof row->error.fingerprint);
    walk_text(walk, row->error.category, sizeof row->error.category);
    walk_text(walk, row->error.error_type, sizeof row->error.error_type);
    walk_text(walk, row->error.message, sizeof row->error.message);
    walk_flag(walk, &row->has_shape);
    for (size_t i = 0; i < STORE_SHAPE_SLOTS && row->has_shape; i++)
        row->code_shape[i] = (uint32_t)walk_number(walk, row->code_shape[i], 4);
}

static void walk_started(struct walk *walk, struct record *record)
{
    walk_text(walk, record->row.id, sizeof record->row.id);
    walk_signed(walk, &record->row.started_at);
}

static void walk_usage(struct walk *walk, struct record *record)
{
    walk_text(walk, record->row.tenant, sizeof record->row.tenant);
    walk_signed(walk, &record->day);
    walk_unsigned(walk, &record->row.cpu_us);
    walk_unsigned(walk, &record->runs);
}

static void (*const KINDS[RECORD_KINDS])(struct walk *, struct record *) = {
    [RECORD_INSERT] = walk_row,
    [RECORD_STARTED] = walk_started,
    [RECORD_FINISH] = walk_row,
    [RECORD_USAGE] = walk_usage,
};

size_t record_size(const struct record *record)
{
    struct walk walk = {.at = HEADER};
    struct record copy = *record; /* a walk that does not read leaves it as it is; this says so to the compiler */
    KINDS[copy.kind](&walk, &copy);
    return walk.at;
}

void record_write(const struct record *record, unsigned char *bytes)
{
    struct walk walk = {.out = bytes, .at = HEADER};
    struct record copy = *record;
    KINDS[copy.kind](&walk, &copy);
    bytes[0] = (unsigned char)copy.kind;
    bytes_put(bytes + 1, walk.at - HEADER, 4);
}

ssize_t record_read(const unsigned char *bytes, size_t length, struct record *record)
{
    if (length < HEADER || bytes[0] >= RECORD_KINDS || KINDS[bytes[0]] == NULL)
        return -EBADMSG;
    size_t size = bytes_get(bytes + 1, 4);
    if (size > length - HEADER)
        return -EBADMSG;
    struct walk walk = {.in = bytes + HEADER, .length = size};
    *record = (struct record){.kind = bytes[0]};
    KINDS[record->kind](&walk, record);
    return walk.bad || walk.at != size ? -EBADMSG : (ssize_t)(HEADER + size);
}
