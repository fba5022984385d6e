/* See door.h. Frames that come in are small and of one shape, so nothing is allocated for them. */
#include "cell/door.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUR_FDS = 200, FRAME_LIMIT = 4096 };

int door_move_away(int fd)
{
    int moved = -1;
    for (int least = OUR_FDS; moved < 0 && least > DOOR_FD; least /= 2)
        moved = fcntl(fd, F_DUPFD_CLOEXEC, least);
    if (moved < 0)
        return -errno;
    close(fd);
    return moved;
}

int door_take(void)
{
    static const int places[] = {DOOR_FD, 0};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct stat status;
        if (fstat(places[i], &status) == 0 && S_ISSOCK(status.st_mode))
            return door_move_away(places[i]);
    }
    return -ENOTSOCK;
}

/* Up to `size` bytes and the fds that came with them. */
static ssize_t receive(int door, void *data, size_t size, int *fds, size_t *count)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(DOOR_CALL_FDS * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = data, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t length;
    while ((length = recvmsg(door, &message, MSG_CMSG_CLOEXEC)) < 0)
        if (errno != EINTR)
            return -errno;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        size_t bytes = one->cmsg_len - CMSG_LEN(0);
        if (one->cmsg_type != SCM_RIGHTS || *count + bytes / sizeof *fds > DOOR_CALL_FDS)
            return -EPROTO;
        memcpy(fds + *count, CMSG_DATA(one), bytes);
        *count += bytes / sizeof *fds;
    }
    return message.msg_flags & MSG_CTRUNC ? -EPROTO : length;
}

/* 1: all of it; 0: there was nothing at all; -EPROTO: a part of it; -errno. */
static int receive_all(int door, void *data, size_t size, int *fds, size_t *count)
{
    size_t had = 0;
    while (had < size) {
        ssize_t length = receive(door, (char *)data + had, size - had, fds, count);
        if (length < 0)
            return (int)length;
        if (length == 0)
            return had ? -EPROTO : 0;
        had += (size_t)length;
    }
    return 1;
}

/* {"op":"execute","id":7}, in any order and with any spaces, and nothing else. */
static bool is_call(const char *at, long long *id)
{
    bool has_op = false, has_id = false;
    for (char separator = '{'; *at == separator; separator = ',') {
        int used = 0;
        at++;
        if (sscanf(at, " \"op\" : \"execute\" %n", &used) == 0 && used > 0)
            has_op = true;
        else if (sscanf(at, " \"id\" : %n", &used) == 0 && used > 0) {
            char *end;
            *id = strtoll(at + used, &end, 10);
            has_id = end > at + used;
            used = (int)(end - at) + (int)strspn(end, " \t\r\n");
        } else
            return false;
        at += used;
    }
    return has_op && has_id && *at == '}';
}

int door_next(int door, long long *id, int fds[DOOR_CALL_FDS])
{
    uint32_t length; /* little-endian, as every machine that hotcell runs on */
    size_t count = 0;
    char text[FRAME_LIMIT + 1];
    int result = receive_all(door, &length, sizeof length, fds, &count);
    if (result > 0)
        result = length > 0 && length <= FRAME_LIMIT ? receive_all(door, text, length, fds, &count) : -EPROTO;
    if (result > 0) {
        text[length] = '\0';
        result = count == DOOR_CALL_FDS && is_call(text, id) ? 1 : -EPROTO;
    } else if (result == 0 && count)
        result = -EPROTO;
    for (size_t i = 0; i < count && result != 1; i++)
        fds[i] = hc_close(fds[i]);
    return result;
}

static int send_all(int door, const void *data, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t count = send(door, (const char *)data + sent, size - sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR)
            return -errno;
        sent += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

int door_send(int door, const char *text, size_t length)
{
    uint32_t head = (uint32_t)length;
    int result = send_all(door, &head, sizeof head);
    return result < 0 ? result : send_all(door, text, length);
}
