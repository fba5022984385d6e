/* What connection.c and connection_net.c share. */
#ifndef HC_CLI_CONNECTION_INTERNAL_H
#define HC_CLI_CONNECTION_INTERNAL_H

#include "cli/connection.h"
#include <sys/socket.h>

struct connection {
    int fd;
    const struct connection_terms *terms;
    void *tls; /* an SSL; NULL: plain */
};

/* What connects to other machines; read, write and close are for connections with TLS. */
struct connection_net {
    int (*open)(struct connection *connection, const struct url *url, uint64_t deadline, struct hc_err *err);
    void (*close)(struct connection *connection);
    ssize_t (*read)(struct connection *connection, char *data, size_t size, uint64_t deadline);
    int (*write)(struct connection *connection, const char *data, size_t length, uint64_t deadline);
    ssize_t (*try_write)(struct connection *connection, const char *data, size_t length);
};

/* What of `events` is there, or -ETIMEDOUT, -EINTR. */
int connection_wait(const struct connection *connection, short events, uint64_t deadline);
int connection_connect(struct connection *connection, const struct sockaddr *address, socklen_t length,
                       uint64_t deadline);
/* The error for a server that cannot be reached; returns `status`. */
int connection_refused(const struct url *url, int status, struct hc_err *err);

#endif
