/*
 * What the warden and hotcell-warm.so say to each other. The library is preloaded into an interpreter that is started
 * before there is a program for it. It has one fd besides 0 to 2, the door: a SOCK_SEQPACKET socket to the warden.
 *
 * A zygote (WARM_MODE=zygote) is trusted and outside of any cell. Its driver calls fork() once. That call returns only
 * in children, each of which is in its cell and sealed by then (enter.c); the zygote itself stays in it for ever.
 * A primed program (WARM_MODE=primed) was exec'ed in its cell and is sealed. Its driver opens WARM_PROGRAM once, for
 * reading; that call returns when there is a program for it.
 *
 * Either way, when the call returns: 0 to 2 are the program's, the files are unpacked, the working directory is its
 * own, `environ` is its own, and the argument block (proto.h) can be read: from fd 3 in a zygote's child, from the fd
 * that was opened in a primed one. The driver closes it.
 *
 * A zygote's child may be made before there is a program for it, and waits for that in its fork(). A driver that has
 * something to do meanwhile says WARM_WAIT=open in its environment: fork() then returns at once, sealed but with
 * nothing of a program's, and the child opens WARM_PROGRAM when it has done, as a primed driver does.
 *
 * A driver that says WARM_SCRIPT=FILE, the name of a program in its folder, is spared to look at what most programs are
 * given. Where the words are those of the rehearsal (warm_pages.h), and FILE does not begin with "#!", fd 3 is not the
 * block, but FILE.
 *
 * Where a driver is asked before its interpreter has done starting, and can be called once more when it has, it opens
 * WARM_LATER and lets it go on; it is called where the interpreter next opens a file (warm_python.h). One that opens
 * WARM_READ is called where the interpreter next reads its program, which is fd 3 (warm_perl.h).
 *
 * A primed driver that finds that it cannot run this very program as a cold start would opens WARM_COLD: the process
 * becomes the cold start, by an exec of the block's own words. Its seal, its fds and its pid stay.
 */
#ifndef HC_CELL_WARM_H
#define HC_CELL_WARM_H

#include "cell/entry.h"

#define WARM_MODE "HOTCELL_WARM" /* the variables before it are those that a program gets */
#define WARM_WAIT "HOTCELL_WAIT"
#define WARM_PROGRAM "/.hotcell/program"
#define WARM_COLD "/.hotcell/cold"
#define WARM_LATER "/.hotcell/later"
#define WARM_READ "/.hotcell/read"
#define WARM_SCRIPT "HOTCELL_SCRIPT"
enum { WARM_DOOR_FD = 3 };

/* Library →: it waits at the door. A zygote's later ones answer a request: a pidfd comes with it, or code says why
 * there is none. */
struct warm_word {
    int32_t code; /* errno */
    int32_t pid;  /* as the zygote sees it; 0: it waits for its first */
};

/* → zygote. fds: cell, report, stdin, stdout, stderr, block, a folder for each bit of groups, [files], [door], and the
 * witness's door and bell if the entry has a number there. A child with a door waits there, in its cell and sealed, for
 * its program, as one that was primed does. */
struct warm_request {
    uint32_t groups; /* bit n: cgroup slot n */
    uint32_t has_files, has_door;
    struct entry entry; /* entry_size of it */
};

/* → who waits in a cell. fds: report, stdin, stdout, stderr, block, [files]. */
struct warm_program {
    uint32_t has_files, from_root;
    uint32_t last_word; /* its end is waited for: it may say it ahead (witness.h) */
    char work_dir[256];
};

#endif
