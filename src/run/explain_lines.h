/* The lines of what a guest wrote, so few and so short that every pattern can be tried on each. */
#ifndef HC_RUN_EXPLAIN_LINES_H
#define HC_RUN_EXPLAIN_LINES_H

#include "run/capture.h"

enum { LINES_HALF = 16 * 1024, LINES_LIMIT = 1024, LINE_BYTES = 1000 };

struct lines {
    char *text; /* all of them, each with a NUL behind it */
    const char *item[LINES_LIMIT];
    size_t count;
};

/* The first and the last 16 KiB, and of these the first and last 512 lines. A NUL becomes a space, a carriage return at
 * the end goes. 0 or -ENOMEM. */
int lines_make(const struct capture *capture, struct lines *lines);
void lines_release(struct lines *lines);

#endif
