/*
 * A cell: made (cell_begin), entered by jobs (cell_enter), ended (cell_kill). All of it is called by the
 * warden, which is root in hotcell's own user namespace and nothing outside of it. None of these functions waits: what
 * takes time is done by a child, and its outcome is read from a pipe.
 */
#ifndef HC_CELL_CELL_H
#define HC_CELL_CELL_H

#include "cell/spec.h"
#include "cell/witness.h"
#include "kernel/cgroup.h"
#include <stdbool.h>
#include <sys/types.h>

enum { GUEST_UID = 1000 };

/* What all cells of a warden share. */
struct cell_host {
    struct cgroup_base cgroups;
    int init_fd;       /* hotcell-init, opened for reading */
    int pid_namespace; /* the warden's own */
    int spare_net;     /* a network namespace that was made while something else was done, for the next cell; or -1 */
    bool many_uids;    /* a range is mapped: each cell has two uids of its own. Otherwise there is one for everything */
    bool may_setgroups;
    bool landlock;   /* the kernel has it */
    bool witness;    /* its cells' refused calls are reported: witness.h */
    bool many_cells; /* at a time, which share what the kernel counts by user */
};

struct cell {
    struct cell_spec spec;
    struct cell_mount mounts[CELL_MAX_MOUNTS];
    struct witness witness;
    struct cgroup group; /* init's, and the first job's */
    unsigned slot;       /* which uids */
    pid_t pid;           /* of init, as the warden sees it */
    int pidfd;
    int report; /* the builder's pipe: end of file when the cell is ready, a struct hc_err when it is not to be */
    int built;  /* while it is being built, for a job that comes early: a byte in it when it may enter the namespaces,
                 * one when the file system is there, and one when pid 1 is */
};

void cell_init(struct cell *cell);
/* What comes beside a spec. The fds stay the caller's. */
struct cell_parts {
    const struct cell_mount *mounts;
    const int *trees; /* for each mount a detached mount of its host folder; NULL: they are in the warden's root */
    int lookups;      /* the names that pid 1 looks up, from the beginning of this memory file; or -1 */
};

/* Start building. `name` names its control group. On success cell->report is to be read until end of file. */
int cell_begin(const struct cell_host *host, const struct cell_spec *spec, const struct cell_parts *parts,
               unsigned slot, const char *name, struct cell *cell, struct hc_err *err);
/* End every process in it at once. What they hold is freed by the kernel as they go. */
void cell_kill(const struct cell *cell);
/* Its pid 1 is on its way out, or gone and not reaped yet: nothing can be started in it any more, and what is in it is
 * being killed by the kernel. */
bool cell_is_ending(const struct cell *cell);

/* What comes through a job's report when its program begins. */
struct cell_start {
    uint64_t time;         /* CLOCK_MONOTONIC, µs */
    uint64_t user, system; /* what its process, and those that it had waited for, had used by then, µs */
};

enum cell_job_kind {
    CELL_JOB_PROGRAM,
    CELL_JOB_COLLECT,  /* writes files to stdout: archive.h */
    CELL_JOB_FILES,    /* files.h */
    CELL_JOB_TERMINAL, /* a program in a terminal of its own, whose other end goes out by the door: hand.h */
    CELL_JOB_CONNECT,  /* a connection to a port of the cell's own, which goes out by the door */
};

/* What a job is: see proto.h's job_spec, of which this is the cell's half. fds stay the caller's. */
struct cell_job {
    enum cell_job_kind kind;
    bool sweep;
    bool resize; /* the scratch space was built with another size than the cell's spec says */
    struct job_limits limits;
    uint64_t collect_limit;
    int input, output, error; /* become 0, 1, 2 */
    int block;                /* argument block, a sealed memfd */
    int files;                /* archive, a sealed memfd, or -1 */
    bool files_from_root;     /* its paths begin at "/", not at the working directory */
    int door;                 /* becomes fd 3 (warm.h); or -1 */
    bool shared;              /* its cell has other jobs, with which it may have to do */
    uint64_t witness;         /* its number in the cell's book; 0: it has no filter that reports */
    int gate;                 /* of a job whose cell is still being built: a byte in it when its limits hold; or -1 */
};

/* Put a job into the cell: one fork, whose child seals itself before it runs anything of the guest's. *report as in
 * cell_begin, but a struct cell_start comes first: end of file after that once the program was exec'ed. */
int cell_enter(const struct cell_host *host, const struct cell *cell, const struct cgroup *group,
               const struct cell_job *job, pid_t *pid, int *pidfd, int *report, struct hc_err *err);

#endif
