/*
 * From the facts of the warden to one status. The rules are in stage_judge and nowhere else; each rests on what the
 * kernel counted or on a deadline that hotcell itself enforced, never on the text of the program's output.
 */
#include "run/result.h"

#include "base/remedy.h"
#include "base/size.h"
#include "run/diagnose.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    EXIT_TESTS_FAILED = 1,
    EXIT_TIMED_OUT = 124,
    EXIT_INTERNAL = 125,
    EXIT_CANNOT_RUN = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128
};

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

/* ---- tests ---- */

const char *test_verdict(const struct run_test *test)
{
    if (test->job.status == RUN_COMPLETED)
        return test->passed ? "passed" : "failed";
    return run_status_word(test->job.status);
}

/* White space but the newline, by which lines are told apart. */
static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static size_t without_end(const char *text, size_t length)
{
    while (length > 0 && (is_blank(text[length - 1]) || text[length - 1] == '\n'))
        length--;
    return length;
}

/* Takes one line from the text; its length is returned without the white space at its end. */
static size_t take_line(const char **text, size_t *length, const char **line)
{
    const char *newline = memchr(*text, '\n', *length);
    size_t size = newline ? (size_t)(newline - *text) : *length, whole = newline ? size + 1 : size;

    *line = *text;
    *text += whole;
    *length -= whole;
    while (size > 0 && is_blank((*line)[size - 1]))
        size--;
    return size;
}

enum test_match test_compare(const char *got, size_t got_length, const char *expected, size_t expected_length)
{
    if (got_length == expected_length && (got_length == 0 || memcmp(got, expected, got_length) == 0))
        return MATCH_EXACT;
    got_length = without_end(got, got_length);
    expected_length = without_end(expected, expected_length);
    while (got_length > 0 && expected_length > 0) {
        const char *a, *b;
        size_t a_size = take_line(&got, &got_length, &a), b_size = take_line(&expected, &expected_length, &b);
        if (a_size != b_size || memcmp(a, b, a_size) != 0)
            return MATCH_NONE;
    }
    return got_length == 0 && expected_length == 0 ? MATCH_WHITESPACE : MATCH_NONE;
}

static void test_judge(struct run_test *test)
{
    stage_judge(&test->job);
    test->passed = test->job.status == RUN_COMPLETED && (!test->expected || test->match != MATCH_NONE);
}

size_t result_tests_passed(const struct result *result)
{
    size_t passed = 0;

    for (size_t i = 0; i < result->test_count; i++)
        passed += result->tests[i].passed;
    return passed;
}

void result_judge(struct result *result)
{
    for (size_t i = 0; i < result->stage_count; i++)
        stage_judge(&result->stages[i]);
    for (size_t i = 0; i < result->test_count; i++)
        test_judge(&result->tests[i]);
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
    if (result->status == RUN_COMPLETED && !result_success(result))
        result->exit_code = EXIT_TESTS_FAILED;
}

bool result_success(const struct result *result)
{
    return result->status == RUN_COMPLETED && result_tests_passed(result) == result->tests_total;
}

static const struct job_facts *facts_of(const struct result *result, size_t index)
{
    return index < result->stage_count ? &result->stages[index].facts
                                       : &result->tests[index - result->stage_count].job.facts;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void result_usage(const struct result *result, struct job_facts *sum)
{
    *sum = (struct job_facts){0};
    for (size_t i = 0; i < result->stage_count + result->test_count; i++) {
        const struct job_facts *facts = facts_of(result, i);
        sum->wall += facts->wall;
        sum->cpu += facts->cpu;
        sum->user += facts->user;
        sum->system += facts->system;
        sum->memory_peak = larger(sum->memory_peak, facts->memory_peak);
        if (facts->counted & ISOLATION_PIDS)
            sum->pids_peak = larger(sum->pids_peak, facts->pids_peak);
        sum->counted |= facts->counted;
    }
}

const char *result_start(const struct result *result)
{
    size_t jobs = result->stage_count + result->test_count;
    for (size_t i = 0; i < result->stage_count; i++)
        if (result->stages[i].cached)
            return "cached";
    switch (jobs > 0 ? facts_of(result, jobs - 1)->start : START_COLD) {
    case START_WARM:
        return "warm";
    case START_PRIMED:
        return "primed";
    default:
        return "cold";
    }
}

void result_time(struct result *result, uint64_t begun)
{
    size_t jobs = result->stage_count + result->test_count;
    if (jobs == 0)
        return;
    size_t first = jobs > 1 && result->stage_count > 0 && result->stages[0].cached ? 1 : 0;
    uint64_t started = facts_of(result, first)->started_at;
    result->prepare_us = started > begun ? started - begun : 0;
    result->run_us = facts_of(result, jobs - 1)->wall;
    for (size_t i = result->stage_count; i + 1 < jobs; i++) /* of tests, all of them are the program */
        result->run_us += facts_of(result, i)->wall;
}

static void summarize_truncation(const struct result *result, char *text, size_t size)
{
    uint64_t missing = capture_missing(&result->out) + capture_missing(&result->err);
    char limit[32];

    if (missing > 0)
        snprintf(text, size, "output: %" PRIu64 " byte%s over the %s limit %s left out; raise --output", missing,
                 missing == 1 ? "" : "s", hc_format_size(result->out.cap, limit, sizeof(limit)),
                 missing == 1 ? "was" : "were");
    size_t length = strlen(text);
    if (result->files_skipped > 0)
        snprintf(text + length, size - length,
                 "%scollect: %" PRIu64 " files over the first %zu were left out; collect fewer", length ? "; " : "",
                 result->files_skipped, result->file_count);
}

static void summarize_tests(const struct result *result, char *text, size_t size)
{
    for (size_t i = 0; i < result->test_count; i++) {
        if (result->tests[i].passed)
            continue;
        snprintf(text, size, "tests: %zu of %zu passed; the first that failed for its output is \"%s\"",
                 result_tests_passed(result), result->tests_total, result->tests[i].job.name);
        return;
    }
}

const char *result_summary(const struct result *result, char *text, size_t size)
{
    struct diagnosis diagnosis;
    char api[400], typed[400];

    text[0] = '\0';
    if (result->status == RUN_COMPLETED) {
        if (result_success(result))
            summarize_truncation(result, text, size);
        else
            summarize_tests(result, text, size);
        return text;
    }
    if (!result_diagnose(result, &diagnosis))
        return text;
    const char *hint = diagnosis_hint(&diagnosis, api, sizeof(api));
    if (!hint[0] && result->diagnosis) { /* the kernel knows only that it failed */
        const char *told = diagnosis_hint(result->diagnosis, api, sizeof(api)), *category = result->diagnosis->category;
        if (hc_remedy_is_around(category ? category : "", told))
            hint = told;
    }
    snprintf(text, size, "%.240s%s%s", diagnosis.message, hint[0] ? "; " : "",
             hc_remedy_typed(hint, typed, sizeof(typed)));
    size_t length = strlen(text);
    api[0] = '\0';
    if (result->status != RUN_OUTPUT_LIMIT)
        summarize_truncation(result, api, sizeof(api));
    if (api[0])
        snprintf(text + length, size - length, "; %s", api);
    return text;
}

/* 128 bits, the topmost first, five to a digit: of 26, the first holds three. */
static void write_digits(const unsigned char number[16], char *out)
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    unsigned waiting = 0, bits = 2; /* as if two zeros came before the number */

    for (int i = 0; i < 16; i++) {
        waiting = waiting << 8 | number[i];
        for (bits += 8; bits >= 5; bits -= 5)
            *out++ = digits[waiting >> (bits - 5) & 31];
    }
}

int result_id(char *id, size_t size, int64_t created_at)
{
    return result_id_of("run_", id, size, created_at);
}

int result_id_of(const char *word, char *id, size_t size, int64_t created_at)
{
    unsigned char number[16];
    uint64_t milliseconds = (uint64_t)created_at / 1000;
    size_t length = strlen(word);

    if (size < length + 27)
        return -ENOSPC;
    if (getrandom(number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -errno;
    for (int i = 0; i < 6; i++)
        number[i] = (unsigned char)(milliseconds >> (40 - 8 * i));
    memcpy(id, word, length);
    write_digits(number, id + length);
    id[length + 26] = '\0';
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
    for (size_t i = 0; i < result->test_count; i++) {
        capture_release(&result->tests[i].out);
        capture_release(&result->tests[i].err);
        free(result->tests[i].diagnosis);
    }
    free(result->tests);
    capture_release(&result->out);
    capture_release(&result->err);
    free(result->metadata);
    free(result->diagnosis);
    *result = (struct result){0};
}
