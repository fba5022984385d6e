/*
 * Patterns for paths: * and ? within one component, [a-z] and [!a-z], ** for any number of components, \ before a
 * character that stands for itself. A leading dot is nothing special. Time is bounded by the product of the lengths,
 * whatever the pattern: the paths are the guest's.
 */
#ifndef HC_CELL_GLOB_H
#define HC_CELL_GLOB_H

#include <stdbool.h>

bool glob_match(const char *pattern, const char *path);
/* Whether something below the folder `path` could match; may say yes too often. */
bool glob_may_match_below(const char *pattern, const char *path);

#endif
