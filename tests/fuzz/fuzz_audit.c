/*
 * Feeds a file to the verification of the audit log, and each of its lines to the parser. What is accepted as an entry
 * is one: its numbers are in range, its hashes are hashes. A log that holds can be gone on with and still holds.
 */
#include "base/fd.h"
#include "store/audit.h"
#include "store/audit_line.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_line(const char *line, size_t length)
{
    struct audit_line parsed;
    const char *why = NULL;
    if (audit_line_parse(line, length, &parsed, &why) < 0) {
        check(why != NULL);
        return;
    }
    check(audit_line_whole(line, length));
    check(parsed.n > 0 && parsed.hashed < length && line[parsed.hashed] == ',');
    check(strlen(parsed.hash) == SHA256_HEX && strlen(parsed.prev) == SHA256_HEX);
    check(!parsed.torn || (parsed.torn_bytes > 0 && strlen(parsed.torn_hash) == SHA256_HEX));
    audit_line_true(line, &parsed);
}

static void check_lines(const char *text, size_t size)
{
    for (const char *line = text; line < text + size;) {
        const char *newline = memchr(line, '\n', (size_t)(text + size - line));
        const char *end = newline != NULL ? newline : text + size;
        check_line(line, (size_t)(end - line));
        line = end + 1;
    }
}

/* A descriptor for appending; memfds have none at first. */
static int open_appending(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_APPEND | O_CLOEXEC);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct audit_report before, after;
    struct audit *audit = NULL;
    struct hc_err err = {0};
    check_lines((const char *)data, size);
    hc_cleanup_fd int fd = memfd_create("audit", MFD_CLOEXEC);
    check(fd >= 0 && hc_write_all(fd, data, size) == 0);
    int status = audit_verify(fd, NULL, &before);
    check(status == 0 || (status == -EBADMSG && before.bad_line > 0 && before.why[0] != '\0'));
    if (audit_open(open_appending(fd), &audit, &err) < 0) {
        check(err.code == EBADMSG && status != 0);
        return 0;
    }
    check(audit_add(audit, "server_started", NULL, NULL, NULL) == 0);
    audit_close(audit);
    int again = audit_verify(fd, NULL, &after);
    check(status != 0 || (again == 0 && after.lines > before.lines && after.torn == before.torn));
    return 0;
}
