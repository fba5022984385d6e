/* Which uids the warden's user namespace gets. Host uid 0 is never among them. */
#ifndef HC_WARDEN_UIDS_H
#define HC_WARDEN_UIDS_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum uid_source { UIDS_RANGE, UIDS_SUBORDINATE, UIDS_SINGLE };

struct uid_plan {
    enum uid_source source;
    uint64_t uid_base, gid_base, count; /* RANGE, SUBORDINATE */
    int lock;                           /* holds a picked range as long as it is open; -1 */
};

/* Root: the configured range, or one that no other hotcell on this machine holds. Others: their line in /etc/subuid and
 * /etc/subgid, where newuidmap is installed; else the one uid that they have. */
int uids_plan(uint64_t base, uint64_t count, struct uid_plan *plan, struct hc_err *err);
/* Write the maps of a child that was cloned into a new user namespace. */
int uids_map(const struct uid_plan *plan, pid_t child, struct hc_err *err);

#endif
