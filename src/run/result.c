/*
 * From the facts of the warden to one status. The rules are in stage_judge and nowhere else; each rests on what the
 * kernel counted or on a deadline that hotcell itself enforced, never on the text of the program's output.
 */
#include "run/result.h"

#include "base/size.h"
#include "run/diagnose.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { EXIT_TIMED_OUT = 124, EXIT_INTERNAL = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL = 128 };

const char *run_status_word(enum run_status status)
{
    static const char *const words[] = {
        [RUN_COMPLETED] = "completed",   [RUN_ERROR] = "error",   [RUN_COMPILE_ERROR] = "compile_error",
        [RUN_TIMEOUT] = "timeout",       [RUN_OOM] = "oom",       [RUN_OUTPUT_LIMIT] = "output_limit",
        [RUN_PIDS_LIMIT] = "pids_limit", [RUN_KILLED] = "killed", [RUN_INTERNAL] = "internal",
    };

    return (unsigned)status < sizeof(words) / sizeof(words[0]) ? words[status] : "internal";
}

static void judge(struct run_stage *stage, enum run_status status, int exit_code, int signal)
{
    stage->status = status;
    stage->exit_code = exit_code;
    stage->signal = signal;
}

/* It ended by itself. A counter explains a failure only together with one: a program that met a limit, coped, and
 * ended well has completed. */
static void judge_exited(struct run_stage *stage)
{
    const struct job_facts *facts = &stage->facts;
    int exit_code = facts->signal != 0 ? EXIT_SIGNAL + facts->signal : facts->exit_code;
    enum run_status status = RUN_ERROR;

    if (exit_code == 0)
        status = RUN_COMPLETED;
    else if (facts->oom_kills > 0)
        status = RUN_OOM; /* a child was killed, and the parent passed the failure on */
    else if (facts->pids_denied > 0 && (facts->signal == 0 || facts->signal == SIGABRT))
        status = RUN_PIDS_LIMIT; /* C++ and V8 abort when a thread cannot be made; another signal has another cause */
    else if (stage->compile)
        status = RUN_COMPILE_ERROR;
    judge(stage, status, exit_code, facts->signal);
}

static void judge_not_started(struct run_stage *stage)
{
    /* REQUEST: its files do not fit, or clash with what is there. Not the program's doing, and not ours either. */
    if (stage->err.class != HC_CLASS_PROGRAM && stage->err.class != HC_CLASS_REQUEST)
        judge(stage, RUN_INTERNAL, EXIT_INTERNAL, 0);
    else
        judge(stage, RUN_ERROR, stage->err.code == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, 0);
}

void stage_judge(struct run_stage *stage)
{
    /* What hotcell ended died by SIGKILL, whether or not the warden saw that wait status. */
    int killed_by = stage->facts.signal != 0 ? stage->facts.signal : SIGKILL;

    switch ((enum job_end)stage->facts.end) {
    case JOB_EXITED:
        judge_exited(stage);
        return;
    case JOB_TIMED_OUT:
    case JOB_CPU_TIME:
        judge(stage, RUN_TIMEOUT, EXIT_TIMED_OUT, killed_by);
        return;
    case JOB_OUT_OF_MEMORY:
        judge(stage, RUN_OOM, EXIT_SIGNAL + SIGKILL, killed_by);
        return;
    case JOB_OUTPUT:
        judge(stage, RUN_OUTPUT_LIMIT, EXIT_SIGNAL + killed_by, killed_by);
        return;
    case JOB_CANCELLED:
    case JOB_SHUTDOWN:
        judge(stage, RUN_KILLED, EXIT_SIGNAL + killed_by, killed_by);
        return;
    case JOB_NOT_STARTED:
        judge_not_started(stage);
        return;
    }
    judge(stage, RUN_INTERNAL, EXIT_INTERNAL, 0); /* facts that no warden of ours writes */
}

void result_judge(struct result *result)
{
    for (size_t i = 0; i < result->stage_count; i++)
        stage_judge(&result->stages[i]);
    const struct run_stage *stage = result_decisive_stage(result);

    if (stage && stage->status == RUN_INTERNAL && result->internal.code == 0)
        result->internal = stage->err;
    if (!stage || result->internal.code != 0) {
        result->status = RUN_INTERNAL;
        result->exit_code = EXIT_INTERNAL;
        result->signal = 0;
        return;
    }
    result->status = stage->status;
    result->exit_code = stage->exit_code;
    result->signal = stage->signal;
}

static void summarize_truncation(const struct result *result, char *text, size_t size)
{
    uint64_t missing = capture_missing(&result->out) + capture_missing(&result->err);
    char limit[32];

    if (missing > 0)
        snprintf(text, size, "output: %" PRIu64 " byte%s over the %s limit %s left out; raise --output", missing,
                 missing == 1 ? "" : "s", hc_format_size(result->out.cap, limit, sizeof(limit)),
                 missing == 1 ? "was" : "were");
    else if (result->files_skipped > 0)
        snprintf(text, size, "collect: %" PRIu64 " files over the first %zu were left out; collect fewer",
                 result->files_skipped, result->file_count);
}

const char *result_summary(const struct result *result, char *text, size_t size)
{
    struct diagnosis diagnosis;
    char option[32];

    text[0] = '\0';
    if (result->status == RUN_COMPLETED) {
        summarize_truncation(result, text, size);
        return text;
    }
    if (!result_diagnose(result, &diagnosis)) {
        snprintf(text, size, "exited with status %d", result->exit_code);
        return text;
    }
    if (diagnosis.limit >= 0)
        snprintf(text, size, "%.200s; raise %s%s", diagnosis.message,
                 limit_option((enum limit_id)diagnosis.limit, option, sizeof(option)),
                 diagnosis.compile ? ", or the compile limit in the language's file" : "");
    else
        snprintf(text, size, "%s%s%s", diagnosis.message, diagnosis.hint[0] ? "; " : "", diagnosis.hint);
    return text;
}

/* Five bits of a 128-bit number, the topmost first: 26 characters, of which the first holds three. */
static char digit_at(const unsigned char number[16], int index)
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    int lowest = 125 - 5 * index; /* the position of the digit's lowest bit */
    unsigned value = 0;

    for (int bit = 4; bit >= 0; bit--) {
        int at = lowest + bit;
        value = value << 1 | (at > 127 ? 0U : (unsigned)(number[15 - at / 8] >> (at % 8) & 1));
    }
    return digits[value];
}

int result_id(char *id, size_t size, int64_t created_at)
{
    unsigned char number[16];
    uint64_t milliseconds = (uint64_t)created_at / 1000;

    if (size < sizeof("run_") + 26)
        return -ENOSPC;
    if (getrandom(number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -errno;
    for (int i = 0; i < 6; i++)
        number[i] = (unsigned char)(milliseconds >> (40 - 8 * i));
    memcpy(id, "run_", 4);
    for (int i = 0; i < 26; i++)
        id[4 + i] = digit_at(number, i);
    id[30] = '\0';
    return 0;
}

void result_release(struct result *result)
{
    for (size_t i = 0; i < result->file_count; i++) {
        free(result->files[i].path);
        free(result->files[i].content.data);
    }
    free(result->files);
    for (size_t i = 0; i < result->stage_count; i++)
        capture_release(&result->stages[i].output);
    free(result->stages);
    capture_release(&result->out);
    capture_release(&result->err);
    free(result->metadata);
    *result = (struct result){0};
}
