/* See place.h. */
#include "kernel/place.h"

/* This processor, or the others of those. False: there is no choice. */
static bool choose(bool here, const cpu_set_t *allowed, cpu_set_t *wanted)
{
    int cpu = sched_getcpu();
    if (cpu < 0 || cpu >= CPU_SETSIZE || CPU_COUNT(allowed) < 2)
        return false;
    CPU_ZERO(wanted);
    CPU_SET(cpu, wanted);
    if (!here)
        CPU_XOR(wanted, allowed, wanted);
    return true;
}

/* The first call moves it, if it has not begun by then; the second lets it go where it might before. */
static void place(pid_t child, bool here, const cpu_set_t *allowed)
{
    cpu_set_t wanted;
    if (choose(here, allowed, &wanted) && sched_setaffinity(child, sizeof wanted, &wanted) == 0)
        (void)sched_setaffinity(child, sizeof *allowed, allowed);
}

void hc_place_note(cpu_set_t *allowed)
{
    if (sched_getaffinity(0, sizeof *allowed, allowed) < 0)
        CPU_ZERO(allowed);
}

void hc_place_elsewhere(pid_t child, const cpu_set_t *allowed)
{
    place(child, false, allowed);
}

void hc_place_here(pid_t child)
{
    cpu_set_t allowed;
    hc_place_note(&allowed);
    place(child, true, &allowed);
}

bool hc_place_hold(cpu_set_t *allowed)
{
    cpu_set_t here;
    hc_place_note(allowed);
    return choose(true, allowed, &here) && sched_setaffinity(0, sizeof here, &here) == 0;
}

void hc_place_release(const cpu_set_t *allowed)
{
    (void)sched_setaffinity(0, sizeof *allowed, allowed);
}
