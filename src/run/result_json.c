/*
 * API.md's result object. What always holds: it is valid JSON whatever bytes the guest wrote (bytes that are not UTF-8
 * make both streams base64, and a NUL is a \u0000), every field is there in every result (tests_passed and
 * tests_total in those with tests), and a figure that nobody counted is null.
 */
#include "run/result.h"

#include "base/fd.h"
#include "run/diagnosis_json.h"
#include "run/isolation.h"
#include "text/base64.h"
#include "text/json_out.h"
#include "text/utf8.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { USUAL_SIZE = 2000 }; /* of what is there besides a program's output */

static void put_milliseconds(struct hc_json_out *out, const char *name, uint64_t microseconds)
{
    hc_json_put_thousandths(out, name, (int64_t)microseconds);
}

static void put_integer_or_null(struct hc_json_out *out, const char *name, uint64_t value, bool known)
{
    if (known)
        hc_json_put_integer(out, name, (int64_t)value);
    else
        hc_json_put_null(out, name);
}

/* Files can be large: they are written as they are encoded. */
static void put_base64(struct hc_json_out *out, const char *name, const char *data, size_t length)
{
    enum { PIECE = 3 * 16 * 1024 }; /* a multiple of three needs no padding in between */
    struct hc_buf *buf = hc_json_put_raw(out, name);

    hc_buf_add(buf, "\"", 1);
    for (size_t at = 0; at < length; at += PIECE) {
        size_t left = length - at, size = 0;
        hc_cleanup_free char *piece = hc_base64_encode(data + at, left < PIECE ? left : PIECE, &size);
        if (!piece)
            hc_json_out_fail(out);
        else
            hc_buf_add(buf, piece, size);
    }
    hc_buf_add(buf, "\"", 1);
}

static void put_usage(struct hc_json_out *out, const struct job_facts *facts)
{
    hc_json_put_open(out, "usage", '{');
    put_milliseconds(out, "wall_ms", facts->wall);
    put_milliseconds(out, "cpu_ms", facts->cpu);
    put_milliseconds(out, "user_ms", facts->user);
    put_milliseconds(out, "system_ms", facts->system);
    put_integer_or_null(out, "memory_peak", facts->memory_peak, facts->memory_peak > 0);
    put_integer_or_null(out, "pids_peak", facts->pids_peak, (facts->counted & ISOLATION_PIDS) != 0);
    hc_json_put_close(out, '}');
}

static void put_duration(struct hc_json_out *out, const char *name, uint64_t microseconds)
{
    if (microseconds == 0)
        hc_json_put_null(out, name);
    else if (microseconds % 1000000 == 0)
        hc_json_put_integer(out, name, (int64_t)(microseconds / 1000000));
    else
        hc_json_put_real(out, name, (double)microseconds / 1e6);
}

static void put_limits(struct hc_json_out *out, const struct limits *limits)
{
    hc_json_put_open(out, "limits", '{');
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const char *name = limit_table[id].name;
        switch (limit_table[id].kind) {
        case LIMIT_KIND_DURATION:
            put_duration(out, name, limits->value[id]);
            break;
        case LIMIT_KIND_MILLI:
            hc_json_put_thousandths(out, name, (int64_t)limits->value[id]);
            break;
        case LIMIT_KIND_SIZE:
        case LIMIT_KIND_NUMBER:
            hc_json_put_integer(out, name, (int64_t)limits->value[id]);
            break;
        }
    }
    hc_json_put_close(out, '}');
}

static void put_signal(struct hc_json_out *out, int signal)
{
    put_integer_or_null(out, "signal", (uint64_t)signal, signal != 0);
}

/* What a compiler had to say about a program that it accepted. */
static void put_stage_output(struct hc_json_out *out, const struct run_stage *stage)
{
    size_t length = 0;
    if (stage->output.total == 0)
        return;
    hc_cleanup_free char *bytes = capture_text(&stage->output, &length);
    if (!bytes)
        hc_json_out_fail(out);
    else if (hc_utf8_valid(bytes, length))
        hc_json_put_text(out, "output", bytes, length);
    else
        put_base64(out, "output_base64", bytes, length);
}

static void put_stages(struct hc_json_out *out, const struct result *result)
{
    hc_json_put_open(out, "stages", '[');
    for (size_t i = 0; i < result->stage_count; i++) {
        const struct run_stage *stage = &result->stages[i];
        hc_json_put_open(out, NULL, '{');
        hc_json_put_lossy(out, "name", stage->name);
        hc_json_put_word(out, "status", run_status_word(stage->status));
        hc_json_put_integer(out, "exit_code", stage->exit_code);
        put_signal(out, stage->signal);
        put_usage(out, &stage->facts);
        put_limits(out, &stage->limits);
        if (stage->cached)
            hc_json_put_bool(out, "cached", true);
        put_stage_output(out, stage);
        hc_json_put_close(out, '}');
    }
    hc_json_put_close(out, ']');
}

/* A path is the guest's own bytes. One that is not UTF-8 has no `path` but a `path_base64`. */
static void put_file(struct hc_json_out *out, const struct result_file *file)
{
    size_t length = strlen(file->path);

    hc_json_put_open(out, NULL, '{');
    if (hc_utf8_valid(file->path, length)) {
        hc_json_put_text(out, "path", file->path, length);
    } else {
        hc_json_put_null(out, "path");
        put_base64(out, "path_base64", file->path, length);
    }
    hc_json_put_word(out, "type", file->type);
    hc_json_put_integer(out, "size", (int64_t)file->size);
    hc_json_put_bool(out, "truncated", file->truncated);
    put_base64(out, "base64", file->content.data, file->content.length);
    hc_json_put_close(out, '}');
}

static void put_files(struct hc_json_out *out, const struct result *result)
{
    hc_json_put_open(out, "files", '[');
    for (size_t i = 0; i < result->file_count; i++)
        put_file(out, &result->files[i]);
    hc_json_put_close(out, ']');
}

/* NULL: nothing is known, or needs to be. */
static void put_diagnosis(struct hc_json_out *out, const struct diagnosis *diagnosis)
{
    if (!diagnosis) {
        hc_json_put_null(out, "diagnosis");
        return;
    }
    hc_cleanup_json json_t *value = diagnosis_to_json(diagnosis);
    hc_json_put_value(out, "diagnosis", value);
}

static void put_diagnosis_of(struct hc_json_out *out, const struct result *result)
{
    struct diagnosis made;
    const struct diagnosis *known = result->diagnosis;
    put_diagnosis(out, known ? known : result_diagnose(result, &made) ? &made : NULL);
}

static void put_diagnosis_of_test(struct hc_json_out *out, const struct run_test *test)
{
    struct diagnosis made;
    const struct diagnosis *known = test->diagnosis;
    put_diagnosis(out, known ? known : stage_diagnose(&test->job, &test->out, &test->err, &made) ? &made : NULL);
}

static void put_isolation(struct hc_json_out *out, const struct result *result)
{
    bool full = (result->isolation & ISOLATION_ALL) == ISOLATION_ALL && !result->weak;

    hc_json_put_open(out, "isolation", '{');
    hc_json_put_word(out, "level", full ? "full" : "weak");
    hc_json_put_open(out, "layers", '[');
    for (unsigned bit = 0; bit < ISOLATION_LAYERS; bit++)
        if (result->isolation & 1U << bit)
            hc_json_put_word(out, NULL, isolation_layer_words[bit]);
    hc_json_put_close(out, ']');
    hc_json_put_close(out, '}');
}

static void put_timing(struct hc_json_out *out, const struct result *result)
{
    hc_json_put_open(out, "timing", '{');
    hc_json_put_word(out, "start", result->start ? result->start : "cold");
    put_milliseconds(out, "queue_ms", result->queue_us);
    put_milliseconds(out, "prepare_ms", result->prepare_us);
    put_milliseconds(out, "run_ms", result->run_us);
    put_milliseconds(out, "total_ms", result->total_us);
    hc_json_put_close(out, '}');
}

static void put_output(struct hc_json_out *out, const struct capture *captured_out, const struct capture *captured_err,
                       uint64_t files_skipped)
{
    size_t out_length = 0, err_length = 0;
    hc_cleanup_free char *out_bytes = capture_text(captured_out, &out_length);
    hc_cleanup_free char *err_bytes = capture_text(captured_err, &err_length);

    if (!out_bytes || !err_bytes) {
        hc_json_out_fail(out);
        return;
    }
    bool text = hc_utf8_valid(out_bytes, out_length) && hc_utf8_valid(err_bytes, err_length);
    void (*put)(struct hc_json_out *, const char *, const char *, size_t) = text ? hc_json_put_text : put_base64;
    put(out, "stdout", out_bytes, out_length);
    put(out, "stderr", err_bytes, err_length);
    hc_json_put_word(out, "output_encoding", text ? "utf-8" : "base64");
    hc_json_put_open(out, "truncated", '{');
    hc_json_put_integer(out, "stdout", (int64_t)capture_missing(captured_out));
    hc_json_put_integer(out, "stderr", (int64_t)capture_missing(captured_err));
    if (files_skipped > 0)
        hc_json_put_integer(out, "files", (int64_t)files_skipped);
    hc_json_put_close(out, '}');
}

static void put_test(struct hc_json_out *out, const struct run_test *test)
{
    static const char *const matches[] = {[MATCH_EXACT] = "exact", [MATCH_WHITESPACE] = "whitespace"};

    hc_json_put_open(out, NULL, '{');
    hc_json_put_lossy(out, "name", test->job.name);
    hc_json_put_word(out, "verdict", test_verdict(test));
    hc_json_put_bool(out, "passed", test->passed);
    hc_json_put_known(out, "match", matches[test->match]);
    hc_json_put_integer(out, "exit_code", test->job.exit_code);
    put_signal(out, test->job.signal);
    put_output(out, &test->out, &test->err, 0);
    put_usage(out, &test->job.facts);
    put_limits(out, &test->job.limits);
    put_diagnosis_of_test(out, test);
    hc_json_put_close(out, '}');
}

static void put_tests(struct hc_json_out *out, const struct result *result)
{
    if (result->tests_total == 0) {
        hc_json_put_null(out, "tests");
        return;
    }
    hc_json_put_open(out, "tests", '[');
    for (size_t i = 0; i < result->test_count; i++)
        put_test(out, &result->tests[i]);
    hc_json_put_close(out, ']');
    hc_json_put_integer(out, "tests_passed", (int64_t)result_tests_passed(result));
    hc_json_put_integer(out, "tests_total", (int64_t)result->tests_total);
}

static void put_time(struct hc_json_out *out, const char *name, int64_t microseconds)
{
    time_t seconds = (time_t)(microseconds / 1000000);
    char date[32] = "", text[48];
    struct tm utc;

    if (gmtime_r(&seconds, &utc))
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, sizeof(text), "%s.%03dZ", date, (int)(microseconds / 1000 % 1000));
    hc_json_put_word(out, name, text);
}

/* It was checked when the request was read. */
static void put_metadata(struct hc_json_out *out, const struct result *result)
{
    hc_cleanup_json json_t *metadata = NULL;

    if (!result->metadata) {
        hc_json_put_open(out, "metadata", '{');
        hc_json_put_close(out, '}');
        return;
    }
    hc_json_read(result->metadata, strlen(result->metadata), 64, &metadata, NULL);
    hc_json_put_value(out, "metadata", metadata);
}

char *result_to_json(const struct result *result, bool pretty)
{
    struct hc_json_out out = HC_JSON_OUT(pretty);
    struct job_facts usage;

    result_usage(result, &usage);
    hc_buf_room(&out.buf, USUAL_SIZE);
    hc_json_put_open(&out, NULL, '{');
    hc_json_put_word(&out, "id", result->id);
    if (result->sandbox[0])
        hc_json_put_word(&out, "sandbox", result->sandbox);
    hc_json_put_word(&out, "status", run_status_word(result->status));
    hc_json_put_bool(&out, "success", result_success(result));
    hc_json_put_integer(&out, "exit_code", result->exit_code);
    put_signal(&out, result->signal);
    hc_json_put_bool(&out, "timed_out", result->status == RUN_TIMEOUT);
    put_output(&out, &result->out, &result->err, result->files_skipped);
    hc_json_put_known(&out, "language", result->language);
    hc_json_put_known(&out, "language_version", result->version);
    put_usage(&out, &usage);
    put_timing(&out, result);
    put_isolation(&out, result);
    put_stages(&out, result);
    put_tests(&out, result);
    put_files(&out, result);
    put_diagnosis_of(&out, result);
    put_time(&out, "created_at", result->created_at);
    put_metadata(&out, result);
    hc_json_put_close(&out, '}');
    return hc_json_out_take(&out);
}
