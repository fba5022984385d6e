/* Parts of tar headers: numbers, checksums, the records of pax headers, paths. */
#include "cell/files_tar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tar_number(const char *field, size_t size, int64_t *value)
{
    const unsigned char *bytes = (const unsigned char *)field;
    size_t at = 0;
    uint64_t number = 0;
    if (bytes[0] & 0x80) { /* base 256, with the first bit taken; negative ones begin with 0xff */
        bool negative = bytes[0] == 0xff;
        for (; at < size; at++) {
            unsigned char byte = at == 0 ? (negative ? 0xff : bytes[0] & 0x7f) : bytes[at];
            if (size - at > 8 && byte != (negative ? 0xff : 0))
                return -ERANGE;
            number = number << 8 | byte;
        }
        *value = (int64_t)number;
        return (*value < 0) == negative ? 0 : -ERANGE;
    }
    while (at < size && bytes[at] == ' ')
        at++;
    for (; at < size && bytes[at] >= '0' && bytes[at] <= '7'; at++) {
        if (number >> 60)
            return -ERANGE;
        number = number << 3 | (uint64_t)(bytes[at] - '0');
    }
    for (; at < size; at++)
        if (bytes[at] != ' ' && bytes[at] != '\0')
            return -EINVAL;
    *value = (int64_t)number;
    return 0;
}

/* Of all bytes, with blanks for the checksum's own. Old tars took bytes for signed. */
bool tar_checksum_holds(const char block[TAR_BLOCK])
{
    int64_t sum = 0, old = 0, told;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        bool own = i >= 148 && i < 156;
        sum += own ? ' ' : (unsigned char)block[i];
        old += own ? ' ' : (signed char)block[i];
    }
    return tar_number(block + 148, 8, &told) == 0 && (told == sum || told == old);
}

/* ---- paths ---- */

int tar_clean_path(const char *raw, size_t length, struct hc_buf *path, struct hc_err *err)
{
    hc_buf_reset(path);
    if (length > 0 && raw[0] == '/')
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the entry %.200s of the archive has an absolute path", raw);
    for (size_t at = 0; at < length;) {
        size_t part = strcspn(raw + at, "/");
        if (part == 2 && memcmp(raw + at, "..", 2) == 0)
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the entry %.200s of the archive leads out of the folder",
                           raw);
        if (part > 255)
            return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG,
                           "the entry %.200s… of the archive has a name of %zu bytes", raw, part);
        if (part > 0 && !(part == 1 && raw[at] == '.')) {
            if (path->length > 0)
                hc_buf_add(path, "/", 1);
            hc_buf_add(path, raw + at, part);
        }
        at += part + 1;
    }
    if (hc_buf_add(path, "", 0) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "an entry of the archive has a path of %zu bytes", length);
    return 0;
}

/* ---- pax records: "LENGTH KEY=VALUE\n" ---- */

static int bad_pax(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "the archive has a pax header that is not well-formed");
}

static int keep_text(struct hc_buf *buf, bool *has, const char *value, size_t length, struct hc_err *err)
{
    hc_buf_reset(buf);
    if (memchr(value, '\0', length))
        return bad_pax(err);
    if (hc_buf_add(buf, value, length) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "an entry of the archive has a path of %zu bytes", length);
    *has = length > 0; /* an empty value takes back what a global header said, which we do not use */
    return 0;
}

/* Seconds; what is after the point is dropped. */
static int keep_number(const char *value, size_t length, int64_t *number, struct hc_err *err)
{
    bool negative = length > 0 && value[0] == '-';
    int64_t sum = 0;
    size_t at = negative;
    for (; at < length && value[at] >= '0' && value[at] <= '9'; at++)
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, value[at] - '0', &sum))
            return bad_pax(err);
    if (at == (size_t)negative || (at < length && value[at] != '.'))
        return bad_pax(err);
    *number = negative ? -sum : sum;
    return 0;
}

static bool is_key(const char *key, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(key, word, length) == 0;
}

static int read_record(struct tar_reader *reader, const char *key, size_t key_length, const char *value, size_t length,
                       struct hc_err *err)
{
    int64_t number = 0;
    if (is_key(key, key_length, "path"))
        return keep_text(&reader->long_path, &reader->has_path, value, length, err);
    if (is_key(key, key_length, "linkpath"))
        return keep_text(&reader->long_target, &reader->has_target, value, length, err);
    if (key_length >= 10 && memcmp(key, "GNU.sparse", 10) == 0) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the archive has a sparse file in GNU tar's own form");
        return hc_err_remedy(err, "make it without --sparse");
    }
    if (is_key(key, key_length, "size")) {
        if (keep_number(value, length, &number, err) < 0 || number < 0)
            return bad_pax(err);
        reader->pax_size = (uint64_t)number;
        reader->has_size = true;
    }
    if (is_key(key, key_length, "mtime")) {
        if (keep_number(value, length, &number, err) < 0)
            return -EBADMSG;
        reader->pax_mtime = (time_t)number;
        reader->has_mtime = true;
    }
    return 0;
}

int tar_read_pax(struct tar_reader *reader, const char *text, size_t length, struct hc_err *err)
{
    for (size_t at = 0; at < length;) {
        size_t size = 0, digits = 0;
        for (; at + digits < length && digits < 7 && text[at + digits] >= '0' && text[at + digits] <= '9'; digits++)
            size = size * 10 + (size_t)(text[at + digits] - '0');
        if (digits == 0 && text[at] == '\0')
            return 0; /* some writers fill up with NULs */
        if (digits == 0 || size < digits + 3 || size > length - at || text[at + digits] != ' ' ||
            text[at + size - 1] != '\n')
            return bad_pax(err);
        const char *key = text + at + digits + 1, *end = text + at + size - 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals)
            return bad_pax(err);
        int status = read_record(reader, key, (size_t)(equals - key), equals + 1, (size_t)(end - equals - 1), err);
        if (status < 0)
            return status;
        at += size;
    }
    return 0;
}
