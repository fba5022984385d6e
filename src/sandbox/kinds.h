/* The kinds of fixtures there are, and what they share. */
#ifndef HC_SANDBOX_KINDS_H
#define HC_SANDBOX_KINDS_H

#include "sandbox/sandbox.h"

extern const struct fixture_kind work_kind; /* work.h: detached jobs */

/* By the word that was saved; NULL: there is none. */
const struct fixture_kind *fixture_kind_find(const char *word);

int64_t sandbox_wall_clock(void); /* µs since the epoch */

#endif
