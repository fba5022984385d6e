/*
 * How the gateway gives up what it does not need, in two steps: files first, before the store's thread is born
 * (Landlock holds for a thread and those it starts), and system calls last, for all threads. What it was before that,
 * the keeper has seen to (serve/spawn.c): own uid, no capabilities, no_new_privs, a root with nothing in it, no
 * network.
 */
#ifndef HC_GATEWAY_SEAL_H
#define HC_GATEWAY_SEAL_H

#include "base/err.h"

int seal_files(struct hc_err *err);
int seal_calls(struct hc_err *err);

#endif
