/* The names of volumes, which the server's gateway and its keeper both check: the keeper makes file names of them. */
#ifndef HC_RUN_VOLUME_H
#define HC_RUN_VOLUME_H

#include "base/err.h"

enum { VOLUME_NAME_SIZE = 41 }; /* 40 characters and the NUL */

/* A small letter or digit, then more of them, "_" and "-". 0, or -EINVAL with a field of its own: "name". */
int volume_check_name(const char *name, struct hc_err *err);

#endif
