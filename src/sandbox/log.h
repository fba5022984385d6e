/*
 * What a detached job has written, in shared memory, so that a gateway that dies loses nothing of it: a memory file
 * with one ring for each stream, which the warden keeps for the next gateway. Of each stream the last bytes are there,
 * as many as its ring has; positions count from the first byte that was ever written.
 */
#ifndef HC_SANDBOX_LOG_H
#define HC_SANDBOX_LOG_H

#include <stddef.h>
#include <stdint.h>

struct job_log;

/* `size`: bytes of each stream. NULL: errno. */
struct job_log *job_log_new(uint32_t size);
/* One that is there: takes the fd, also when it fails. NULL: it is none. */
struct job_log *job_log_open(int fd);
void job_log_free(struct job_log *log);
int job_log_fd(const struct job_log *log); /* stays the log's */
/* stream: 0 for stdout, 1 for stderr. */
void job_log_add(struct job_log *log, int stream, const char *data, size_t length);
uint64_t job_log_end(const struct job_log *log, int stream); /* bytes that were ever written */
/* What there is from a position on, in one malloc'ed piece; *from becomes where it really begins, which is later where
 * bytes were lost. NULL: out of memory. */
char *job_log_read(const struct job_log *log, int stream, uint64_t *from, size_t *length);

#endif
