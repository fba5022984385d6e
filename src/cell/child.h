/* What the two kinds of children, the one that builds a cell and the one that enters it, have in common. */
#ifndef HC_CELL_CHILD_H
#define HC_CELL_CHILD_H

#include "base/err.h"

struct child_step { /* plan, then act: a list of these is carried out in order, and the first failure is the last act */
    const char *what;
    int (*act)(void *plan, struct hc_err *err);
};

/* Carry out the steps. Returns only on success. On failure the error, with the step's name before it, goes into the
 * pipe *report, which a step may move, and the process ends: no step may fail and let what comes after it happen. */
void child_run(const struct child_step *steps, unsigned count, void *plan, const int *report);
/* The same end for a failure outside a step. */
_Noreturn void child_die(int report, struct hc_err *err);
/* Move fds to first, first+1, … (close-on-exec), and close everything else but 0 to 2. fds[i] is updated; -1 stays -1.
 */
int child_keep_fds(int first, int **fds, unsigned count, struct hc_err *err);

#endif
