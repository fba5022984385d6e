/*
 * The system calls that are refused and reported: those that syscalls.h marks so, in the order of their numbers. What a
 * job made of them is told as a row of counts, one for each call, which every program of one build reads alike.
 */
#ifndef HC_KERNEL_REPORTED_H
#define HC_KERNEL_REPORTED_H

#include <stdbool.h>
#include <stdint.h>

enum {
    REPORTED_MAX = 64,    /* there are fewer */
    REPORTED_MOST = 1000, /* counted no further: so many, or more */
};

struct reported {
    uint16_t count[REPORTED_MAX];
};

/* Its place in the row, or -1: calls of this number are not reported. */
int reported_index(int number);
/* What its caller is told. */
int reported_error(unsigned index);
/* NULL: there are not so many. */
const char *reported_name(unsigned index);

void reported_add(struct reported *row, unsigned index);
bool reported_any(const struct reported *row);
/* Adds `more`. */
void reported_sum(struct reported *row, const struct reported *more);
/* What `now` has and `before` had not. */
struct reported reported_since(const struct reported *now, const struct reported *before);
/* Of a row that somebody else has written: counts that can be, of calls that there are; others are 0. */
void reported_check(struct reported *row);

#endif
