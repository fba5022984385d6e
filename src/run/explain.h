/*
 * From what a program or its compiler wrote to words. The patterns are the language's (run/language_diagnosis.h); the
 * text is the guest's, and hostile: so many bytes and lines of it are looked at and no more, whatever it wrote.
 *
 * What the kernel knows goes first: a run that was killed for its memory is diagnosed so, also when it printed a stack
 * trace; then only the place is taken from what was written.
 */
#ifndef HC_RUN_EXPLAIN_H
#define HC_RUN_EXPLAIN_H

#include "run/diagnose.h"
#include "run/language.h"

struct explain_file { /* of the program; nothing of it is owned */
    const char *path; /* relative to the working directory */
    const char *data;
    size_t length;
};

struct explain_context {
    struct language *language; /* NULL: a plain command */
    const char *work_dir;
    const struct explain_file *files;
    size_t file_count;
};

/* Makes the diagnoses of a result that did not complete, and of its tests. Without memory for them there are none, and
 * the facts alone speak. */
void result_explain(struct result *result, const struct explain_context *context);
/* Adds to the diagnosis of one stage what its output tells. */
void stage_explain(const struct run_stage *stage, const struct capture *out, const struct capture *err,
                   const struct explain_context *context, struct diagnosis *diagnosis);

/* Of a run that was planned so, as long as the plan and its request are there. */
struct plan;
void result_explain_plan(struct result *result, const struct plan *plan);
/* What that needs, copied for later: one block, to be freed. Of the program's files no more than a MiB: the program's
 * own come first, and what is too large is there by its name alone. NULL where there is no memory for it. */
struct explain_kept;
struct explain_kept *explain_keep(const struct plan *plan);
void result_explain_kept(struct result *result, struct language *language, const struct explain_kept *kept);

#endif
