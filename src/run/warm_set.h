/* Which modules should be loaded already when a program starts: read from the names that its code imports. */
#ifndef HC_RUN_WARM_SET_H
#define HC_RUN_WARM_SET_H

#include "run/plan.h"

/* The smallest set of the plan's language that has every imported module which any set has; where none has them all,
 * one that has the most of them. NULL: no set has any. A guess that is wrong costs time, and changes nothing else. */
const struct language_set *warm_set(const struct plan *plan);

#endif
