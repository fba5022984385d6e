/* Bytes to stdout and stderr, exactly as they came. */
#ifndef HC_CLI_STREAM_H
#define HC_CLI_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* All of it, also to a descriptor that is not blocking. 0 or -errno; -EINTR when interrupted by a signal that ends
 * hotcell. */
int stream_write(int fd, const void *data, size_t length);

/* What became of the program's live output. Zeros to begin with. */
struct stream {
    int status;     /* 0, or the -errno that ended the writing */
    int fd;         /* where it failed */
    bool middle[3]; /* by fd: the last byte was not the end of a line */
};

/* An hc_output_fn; data is a struct stream. */
int stream_output(void *data, int fd, const char *bytes, size_t length);
/* Before a line of our own on stderr: ends the program's unfinished line where both are seen on one terminal. */
void stream_end_line(const struct stream *stream);

#endif
