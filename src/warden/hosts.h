/*
 * Host folders that the operator allows to be mounted, as real root can hand them down: detached, read-only where they are allowed for reading alone, and with the
 * owner of each folder shown as the guest (an idmapped mount), so that what is allowed is also usable. The host's root is shown as the guest
 * only where nothing can be written: otherwise a guest could leave programs behind that run as root.
 */
#ifndef HC_WARDEN_HOSTS_H
#define HC_WARDEN_HOSTS_H

#include "cell/image.h"
#include "warden/uids.h"

/* Fills fds[i] for each of plan->host with a detached mount, or -1: then the image binds it by path. Only for real root; a folder that is
 * not there is -1. */
int hosts_open(const struct image_plan *plan, const struct uid_plan *uids, int *fds, struct hc_err *err);

#endif
