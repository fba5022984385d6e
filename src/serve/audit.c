/*
 * The audit log of a server. The gateway makes its lines, for it knows what happened; the keeper alone can write, and
 * only appends. So a gateway that was taken over may add what is not true from then on, and cannot change or cut off
 * what was there before.
 *
 * What always holds: the bytes are not looked into, but for their length and the newline at their end. Whether they
 * fit to what is there is for whoever verifies the chain. Nothing here waits: `hotcell key`, which appends as well, has
 * the file locked for a moment, and a keeper that waited for it could be held up for ever.
 */
#include "base/fd.h"
#include "base/log.h"
#include "serve/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int append_locked(int log, int64_t end, const char *bytes, size_t length)
{
    struct stat file;
    if (fstat(log, &file) < 0)
        return -errno;
    if (file.st_size != end)
        return -EAGAIN;
    int result = hc_write_all(log, bytes, length);
    if (result == 0 && fdatasync(log) < 0)
        result = -errno;
    return result;
}

static int append(int log, int64_t end, const char *bytes, size_t length)
{
    struct flock region = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(log, F_SETLK, &region) < 0)
        return errno == EACCES ? -EAGAIN : -errno;
    int result = append_locked(log, end, bytes, length);
    region.l_type = F_UNLCK;
    fcntl(log, F_SETLK, &region);
    return result;
}

/* Whether one message was taken and answered. */
static bool serve_append(const struct keeper_server *server)
{
    struct serve_append question;
    char *message hc_cleanup_free = malloc(sizeof question + SERVE_APPEND_MAX);
    size_t count = 0;
    if (!message)
        return false;
    ssize_t size = hc_recv_fds(server->audit_socket, message, sizeof question + SERVE_APPEND_MAX, NULL, 0, &count);
    if (size == -EAGAIN || size == -EINTR)
        return true;
    if (size <= (ssize_t)sizeof question)
        return false;
    memcpy(&question, message, sizeof question);
    if (question.protocol != SERVE_PROTOCOL || question.length != (size_t)size - sizeof question ||
        message[size - 1] != '\n')
        return false;
    int32_t answer = append(server->state.audit, question.end, message + sizeof question, question.length);
    return hc_try_send_fds(server->audit_socket, &answer, sizeof answer, NULL, 0) == 0;
}

static void on_append(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct keeper_server *server = data;
    if (!serve_append(server))
        audit_forget(server); /* it is going, or it is not what it was */
}

int audit_give(struct keeper_server *server, int *log, int *socket, struct hc_err *err)
{
    char path[64];
    int ends[2];
    audit_forget(server);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    hc_cleanup_fd int theirs = ends[1];
    server->audit_socket = ends[0];
    server->audit_watch = hc_loop_watch(server->loop, ends[0], EPOLLIN, on_append, server);
    if (!server->audit_watch)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "watching the gateway");
    snprintf(path, sizeof path, "/proc/self/fd/%d", server->state.audit); /* this very file, whatever its name is now */
    *log = open(path, O_RDONLY | O_CLOEXEC);
    if (*log < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening the audit log");
    *socket = HC_TAKE_FD(theirs);
    return 0;
}

void audit_forget(struct keeper_server *server)
{
    hc_watch_remove(server->audit_watch);
    server->audit_watch = NULL;
    server->audit_socket = hc_close(server->audit_socket);
}
