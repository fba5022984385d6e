/* The warden's own state. Included by the warden alone. */
#ifndef HC_WARDEN_WARDEN_H
#define HC_WARDEN_WARDEN_H

#include "base/loop.h"
#include "cell/cell.h"
#include "warden/proto.h"

enum { CELL_MAX_JOBS = 64 };

struct warden {
    struct hc_loop *loop;
    int client; /* the socket; -1 once the client is gone */
    struct hc_watch *client_watch;
    struct cell_host host;
    uint32_t isolation; /* the layers that hold here */
    struct held_cell *cells;
    uint64_t next_name;
    bool closing;
};

enum held_state { HELD_BUILDING, HELD_READY, HELD_DYING };

struct held_cell {
    struct held_cell *next;
    struct warden *warden;
    uint64_t id;
    struct cell cell;
    enum held_state state;
    struct held_job *jobs;
    bool used;                          /* cell.group has had its job */
    bool wanted;                        /* the client waits for CELL_GONE */
    bool reaped;                        /* init has been waited for */
    struct cgroup spare[CELL_MAX_JOBS]; /* groups of later jobs, kept until the cell is gone */
    unsigned spare_count;
    struct hc_watch *report_watch, *exit_watch;
    struct hc_timer *remove_timer;
};

struct held_job {
    struct held_job *next;
    struct held_cell *cell;
    uint64_t id;
    struct job_spec spec;
    int fds[5]; /* until it is started: stdin, stdout, stderr, block, files */
    struct cgroup *group;
    struct cgroup_stats before;
    pid_t pid;
    int pidfd, report, oom;
    bool running;
    enum job_end end;
    struct hc_err err;
    uint64_t begun, exec_at;
    unsigned oom_checks;
    struct hc_watch *report_watch, *exit_watch, *oom_watch;
    struct hc_timer *deadline, *cpu_timer, *oom_timer;
};

/* supervise.c */
/* `mounts`: the fd of their array, or -1; it stays the caller's. */
void supervise_new_cell(struct warden *warden, const struct warden_message *message, int mounts);
void supervise_destroy(struct warden *warden, uint64_t id);
/* Takes the fds. */
void supervise_start(struct warden *warden, uint64_t id, uint64_t job_id, const struct job_spec *spec, int *fds,
                     size_t count);
void supervise_kill(struct warden *warden, uint64_t id, uint64_t job_id, enum job_end reason);
void supervise_end_all(struct warden *warden);
/* To be called whenever a job of a dying cell has ended: the last one lets the cell go (and be freed). */
void supervise_check_gone(struct held_cell *cell);

/* job.c */
void job_begin(struct held_job *job);
void job_refuse(struct held_job *job, const struct hc_err *err); /* never started: tell the client, free it */
void job_end(struct held_job *job, enum job_end reason);         /* ends the cell; the first reason stays */
struct held_job *job_new(struct held_cell *cell, uint64_t id, const struct job_spec *spec, int *fds, size_t count);

/* main.c */
void warden_say(struct warden *warden, const struct warden_message *message);
void warden_check_done(struct warden *warden);

#endif
