/* Where a server of this machine would be, for a command line that would use it rather than start a cell of its own. */
#ifndef HC_RUN_LOCAL_H
#define HC_RUN_LOCAL_H

#include "hotcell.h"
#include <stdbool.h>
#include <sys/types.h>

enum { LOCAL_SOCKETS = 2 };

struct local_sockets {
    struct {
        char path[108]; /* a unix socket's address has room for no more */
        uid_t owner;    /* whose server it must be */
    } item[LOCAL_SOCKETS];
    size_t count;  /* in the order in which to try them; 0: none is to be used */
    char why[160]; /* there is none */
    bool weak;     /* weak isolation is accepted */
};

/* A server has its own configuration. One is used only where this run's would be the same: nothing of it comes from the
 * environment or from a file of the run's own, and root's server is not used by a user who has settings or languages of
 * his own. Nothing is connected to. */
void local_sockets_find(const hc_config *configuration, struct local_sockets *out);

#endif
