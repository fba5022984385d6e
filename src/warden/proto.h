/*
 * What the warden and its client say to each other: one struct of a fixed size over a SOCK_SEQPACKET pair, with fds
 * beside it. No text from outside is in it; argument lists and files travel as sealed memfds that only the job itself
 * opens, in its cell, as the guest.
 */
#ifndef HC_WARDEN_PROTO_H
#define HC_WARDEN_PROTO_H

#include "base/err.h"
#include "cell/spec.h"
#include <stdint.h>

enum { WARDEN_PROTOCOL = 1 };

/* What the warden is born with, by number. */
enum { WARDEN_CLIENT_FD = 3, WARDEN_SETUP_FD = 4, WARDEN_CGROUP_FD = 5, WARDEN_FIRST_FREE_FD = 12 };

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
        1,        /* keeper →, once, over a socket of its own: what the warden has; fds as struct warden_setup says */
    WARDEN_HELLO, /* warden → client, once */
    WARDEN_CELL_NEW,   /* client →: spec; fd, if it has mounts: their array as a sealed memory file */
    WARDEN_CELL_READY, /* → client, or WARDEN_CELL_FAILED */
    WARDEN_CELL_FAILED,
    WARDEN_CELL_DESTROY, /* client →; answered by CELL_GONE */
    WARDEN_CELL_GONE,
    WARDEN_JOB_START,   /* client →: job; fds: stdin, stdout, stderr, argument block, [files] */
    WARDEN_JOB_STARTED, /* → client: the program was exec'ed */
    WARDEN_JOB_ENDED,   /* → client: facts; or err when it never started */
    WARDEN_JOB_KILL,    /* client →: reason */
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
    JOB_PROGRAM, /* unpack files if there are any, then exec argv */
    JOB_COLLECT, /* helper: end what still runs in the cell, then write the files that match argv's patterns to stdout
                    (cell/archive.h) */
};

struct job_spec {
    uint32_t kind;
    uint32_t has_files;
    uint32_t sweep; /* first end what earlier jobs left running in the cell */
    uint32_t last;  /* the cell goes when it ends: nobody has to say so */
    uint32_t final; /* and so does the warden: the kernel clears its pid namespace faster than any messages could */
    uint32_t argc, envc; /* in the argument block: cwd, argc words, envc words, each NUL-terminated */
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
    uint64_t oom_kills;     /* of this job */
    uint64_t pids_denied;   /* forks refused by the limit */
    uint64_t cpu_throttled; /* µs */
    uint64_t started_at;    /* CLOCK_MONOTONIC µs of the exec */
};

struct warden_setup {
    uint32_t cgroup_mode;        /* enum cgroup_mode */
    uint32_t cgroup_controllers; /* enum cgroup_controller */
    uint32_t spare_net;          /* an fd of a network namespace for the first cell follows init's */
    uint32_t cgroup_slots;       /* bit n: the base folder of slot n is open as WARDEN_CGROUP_FD + n */
    uint32_t many_uids;          /* 0: one uid is all there is */
    uint32_t may_setgroups;
};

struct warden_message {
    uint32_t protocol, type;
    uint64_t cell, job; /* the client's own numbers */
    uint32_t isolation; /* HELLO: the layers that hold. CELL_NEW: those that must, or there is no cell */
    uint32_t reason;    /* JOB_KILL: enum job_end */
    struct warden_setup setup;
    struct hc_err err; /* CELL_FAILED, JOB_ENDED with JOB_NOT_STARTED, a failed HELLO; in a good HELLO (code 0) message
                          and remedy tell why a limit cannot be held here */
    struct cell_spec cell_spec;
    struct job_spec job_spec;
    struct job_facts facts;
};

#endif
