/*
 * The memory that programs of a zygote write to, found out by a rehearsal. A zygote's child shares its memory with the
 * zygote until it writes to it: then each page is copied, at a price of two or three microseconds, and starting an
 * interpreter's program writes to some hundreds. So a zygote first makes one child of its own that runs a program of
 * its driver's, and that tells which pages it got for itself; later children ask the kernel for these before their
 * program has come, all at once.
 *
 * Nothing that a guest does has a part in it: the rehearsal is of a trusted file, outside of any cell, as the driver
 * is. A kernel or an interpreter that does not play along costs nothing but the gain.
 */
#ifndef HC_CELL_WARM_PAGES_H
#define HC_CELL_WARM_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* "PROGRAM NAME WORD…": the program's file, the name that it gets in the working directory, and the command by which it
 * is started, as a request's would be. */
#define WARM_REHEARSAL "HOTCELL_REHEARSAL"

enum { WARM_MOST_RANGES = 2048, WARM_MOST_PAGES = 16384 };

struct warm_pages {
    size_t count;
    struct iovec list[WARM_MOST_RANGES];
};

/* In a zygote that has just begun, before its interpreter has: the heap will begin where a large piece may. */
void warm_pages_begin(void);
/* The argument block of the rehearsal's program, which is what most programs get; -1: there is none. */
int warm_pages_block(void);
/* In a zygote that has one thread, after that. Forks by `fork_really`, libc's own. In the child, which returns true,
 * the program's file is in place, and 0 to 2 are its own; when that process exits, it reports. The zygote gets false
 * when all this is over; *pages is empty where nothing was learnt. */
bool warm_pages_rehearse(int (*fork_really)(void), struct warm_pages *pages);
/* Where memory of this size is best mapped, so that what is mapped lies in large pieces; NULL: anywhere. */
void *warm_pages_place(size_t length);
/* At the end of that child where it leaves by _exit. Does nothing in any other process. */
void warm_pages_report(void);
/* In a child: has them copied, as far as `most` bytes go. */
void warm_pages_take(const struct warm_pages *pages, uint64_t most);

#endif
