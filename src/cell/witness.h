/*
 * The witness: theory of operation.
 *
 * A guest that tries mount(2) or bpf(2) is refused; that it tried is to be written down. The kernel tells nobody of a
 * call that a filter refuses by itself, but a filter can leave a call to a listener (seccomp_unotify(2)): the caller
 * waits, the listener hears of the call and says what its result is. So the filter of a server's jobs leaves the calls
 * that syscalls.h marks REPORT, and only these, to a listener, who counts them and refuses them with the errno that the
 * filter would have given. It never lets one happen.
 *
 * The listener is pid 1 of the cell (init.c), and not the warden, because it works at the pace of the guest: what it
 * uses is charged to the cell's control group, a flood of such calls slows down nobody but the cell, and it ends with
 * the cell. The warden reads numbers, when a job has ended.
 *
 *   door   a socket. A job makes its filter as the last step of its seal, gets the listener's fd, sends it here with
 *          the number by which the warden knows the job, and closes it, before anything of the guest's is read. It lies
 *          in the socket until it is needed, so that nobody is woken by a job that makes no such call.
 *   bell   an epoll instance that the job and pid 1 share. The job adds the listener; pid 1 waits for nothing else. It
 *          rings when a call is left to the listener, and when the last process that has the filter is gone.
 *   book   a memory file. A row for each job, found by its number, which pid 1 writes before it answers.
 *
 * What always holds: such a call never happens. The filter can only leave it to the listener or, when there is none
 * any more, have the kernel refuse it (ENOSYS). A guest has no fd of the listener, the door, the bell or the book, and
 * cannot get one of pid 1's, which is not dumpable. It cannot make a listener of its own (syscalls.h, seccomp).
 * After WITNESS_ANSWERS of one job's calls pid 1 closes its listener: a flood costs no more than these. (Last words,
 * below, do not count there: they leave no row, and must not use up what a row is written for.)
 *
 * The last word. An exit takes a tenth of a millisecond from exit_group(2) to the point at which the kernel tells of
 * it: the memory of the process goes in between. So a program that began warm and is at its end (warm_preload.c) closes
 * its files and calls exit_group with WITNESS_LAST as a second argument, which the kernel does not look at and the
 * filter does. pid 1 hears of it from the kernel: who calls, and with which code. If that is the job's first process,
 * it passes the code on by the door, once in the life of a job, and the warden takes it for the end of the job if
 * nobody else is in the cell (job_last_word), and ends the cell. The caller waits for an answer, and no signal but that
 * one gets it out of there (SECCOMP_WAIT_FIRM; where the kernel has no such thing, no last word counts); where the
 * warden waits for the end itself, it says so by the door, or nothing for WITNESS_HOLD_MS; then the call is refused,
 * and made without the argument. A program that says it for itself has ended just so.
 */
#ifndef HC_CELL_WITNESS_H
#define HC_CELL_WITNESS_H

#include "base/err.h"
#include "kernel/reported.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    WITNESS_DOOR_FD = 5, /* what pid 1 has, by number: after a pipe and itself, which close by its exec */
    WITNESS_BELL_FD,
    WITNESS_BOOK_FD,
    INIT_BUILT_FD,   /* where it says that it runs (enter.c) */
    INIT_LOOKUPS_FD, /* names, where there are any (init.c) */
    WITNESS_ROWS = 1024,
    WITNESS_ANSWERS = 4096,
    WITNESS_LAST = 0x62796521, /* as syscalls.h has it */
    WITNESS_HOLD_MS = 1000,    /* longer than the warden takes to end the cell, or to answer */
};

/* Of one cell; all -1 where nothing is reported. `door` is the end to send to. */
struct witness {
    int door, bell, book;
};

struct witness_row {
    uint64_t job; /* 0: of none */
    struct reported calls;
};

/* What comes by the door, with the listener's fd. */
struct witness_word {
    uint64_t job;
    int32_t pid; /* of the job's first process, as the cell sees it, if its last word counts; or 0. Without an fd: the
                    answer to that word */
    int32_t unused;
};

/* And what goes out by it: a program's last word. */
struct witness_last {
    uint64_t job;
    int32_t code; /* that it gave to exit_group(2) */
    int32_t unused;
};

void witness_init(struct witness *witness);
/* *inside: the end of the door for pid 1, which is the caller's as well. On failure nothing is left open. */
int witness_make(struct witness *witness, int *inside, struct hc_err *err);
void witness_close(struct witness *witness);

/* For a job that has just loaded its filter: the listener is pid 1's after it. `speaker`: whose last word counts; 0:
 * nobody's. Closes the listener and both ends of the job's way to it, also on failure. */
int witness_hand(int door, int bell, int listener, uint64_t job, pid_t speaker, struct hc_err *err);

/* The answer to a last word that does not count: whoever said it goes on. Without it, it does later. */
void witness_refuse(int door, uint64_t job);

/* Of the last words that came, the next. False: there is none, and *gone says whether there can be no more. */
bool witness_hear(int door, struct witness_last *last, bool *gone);

/* pid 1's half, and the warden's. A row that is not of this job, or not to be believed, reads as zeros. */
void witness_write(int book, const struct witness_row *row);
void witness_read(int book, uint64_t job, struct reported *calls);

#endif
