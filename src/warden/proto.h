/*
 * What the warden and its client say to each other: one struct of a fixed size over a SOCK_SEQPACKET pair, with fds
 * beside it. No text from outside is in it; argument lists and files travel as sealed memfds that only the job itself
 * opens, in its cell, as the guest.
 *
 * An argument block is a row of words, each NUL-terminated: the number of arguments, the number of variables (both
 * decimal), the working directory, the arguments, the variables (K=V).
 */
#ifndef HC_WARDEN_PROTO_H
#define HC_WARDEN_PROTO_H

#include "base/err.h"
#include "cell/spec.h"
#include "kernel/reported.h"
#include <stdint.h>

enum { WARDEN_PROTOCOL = 5 };

/* What the warden is born with, by number. */
enum { WARDEN_CLIENT_FD = 3, WARDEN_SETUP_FD = 4, WARDEN_CGROUP_FD = 5, WARDEN_FIRST_FREE_FD = 12 };

/* In the number of every cell that lasts, and of no other: those of a client that is gone meet no new ones. */
#define WARDEN_LASTING (1ULL << 63)
enum { WARDEN_KEEP_MAX = 8 };

/* Layers that hold for a cell; the words of `isolation.layers` in a result are in this order. */
enum isolation_layer {
    ISOLATION_USER = 1 << 0,
    ISOLATION_MOUNT = 1 << 1,
    ISOLATION_PID = 1 << 2,
    ISOLATION_NET = 1 << 3,
    ISOLATION_IPC = 1 << 4,
    ISOLATION_UTS = 1 << 5,
    ISOLATION_CGROUP = 1 << 6, /* the namespace */
    ISOLATION_MEMORY = 1 << 7, /* controllers, from here */
    ISOLATION_CPU = 1 << 8,
    ISOLATION_PIDS = 1 << 9,
    ISOLATION_SECCOMP = 1 << 10,
    ISOLATION_LANDLOCK = 1 << 11,
    ISOLATION_ALL = (1 << 12) - 1,
};

enum warden_type {
    WARDEN_SETUP =
        1, /* keeper →, first, over a socket of its own: what the warden has; fds as struct warden_setup says */
    WARDEN_HELLO,      /* warden → client, once */
    WARDEN_CELL_NEW,   /* client →: spec; fds, sealed memory files: [its mounts, an array], [its lookups] */
    WARDEN_CELL_READY, /* → client, if it asked for it; or WARDEN_CELL_FAILED */
    WARDEN_CELL_FAILED,
    WARDEN_CELL_DESTROY, /* client →; answered by CELL_GONE */
    WARDEN_CELL_GONE,
    WARDEN_JOB_START,   /* client →: job; fds: stdin, stdout, stderr, argument block, [files] */
    WARDEN_JOB_STARTED, /* → client, if it asked for it: the program was exec'ed */
    WARDEN_JOB_ENDED,   /* → client: facts; or err when it never started */
    WARDEN_JOB_KILL,    /* client →: reason */
    WARDEN_CLIENT,      /* keeper →, of a service: fd, the socket of a new client, who gets a HELLO */
    WARDEN_HOST_WANTED, /* → keeper: host, slot; answered alike, with the detached mount as an fd, or err */
    WARDEN_POOL,        /* keeper →, of a service: pool_spec. → client: pool, whenever it has changed */
    WARDEN_WARM,        /* keeper →, of a service: warm_spec; fds: an argument block for each of its programs */
    WARDEN_PING,        /* keeper →, of a service: answered alike, so that one that hangs is noticed */

    /* Of cells that last: warden/lasting.c */
    WARDEN_KEEP, /* client →: fds to keep for it, of a cell (job 0) or of a job; those before are let go */
    WARDEN_HELD, /* client →; answered alike for each cell and each of its jobs that are there, with the fds that
                    were kept; the last answer has no cell */
    WARDEN_CELL_USAGE,  /* client →; answered alike, with usage */
    WARDEN_CELL_FREEZE, /* client →: on; answered alike, with on as it is now, or err */
    WARDEN_JOB_SIGNAL,  /* client →: signal, for the job's process group */
    WARDEN_JOB_SWEEP,   /* client →: ends all processes of a job but its main one, and but those that are older than
                           `since`; then that gets `signal`, if not 0 */
    WARDEN_JOB_FORGET,  /* client →: it has heard of the job's end */
    WARDEN_JOB_CALLS,   /* → client: calls that were refused to what the job left running, after it had ended */
};

/* How a job came to be. Nothing about its cell or its seal differs. */
enum job_start {
    START_COLD,   /* exec'ed on request */
    START_WARM,   /* forked from a zygote */
    START_PRIMED, /* it was waiting, sealed, in a cell of its own */
};

/* Cells that are built before anybody asks for one. */
struct pool_spec {
    uint32_t least, most;  /* how many wait; in between demand decides. most 0: none */
    struct cell_spec cell; /* what they are. A cell that differs in its disk alone can be had from the pool as well */
};

enum warm_kind { WARM_ZYGOTE, WARM_PRIMED };
enum { WARM_MAX_STAGES = 2 };

/* An interpreter that is started before anybody asks for it. Only the keeper defines one: a zygote is trusted. */
struct warm_spec {
    uint64_t id;          /* by which jobs ask for it: warm_id of run/warm.h. Never 0 */
    uint32_t kind;        /* enum warm_kind */
    uint32_t stages;      /* programs; a primed cell may have one that waits for each stage, a zygote is one */
    uint32_t eager;       /* start it at once, rather than when first asked for */
    uint32_t least, most; /* primed: how many wait, once it is in use */
    uint32_t forks;       /* zygote: replaced after that many */
    uint64_t age;         /* µs; whatever waits is replaced when it is that old, or ended when nobody asked for it */
    struct job_limits limits; /* primed: while it waits */
};

/* The pool as it stands. */
struct pool_facts {
    uint32_t ready, building, target; /* cells */
    uint32_t zygotes, primed;         /* that wait for work */
    uint64_t hits, misses;            /* cells taken from the pool; cells that could have been */
};

enum job_end {                    /* what ended it */
               JOB_EXITED,        /* by itself, or by a signal of its own making */
               JOB_TIMED_OUT,     /* wall clock */
               JOB_CPU_TIME,      /* cpu_time used up */
               JOB_OUT_OF_MEMORY, /* the kernel's oom_kill counter rose */
               JOB_OUTPUT,        /* the client said so */
               JOB_CANCELLED,     /* the client said so */
               JOB_SHUTDOWN,      /* the warden is going */
               JOB_NOT_STARTED,   /* err says why */
};

enum job_kind {
    JOB_PROGRAM,  /* unpack files if there are any, then exec argv */
    JOB_COLLECT,  /* helper: end what still runs in the cell, then write the files that match argv's patterns to stdout
                     (cell/archive.h) */
    JOB_FILES,    /* helper: what argv says with the files of the cell (cell/files.h) */
    JOB_TERMINAL, /* exec argv in a terminal, whose other end goes out by the door (cell/hand.h) */
    JOB_CONNECT,  /* helper: a connection to the port argv[0] goes out by the door */
};

/* Where the fd of files is unpacked: below the working directory; or, what was collected from "/", where it was. */
enum job_files { JOB_FILES_NONE, JOB_FILES_WORK, JOB_FILES_ROOT };

struct job_spec {
    uint32_t kind;
    uint32_t has_files; /* enum job_files */
    uint32_t sweep;     /* first end what earlier jobs left running in the cell */
    uint32_t last;      /* the cell goes when it ends: nobody has to say so */
    uint32_t untold;    /* and nobody needs to hear when it has gone */
    uint32_t final;     /* and so does the warden: the kernel clears its pid namespace faster than any messages could */
    uint32_t stage;     /* which program of a primed cell it is for */
    uint32_t has_door;  /* the last fd is a socket for it: fd 3 of the program. Only in cells that last */
    uint64_t warm;      /* JOB_PROGRAM: the id of what may stand in for an exec; 0: nothing. Unknown ids start cold */
    struct job_limits limits;
    uint64_t collect_limit; /* JOB_COLLECT: bytes */
};

struct job_facts {
    uint32_t end;      /* enum job_end */
    int32_t exit_code; /* when it exited; -1 otherwise */
    int32_t signal;    /* when a signal ended it; 0 otherwise */
    uint32_t counted;  /* bits of ISOLATION_MEMORY, _CPU, _PIDS: whose figures below are the kernel's own for the whole
                          job; the others come from wait4 */
    uint64_t wall, cpu, user, system; /* µs */
    uint64_t memory_peak;
    uint64_t pids_peak;
    uint64_t oom_kills;    /* of this job */
    uint64_t pids_denied;  /* forks refused by the limit */
    uint64_t started_at;   /* CLOCK_MONOTONIC µs of the exec, or of what stood in for it */
    uint32_t start;        /* enum job_start */
    struct reported calls; /* refused, of those that are reported */
};

/* What all jobs of a cell that lasts use together, now. */
struct cell_usage {
    uint64_t memory, memory_peak, pids, cpu;
    uint64_t oom_kills;
    uint32_t jobs; /* that run */
    uint32_t frozen;
};

struct warden_setup {
    uint32_t cgroup_mode;        /* enum cgroup_mode */
    uint32_t cgroup_controllers; /* enum cgroup_controller */
    char cgroup_ready[32];       /* the group that is there for the first cell */
    uint32_t spare_net;          /* an fd of a network namespace for the first cell follows init's */
    uint32_t cgroup_slots;       /* bit n: the base folder of slot n is open as WARDEN_CGROUP_FD + n */
    uint32_t many_uids;          /* 0: one uid is all there is */
    uint32_t may_setgroups;
    uint32_t service; /* clients come and go. The last fd is for asking the keeper for host folders; without a service
                         it is for what the keeper is to let go of last (kernel/later.h) */
};

struct warden_message {
    uint32_t protocol, type;
    uint64_t cell, job;  /* the client's own numbers */
    uint32_t isolation;  /* HELLO: the layers that hold. CELL_NEW: those that must, or there is no cell */
    uint32_t reason;     /* JOB_KILL: enum job_end */
    uint32_t host, slot; /* HOST_WANTED: which folder, for the cell with which uids */
    uint64_t warm;       /* CELL_NEW: the cell of a primed one, if there is one; 0: any */
    uint32_t verbose;    /* CELL_NEW: say CELL_READY, and JOB_STARTED of its jobs. Each message wakes somebody */
    uint32_t pooled;     /* CELL_READY: it was there already */
    uint32_t lasting;    /* CELL_NEW: it stays when its client goes, and its jobs share limits and end one by one. Its
                            number is the client's choice, with this bit: WARDEN_LASTING */
    uint32_t over;       /* HELD: the cell, or the job, has ended; facts and err say how */
    uint32_t on;         /* CELL_FREEZE */
    uint32_t witness;    /* HELLO: refused calls are reported (cell/witness.h) */
    int32_t signal;      /* JOB_SIGNAL, JOB_SWEEP */
    uint64_t since;      /* JOB_SWEEP: CLOCK_MONOTONIC µs; 0: all of them */
    struct cell_usage usage;
    struct job_limits cell_limits; /* CELL_NEW of one that lasts: what its jobs may use together */
    struct warden_setup setup;
    struct hc_err err; /* CELL_FAILED, JOB_ENDED with JOB_NOT_STARTED, a failed HELLO; in a good HELLO (code 0) message
                          and remedy tell why a limit cannot be held here */
    struct cell_spec cell_spec;
    struct job_spec job_spec;
    struct job_facts facts;
    struct pool_spec pool_spec;
    struct warm_spec warm_spec;
    struct pool_facts pool;
};

#endif
