/* The network of a cell: an empty namespace with a loopback of its own. */
#ifndef HC_CELL_NET_H
#define HC_CELL_NET_H

#include "base/err.h"

/* Raise `lo` in the network namespace that we are in. */
int net_raise_loopback(struct hc_err *err);
/* A fresh network namespace that belongs to the user namespace of `owner` (a pidfd), with its loopback up: its fd, or
 * -errno. It is made by a child of ours, for our own namespaces stay what they are. Making one takes longer than
 * anything else about a cell (0.6 ms here), so the keeper does it while the warden starts. */
int net_make(int owner);

#endif
