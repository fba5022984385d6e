/* Where in the program: file names as the guest's tools print them, lines of the source, columns from markers. */
#ifndef HC_RUN_EXPLAIN_PLACE_H
#define HC_RUN_EXPLAIN_PLACE_H

#include "run/explain.h"
#include "run/explain_lines.h"

/* Whether a file, as it was printed, is one of the program's. */
bool place_is_own(const struct explain_context *context, const char *file);
/* The one line of the program that begins so, but for its indent; nothing where there is none or more than one. */
void place_by_line(const struct explain_context *context, const char *begins, struct diagnosis *found);
/* Makes the file's name relative to the working directory, and finds the source line and, where a marker below it shows
 * it, the column. */
void place_settle(const struct explain_context *context, const struct lines *lines, struct diagnosis *found);

#endif
