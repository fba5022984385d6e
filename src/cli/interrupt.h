/* Ctrl-C and its kin while a cell is alive: they end the cell first, then hotcell. */
#ifndef HC_CLI_INTERRUPT_H
#define HC_CLI_INTERRUPT_H

#include "hotcell.h"

/* From here on SIGINT, SIGTERM, SIGHUP and SIGQUIT are remembered rather than deadly, and SIGPIPE is an error of
 * write(2). A signal that was ignored when hotcell started (nohup, a background job) stays ignored. */
void interrupt_begin(void);
/* The engine whose run a signal ends; NULL: none. */
void interrupt_target(hc_engine *engine);
/* An eventfd that becomes readable with the first signal, for whoever waits on a connection; -1: none. */
void interrupt_wake(int fd);
/* The signal that came, or 0. */
int interrupt_caught(void);

#endif
