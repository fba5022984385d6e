/*
 * See log.h. The bytes go in before the position does, so what a reader of the same memory finds is whole, wherever the
 * writer died.
 */
#include "sandbox/log.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_MAGIC = 0x68636c31, LOG_LARGEST = 64 << 20 };

struct shared {
    uint32_t magic, size;
    uint64_t end[2];
    char bytes[]; /* size of stdout, size of stderr */
};

struct job_log {
    int fd;
    size_t length;
    struct shared *shared;
};

static size_t length_of(uint32_t size)
{
    return sizeof(struct shared) + 2 * (size_t)size;
}

static struct job_log *map(int fd, size_t length)
{
    struct job_log *log = malloc(sizeof *log);
    void *memory = log ? mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(log);
        hc_close(fd);
        return NULL;
    }
    *log = (struct job_log){.fd = fd, .length = length, .shared = memory};
    return log;
}

struct job_log *job_log_new(uint32_t size)
{
    size = size < 4096 ? 4096 : size > LOG_LARGEST ? LOG_LARGEST : size;
    int fd = hc_memfd_open("hotcell-log");
    if (fd < 0) {
        errno = -fd;
        return NULL;
    }
    if (ftruncate(fd, (off_t)length_of(size)) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        hc_close(fd);
        return NULL;
    }
    struct job_log *log = map(fd, length_of(size));
    if (log) {
        log->shared->magic = LOG_MAGIC;
        log->shared->size = size;
    }
    return log;
}

struct job_log *job_log_open(int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) < 0 || seals < 0 || !(seals & F_SEAL_SHRINK) || (size_t)st.st_size < sizeof(struct shared)) {
        hc_close(fd);
        return NULL;
    }
    struct job_log *log = map(fd, (size_t)st.st_size);
    if (log && (log->shared->magic != LOG_MAGIC || length_of(log->shared->size) != log->length)) {
        job_log_free(log);
        return NULL;
    }
    return log;
}

void job_log_free(struct job_log *log)
{
    if (!log)
        return;
    munmap(log->shared, log->length);
    hc_close(log->fd);
    free(log);
}

int job_log_fd(const struct job_log *log)
{
    return log->fd;
}

uint64_t job_log_end(const struct job_log *log, int stream)
{
    return log->shared->end[stream];
}

void job_log_add(struct job_log *log, int stream, const char *data, size_t length)
{
    uint32_t size = log->shared->size;
    uint64_t end = log->shared->end[stream] + length;
    char *ring = log->shared->bytes + (size_t)stream * size;
    if (length > size) { /* only the last of them can stay */
        data += length - size;
        length = size;
    }
    size_t at = (size_t)((end - length) % size), first = length < size - at ? length : size - at;
    memcpy(ring + at, data, first);
    memcpy(ring, data + first, length - first);
    __atomic_store_n(&log->shared->end[stream], end, __ATOMIC_RELEASE);
}

char *job_log_read(const struct job_log *log, int stream, uint64_t *from, size_t *length)
{
    uint32_t size = log->shared->size;
    uint64_t end = log->shared->end[stream], start = end > size ? end - size : 0;
    const char *ring = log->shared->bytes + (size_t)stream * size;
    if (*from < start)
        *from = start;
    if (*from > end)
        *from = end;
    *length = (size_t)(end - *from);
    char *text = malloc(*length + 1);
    if (!text)
        return NULL;
    size_t at = (size_t)(*from % size), first = *length < size - at ? *length : size - at;
    memcpy(text, ring + at, first);
    memcpy(text + first, ring, *length - first);
    text[*length] = '\0';
    return text;
}
