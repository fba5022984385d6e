/*
 * The audit log, verified: every line parsed strictly, numbered without a gap, true to its own hash and naming the one
 * before. Memory is bounded by the longest line. Reads up to where the file ended when it began, so a server may go on
 * writing.
 *
 * What a chain alone cannot show: that whole entries are missing at its end, and that everything from some entry on was
 * written anew by somebody who could write the file. A hash that was kept elsewhere shows both: it must be in the
 * chain.
 */
#include "base/fd.h"
#include "store/audit.h"
#include "store/audit_line.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct verify {
    int fd;
    off_t size;
    struct audit_report *report;
    const char *kept;          /* a hash that is to be found; NULL once it is, or when there is none */
    uint64_t line;             /* 1-based, of the one at hand */
    char hash[SHA256_HEX + 1]; /* of the last entry */
    off_t torn_start;          /* -1: every byte since the last entry was one's */
    uint64_t torn_line;
};

static int bad(struct verify *verify, uint64_t line, const char *why)
{
    verify->report->bad_line = line;
    snprintf(verify->report->why, sizeof verify->report->why, "%s", why);
    return -EBADMSG;
}

static int check_torn(struct verify *verify, const struct audit_line *entry, off_t start)
{
    if (verify->torn_start < 0)
        return entry->torn ? bad(verify, verify->line, "it says that a line before it was torn, and there is none") : 0;
    unsigned char bytes[SHA256_SIZE];
    char hash[SHA256_HEX + 1];
    off_t length = start - verify->torn_start;
    if (!entry->torn || entry->torn_bytes != (uint64_t)length)
        return bad(verify, verify->torn_line, "it is not an entry, and the next one does not say that it was torn");
    int status = sha256_file(verify->fd, verify->torn_start, length, bytes);
    if (status < 0)
        return status;
    sha256_hex(bytes, hash);
    if (strcmp(hash, entry->torn_hash) != 0)
        return bad(verify, verify->torn_line, "it is not an entry, nor what the next one says was torn");
    verify->torn_start = -1;
    verify->report->torn++;
    return 0;
}

static int check_line(struct verify *verify, const char *line, size_t length, off_t start)
{
    struct audit_line entry;
    const char *why;
    verify->line++;
    if (!audit_line_whole(line, length)) {
        if (verify->torn_start < 0) {
            verify->torn_start = start;
            verify->torn_line = verify->line;
        }
        return 0;
    }
    if (audit_line_parse(line, length, &entry, &why) < 0)
        return bad(verify, verify->line, why);
    if (!audit_line_true(line, &entry))
        return bad(verify, verify->line, "it was changed: its hash is not its own");
    int status = check_torn(verify, &entry, start);
    if (status < 0)
        return status;
    if (entry.n != verify->report->lines + 1 || strcmp(entry.prev, verify->hash) != 0)
        return bad(verify, verify->line, "it does not follow the one before: something was left out, moved or put in");
    verify->report->lines++;
    memcpy(verify->hash, entry.hash, sizeof entry.hash);
    if (verify->kept != NULL && strcasecmp(verify->kept, entry.hash) == 0)
        verify->kept = NULL;
    return 0;
}

/* Checks the lines that are whole in the buffer; *used counts the bytes that are done with. */
static int check_buffer(struct verify *verify, const char *buffer, size_t length, off_t offset, size_t *used)
{
    bool at_end = offset + (off_t)length == verify->size;
    *used = 0;
    while (*used < length) {
        const char *line = buffer + *used, *newline = memchr(line, '\n', length - *used);
        if (newline == NULL && !at_end)
            break;
        size_t line_length = newline != NULL ? (size_t)(newline - line) : length - *used;
        int status = check_line(verify, line, line_length, offset + (off_t)*used);
        if (status < 0)
            return status;
        *used += line_length + (newline != NULL);
    }
    return 0;
}

static int check_file(struct verify *verify, char *buffer, size_t capacity)
{
    off_t offset = 0; /* of buffer[0] in the file */
    size_t length = 0, used = 0;
    while (offset + (off_t)length < verify->size) {
        size_t wanted = capacity - length;
        if (wanted == 0)
            return bad(verify, verify->line + 1, "it is longer than any entry");
        if ((off_t)wanted > verify->size - offset - (off_t)length)
            wanted = (size_t)(verify->size - offset - (off_t)length);
        ssize_t count = pread(verify->fd, buffer + length, wanted, offset + (off_t)length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -ENODATA;
        length += (size_t)count;
        int status = check_buffer(verify, buffer, length, offset, &used);
        if (status < 0)
            return status;
        memmove(buffer, buffer + used, length - used);
        length -= used;
        offset += (off_t)used;
    }
    return 0;
}

/* The size at a moment at which nobody is in the middle of an entry. */
static int settled_size(int fd, off_t *size)
{
    struct flock region = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    struct stat file;
    while (fcntl(fd, F_SETLKW, &region) < 0)
        if (errno != EINTR)
            return -errno;
    int status = fstat(fd, &file) < 0 ? -errno : 0;
    region.l_type = F_UNLCK;
    fcntl(fd, F_SETLK, &region);
    if (status == 0)
        *size = file.st_size;
    return status;
}

int audit_verify(int fd, const char *kept, struct audit_report *report)
{
    enum { CAPACITY = 2 * AUDIT_LINE_MAX };
    *report = (struct audit_report){.last_hash = AUDIT_FIRST};
    struct verify verify = {.fd = fd, .report = report, .kept = kept, .hash = AUDIT_FIRST, .torn_start = -1};
    hc_cleanup_free char *buffer = malloc(CAPACITY);
    if (buffer == NULL)
        return -ENOMEM;
    int status = settled_size(fd, &verify.size);
    if (status == 0)
        status = check_file(&verify, buffer, CAPACITY);
    memcpy(report->last_hash, verify.hash, sizeof report->last_hash);
    if (status == 0 && verify.torn_start >= 0) {
        /* At the end of the file, where a power cut leaves it: the next entry will say it. */
        char last;
        if (pread(fd, &last, 1, verify.size - 1) == 1 && last != '\n') {
            report->torn++;
            report->unended = (uint64_t)(verify.size - verify.torn_start);
        } else {
            status = bad(&verify, verify.torn_line, "it is not an entry");
        }
    }
    if (status == 0 && verify.kept != NULL)
        status = bad(&verify, report->lines + 1,
                     "no entry has the hash that was kept: what had it was cut off, or all was written anew");
    return status;
}
