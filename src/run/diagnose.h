/*
 * Why a run did not succeed, as far as the kernel's counters prove it. One finding serves both the `diagnosis` of a
 * result and the line that people read (result_summary).
 */
#ifndef HC_RUN_DIAGNOSE_H
#define HC_RUN_DIAGNOSE_H

#include "run/result.h"

enum { DIAGNOSIS_MAX_EVIDENCE = 4 };

struct diagnosis {
    const char *category; /* API.md's word */
    char error_type[32];  /* "SIGSEGV", "wall_clock", "oom_kill", … */
    char message[512];
    char hint[320]; /* "" when there is nothing to advise and `limit` is -1 */
    int limit;      /* the limit to raise: enum limit_id, or -1 */
    bool compile;   /* of the compile stage, whose limit may be the language's own */
    size_t evidence_count;
    struct {
        const char *name; /* a counter: oom_kills, pids_denied, wall_ms, … */
        double value;
    } evidence[DIAGNOSIS_MAX_EVIDENCE];
};

/* The stage or test that decided the status: the first that is not completed, else the last; NULL when there is none.
 */
const struct run_stage *result_decisive_stage(const struct result *result);
/* False, with *diagnosis untouched, for a completed run and for a plain non-zero exit, of which no counter says more.
 */
/* Of one stage or test, with its output. */
bool stage_diagnose(const struct run_stage *stage, const struct capture *out, const struct capture *err,
                    struct diagnosis *diagnosis);
bool result_diagnose(const struct result *result, struct diagnosis *diagnosis);

#endif
