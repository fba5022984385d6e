/*
 * On which processor a child begins. The kernel puts a new process where it thinks best, and some put it behind its
 * parent, on a processor that is busy, while another has nothing to do: each of the four forks of a cold start can wait
 * for half a millisecond that way. Whoever makes the child knows better what comes next. These are wishes: where they
 * cannot be had, with one processor for instance, the child begins where the kernel puts it. Afterwards it may run
 * wherever its parent may. Not for what lives long: processors that are added later are not among those.
 */
#ifndef HC_KERNEL_PLACE_H
#define HC_KERNEL_PLACE_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* Where this process may run. */
void hc_place_note(cpu_set_t *allowed);
/* Its parent goes on working. Afterwards the child may run where `allowed` says: what the parent finds out for itself
 * may be wrong, for whoever made the parent may be about to place that. */
void hc_place_elsewhere(pid_t child, const cpu_set_t *allowed);
/* Its parent is about to wait, and the others are at work. */
void hc_place_here(pid_t child);
/* Children that are made before hc_place_release begin here. False: there is nothing to release. */
bool hc_place_hold(cpu_set_t *allowed);
void hc_place_release(const cpu_set_t *allowed);

#endif
