/*
 * Live output. Nothing is buffered, changed or held back. stdout may be a pipe that closes, a full disk, or a terminal
 * that another program made non-blocking; each of these ends or delays the run and loses no byte in silence.
 */
#include "cli/stream.h"

#include "cli/interrupt.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

int stream_write(int fd, const void *data, size_t length)
{
    const char *at = data;

    while (length > 0) {
        ssize_t count = write(fd, at, length);
        if (count >= 0) {
            at += count;
            length -= (size_t)count;
        } else if (errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            return -errno;
        }
        /* A reader that has stopped reading must not keep Ctrl-C from working. */
        if (length > 0 && interrupt_caught())
            return -EINTR;
    }
    return 0;
}

int stream_output(void *data, int fd, const char *bytes, size_t length)
{
    struct stream *stream = data;

    if (length == 0)
        return 0;
    stream->middle[fd] = bytes[length - 1] != '\n';
    stream->status = stream_write(fd, bytes, length);
    if (stream->status)
        stream->fd = fd;
    return stream->status;
}

void stream_end_line(const struct stream *stream)
{
    if ((stream->middle[1] && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO)) ||
        (stream->middle[2] && isatty(STDERR_FILENO)))
        stream_write(STDERR_FILENO, "\n", 1);
}
