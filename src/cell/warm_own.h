/*
 * What an interpreter has set up for itself as it started, and entering a cell takes away: the handlers of signals, and
 * what wakes its threads. In hotcell-warm.so.
 */
#ifndef HC_CELL_WARM_OWN_H
#define HC_CELL_WARM_OWN_H

/* In the zygote, before it forks. */
void warm_own_remember(void);
/* In a child. Where that cannot be had, the process ends. */
void warm_own_restore(void);

#endif
