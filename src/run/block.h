/* The words with which a program is started, as the warden and its jobs take them (warden/proto.h). */
#ifndef HC_RUN_BLOCK_H
#define HC_RUN_BLOCK_H

#include "run/request.h"

/* A sealed memory file, or -errno. `env` may be NULL. */
int argument_block(const char *cwd, const struct words *argv, const struct words *env);

#endif
