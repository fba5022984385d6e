/*
 * What happened: the facts of each stage as the warden reported them, the output as it was captured, and the one status
 * that follows from them. result_to_json writes API.md's result object.
 */
#ifndef HC_RUN_RESULT_H
#define HC_RUN_RESULT_H

#include "run/capture.h"
#include "run/limits.h"
#include "run/request.h"
#include "warden/proto.h"

/* One table in result.c has their words, in this order. */
enum run_status {
    RUN_COMPLETED,
    RUN_ERROR,
    RUN_COMPILE_ERROR,
    RUN_TIMEOUT,
    RUN_OOM,
    RUN_OUTPUT_LIMIT,
    RUN_PIDS_LIMIT,
    RUN_KILLED,
    RUN_INTERNAL,
};

struct run_stage {
    char name[32]; /* "compile", "run" */
    bool compile;  /* its failure is a compile_error */
    bool started;  /* exec succeeded */
    enum run_status status;
    int exit_code;          /* 124 on a timeout, 128+signal, 126/127 when it could not be exec'ed */
    int signal;             /* 0: none */
    struct limits limits;   /* what was in force */
    struct job_facts facts; /* warden/proto.h */
    struct hc_err err;      /* why it could not start; class NONE otherwise */
    struct capture output;  /* of a compile stage that a later stage followed: its warnings */
};

struct result_file {
    char *path;
    char type[12];       /* "file", "symlink"; others are skipped */
    struct blob content; /* a symlink's target is content */
    uint64_t size;       /* true size; content may be shorter only when `truncated` */
    bool truncated;
};

struct result {
    char id[40]; /* "run_" + 26 characters, sortable by time */
    enum run_status status;
    int exit_code, signal;
    char language[32], version[64]; /* "" for a plain command */
    struct run_stage *stages;
    size_t stage_count;
    struct capture out, err; /* of the last stage that ran; a failed compile's output is in err */
    struct result_file *files;
    size_t file_count;
    uint64_t
        files_skipped;  /* matched, but over the number that is collected; `truncated.files` in the JSON, where not 0 */
    uint32_t isolation; /* ISOLATION_* bits of warden/proto.h that hold */
    bool weak;
    const char *start; /* "cold", later "warm", "primed", "cached" */
    uint64_t queue_us, prepare_us, run_us, total_us;
    int64_t created_at;     /* µs since the epoch */
    char *metadata;         /* JSON text or NULL */
    struct hc_err internal; /* for RUN_INTERNAL */
};

/*
 * Figures in `usage` of the JSON: times are the job's, by its cgroup where facts.counted has ISOLATION_CPU, else by
 * wait4 (which misses children that nobody waited for). memory_peak is the whole job's where counted has
 * ISOLATION_MEMORY; else it is the largest process's resident size by wait4, and `isolation.layers` lacks "memory",
 * which says so. pids_peak is null where it was not counted. The run's own usage adds the times of all stages and takes
 * the largest of the peaks.
 */

/* A new id for a run that was created then (µs since the epoch): "run_" and 26 characters, 48 bits of time and 80 of
 * chance, so that ids sort by time. `size` is at least 31. 0 or -errno. */
int result_id(char *id, size_t size, int64_t created_at);

const char *run_status_word(enum run_status status);
/* The status, exit code and signal of one stage from its facts; of the whole run from its stages, each of which it
 * judges, too. `stages` has only those that were tried. The run's status is that of the first stage that is not
 * completed; `internal`, once set, goes before all of them. Pure functions. */
void stage_judge(struct run_stage *stage);
void result_judge(struct result *result);
/* One line for people: "killed: used more than 64 MiB of memory; raise --memory". "" for plain success. `text` has
 * 256 bytes. */
const char *result_summary(const struct result *result, char *text, size_t size);
/* malloc'ed JSON text, one line or indented; NULL when out of memory. */
char *result_to_json(const struct result *result, bool pretty);
void result_release(struct result *result);

#endif
