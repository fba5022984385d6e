/* What signals are called. The C libraries disagree (glibc: "Floating point exception", musl: "Arithmetic exception"),
 * and what hotcell says must not depend on which of them a program of ours was built with. */
#ifndef HC_BASE_SIGNAME_H
#define HC_BASE_SIGNAME_H

/* "SIGKILL"; NULL for a number that has no name, such as a real-time signal's. */
const char *hc_signal_name(int number);
/* "killed", in the middle of a sentence; NULL where there is no name. */
const char *hc_signal_meaning(int number);
/* The number of "SIGTERM", "TERM" or "term"; -1: there is none. */
int hc_signal_number(const char *name);

#endif
