/*
 * Control groups: what a job may use, and the kernel's own count of what it used.
 *
 * The keeper makes one base folder a hotcell, in every hierarchy that is needed, and gives it to the warden's uid. The
 * warden makes one group a job below it. Version 2, version 1 and both together (hybrid: version 1 controllers, and a
 * version 2 leaf for cgroup.kill and cpu.stat) differ only in the table of functions behind this header.
 *
 * A base folder is named hotcell-<number> and locked (flock) by its keeper for as long as that lives; one that nobody
 * holds is left over from a crash, and the next keeper removes it.
 */
#ifndef HC_KERNEL_CGROUP_H
#define HC_KERNEL_CGROUP_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

/* One folder each. Version 2 uses the first alone. */
enum cgroup_slot { CGROUP_UNIFIED, CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS, CGROUP_CPUACCT, CGROUP_SLOTS };

enum { CGROUP_ORDINARY_SHARES = 1024 };

enum cgroup_controller { CGROUP_HAS_MEMORY = 1, CGROUP_HAS_CPU = 2, CGROUP_HAS_PIDS = 4, CGROUP_HAS_ALL = 7 };

struct cgroup_base {
    enum cgroup_mode mode;
    uint32_t controllers;  /* enum cgroup_controller: what can be enforced */
    int dir[CGROUP_SLOTS]; /* the base folder; -1 where not used */
    char ready[32];        /* the name of a group that the keeper has made beforehand, for the first cell; "": none */
    char why[256];         /* when controllers is not CGROUP_HAS_ALL: what is in the way */
    char remedy[256];
};

enum { CGROUP_FIGURES = 6 };

struct cgroup {
    char name[32];
    int dir[CGROUP_SLOTS];
    int figure[CGROUP_FIGURES]; /* files that are read at the end, opened beforehand: cgroup_prepare_stats; or -1 */
    uint64_t most_pids; /* the least that its limit was; 0: it had none: where it never had as many, none was refused */
    bool background;    /* it gives way to all others: cgroup_background */
    int idle;           /* where that is said, as long as it holds; or -1 */
};

struct cgroup_limits {
    uint64_t memory, swap; /* bytes */
    uint64_t cpu_milli;    /* thousandths of a CPU; 0: no quota */
    uint64_t cpu_shares;
    uint64_t pids;   /* 0: no limit */
    bool apart;      /* out of memory ends the process that the kernel chooses, and not the whole group */
    bool background; /* it gives way to all others until cgroup_background says otherwise, or limits do that are not */
};

struct cgroup_stats {
    uint32_t counted;           /* enum cgroup_controller: which of these the kernel counted */
    uint64_t cpu, user, system; /* µs */
    uint64_t memory_peak;
    uint64_t pids_peak;
    uint64_t oom_kills, pids_denied;
};

struct cgroup_usage { /* as it is now */
    uint64_t memory, memory_peak, pids, cpu;
};

void cgroup_base_init(struct cgroup_base *base);
const char *cgroup_slot_word(int slot);              /* "memory", … */
const char *cgroup_mode_word(enum cgroup_mode mode); /* "none", "v1", "hybrid", "v2" */

/* keeper */
/* For one that stays: a process that is alone in a delegated group of version 2 moves into a leaf of it, so that a base
 * can be made there. Any other stays where it is. */
void cgroup_settle(void);
struct cgroup_keeper; /* what the keeper must remember in order to remove the base */
/* Clears what dead keepers left, then makes the base and gives it to `owner`. Succeeds with mode CGROUP_NONE and a
 * reason in base->why when this machine gives us none: it is for the caller to refuse. */
int cgroup_base_open(struct cgroup_base *base, uid_t owner, gid_t group, struct cgroup_keeper **out,
                     struct hc_err *err);
/* What cgroup_base_open has left: the parts that nobody must be born into, and the group of the first cell. The warden
 * can be made meanwhile. `keeper` may be NULL. */
void cgroup_base_complete(struct cgroup_base *base, struct cgroup_keeper *keeper);
/* Whether the caller of the keeper was moved to another group, and is to be moved back. NULL is fine. */
bool cgroup_base_moved(const struct cgroup_keeper *keeper);
/* Removes what keepers that are dead left beside it. It may take its time. NULL is fine. */
void cgroup_base_clear_stale(const struct cgroup_keeper *keeper);
/* Removes what is empty already of the groups that a run with one cell has; the warden's own stays. NULL is fine. */
void cgroup_base_empty(const struct cgroup_base *base, const struct cgroup_keeper *keeper);
/* Where the base is, as a path. 0; -ENOENT when it has no part in this slot. */
int cgroup_base_path(const struct cgroup_keeper *keeper, int slot, char *path, size_t size);
/* Whether that is what an fd is of: something may be mounted over the path. */
bool cgroup_base_is(const struct cgroup_keeper *keeper, int slot, int fd);
/* Removes the base and everything below it, ending what still lives there. NULL is fine. */
void cgroup_base_close(struct cgroup_base *base, struct cgroup_keeper *keeper);
/* The folder, in version 2 or hybrid, that the warden must be born into (CLONE_INTO_CGROUP): to place a process in a
 * group one must be allowed to write to the common ancestor's cgroup.procs. -1: none. The keeper's; it stays open. */
int cgroup_warden_fd(const struct cgroup_keeper *keeper);

/* warden */
int cgroup_create(const struct cgroup_base *base, const char *name, struct cgroup *group, struct hc_err *err);
int cgroup_limit(const struct cgroup_base *base, struct cgroup *group, const struct cgroup_limits *limits,
                 struct hc_err *err);
/* For what nobody waits for yet: it gives way to all others; or has the ordinary weight again. Where that cannot be
 * had, nothing changes. */
void cgroup_background(const struct cgroup_base *base, struct cgroup *group, bool on);
/* The weight of the whole base among its neighbours. */
int cgroup_weigh(const struct cgroup_base *base, uint64_t cpu_shares, struct hc_err *err);
/* For clone3(CLONE_INTO_CGROUP); -1 where there is no version 2. */
int cgroup_clone_fd(const struct cgroup *group);
/* Called by the child itself, single-threaded, before it gives up its uid: the version 1 part of joining. */
int cgroup_join(const struct cgroup *group, struct hc_err *err);
/* The version 2 part, for a process that could not be born there: its limit of processes does not hold for who joins.
 */
int cgroup_join_full(const struct cgroup *group, struct hc_err *err);
/* Whether there are more processes in it, or in the group around it, than its limit: version 1 lets anybody join. */
bool cgroup_crowded(const struct cgroup *group);
/* Whether there are as many as its limit allows, or that of the group around it. */
bool cgroup_full(const struct cgroup *group);
/* Whether the kernel counts so many processes in it, or fewer. False where nobody counts. */
bool cgroup_has_at_most(const struct cgroup_base *base, const struct cgroup *group, unsigned count);
/* An fd that becomes readable when the group runs out of memory, for hierarchies where that does not end the whole
 * group by itself. -1: not needed. */
int cgroup_oom_fd(const struct cgroup_base *base, const struct cgroup *group);
/* Opens what cgroup_stats reads, which is called when somebody waits. What cannot be opened is opened then. */
void cgroup_prepare_stats(const struct cgroup_base *base, struct cgroup *group);
void cgroup_stats(const struct cgroup_base *base, const struct cgroup *group, struct cgroup_stats *stats);
/* The CPU figures alone; the rest of *stats is left as it is. */
void cgroup_cpu(const struct cgroup_base *base, const struct cgroup *group, struct cgroup_stats *stats);
/* Ends every process in it at once. -EOPNOTSUPP where only version 1 is there; the caller ends the pid namespace
 * instead. */
int cgroup_kill(const struct cgroup *group);
/* Closes the fds and removes the folders; -EBUSY while a process is still in there (the fds stay open then). */
int cgroup_remove(const struct cgroup_base *base, struct cgroup *group);
void cgroup_init(struct cgroup *group);

/* Groups within a group: cgroup_inner.c. What they may use is the outer one's; they tell its jobs apart, so that one
 * can be ended or counted without the others. */
int cgroup_inner_create(const struct cgroup_base *base, const struct cgroup *outer, const char *name,
                        struct cgroup *inner, struct hc_err *err);
/* As cgroup_remove. */
int cgroup_inner_remove(const struct cgroup *outer, struct cgroup *inner);
/* Ends every process in it but one (0: none is left out), seen with the caller's pids, and but those that are older
 * than `since` (CLOCK_MONOTONIC µs, to a hundredth of a second; 0: none is). How many it met: until that is 0 one may
 * have been forked meanwhile. Negative: -errno, there is no telling. */
int cgroup_inner_kill(const struct cgroup *inner, pid_t but, uint64_t since);
/* Freezes a group with everything in it, or lets it go on. -EOPNOTSUPP where there is no version 2. Freezing takes a
 * moment: it is asked for, not waited for. */
int cgroup_freeze(const struct cgroup *group, bool on);
void cgroup_usage(const struct cgroup_base *base, const struct cgroup *group, struct cgroup_usage *usage);

#endif
