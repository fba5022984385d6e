/*
 * What to change after a run that failed: the `hint` of a diagnosis is written for those who send requests, and the
 * line at the end of `hotcell run` for those who type them.
 */
#ifndef HC_BASE_REMEDY_H
#define HC_BASE_REMEDY_H

#include <stdbool.h>
#include <stddef.h>

#define HC_REMEDY_RAISE "raise limits." /* what a hint to raise a limit begins with */

/* As somebody types it: "raise --memory" for "raise limits.memory (--memory on the command line)", "--file" for
 * "`files`". */
const char *hc_remedy_typed(const char *hint, char *text, size_t size);
/* Whether what is to be changed is around the program and not in it: a limit, or what a cell has. Of the rest the
 * program has said enough itself. */
bool hc_remedy_is_around(const char *category, const char *hint);

#endif
