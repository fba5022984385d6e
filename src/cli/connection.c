/* See connection.h. The socket never blocks; waiting is done in one place, connection_wait. */
#include "cli/connection_internal.h"

#include "base/fd.h"
#include "base/loop.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int connection_wait(const struct connection *connection, short events, uint64_t deadline)
{
    struct connection_aside *aside = connection->terms->aside;

    for (;;) {
        struct pollfd fds[] = {{.fd = connection->fd, .events = events},
                               {.fd = connection->terms->wake, .events = POLLIN},
                               {.fd = aside ? aside->fd : -1, .events = POLLIN}};
        uint64_t now = hc_now();
        int timeout = -1;
        if (deadline) {
            if (now >= deadline)
                return -ETIMEDOUT;
            uint64_t left = (deadline - now) / 1000 + 1;
            timeout = left < 3600000 ? (int)left : 3600000;
        }
        int ready = poll(fds, 3, timeout);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready > 0 && fds[1].revents)
            return -EINTR;
        if (ready > 0 && fds[0].revents)
            return fds[0].revents;
        if (ready > 0 && aside && fds[2].revents)
            aside->ready(aside->data, aside->fd);
    }
}

/* ---- connecting ---- */

int connection_connect(struct connection *connection, const struct sockaddr *address, socklen_t length,
                       uint64_t deadline)
{
    socklen_t size = sizeof(int);
    int code = 0;

    connection->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection->fd < 0)
        return -errno;
    if (connect(connection->fd, address, length) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        int ready = connection_wait(connection, POLLOUT, deadline);
        if (ready < 0)
            return ready;
        if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
            return -errno;
    }
    return -code;
}

int connection_refused(const struct url *url, int status, struct hc_err *err)
{
    const char *where = url->scheme == URL_UNIX ? url->path : url->authority;

    hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot reach a server at %s", where);
    if (status == -ECONNREFUSED || status == -ENOENT)
        hc_err_remedy(err, "is it running? hotcell serve starts one");
    return status;
}

/* Whoever listens, not whoever made the file: a folder may be open to others. */
static int check_owner(const struct connection *connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (!connection->terms->owner)
        return 0;
    if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -errno;
    return peer.uid == *connection->terms->owner ? 0 : -EPERM;
}

static int connect_unix(struct connection *connection, const struct url *url, uint64_t deadline, struct hc_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, url->path, strlen(url->path) + 1);
    int status = connection_connect(connection, (const struct sockaddr *)&address, sizeof address, deadline);
    if (status == 0)
        status = check_owner(connection);
    return status < 0 ? connection_refused(url, status, err) : 0;
}

int connection_open(const struct url *url, const struct connection_terms *terms, uint64_t deadline,
                    struct connection **out, struct hc_err *err)
{
    struct connection *connection = calloc(1, sizeof *connection);

    if (!connection)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    *connection = (struct connection){.fd = -1, .terms = terms};
    int status = -EPROTONOSUPPORT;
    if (url->scheme == URL_UNIX)
        status = connect_unix(connection, url, deadline, err);
    else if (terms->net)
        status = terms->net->open(connection, url, deadline, err);
    else
        connection_refused(url, status, err);
    if (status < 0) {
        connection_close(connection);
        return status;
    }
    *out = connection;
    return 0;
}

void connection_close(struct connection *connection)
{
    if (!connection)
        return;
    if (connection->tls)
        connection->terms->net->close(connection);
    hc_close(connection->fd);
    free(connection);
}

int connection_fd(const struct connection *connection)
{
    return connection->fd;
}

/* ---- bytes ---- */

ssize_t connection_read(struct connection *connection, char *data, size_t size, uint64_t deadline)
{
    if (connection->tls)
        return connection->terms->net->read(connection, data, size, deadline);
    for (;;) {
        ssize_t count = recv(connection->fd, data, size, 0);
        if (count >= 0)
            return count;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int ready = connection_wait(connection, POLLIN, deadline);
        if (ready < 0)
            return ready;
    }
}

int connection_write(struct connection *connection, const char *data, size_t length, uint64_t deadline)
{
    if (connection->tls)
        return connection->terms->net->write(connection, data, length, deadline);
    while (length > 0) {
        int ready = connection_wait(connection, POLLIN | POLLOUT, deadline);
        if (ready < 0)
            return ready;
        if (ready & POLLIN)
            return -EALREADY;
        ssize_t count = send(connection->fd, data, length, MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (count > 0) {
            data += count;
            length -= (size_t)count;
        }
    }
    return 0;
}

ssize_t connection_try_write(struct connection *connection, const char *data, size_t length)
{
    if (connection->tls)
        return connection->terms->net->try_write(connection, data, length);
    ssize_t count = send(connection->fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0)
        return count;
    return errno == EINTR ? -EAGAIN : -errno;
}
