/*
 * The audit log, written.
 *
 * Theory of operation. An entry is made of what the last one was, so appending is done under a lock between processes:
 * a record lock of fcntl(2), which belongs to a process, so that it also holds between those that inherited one open
 * file (flock(2) would not). Under it the file's size says whether somebody else has written since; then the last line
 * is read again. Who may only read the file takes no lock: it says where it thinks that the file ends, and whoever
 * appends for it refuses if that is not so any more.
 *
 * A write that was cut short (power, a full disk) leaves bytes that are no entry. They stay: a log that is only
 * appended to cannot take them back. The next entry is a "torn_line" with their number and hash, and audit_verify
 * accepts them only there.
 *
 * What always holds: an entry that was written whole is never given up. Where the file has become shorter than what
 * this process wrote, or its last line is not true, the chain goes on from what was claimed, so that the break stays to
 * be found.
 */
#include "store/audit.h"
#include "base/buf.h"
#include "base/fd.h"
#include "store/audit_line.h"
#include "text/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    TAIL_MAX = 1024 * 1024,      /* how far back the last entry is looked for */
    TRIES = 100,                 /* while another process writes */
    TRY_AGAIN = 10 * 1000 * 1000 /* ns */
};

struct audit {
    int fd;
    audit_append_fn append; /* NULL: we write ourselves */
    void *data;
    off_t size; /* of the file, when it was last looked at */
    off_t end;  /* of the last entry that is known, with its newline */
    uint64_t n;
    char hash[SHA256_HEX + 1];
};

static int lock(const struct audit *audit, short type)
{
    struct flock region = {.l_type = type, .l_whence = SEEK_SET};
    while (!audit->append && fcntl(audit->fd, F_SETLKW, &region) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

static int put(const struct audit *audit, const char *bytes, size_t length)
{
    return audit->append ? audit->append(audit->data, audit->size, bytes, length)
                         : hc_write_all(audit->fd, bytes, length);
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? hc_json_text_lossy(text) : json_null();
}

static void time_text(char *text, size_t size)
{
    struct timespec now;
    struct tm parts;
    char seconds[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, size, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
}

/* Takes `detail`. `before` and the line with its newline, malloc'ed; its hash in `hash`. NULL: out of memory. */
static char *make_line(const struct audit *audit, const char *before, const char *event, const char *tenant,
                       const char *run, json_t *detail, char *hash)
{
    char at[64];
    unsigned char bytes[SHA256_SIZE];
    time_text(at, sizeof at);
    json_t *entry hc_cleanup_json = json_object();
    int failed = json_object_set_new(entry, "n", json_integer((json_int_t)audit->n + 1));
    failed |= json_object_set_new(entry, "at", json_string(at));
    failed |= json_object_set_new(entry, "event", json_string(event));
    failed |= json_object_set_new(entry, "tenant", text_or_null(tenant));
    failed |= json_object_set_new(entry, "run", text_or_null(run));
    failed |= json_object_set_new(entry, "detail", detail);
    failed |= json_object_set_new(entry, "prev", json_string(audit->hash));
    hc_cleanup_free char *text = failed == 0 ? hc_json_write(entry, false) : NULL;
    if (text == NULL)
        return NULL;
    size_t length = strlen(text) - 1; /* without the brace */
    if (sha256(text, length, bytes) < 0)
        return NULL;
    sha256_hex(bytes, hash);
    char *line = NULL;
    return asprintf(&line, "%s%.*s,\"hash\":\"%s\"}\n", before, (int)length, text, hash) < 0 ? NULL : line;
}

/* Takes `detail`. Under the lock, at the end of the file; `before` is "" or ends the line that is there. */
static int write_entry(struct audit *audit, const char *before, const char *event, const char *tenant, const char *run,
                       json_t *detail)
{
    char hash[SHA256_HEX + 1];
    hc_cleanup_free char *line = make_line(audit, before, event, tenant, run, detail, hash);
    if (line == NULL)
        return -ENOMEM;
    size_t length = strlen(line);
    if (length > AUDIT_LINE_MAX)
        return -E2BIG;
    int status = put(audit, line, length);
    if (status < 0)
        return status;
    audit->end = audit->size += (off_t)length;
    audit->n++;
    memcpy(audit->hash, hash, sizeof hash);
    return !audit->append && fdatasync(audit->fd) < 0 ? -errno : 0;
}

/* The last entry in `tail`, which ends where the file does and begins at a line. Sets *end to the offset behind it, 0
 * when there is none. */
static int find_last(struct audit *audit, const char *tail, size_t length, size_t *end)
{
    const char *last = NULL, *why;
    size_t last_length = 0;
    struct audit_line parsed;
    *end = 0;
    for (size_t at = 0; at < length;) {
        const char *newline = memchr(tail + at, '\n', length - at);
        size_t line_length = newline != NULL ? (size_t)(newline - tail) - at : length - at;
        if (audit_line_whole(tail + at, line_length)) {
            last = tail + at;
            last_length = line_length;
            *end = at + line_length + (newline != NULL);
        }
        at += line_length + 1;
    }
    if (last == NULL)
        return 0;
    if (audit_line_parse(last, last_length, &parsed, &why) < 0)
        return -EBADMSG;
    audit->n = parsed.n;
    memcpy(audit->hash, parsed.hash, sizeof audit->hash);
    return 0;
}

/* Ends what was torn, and says it, in one write. `torn` is the end of the file and has room for a byte more. */
static int say_torn(struct audit *audit, char *torn, size_t length)
{
    unsigned char bytes[SHA256_SIZE];
    char hash[SHA256_HEX + 1];
    const char *before = "";
    if (torn[length - 1] != '\n') {
        torn[length++] = '\n';
        before = "\n";
    }
    int status = sha256(torn, length, bytes);
    if (status < 0)
        return status;
    sha256_hex(bytes, hash);
    return write_entry(audit, before, AUDIT_TORN, NULL, NULL,
                       json_pack("{s:I, s:s}", "bytes", (json_int_t)length, "sha256", hash));
}

/* Reads what is new at the end of the file: the last entry, and what was torn behind it. */
static int catch_up(struct audit *audit, off_t size)
{
    bool all = size - audit->end <= TAIL_MAX;
    off_t from = all ? audit->end : size - TAIL_MAX;
    hc_cleanup_free char *tail = malloc((size_t)(size - from) + 1);
    if (tail == NULL)
        return -ENOMEM;
    ssize_t count = pread(audit->fd, tail, (size_t)(size - from), from);
    if (count != size - from)
        return count < 0 ? -errno : -EIO;
    size_t start = 0, length = (size_t)count, end;
    if (!all) { /* in the middle of a line */
        const char *newline = memchr(tail, '\n', length);
        start = newline != NULL ? (size_t)(newline - tail) + 1 : length;
    }
    int status = find_last(audit, tail + start, length - start, &end);
    if (status < 0 || (end == 0 && !all))
        return -EBADMSG;
    end += start;
    if (end < length)
        return say_torn(audit, tail + end, length - end);
    audit->end = size;
    if (tail[length - 1] == '\n')
        return 0;
    /* Torn exactly before its newline. */
    status = put(audit, "\n", 1);
    audit->end = audit->size += status == 0;
    return status;
}

static int prepare(struct audit *audit)
{
    struct stat file;
    if (fstat(audit->fd, &file) < 0)
        return -errno;
    audit->size = file.st_size;
    return file.st_size > audit->end ? catch_up(audit, file.st_size) : 0;
}

/* Whether to try once more, after a moment. */
static bool again(int status, unsigned *tries)
{
    const struct timespec moment = {.tv_nsec = TRY_AGAIN};
    if (status != -EAGAIN || ++*tries >= TRIES)
        return false;
    nanosleep(&moment, NULL);
    return true;
}

/* Takes the fd. */
static int open_as(const struct audit *as, struct audit **out, struct hc_err *err)
{
    hc_cleanup_fd int owned = as->fd;
    struct audit *audit = calloc(1, sizeof *audit);
    unsigned tries = 0;
    int status;
    if (audit == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    *audit = *as;
    do {
        status = lock(audit, F_WRLCK);
        if (status == 0) {
            status = prepare(audit);
            lock(audit, F_UNLCK);
        }
    } while (again(status, &tries));
    if (status < 0) {
        free(audit);
        if (status != -EBADMSG)
            return hc_fail_errno(err, HC_CLASS_HOST, -status, "the audit log");
        hc_fail(err, HC_CLASS_HOST, EBADMSG, "the end of the audit log is not one of hotcell's entries");
        return hc_err_remedy(err,
                             "move the file away to keep it as it is, and look into it with `hotcell audit verify`");
    }
    HC_TAKE_FD(owned);
    *out = audit;
    return 0;
}

int audit_open(int fd, struct audit **out, struct hc_err *err)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || (flags & O_APPEND) == 0) {
        hc_close(fd);
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "the audit log is not open for reading and appending");
    }
    return open_as(&(struct audit){.fd = fd, .hash = AUDIT_FIRST}, out, err);
}

int audit_open_through(int fd, audit_append_fn append, void *data, struct audit **out, struct hc_err *err)
{
    return open_as(&(struct audit){.fd = fd, .append = append, .data = data, .hash = AUDIT_FIRST}, out, err);
}

int audit_add(struct audit *audit, const char *event, const char *tenant, const char *run, const char *detail)
{
    json_t *object = NULL;
    struct hc_err err = {0};
    if (!audit_event_known(event))
        return -EINVAL;
    if (detail == NULL)
        object = json_null();
    else if (hc_json_read(detail, strlen(detail), AUDIT_DEPTH - 1, &object, &err) < 0)
        return -EINVAL;
    if (detail != NULL && !json_is_object(object)) {
        json_decref(object);
        return -EINVAL;
    }
    unsigned tries = 0;
    int status;
    do {
        status = lock(audit, F_WRLCK);
        if (status == 0)
            status = prepare(audit);
        if (status == 0)
            status = write_entry(audit, "", event, tenant, run, json_incref(object));
        lock(audit, F_UNLCK);
    } while (again(status, &tries));
    json_decref(object);
    return status;
}

void audit_close(struct audit *audit)
{
    if (audit == NULL)
        return;
    hc_close(audit->fd);
    free(audit);
}
