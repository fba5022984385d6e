/*
 * The inner end of a session's or context's door (languages/README.md), for drivers in C: a stream socket, through
 * which come calls, each with four fds, and go frames of JSON.
 */
#ifndef HC_CELL_DOOR_H
#define HC_CELL_DOOR_H

#include <stddef.h>

enum { DOOR_FD = 3, DOOR_CALL_FDS = 4 /* code, stdin, stdout, stderr */ };

/* The door, fd 3 or else fd 0, moved out of the way; -errno. */
int door_take(void);
/* Moves an fd to where scripts do not expect any, as high as the limit of open files allows, close-on-exec. The old
 * one is closed. -errno. */
int door_move_away(int fd);
/* Waits for a call. 1: there is one, its fds are the caller's; 0: the door was closed; -EPROTO: what came is no call;
 * -errno. A signal does not end it. */
int door_next(int door, long long *id, int fds[DOOR_CALL_FDS]);
/* One frame, whole. 0 or -errno. */
int door_send(int door, const char *text, size_t length);

#endif
