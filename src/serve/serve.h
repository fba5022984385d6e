/*
 * The keeper of a server: theory of operation.
 *
 * `hotcell serve` is this process. It reads the configuration, opens what needs its rights (listening sockets, the
 * state folder, the audit log, host folders, control groups), and starts the other two: the warden, which owns the
 * cells, and the gateway, which talks to the world and has no rights. Then it waits. A gateway that dies is started
 * again, with the same sockets, so that no connection attempt is refused meanwhile. A warden that dies has taken its
 * cells along; its groups are cleared and a new one is started. SIGHUP reads the configuration again, SIGTERM and
 * SIGINT drain. It parses nothing from outside.
 */
#ifndef HC_SERVE_SERVE_H
#define HC_SERVE_SERVE_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct serve_setting {
    const char *key, *value; /* "server.state": as on the command line */
};

struct serve_options {
    const char *config;        /* --config, or NULL */
    const char *const *listen; /* --listen, any number: then only these, and the socket in the state folder */
    size_t listen_count;
    const char *state; /* --state, or NULL */
    const struct serve_setting *settings;
    size_t setting_count;
    bool check; /* only say whether it could serve */
    bool json;
};

/* Returns when the server has ended: 0 after a drain. Prints where it listens on stdout. */
int serve(const struct serve_options *options, struct hc_err *err);

#endif
