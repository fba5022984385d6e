/* Giving up privileges for good. */
#ifndef HC_KERNEL_CAPS_H
#define HC_KERNEL_CAPS_H

#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

/* Become uid and gid with no supplementary groups (where the namespace allows setgroups), no capability in any set, the
 * bounding set included, securebits locked, and no_new_privs. */
int hc_become(uid_t uid, gid_t gid, bool may_setgroups, struct hc_err *err);

#endif
