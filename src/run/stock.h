/*
 * What every run needs and what is the same for all, made while nobody waits: pipes, memory files, an input with
 * nothing in it, and room on the heap. One thread's.
 */
#ifndef HC_RUN_STOCK_H
#define HC_RUN_STOCK_H

/* From now on it holds enough for one run, as far as there are fds. Without this, each thing is made when it is asked
 * for. */
void stock_keep(void);
/* What was taken is made anew. */
void stock_refill(void);
void stock_drop(void);

/* 0 or -errno. Reading from ends[0] does not block. */
int stock_pipe(int ends[2]);
/* The fd, or -errno. */
int stock_memfd(void);
int stock_null(void);

#endif
