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
    char name[RUN_NAME_SIZE]; /* "compile", "run" */
    bool compile;             /* its failure is a compile_error */
    bool started;             /* exec succeeded */
    enum run_status status;
    int exit_code;          /* 124 on a timeout, 128+signal, 126/127 when it could not be exec'ed */
    int signal;             /* 0: none */
    struct limits limits;   /* what was in force */
    bool own[LIMIT_COUNT];  /* what of it the language's file sets for its compiler, whatever is asked for */
    struct job_facts facts; /* warden/proto.h */
    struct hc_err err;      /* why it could not start; class NONE otherwise */
    struct capture output;  /* of a compile stage that a later stage followed: its warnings */
    bool cached;            /* it was not run: an earlier run's work and output stand for it, and it used nothing */
};

/* How a test's stdout compares with what was expected. */
enum test_match {
    MATCH_NONE,       /* it differs, or nothing was expected, or the program did not complete */
    MATCH_EXACT,      /* byte for byte */
    MATCH_WHITESPACE, /* but for white space at the ends of lines, and empty lines at the end */
};

struct diagnosis; /* run/diagnose.h */

struct run_test {
    struct run_stage job;    /* the program's, as if it were a stage; its name is the test's */
    struct capture out, err; /* all of it up to the cap: job.output is not used */
    bool passed;             /* it completed, and its stdout is as expected */
    bool expected;           /* something was expected of stdout */
    enum test_match match;
    struct diagnosis *diagnosis; /* by result_explain (run/explain.h); NULL: what the facts tell is all */
};

struct result_file {
    char *path;
    char type[12];       /* "file", "symlink"; others are skipped */
    struct blob content; /* a symlink's target is content */
    uint64_t size;       /* true size; content may be shorter only when `truncated` */
    bool truncated;
};

struct result {
    char id[40];      /* "run_" + 26 characters, sortable by time */
    char sandbox[40]; /* in which it was; "": a cell of its own */
    enum run_status status;
    int exit_code, signal;
    char language[32], version[64]; /* "" for a plain command */
    struct run_stage *stages;
    size_t stage_count;
    struct run_test *tests; /* those that were tried */
    size_t test_count;
    size_t tests_total; /* those that were asked for; 0: it was a run without tests */
    struct capture out,
        err; /* of the last stage that ran; a failed compile's output is in err. Empty where tests ran */
    struct result_file *files;
    size_t file_count;
    uint64_t
        files_skipped;  /* matched, but over the number that is collected; `truncated.files` in the JSON, where not 0 */
    uint32_t isolation; /* ISOLATION_* bits of warden/proto.h that hold */
    bool weak;
    const char *start; /* result_start */
    uint64_t queue_us, prepare_us, run_us, total_us;
    int64_t created_at;          /* µs since the epoch */
    char *metadata;              /* JSON text or NULL */
    struct hc_err internal;      /* for RUN_INTERNAL */
    struct diagnosis *diagnosis; /* as a test's */
};

/*
 * Figures in `usage` of the JSON: times are the job's, by its cgroup where facts.counted has ISOLATION_CPU, else by
 * wait4 (which misses children that nobody waited for). memory_peak is the whole job's where counted has
 * ISOLATION_MEMORY; else it is the largest process's resident size by wait4, and `isolation.layers` lacks "memory",
 * which says so. pids_peak is null where it was not counted. The run's own usage adds the times of all stages and takes
 * the largest of the peaks.
 */

/* A new id for what was created then (µs since the epoch): a word of up to 5 characters ("run_"), then 26, 48 bits of
 * time and 80 of chance, so that ids sort by time. `size` is at least 32. 0 or -errno. */
int result_id_of(const char *word, char *id, size_t size, int64_t created_at);
int result_id(char *id, size_t size, int64_t created_at); /* "run_" */

const char *run_status_word(enum run_status status);
/* The status, exit code and signal of one stage from its facts; of the whole run from its stages and tests, each of
 * which it judges, too. Both lists have only those that were tried. The run's status is that of the first stage that is
 * not completed, then of the first test that is not; `internal`, once set, goes before all of them. A run whose tests
 * all completed is completed, also when one failed for what it wrote: then its exit code is 1. Pure functions. */
void stage_judge(struct run_stage *stage);
void result_judge(struct result *result);
size_t result_tests_passed(const struct result *result);
bool result_success(const struct result *result); /* completed, and every test that was asked for has passed */
/* A test's: "passed", "failed" for wrong output, else its status: "error", "timeout", "oom", … */
const char *test_verdict(const struct run_test *test);
enum test_match test_compare(const char *got, size_t got_length, const char *expected, size_t expected_length);
/* What all stages and tests used: times are added, peaks are the largest. */
void result_usage(const struct result *result, struct job_facts *sum);
/* How it came to run: "cached" where a stage was not run at all, else what the warden says of the last program:
 * "warm", "primed" or "cold". */
const char *result_start(const struct result *result);
/* prepare_us and run_us, of a run that was begun then (CLOCK_MONOTONIC µs), from the facts. */
void result_time(struct result *result, uint64_t begun);
/* One line for people: "killed: used more than 64 MiB of memory; raise --memory". "" for plain success. `text` has
 * 256 bytes. */
const char *result_summary(const struct result *result, char *text, size_t size);
/* malloc'ed JSON text, one line or indented; NULL when out of memory. */
char *result_to_json(const struct result *result, bool pretty);
void result_release(struct result *result);

#endif
