/*
 * File descriptors: owning, reading, writing, sealing and passing them. What always holds: every fd made here is
 * close-on-exec; EINTR never reaches a caller; outputs are written only on success, and no fd is leaked on failure.
 */
#include "base/fd.h"
#include "base/buf.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KERNEL_FILE_MAX = 16 * 1024 }; /* the longest one we read numbers from, memory.stat, has about 3 KiB */

static const int ALL_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

int hc_close(int fd)
{
    if (fd >= 0) {
        int saved = errno;
        close(fd); /* Linux frees the fd even on EINTR: no second try (close(2)) */
        errno = saved;
    }
    return -1;
}

void hc_close_ptr(int *fd)
{
    *fd = hc_close(*fd);
}

void hc_free_ptr(void *pointer_to_pointer)
{
    void *pointer;
    memcpy(&pointer, pointer_to_pointer, sizeof pointer); /* works for a pointer of any type without aliasing trouble */
    free(pointer);
}

int hc_set_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -errno;
    int wanted = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    if (wanted != flags && fcntl(fd, F_SETFL, wanted) < 0)
        return -errno;
    return 0;
}

int hc_write_all(int fd, const void *data, size_t length)
{
    const char *next = data;
    while (length > 0) {
        ssize_t written = write(fd, next, length);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        next += written;
        length -= (size_t)written;
    }
    return 0;
}

int hc_writev_all(int fd, struct iovec *parts, size_t count)
{
    while (count > 0) {
        ssize_t written = writev(fd, parts, (int)count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        size_t done = (size_t)written;
        for (; count > 0 && done >= parts->iov_len; parts++, count--)
            done -= parts->iov_len;
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + done;
            parts->iov_len -= done;
        }
    }
    return 0;
}

int hc_pwrite_all(int fd, const void *data, size_t length, off_t at)
{
    const char *next = data;
    while (length > 0) {
        ssize_t written = pwrite(fd, next, length, at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? -errno : -EIO;
        next += written;
        length -= (size_t)written;
        at += written;
    }
    return 0;
}

int hc_copy_all(int from, int to)
{
    char data[16384];
    for (;;) {
        ssize_t count = read(from, data, sizeof data);
        if (count == 0)
            return 0;
        if (count < 0 && errno == EINTR)
            continue;
        int result = count < 0 ? -errno : hc_write_all(to, data, (size_t)count);
        if (result < 0)
            return result;
    }
}

ssize_t hc_read_full(int fd, void *data, size_t size)
{
    char *bytes = data;
    size_t used = 0;
    while (used < size) {
        ssize_t got = read(fd, bytes + used, size - used);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

int hc_write_file_at(int dir, const char *path, const char *text)
{
    hc_cleanup_fd int fd = openat(dir, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    /* One write, never two: a kernel file takes each write as a whole command. */
    size_t length = strlen(text);
    ssize_t written;
    do
        written = write(fd, text, length);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return -errno;
    return (size_t)written == length ? 0 : -EIO;
}

ssize_t hc_read_file_at(int dir, const char *path, char *text, size_t size)
{
    if (size == 0)
        return -E2BIG;
    text[0] = '\0';
    hc_cleanup_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    /* The byte that will hold the NUL doubles as the test for "there is more". */
    ssize_t got = hc_read_full(fd, text, size);
    if (got == (ssize_t)size) {
        text[size - 1] = '\0';
        return -E2BIG;
    }
    text[got > 0 ? got : 0] = '\0';
    return got;
}

static int parse_number(const char *text, unsigned long long *value)
{
    text += strspn(text, " \t");
    if (*text < '0' || *text > '9')
        return -ENODATA;
    errno = 0;
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0)
        return -errno;
    if (*end != '\0' && strchr(" \t\n", *end) == NULL)
        return -ENODATA;
    *value = number;
    return 0;
}

int hc_read_number_at(int dir, const char *path, const char *key, unsigned long long *value)
{
    char text[KERNEL_FILE_MAX];
    ssize_t got = hc_read_file_at(dir, path, text, sizeof text);
    if (got < 0)
        return (int)got;
    if (key == NULL)
        return parse_number(text, value);
    size_t key_length = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, key_length) == 0 && (line[key_length] == ' ' || line[key_length] == '\t'))
            return parse_number(line + key_length, value);
        line = strchr(line, '\n');
        if (line != NULL)
            line++;
    }
    return -ENODATA;
}

int hc_read_all(int fd, size_t limit, char **data, size_t *length)
{
    struct hc_buf buf = HC_BUF_INIT(limit);
    char chunk[16 * 1024];
    int status = 0;
    for (;;) {
        ssize_t got = hc_read_full(fd, chunk, sizeof chunk);
        if (got < 0)
            status = (int)got;
        else
            status = hc_buf_add(&buf, chunk, (size_t)got);
        if (status != 0 || (size_t)got < sizeof chunk)
            break;
    }
    if (status == 0) {
        size_t total = 0;
        char *bytes = hc_buf_take(&buf, &total);
        if (bytes == NULL)
            return -ENOMEM;
        *data = bytes;
        if (length != NULL)
            *length = total;
    }
    hc_buf_release(&buf);
    return status;
}

int hc_memfd_open(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

int hc_memfd_seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, ALL_SEALS) < 0 ? -errno : 0;
}

int hc_memfd_sealed(const char *name, const void *data, size_t length)
{
    return hc_memfd_fill(hc_memfd_open(name), data, length);
}

int hc_memfd_fill(int memfd, const void *data, size_t length)
{
    hc_cleanup_fd int fd = memfd;
    if (fd < 0)
        return fd;
    int status = hc_pwrite_all(fd, data, length, 0); /* whoever reads it begins at its beginning */
    if (status == 0)
        status = hc_memfd_seal(fd);
    if (status != 0)
        return status;
    return HC_TAKE_FD(fd);
}

int hc_memfd_check(int fd, size_t *length)
{
    /* Only memfds know F_GET_SEALS; on every other file it fails. */
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;
    if (seals < 0 || (seals & ALL_SEALS) != ALL_SEALS || fstat(fd, &info) < 0)
        return -EINVAL;
    if (length != NULL)
        *length = (size_t)info.st_size;
    return 0;
}

union control_space {
    char bytes[CMSG_SPACE(sizeof(int) * HC_MAX_FDS)];
    struct cmsghdr aligned;
};

static int send_fds(int socket, const void *data, size_t length, const int *fds, size_t count, int flags)
{
    /* An empty message would read as end of file on the other side. */
    if (length == 0 || count > HC_MAX_FDS)
        return -EINVAL;
    struct iovec part = {.iov_base = (void *)data, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control_space control = {0};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return -errno;
    return (size_t)sent == length ? 0 : -EPROTO;
}

int hc_send_fds(int socket, const void *data, size_t length, const int *fds, size_t count)
{
    return send_fds(socket, data, length, fds, count, 0);
}

int hc_try_send_fds(int socket, const void *data, size_t length, const int *fds, size_t count)
{
    return send_fds(socket, data, length, fds, count, MSG_DONTWAIT);
}

/* Puts every fd of the message into `received` (room for HC_MAX_FDS: the control space can hold no more). */
static size_t gather_fds(struct msghdr *message, int *received)
{
    size_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (here > HC_MAX_FDS - count)
            here = HC_MAX_FDS - count;
        memcpy(received + count, CMSG_DATA(header), here * sizeof(int));
        count += here;
    }
    return count;
}

ssize_t hc_recv_fds(int socket, void *data, size_t size, int *fds, size_t max, size_t *count)
{
    struct iovec part = {.iov_base = data, .iov_len = size};
    union control_space control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    int received[HC_MAX_FDS];
    size_t here = gather_fds(&message, received);
    bool cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    /* No bytes is end of file; fds that came with an empty message have no owner. */
    if (cut || here > max || got == 0) {
        for (size_t i = 0; i < here; i++)
            hc_close(received[i]);
        if (got == 0 && !cut && here == 0 && count != NULL)
            *count = 0;
        return cut || here > 0 ? -EPROTO : 0;
    }
    if (here > 0)
        memcpy(fds, received, here * sizeof(int));
    if (count != NULL)
        *count = here;
    return got;
}
