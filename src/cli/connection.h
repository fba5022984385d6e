/*
 * A connection to a server: a unix socket, or TCP and TLS in the program that has them. Every call that may wait has a
 * deadline (CLOCK_MONOTONIC µs; 0: none), and ends with -EINTR when `wake` becomes readable, which is how Ctrl-C gets
 * in.
 */
#ifndef HC_CLI_CONNECTION_H
#define HC_CLI_CONNECTION_H

#include "base/err.h"
#include "cli/url.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct connection;
struct connection_net;

extern const struct connection_net connection_net; /* connection_net.c: hosts and TLS; only hotcell-client has it */

/* Something else that is waited for with the server's answer. */
struct connection_aside {
    int fd;                            /* -1: nothing for now */
    void (*ready)(void *data, int fd); /* it is readable, or at its end; may change `fd` */
    void *data;
};

/* How to connect, and how to wait. Everything is borrowed. */
struct connection_terms {
    const char *ca;                   /* a file of certificates to trust instead of the system's, or NULL */
    int wake;                         /* -1, or an fd that ends all waiting */
    const uid_t *owner;               /* of a unix socket: whose the server must be; NULL: anybody's */
    const struct connection_net *net; /* NULL: unix sockets alone */
    struct connection_aside *aside;   /* or NULL */
};

/* With https the server's certificate must be valid for its name; there is no way around that. */
int connection_open(const struct url *url, const struct connection_terms *terms, uint64_t deadline,
                    struct connection **out, struct hc_err *err);
void connection_close(struct connection *connection); /* NULL is fine */
int connection_fd(const struct connection *connection);
/* The count, 0 at the end, or -errno: -ETIMEDOUT, -EINTR, -EPROTO for a fault of TLS. */
ssize_t connection_read(struct connection *connection, char *data, size_t size, uint64_t deadline);
/* All of it: 0 or -errno. -EALREADY: the server began to answer before it had all, and reads no more of it. */
int connection_write(struct connection *connection, const char *data, size_t length, uint64_t deadline);
/* For who reads and writes at the same time: as much as goes at once. The count, or -errno: -EAGAIN for nothing. After
 * that the next call must begin with the same bytes. */
ssize_t connection_try_write(struct connection *connection, const char *data, size_t length);

#endif
