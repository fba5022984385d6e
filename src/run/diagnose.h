/*
 * Why a run did not succeed. What the kernel counted goes before anything that the program said (diagnose.c); what the
 * program or its compiler wrote is read by the patterns of its language (explain.c). One finding serves the `diagnosis`
 * of a result, the line that people read (result_summary) and the history of errors.
 *
 * What always holds: a category is claimed only where a counter, a deadline of ours, a wait status or a pattern whose
 * conditions all hold says so. Otherwise it is NULL, and the diagnosis says that it is not known.
 */
#ifndef HC_RUN_DIAGNOSE_H
#define HC_RUN_DIAGNOSE_H

#include "run/result.h"

enum { DIAGNOSIS_MAX_EVIDENCE = 6, DIAGNOSIS_FINGERPRINT = 16 };

/* Proof in words, each "" where there is none. The order is that of the names in diagnosis_proofs. */
enum diagnosis_proof {
    PROOF_OUTPUT, /* the line that a pattern was found in; of an unknown failure, the last that it wrote */
    PROOF_MODULE, /* what was not there to import, include or run */
    PROOF_PACKAGE,
    PROOF_PATH, /* that was refused, or is full, or missing */
    PROOF_HOST,
    PROOF_CALL,  /* the system call that was refused */
    PROOF_FAULT, /* a pattern of the language's file that cannot be used */
    PROOF_COUNT,
};
extern const char *const diagnosis_proofs[PROOF_COUNT];

struct diagnosis {
    const char *category; /* one of diagnosis_categories, or NULL: not known */
    char error_type[96];  /* "SIGSEGV", "wall_clock", "ZeroDivisionError", …; "" where there is no name for it */
    char message[512];
    char hint[320]; /* "" when there is nothing to advise and `limit` is -1 */
    int limit;      /* the limit to raise: enum limit_id, or -1 */
    bool own;       /* it is the compiler's own, which the language's file sets */
    bool explained; /* by what was written; the kernel knows only that it failed */
    char file[200]; /* relative to the working directory where it is in there; "" where it is not known */
    uint32_t line, column;
    char source[240]; /* that line of the program */
    char proof[PROOF_COUNT][200];
    size_t evidence_count;
    struct {
        const char *name; /* a counter: oom_kills, pids_denied, wall_ms, … */
        double value;
    } evidence[DIAGNOSIS_MAX_EVIDENCE];
    char fingerprint[DIAGNOSIS_FINGERPRINT + 1]; /* fingerprint.h; "" until it is made */
};

/* API.md's words, NULL-terminated. */
extern const char *const diagnosis_categories[];
/* The constant of that word, or NULL. */
const char *diagnosis_category(const char *word);
void diagnosis_evidence(struct diagnosis *diagnosis, const char *name, double value);
/* The remedy in words; `text` for a limit. */
const char *diagnosis_hint(const struct diagnosis *diagnosis, char *text, size_t size);

/* The stage or test that decided the status: the first that is not completed, else the last; NULL when there is none.
 */
const struct run_stage *result_decisive_stage(const struct result *result);
/* Of one stage or test, with its output, as far as the kernel knows. False, with *diagnosis untouched, when it
 * completed. */
bool stage_diagnose(const struct run_stage *stage, const struct capture *out, const struct capture *err,
                    struct diagnosis *diagnosis);
bool result_diagnose(const struct result *result, struct diagnosis *diagnosis);

#endif
