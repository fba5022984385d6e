/*
 * What a process needs in order to enter a cell, as plain data and a few fds. It is made by the warden and used by its
 * child (cell_enter), or travels to a zygote, whose child does the very same (warm.h).
 */
#ifndef HC_CELL_ENTRY_H
#define HC_CELL_ENTRY_H

#include "cell/cell.h"

struct entry {
    uint32_t kind;      /* enum cell_job_kind */
    uint32_t sweep;     /* first end everything else in the cell */
    uint32_t from_root; /* the files' paths begin at "/", not at the working directory */
    uint32_t resize;    /* give the scratch space the size that spec says: it was built with another */
    uint32_t shared;    /* other jobs of the cell may be signalled */
    uint32_t outside;   /* it was born outside of its version 2 group, which is full, and joins it by itself */
    uint32_t may_setgroups, landlock, controllers;
    struct job_limits limits;
    uint64_t collect_limit;
    uint64_t witness; /* its number in the cell's book, with fds to report by; 0: it does not report */
    struct cell_spec spec;
    struct cell_mount mounts[CELL_MAX_MOUNTS]; /* spec.mount_count of them; only these travel */
};

struct entry_fds {
    int cell; /* pidfd of its pid 1 */
    int stdio[3];
    int block; /* argument block, a sealed memfd */
    int files; /* archive, a sealed memfd, or -1 */
    int door;  /* of a program that is to be primed: becomes fd 3; or -1 */
    int report;
    int witness_door, witness_bell; /* until it is sealed; or -1 */
    int built; /* of a job that comes while its cell is being built: a byte when its file system is there; or -1 */
    int gate;  /* and a byte when its limits are in force and pid 1 is there; or -1 */
    struct cgroup group;
};

/* What the block says, in memory of its own. */
struct entry_words {
    char *cwd, **argv, **envp;
    uint32_t argc, envc;
    char *end; /* of the last word */
};

void entry_make(const struct cell_host *host, const struct cell *cell, const struct cgroup *group,
                const struct cell_job *job, struct entry *entry, struct entry_fds *fds);
bool entry_is_helper(const struct entry *entry); /* it runs code of ours alone */
int entry_fail_full(struct hc_err *err);         /* limits.pids of its cell do not allow it */
/* The part of an entry that travels. */
size_t entry_size(const struct entry *entry);
/* In the child, which was born in the cell's pid namespace and version 2 group: everything up to the point where it is
 * the guest, with the files unpacked, in its working directory. The fds are then: 0 to 2, report, block, door as *fds
 * says, and no others. Returns only when all of it succeeded; else the error is in the report and the process ends.
 * `before`, if there is one, is called in the group and as the guest, before system calls are filtered. */
void entry_seal(const struct entry *entry, struct entry_fds *fds, struct entry_words *words,
                void (*before)(const struct entry *entry));
/* For whoever has time before the block comes: memory for one of an ordinary length. */
enum { ENTRY_ROOM = 4096 };
void entry_make_room(void);
/* The words of a block, in memory that stays. */
int entry_read_block(int block, struct entry_words *words, struct hc_err *err);
/* Unpacks `files` (or not: -1) in `folder`, in which the process is after it. */
int entry_unpack(int files, const char *folder, struct hc_err *err);
/* To the working directory that the block names: the request's fault where that cannot be. */
int entry_chdir(const char *cwd, struct hc_err *err);
/* Becomes the program that the words name, found as a shell would. Returns only when it cannot. */
int entry_exec(const struct entry_words *words, struct hc_err *err);
int entry_reset_signals(struct hc_err *err);
/* The resource limits of a process, 0 for the caller; that of open files is for itself. `held`: enum cgroup_controller,
 * what control groups enforce. */
int entry_limit_files(pid_t pid, const struct job_limits *limits, struct hc_err *err);
int entry_limits(pid_t pid, const struct job_limits *limits, uint32_t held, struct hc_err *err);
/* Says in the report when the program began: what comes after it in there is an error, nothing is success. */
void entry_report_start(int report);

#endif
