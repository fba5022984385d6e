/*
 * From facts to words. Nothing here reads what the guest wrote: a category is claimed only where a counter, a deadline
 * of ours or a wait status proves it. A program that prints "Killed" or exits with 137 of its own accord is not
 * diagnosed as out of memory. What it wrote is explain.c's.
 */
#include "run/diagnose.h"

#include "base/remedy.h"
#include "base/signame.h"
#include "base/size.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const struct run_stage *result_decisive_stage(const struct result *result)
{
    for (size_t i = 0; i < result->stage_count; i++)
        if (result->stages[i].status != RUN_COMPLETED)
            return &result->stages[i];
    for (size_t i = 0; i < result->test_count; i++)
        if (result->tests[i].job.status != RUN_COMPLETED)
            return &result->tests[i].job;
    if (result->test_count > 0)
        return &result->tests[result->test_count - 1].job;
    return result->stage_count > 0 ? &result->stages[result->stage_count - 1] : NULL;
}

const char *const diagnosis_categories[] = {"syntax",     "exception", "import",   "compile", "signal",
                                            "timeout",    "memory",    "pids",     "disk",    "output",
                                            "permission", "network",   "internal", NULL};
const char *const diagnosis_proofs[PROOF_COUNT] = {
    [PROOF_OUTPUT] = "output", [PROOF_MODULE] = "module", [PROOF_PACKAGE] = "package", [PROOF_PATH] = "path",
    [PROOF_HOST] = "host",     [PROOF_CALL] = "syscall",  [PROOF_FAULT] = "fault",
};

const char *diagnosis_category(const char *word)
{
    for (size_t i = 0; diagnosis_categories[i]; i++)
        if (strcmp(diagnosis_categories[i], word) == 0)
            return diagnosis_categories[i];
    return NULL;
}

const char *diagnosis_hint(const struct diagnosis *diagnosis, char *text, size_t size)
{
    char option[32];

    if (diagnosis->limit < 0)
        return diagnosis->hint;
    if (diagnosis->own)
        snprintf(text, size, "raise %s of [compile] in the language's file", limit_table[diagnosis->limit].name);
    else
        snprintf(text, size, HC_REMEDY_RAISE "%s (%s on the command line)", limit_table[diagnosis->limit].name,
                 limit_option((enum limit_id)diagnosis->limit, option, sizeof(option)));
    return text;
}

void diagnosis_evidence(struct diagnosis *d, const char *name, double value)
{
    if (d->evidence_count < DIAGNOSIS_MAX_EVIDENCE) {
        d->evidence[d->evidence_count].name = name;
        d->evidence[d->evidence_count++].value = value;
    }
}

#define SAY(d, ...) snprintf((d)->message, sizeof((d)->message), __VA_ARGS__)

static const char *in_force(const struct run_stage *stage, enum limit_id id, char *text, size_t size)
{
    return limit_format(id, stage->limits.value[id], text, size);
}

static void claim(struct diagnosis *d, const char *category, const char *error_type, int limit)
{
    d->category = category;
    d->limit = limit;
    snprintf(d->error_type, sizeof(d->error_type), "%s", error_type);
}

static void diagnose_timeout(const struct run_stage *stage, struct diagnosis *d)
{
    char limit[32];

    if (stage->facts.end == JOB_CPU_TIME) {
        claim(d, "timeout", "cpu_time", LIMIT_CPU_TIME);
        SAY(d, "used up its %s of CPU time", in_force(stage, LIMIT_CPU_TIME, limit, sizeof(limit)));
        diagnosis_evidence(d, "cpu_ms", (double)stage->facts.cpu / 1000);
        diagnosis_evidence(d, "cpu_time_limit_ms", (double)stage->limits.value[LIMIT_CPU_TIME] / 1000);
        return;
    }
    claim(d, "timeout", "wall_clock", LIMIT_TIMEOUT);
    SAY(d, "timed out after %s", in_force(stage, LIMIT_TIMEOUT, limit, sizeof(limit)));
    diagnosis_evidence(d, "wall_ms", (double)stage->facts.wall / 1000);
    diagnosis_evidence(d, "timeout_ms", (double)stage->limits.value[LIMIT_TIMEOUT] / 1000);
    diagnosis_evidence(d, "cpu_ms", (double)stage->facts.cpu / 1000);
}

static void diagnose_memory(const struct run_stage *stage, struct diagnosis *d)
{
    char limit[32];

    claim(d, "memory", "oom_kill", LIMIT_MEMORY);
    SAY(d, "killed: used more than %s of memory", in_force(stage, LIMIT_MEMORY, limit, sizeof(limit)));
    diagnosis_evidence(d, "oom_kills", (double)stage->facts.oom_kills);
    diagnosis_evidence(d, "memory_peak", (double)stage->facts.memory_peak);
    diagnosis_evidence(d, "memory_limit", (double)stage->limits.value[LIMIT_MEMORY]);
}

static void diagnose_output(const struct run_stage *stage, uint64_t out, uint64_t err, struct diagnosis *d)
{
    char limit[32];

    claim(d, "output", "output_flood", LIMIT_OUTPUT);
    SAY(d, "killed: wrote far more than the output limit of %s", in_force(stage, LIMIT_OUTPUT, limit, sizeof(limit)));
    diagnosis_evidence(d, "stdout_bytes", (double)out);
    diagnosis_evidence(d, "stderr_bytes", (double)err);
    diagnosis_evidence(d, "output_limit", (double)stage->limits.value[LIMIT_OUTPUT]);
}

static void diagnose_pids(const struct run_stage *stage, struct diagnosis *d)
{
    char limit[32];

    claim(d, "pids", "fork_denied", LIMIT_PIDS);
    SAY(d, "could not start %llu process%s: the limit is %s", (unsigned long long)stage->facts.pids_denied,
        stage->facts.pids_denied == 1 ? "" : "es", in_force(stage, LIMIT_PIDS, limit, sizeof(limit)));
    diagnosis_evidence(d, "pids_denied", (double)stage->facts.pids_denied);
    diagnosis_evidence(d, "pids_peak", (double)stage->facts.pids_peak);
    diagnosis_evidence(d, "pids_limit", (double)stage->limits.value[LIMIT_PIDS]);
}

static void diagnose_signal(const struct run_stage *stage, struct diagnosis *d)
{
    const char *name = hc_signal_name(stage->signal);

    claim(d, "signal", name ? name : "signal", -1);
    if (name)
        SAY(d, "ended by signal %d (%s, %s)", stage->signal, name, hc_signal_meaning(stage->signal));
    else
        SAY(d, "ended by signal %d", stage->signal);
    diagnosis_evidence(d, "signal", stage->signal);
    if (stage->signal == SIGXFSZ) {
        d->category = "disk";
        d->limit = LIMIT_DISK;
        diagnosis_evidence(d, "disk_limit", (double)stage->limits.value[LIMIT_DISK]);
    } else if (stage->signal == SIGSYS) {
        d->category = "permission";
        snprintf(d->hint, sizeof(d->hint), "it made a system call that a cell does not allow");
    }
}

static void diagnose_not_started(const struct run_stage *stage, struct diagnosis *d)
{
    bool missing = stage->exit_code == 127;

    if (stage->err.code == ENOSPC)
        claim(d, "disk", "disk_full", LIMIT_DISK);
    else if (stage->err.code == EDQUOT)
        claim(d, "disk", "inodes_used_up", LIMIT_INODES);
    else if (stage->err.code == EFBIG)
        claim(d, "disk", "workspace_too_large", -1);
    else if (strcmp(stage->err.field, "cwd") == 0)
        claim(d, "exception", "no_working_directory", -1);
    else
        claim(d, missing ? "exception" : "permission", missing ? "command_not_found" : "not_executable", -1);
    SAY(d, "%s", stage->err.message);
    snprintf(d->hint, sizeof(d->hint), "%s", stage->err.remedy);
    diagnosis_evidence(d, "errno", stage->err.code);
}

static void diagnose_killed(const struct run_stage *stage, struct diagnosis *d)
{
    bool shutdown = stage->facts.end == JOB_SHUTDOWN;

    claim(d, "signal", shutdown ? "shutdown" : "cancelled", -1);
    SAY(d, shutdown ? "killed: the server stopped" : "killed: the run was cancelled");
    diagnosis_evidence(d, "signal", stage->signal);
}

static void diagnose_internal(const struct hc_err *why, struct diagnosis *d)
{
    claim(d, "internal", hc_class_info((enum hc_class)why->class)->word, -1);
    SAY(d, "internal error: %s", why->message[0] ? why->message : "no reason was given");
    snprintf(d->hint, sizeof(d->hint), "%s", why->remedy);
    diagnosis_evidence(d, "errno", why->code);
}

static void diagnose_compile(const struct run_stage *stage, struct diagnosis *d)
{
    if (stage->signal != 0) {
        diagnose_signal(stage, d);
        d->category = "compile";
        return;
    }
    claim(d, "compile", "compile_error", -1);
    SAY(d, "compile failed with exit code %d", stage->exit_code);
    diagnosis_evidence(d, "exit_code", stage->exit_code);
}

/* It ended by itself, with a status that only it can explain. */
static void diagnose_exit(const struct run_stage *stage, struct diagnosis *d)
{
    SAY(d, "exited with status %d", stage->exit_code);
    diagnosis_evidence(d, "exit_code", stage->exit_code);
}

/* "compile: timed out …": a person thinks of the run stage unless told otherwise. */
static void name_stage(const struct run_stage *stage, struct diagnosis *d)
{
    char message[sizeof(d->message)];

    if (stage->name[0] == '\0' || strcmp(stage->name, "run") == 0 || strncmp(d->message, "compile", 7) == 0 ||
        strncmp(d->message, "exited", 6) == 0)
        return;
    memcpy(message, d->message, sizeof(message));
    SAY(d, "%s: %.440s", stage->name, message);
}

bool stage_diagnose(const struct run_stage *stage, const struct capture *out, const struct capture *err,
                    struct diagnosis *diagnosis)
{
    struct diagnosis d = {.limit = -1};

    switch (stage->status) {
    case RUN_TIMEOUT:
        diagnose_timeout(stage, &d);
        break;
    case RUN_OOM:
        diagnose_memory(stage, &d);
        break;
    case RUN_OUTPUT_LIMIT:
        diagnose_output(stage, out->total, err->total, &d);
        break;
    case RUN_PIDS_LIMIT:
        diagnose_pids(stage, &d);
        break;
    case RUN_KILLED:
        diagnose_killed(stage, &d);
        break;
    case RUN_COMPILE_ERROR:
        diagnose_compile(stage, &d);
        break;
    case RUN_ERROR:
        if (stage->facts.end == JOB_NOT_STARTED)
            diagnose_not_started(stage, &d);
        else if (stage->signal != 0)
            diagnose_signal(stage, &d);
        else
            diagnose_exit(stage, &d);
        break;
    case RUN_INTERNAL:
        diagnose_internal(&stage->err, &d);
        break;
    case RUN_COMPLETED:
        return false;
    }
    d.own = d.limit >= 0 && stage->own[d.limit];
    *diagnosis = d;
    return true;
}

bool result_diagnose(const struct result *result, struct diagnosis *diagnosis)
{
    const struct run_stage *stage = result_decisive_stage(result);
    const struct capture *out = &result->out, *err = &result->err;

    if (result->status == RUN_INTERNAL) {
        struct diagnosis d = {.limit = -1};
        diagnose_internal(&result->internal, &d);
        *diagnosis = d;
        return true;
    }
    if (!stage || result->status == RUN_COMPLETED)
        return false;
    for (size_t i = 0; i < result->test_count; i++)
        if (stage == &result->tests[i].job) {
            out = &result->tests[i].out;
            err = &result->tests[i].err;
        }
    if (!stage_diagnose(stage, out, err, diagnosis))
        return false;
    name_stage(stage, diagnosis);
    return true;
}
