/* See reported.h. */
#include "kernel/reported.h"

#include <stddef.h>

static const struct {
    int number, error;
    const char *name;
} calls[] = {
#include "seccomp_reported.h"
};
#define CALLS (sizeof calls / sizeof *calls)
_Static_assert(CALLS <= REPORTED_MAX, "a row has no place for all of them");

int reported_index(int number)
{
    for (size_t i = 0; i < CALLS; i++)
        if (calls[i].number == number)
            return (int)i;
    return -1;
}

int reported_error(unsigned index)
{
    return calls[index].error;
}

const char *reported_name(unsigned index)
{
    return index < CALLS ? calls[index].name : NULL;
}

void reported_add(struct reported *row, unsigned index)
{
    if (row->count[index] < REPORTED_MOST)
        row->count[index]++;
}

bool reported_any(const struct reported *row)
{
    for (unsigned i = 0; i < REPORTED_MAX; i++)
        if (row->count[i])
            return true;
    return false;
}

void reported_sum(struct reported *row, const struct reported *more)
{
    for (unsigned i = 0; i < REPORTED_MAX; i++) {
        unsigned sum = (unsigned)row->count[i] + more->count[i];
        row->count[i] = (uint16_t)(sum < REPORTED_MOST ? sum : REPORTED_MOST);
    }
}

struct reported reported_since(const struct reported *now, const struct reported *before)
{
    struct reported more = {{0}};
    for (unsigned i = 0; i < REPORTED_MAX; i++)
        if (now->count[i] > before->count[i])
            more.count[i] = (uint16_t)(now->count[i] - before->count[i]);
    return more;
}

void reported_check(struct reported *row)
{
    for (unsigned i = 0; i < REPORTED_MAX; i++) {
        if (i >= CALLS)
            row->count[i] = 0;
        else if (row->count[i] > REPORTED_MOST)
            row->count[i] = REPORTED_MOST;
    }
}
