/*
 * Starting a job: the warden's half of entering a cell (enter.c has the theory), and what a job that is no program does
 * once it is sealed. Such helpers are the guest in every respect; only the code is ours.
 */
#include "base/fd.h"
#include "cell/archive.h"
#include "cell/child.h"
#include "cell/entry.h"
#include "cell/files.h"
#include "cell/hand.h"
#include "kernel/place.h"
#include "kernel/sys.h"
#include <stdlib.h>

static int run_job(const struct entry *entry, const struct entry_fds *fds, const struct entry_words *words,
                   struct hc_err *err)
{
    int result = 0;
    switch (entry->kind) {
    case CELL_JOB_PROGRAM:
        return entry_exec(words, err);
    case CELL_JOB_TERMINAL:
        result = hand_terminal(fds->door, err);
        return result < 0 ? result : entry_exec(words, err);
    case CELL_JOB_CONNECT:
        result = hand_connection(fds->door, words->argv[0], err);
        break;
    case CELL_JOB_FILES:
        files_main(words->argv, words->argc);
        break;
    default:
        result = archive_collect(1, words->argv, words->argc, entry->collect_limit, err);
    }
    if (result < 0)
        return result;
    _exit(0);
}

int cell_enter(const struct cell_host *host, const struct cell *cell, const struct cgroup *group,
               const struct cell_job *job, pid_t *pid, int *pidfd, int *report, struct hc_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a pipe");
    struct entry entry;
    struct entry_fds fds;
    entry_make(host, cell, group, job, &entry, &fds);
    fds.report = ends[1];
    if (setns(cell->pidfd, CLONE_NEWPID) < 0) {
        int code = errno;
        hc_close(ends[0]);
        hc_close(ends[1]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "choosing the cell's pid namespace");
    }
    *pid = hc_clone(0, cgroup_clone_fd(group), pidfd);
    bool full = *pid < 0 && errno == EAGAIN && entry.shared && cgroup_full(group);
    if (full && entry_is_helper(&entry)) { /* files of a sandbox whose guests have taken every process there may be */
        entry.outside = true;
        *pid = hc_clone(0, -1, pidfd);
    }
    if (*pid == 0) {
        struct hc_err failure = {0};
        struct entry_words words = {0};
        entry_seal(&entry, &fds, &words, NULL);
        if (fds.door >= 0 && entry.kind == CELL_JOB_PROGRAM) /* for the program, through its exec */
            fcntl(fds.door, F_SETFD, 0);
        /* The report is read to its end when something comes: of a helper, which holds it while it works, only an error
         * does. */
        if (entry.kind == CELL_JOB_PROGRAM || entry.kind == CELL_JOB_TERMINAL)
            entry_report_start(fds.report);
        run_job(&entry, &fds, &words, &failure);
        child_die(fds.report, &failure);
    }
    int code = errno;
    /* The builder is at work elsewhere, and the warden is about to wait. */
    if (*pid > 0 && cell->built >= 0 && !host->many_cells)
        hc_place_here(*pid);
    hc_close(ends[1]);
    /* A warden whose children are born in a guest's namespace is of no more use: it must not go on. */
    if (setns(host->pid_namespace, CLONE_NEWPID) < 0)
        _exit(125);
    if (*pid < 0) {
        hc_close(ends[0]);
        return full ? entry_fail_full(err) : hc_fail_errno(err, HC_CLASS_HOST, code, "starting a process in the cell");
    }
    *report = ends[0];
    return 0;
}
