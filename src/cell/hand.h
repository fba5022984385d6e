/*
 * What goes out of a cell by its door (fd 3, a unix socket whose other end the client has): an open file of the cell's
 * own, made by a job that is sealed already. One byte goes with it. Whoever receives it looks what it is.
 */
#ifndef HC_CELL_HAND_H
#define HC_CELL_HAND_H

#include "base/err.h"

/* A new terminal: its one end goes out, the other becomes this process's controlling terminal and fds 0 to 2. */
int hand_terminal(int door, struct hc_err *err);
/* A connection to a TCP port ("8000") of the cell's loopback goes out. */
int hand_connection(int door, const char *port, struct hc_err *err);

#endif
