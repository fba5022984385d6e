/* Putting things in place below a root that is being built: folders, binds, attributes. For image.c and mounts.c. */
#ifndef HC_CELL_PLACE_H
#define HC_CELL_PLACE_H

#include "base/err.h"
#include <sys/types.h>

/* One that is there already is fine. */
int place_folder(const char *path, mode_t mode, struct hc_err *err);
/* `from`, with everything that is mounted in it, is also seen at `to`, which exists and is of the same kind. */
int place_bind(const char *from, const char *to, struct hc_err *err);
/* HC_MOUNT_ATTR_*; flags: 0 for that mount alone, or HC_AT_RECURSIVE. */
int place_attributes(const char *path, unsigned attributes, unsigned flags, struct hc_err *err);

#endif
