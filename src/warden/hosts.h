/*
 * Host folders that are to be mounted into cells, as real root can hand them down: detached, read-only where they are
 * allowed for reading alone, and with the owner of each folder shown as the guest (an idmapped mount), so that what is
 * allowed is also usable. The host's root is shown as the guest only where nothing can be written: otherwise a guest
 * could leave programs behind that run as root.
 */
#ifndef HC_WARDEN_HOSTS_H
#define HC_WARDEN_HOSTS_H

#include "cell/image.h"
#include "warden/uids.h"

/* One of them, for the cell whose uids are those of `slot`. An fd, or -errno. */
int hosts_open_one(const char *path, bool writable, const struct uid_plan *uids, uint32_t slot, struct hc_err *err);
/* Shows what is `uid`'s and `gid`'s on the disk as the guest's of that cell, in a detached mount that nobody has mapped
 * yet. Nothing else can be written there then. */
int hosts_map(int tree, uid_t uid, gid_t gid, const struct uid_plan *uids, uint32_t slot, struct hc_err *err);
/* Fills fds[i] for each of plan->host with a detached mount for the first cell. Only for real root; for others the
 * image binds by path. */
int hosts_open(const struct image_plan *plan, const struct uid_plan *uids, int *fds, struct hc_err *err);

#endif
