/* What the parts of the driver share: drive.c, which decides what comes next, and drive_jobs.c, which starts it. */
#ifndef HC_RUN_DRIVE_INTERNAL_H
#define HC_RUN_DRIVE_INTERNAL_H

#include "run/collected.h"
#include "run/drive.h"
#include "run/feed.h"
#include "run/pipes.h"
#include "run/snapshot.h"

/* The helpers' jobs; stages and tests are numbered from 0, in one row. */
enum { HELPER_JOB = 1000000, HELPER_KEEP_JOB };

enum helper { HELPER_NONE, HELPER_COLLECT, HELPER_SNAPSHOT, HELPER_KEEP };

struct drive {
    struct link *link;
    struct link_owner owner; /* of the cell there is */
    const struct plan *plan;
    struct drive_options options;
    struct result *result;
    struct pipes pipes;
    struct capture (
        *captures)[2]; /* of each job, stdout and stderr: a pipe may still be draining when the next begins */
    struct feed *feed; /* NULL: stdin is not fed by us */
    struct hc_timer *failing;
    bool linked;        /* the link knows us */
    bool cancelled;     /* somebody wants it ended */
    enum helper helper; /* the job under way is a helper's */
    bool last;          /* the warden destroys the cell by itself */
    bool done;          /* no more jobs in this cell */
    bool gone;          /* nor is there a cell any more */
    bool testing;       /* the stages went well: tests follow, each in a cell of its own */
    bool failed;        /* nothing is waited for any more; `failure` says why */
    size_t first;       /* the stage that this begins with; 1: another run's work stands for the one before */
    size_t job;         /* the current one: a stage, or past them a test */
    struct collected collected;
    struct snapshot snapshot; /* what the stages left, for the tests; or what was kept for this run */
    struct snapshot keeping;  /* what the first stage left, for other runs */
    bool kept;                /* all of it */
    struct hc_err failure;    /* why the run cannot go on; its own fault never */
};

/* drive.c */
void drive_stop(struct drive *drive, int code, const char *what); /* settle() ends it */
void drive_send(struct drive *drive, struct warden_message *message, const int *fds, size_t count);

/* drive_jobs.c: each starts something, or stops the drive. */
/* `warm`: the primed programs in whose cell it should be, or 0. */
void drive_new_cell(struct drive *drive, const struct cell_spec *spec, uint64_t warm);
void drive_start_stage(struct drive *drive); /* the one that drive->job says */
void drive_start_test(struct drive *drive);  /* likewise, with a cell for it */
void drive_start_collect(struct drive *drive);
void drive_start_snapshot(struct drive *drive);
bool drive_start_keep(struct drive *drive); /* false: it cannot, and the run does without */
void drive_stop_feeding(struct drive *drive);
/* The stage, or the test's stage, of a job in the result. */
struct run_stage *drive_record(struct drive *drive, size_t job);

#endif
