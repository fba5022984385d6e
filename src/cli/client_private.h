/*
 * A server of one's own: started with its state in a folder of its own and reached by a unix socket alone, and gone
 * with whoever started it, however that ends.
 */
#ifndef HC_CLI_CLIENT_PRIVATE_H
#define HC_CLI_CLIENT_PRIVATE_H

#include "base/err.h"
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct private_server {
    char folder[64];
    char socket[96];
    pid_t guardian; /* who ends the server and removes the folder once `line` is closed */
    int line;
};

/* Before any thread is made. Returns once the server answers. */
int private_start(struct private_server *server, bool allow_weak, struct hc_err *err);
void private_stop(struct private_server *server);

#endif
