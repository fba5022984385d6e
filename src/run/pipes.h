/*
 * The pipes that guests write to, and we read: any number on one loop, each told apart by its job and its number. The
 * writing end belongs to a job in a cell; end of file comes when everything that held it is dead.
 */
#ifndef HC_RUN_PIPES_H
#define HC_RUN_PIPES_H

#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pipe_end;

struct pipes {
    struct hc_loop *loop;
    struct pipe_end *first;
    uint64_t quiet; /* µs for which nobody need hear what is written: whoever writes for longer is listened to */
    struct hc_timer *wait; /* until then */
    void *data;
    void (*bytes)(void *data, uint64_t job, int number, const char *bytes, size_t length);
    void (*after)(void *data); /* the last thing in every event: everything may be freed in here */
};

/* The end that is to be sent goes to *write_end, the caller's. 0 or -errno. */
int pipes_open(struct pipes *pipes, uint64_t job, int number, int *write_end);
/* From now on what is written is heard of at once, and what is there already is read, without `after`. */
void pipes_listen(struct pipes *pipes);
/* Reads what is there already, without `after`. */
void pipes_drain(struct pipes *pipes);
bool pipes_busy(const struct pipes *pipes); /* one of them is not at its end */
/* Gives away those that are not at their ends. `take` NULL: closes them. */
void pipes_leave(struct pipes *pipes, void (*take)(void *data, int fd), void *data);
void pipes_close(struct pipes *pipes);

#endif
