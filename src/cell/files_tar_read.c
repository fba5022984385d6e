/*
 * The reader of tar streams, block by block. What always holds: memory is bounded by TAR_NAME_MAX and TAR_PAX_MAX
 * whatever the archive says; what is handed out has a clean path; kinds of entries that are not files, folders and
 * links are refused by name, never passed over.
 */
#include "cell/files_tar.h"

#include "base/fd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct header { /* POSIX.1-1988 ustar */
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a header is one block");

void tar_reader_init(struct tar_reader *reader, ssize_t (*read)(void *, void *, size_t), void *data)
{
    memset(reader, 0, offsetof(struct tar_reader, buffer));
    reader->read = read;
    reader->data = data;
    reader->path = reader->target = reader->long_path = reader->long_target = HC_BUF_INIT(TAR_NAME_MAX);
}

void tar_reader_release(struct tar_reader *reader)
{
    hc_buf_release(&reader->path);
    hc_buf_release(&reader->target);
    hc_buf_release(&reader->long_path);
    hc_buf_release(&reader->long_target);
}

/* ---- bytes ---- */

/* Something in the buffer: the count of what is there, 0 at the end, -errno. */
static ssize_t fill(struct tar_reader *reader)
{
    if (reader->next == reader->have) {
        ssize_t count = reader->read(reader->data, reader->buffer, sizeof reader->buffer);
        if (count <= 0)
            return count;
        reader->have = (size_t)count;
        reader->next = 0;
    }
    return (ssize_t)(reader->have - reader->next);
}

static int ends_too_soon(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "the archive ends too soon");
}

/* Exactly so many, to `bytes` or to nowhere (NULL). *got tells how many there were when it ends. */
static int take(struct tar_reader *reader, char *bytes, uint64_t size, uint64_t *got, struct hc_err *err)
{
    *got = 0;
    while (*got < size) {
        ssize_t there = fill(reader);
        if (there < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, (int)-there, "cannot read the archive");
        if (there == 0)
            return ends_too_soon(err);
        size_t part = size - *got < (uint64_t)there ? (size_t)(size - *got) : (size_t)there;
        if (bytes)
            memcpy(bytes + *got, reader->buffer + reader->next, part);
        reader->next += part;
        *got += part;
    }
    return 0;
}

static uint64_t padding_of(uint64_t size)
{
    return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

ssize_t tar_content(struct tar_reader *reader, void *bytes, size_t size, struct hc_err *err)
{
    uint64_t got;
    size_t part = reader->left < size ? (size_t)reader->left : size;
    if (take(reader, bytes, part, &got, err) < 0)
        return -EBADMSG;
    reader->left -= part;
    return (ssize_t)part;
}

/* ---- headers ---- */

static int refuse_compressed(const char *block, struct hc_err *err)
{
    static const struct {
        const char *magic;
        size_t length;
        const char *name, *remedy;
    } forms[] = {
        {"\x1f\x8b", 2, "compressed with gzip", "gunzip it first: send the .tar itself"},
        {"BZh", 3, "compressed with bzip2", "bunzip2 it first: send the .tar itself"},
        {"\xfd"
         "7zXZ",
         5, "compressed with xz", "unxz it first: send the .tar itself"},
        {"\x28\xb5\x2f\xfd", 4, "compressed with zstd", "unzstd it first: send the .tar itself"},
        {"PK\x03\x04", 4, "a zip archive", "send a tar"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (memcmp(block, forms[i].magic, forms[i].length) == 0) {
            hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "the body is %s, not a tar", forms[i].name);
            return hc_err_remedy(err, "%s", forms[i].remedy);
        }
    return 0;
}

/* 1: a header; 0: the end; -errno. */
static int read_header(struct tar_reader *reader, struct header *header, struct hc_err *err)
{
    struct hc_err ignored = {0};
    uint64_t got;
    int status = take(reader, (char *)header, TAR_BLOCK, &got, &ignored);
    if (reader->blocks == 0 && got >= 5 && refuse_compressed((const char *)header, err) < 0)
        return -EBADMSG;
    if (reader->blocks == 0 && got == 0 && status == -EBADMSG)
        return hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "the body is empty, and no tar");
    if (status == -EBADMSG && got == 0)
        return 0; /* without the two empty blocks: many a writer leaves them out */
    if (status < 0) {
        if (err)
            *err = ignored;
        return status;
    }
    reader->blocks++;
    static const char empty[TAR_BLOCK];
    if (memcmp(header, empty, TAR_BLOCK) == 0)
        return 0;
    if (!tar_checksum_holds((const char *)header))
        return reader->blocks == 1
                   ? hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "the body is not a tar")
                   : hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "a header of the archive has a wrong checksum");
    return 1;
}

static int bad_number(struct hc_err *err, const char *what, const struct header *header)
{
    return hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "the entry %.100s of the archive has a %s that is no number",
                   header->name, what);
}

/* The text of a header that only speaks of the next one. */
static int read_extension(struct tar_reader *reader, const struct header *header, struct hc_err *err)
{
    int64_t size;
    uint64_t got;
    if (tar_number(header->size, sizeof header->size, &size) < 0 || size < 0)
        return bad_number(err, "size", header);
    bool pax = header->type == 'x' || header->type == 'g';
    if (size > (pax ? TAR_PAX_MAX : TAR_NAME_MAX))
        return hc_fail(err, HC_CLASS_REQUEST, EBADMSG, "the archive has a header of %lld bytes", (long long)size);
    hc_cleanup_free char *text = malloc((size_t)size + 1);
    if (!text)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "no memory for a header of the archive");
    int status = take(reader, text, (uint64_t)size, &got, err);
    if (status == 0)
        status = take(reader, NULL, padding_of((uint64_t)size), &got, err);
    if (status < 0)
        return status;
    text[size] = '\0';
    if (header->type == 'g')
        return 0;
    if (header->type == 'x')
        return tar_read_pax(reader, text, (size_t)size, err);
    struct hc_buf *buf = header->type == 'L' ? &reader->long_path : &reader->long_target;
    bool *has = header->type == 'L' ? &reader->has_path : &reader->has_target;
    hc_buf_reset(buf);
    if (hc_buf_add_str(buf, text) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "an entry of the archive has a path of %lld bytes",
                       (long long)size);
    *has = true;
    return 0;
}

/* The fields of an old header, into long_path and long_target unless a header before has said better. */
static int read_names(struct tar_reader *reader, const struct header *header, struct hc_err *err)
{
    int status = 0;
    if (!reader->has_path) {
        hc_buf_reset(&reader->long_path);
        if (memcmp(header->magic, "ustar", 6) == 0 && header->prefix[0]) {
            hc_buf_add(&reader->long_path, header->prefix, strnlen(header->prefix, sizeof header->prefix));
            hc_buf_add(&reader->long_path, "/", 1);
        }
        status = hc_buf_add(&reader->long_path, header->name, strnlen(header->name, sizeof header->name));
    }
    if (!reader->has_target && status == 0) {
        hc_buf_reset(&reader->long_target);
        status = hc_buf_add(&reader->long_target, header->link, strnlen(header->link, sizeof header->link));
    }
    return status < 0 ? hc_fail(err, HC_CLASS_HOST, -status, "no memory for a name of the archive") : 0;
}

static int find_type(char type, const struct tar_reader *reader, enum tar_type *found, struct hc_err *err)
{
    static const struct {
        char type;
        const char *name;
    } refused[] = {
        {'3', "a device"},
        {'4', "a device"},
        {'6', "a fifo"},
        {'S', "a sparse file in GNU tar's own form"},
        {'D', "a folder's dump"},
        {'M', "the rest of a file from another volume"},
        {'V', "the name of a volume"},
        {'N', "a list of names"},
    };
    const char *path = reader->long_path.data;
    switch (type) {
    case '0':
    case '\0':
    case '7':
        *found = reader->long_path.length > 0 && path[reader->long_path.length - 1] == '/' ? TAR_FOLDER : TAR_FILE;
        return 0;
    case '1':
        *found = TAR_HARDLINK;
        return 0;
    case '2':
        *found = TAR_SYMLINK;
        return 0;
    case '5':
        *found = TAR_FOLDER;
        return 0;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].type == type)
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the entry %.200s of the archive is %s", path,
                           refused[i].name);
    return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the entry %.200s of the archive is of the unknown type 0x%02x", path,
                   (unsigned char)type);
}

static int read_fields(struct tar_reader *reader, const struct header *header, struct tar_entry *entry,
                       struct hc_err *err)
{
    int64_t size, mode, mtime;
    if (tar_number(header->size, sizeof header->size, &size) < 0 || size < 0)
        return bad_number(err, "size", header);
    if (tar_number(header->mode, sizeof header->mode, &mode) < 0)
        return bad_number(err, "mode", header);
    if (tar_number(header->mtime, sizeof header->mtime, &mtime) < 0)
        return bad_number(err, "time", header);
    entry->size = reader->has_size ? reader->pax_size : (uint64_t)size;
    entry->mode = (mode_t)mode & 01777;
    entry->mtime = reader->has_mtime ? reader->pax_mtime : (time_t)mtime;
    return 0;
}

static int make_entry(struct tar_reader *reader, const struct header *header, struct tar_entry *entry,
                      struct hc_err *err)
{
    int status = read_names(reader, header, err);
    if (status == 0)
        status = find_type(header->type, reader, &entry->type, err);
    if (status == 0)
        status = read_fields(reader, header, entry, err);
    if (status == 0)
        status = tar_clean_path(reader->long_path.data, reader->long_path.length, &reader->path, err);
    if (status == 0 && entry->type == TAR_HARDLINK)
        status = tar_clean_path(reader->long_target.data, reader->long_target.length, &reader->target, err);
    if (status < 0)
        return status;
    entry->path = reader->path.data;
    entry->target = entry->type == TAR_HARDLINK  ? reader->target.data
                    : entry->type == TAR_SYMLINK ? reader->long_target.data
                                                 : (char *)"";
    if (entry->path[0] == '\0' && entry->type != TAR_FOLDER)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the archive has an entry without a name");
    if (entry->type != TAR_FILE && entry->type != TAR_HARDLINK)
        entry->size = 0; /* whatever the field says: POSIX lets a folder have one, and no content */
    if (entry->type == TAR_HARDLINK && entry->size > 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the hard link %.200s of the archive has content", entry->path);
    reader->left = entry->size;
    reader->padding = padding_of(entry->size);
    return 1;
}

int tar_next(struct tar_reader *reader, struct tar_entry *entry, struct hc_err *err)
{
    struct header header;
    uint64_t got;
    int status = take(reader, NULL, reader->left, &got, err);
    if (status == 0)
        status = take(reader, NULL, reader->padding, &got, err);
    if (status < 0)
        return status;
    reader->left = reader->padding = 0;
    reader->has_path = reader->has_target = reader->has_size = reader->has_mtime = false;
    for (bool extended = false;; extended = true) {
        status = read_header(reader, &header, err);
        if (status == 0 && extended) /* the entry that the last header spoke of is missing */
            return ends_too_soon(err);
        if (status <= 0)
            return status;
        if (!header.type || !strchr("xgLK", header.type))
            return make_entry(reader, &header, entry, err);
        status = read_extension(reader, &header, err);
        if (status < 0)
            return status;
    }
}
