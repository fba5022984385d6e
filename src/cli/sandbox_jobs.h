/* Detached jobs of a sandbox. */
#ifndef HC_CLI_SANDBOX_JOBS_H
#define HC_CLI_SANDBOX_JOBS_H

#include "cli/server.h"

/* All of fd until its end, as the input of a job, no faster than the job reads it. A job that reads no more is no
 * failure. */
int jobs_send_input(struct server *server, const char *sandbox, const char *job, int fd, struct hc_err *err);

#endif
