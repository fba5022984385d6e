/* What this kernel gives us, by trying. Each probe runs in a child of its own and leaves nothing behind. */
#ifndef HC_KERNEL_PROBE_H
#define HC_KERNEL_PROBE_H

/* Try to make a namespace of this kind (a CLONE_NEW* flag) as we would for a cell, inside a new user namespace. 0 or -errno. */
int hc_probe_namespace(int flag);

#endif
