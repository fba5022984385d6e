/* Headers of tar entries. A pax header comes first only where the old one cannot say it. */
#include "cell/files_tar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 100, PREFIX = 155 };
#define OCTAL_MAX UINT64_C(077777777777) /* eleven digits: 8 GiB, or the year 2242 */

static void put_octal(char *field, size_t size, uint64_t value)
{
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

static bool is_ascii(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
            return false;
    return true;
}

/* Where a path can be cut into prefix and name: the place of that slash, 0 for no cut, -1 when neither does. */
static long cut_at(const char *path, size_t length)
{
    if (length <= NAME)
        return 0;
    for (size_t at = length - NAME - 1; at <= PREFIX && at < length - 1; at++)
        if (path[at] == '/' && at > 0)
            return (long)at;
    return -1;
}

/* What goes into one block. */
struct fields {
    char type;
    const char *path, *target;
    size_t length; /* of the path */
    long cut;
    uint64_t size, mtime;
    const struct stat *stat;
};

static void put_block(struct hc_buf *out, const struct fields *fields)
{
    char block[TAR_BLOCK] = {0};
    unsigned sum = 0;
    size_t skip = fields->cut > 0 ? (size_t)fields->cut + 1 : 0, length = fields->length - skip;
    size_t target_length = strlen(fields->target);
    memcpy(block, fields->path + skip, length < NAME ? length : NAME);
    if (fields->cut > 0)
        memcpy(block + 345, fields->path, (size_t)fields->cut);
    put_octal(block + 100, 8, fields->stat->st_mode & 01777);
    put_octal(block + 108, 8, fields->stat->st_uid <= 07777777 ? fields->stat->st_uid : 0);
    put_octal(block + 116, 8, fields->stat->st_gid <= 07777777 ? fields->stat->st_gid : 0);
    put_octal(block + 124, 12, fields->size);
    put_octal(block + 136, 12, fields->mtime);
    memset(block + 148, ' ', 8);
    block[156] = fields->type;
    memcpy(block + 157, fields->target, target_length < NAME ? target_length : NAME);
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)block[i];
    put_octal(block + 148, 7, sum);
    block[154] = '\0';
    hc_buf_add(out, block, sizeof block);
}

/* The record's length counts itself. */
static void put_record(struct hc_buf *buf, const char *key, const char *value, size_t value_length)
{
    size_t rest = strlen(key) + value_length + 3, digits = 1;
    for (size_t bound = 10; rest + digits >= bound; bound *= 10)
        digits++;
    hc_buf_printf(buf, "%zu %s=", rest + digits, key);
    hc_buf_add(buf, value, value_length);
    hc_buf_add(buf, "\n", 1);
}

static void put_padded(struct hc_buf *out, const void *data, size_t length)
{
    static const char zeros[TAR_BLOCK];
    hc_buf_add(out, data, length);
    hc_buf_add(out, zeros, (TAR_BLOCK - length % TAR_BLOCK) % TAR_BLOCK);
}

static void put_pax(struct hc_buf *out, const struct hc_buf *records)
{
    static const char name[] = "PaxHeaders/entry";
    const struct stat plain = {.st_mode = 0644};
    put_block(out, &(struct fields){.type = 'x',
                                    .path = name,
                                    .target = "",
                                    .length = sizeof name - 1,
                                    .size = records->length,
                                    .stat = &plain});
    put_padded(out, records->data, records->length);
}

int tar_put_header(struct hc_buf *out, char type, const char *path, const char *target, const struct stat *stat)
{
    struct hc_buf records = HC_BUF_INIT(2UL * TAR_NAME_MAX + 1024);
    struct fields fields = {.type = type, .path = path, .target = target, .length = strlen(path), .stat = stat};
    size_t target_length = strlen(target);
    char number[24];

    fields.cut = is_ascii(path, fields.length) ? cut_at(path, fields.length) : -1;
    fields.size = type == '0' ? (uint64_t)stat->st_size : 0;
    fields.mtime = (uint64_t)stat->st_mtim.tv_sec; /* before 1970: more than fits */
    if (fields.cut < 0)
        put_record(&records, "path", path, fields.length);
    if (target_length > NAME || !is_ascii(target, target_length))
        put_record(&records, "linkpath", target, target_length);
    if (fields.size > OCTAL_MAX) {
        snprintf(number, sizeof number, "%" PRIu64, fields.size);
        put_record(&records, "size", number, strlen(number));
        fields.size = 0;
    }
    if (fields.mtime > OCTAL_MAX) {
        snprintf(number, sizeof number, "%" PRId64, (int64_t)stat->st_mtim.tv_sec);
        put_record(&records, "mtime", number, strlen(number));
        fields.mtime = 0;
    }
    if (records.length > 0)
        put_pax(out, &records);
    put_block(out, &fields);
    int status = hc_buf_status(&records);
    hc_buf_release(&records);
    return status < 0 ? status : hc_buf_status(out);
}
