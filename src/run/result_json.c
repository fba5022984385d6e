/*
 * API.md's result object. What always holds: it is valid JSON whatever bytes the guest wrote (bytes that are not UTF-8
 * make both streams base64, and a NUL is a \u0000), every field is there in every result (tests_passed and
 * tests_total in those with tests), and a figure that nobody counted is null.
 */
#include "run/result.h"

#include "base/buf.h"
#include "base/fd.h"
#include "run/diagnosis_json.h"
#include "run/isolation.h"
#include "text/base64.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Jansson's setters steal the value and fail on NULL, so a lack of memory anywhere shows as -1 from the setter.
 * `failed` gathers that: one check at the end. */
struct writer {
    json_t *object;
    bool failed;
};

static void put(struct writer *writer, const char *key, json_t *value)
{
    if (json_object_set_new_nocheck(writer->object, key, value) != 0)
        writer->failed = true;
}

static struct writer object_begin(void)
{
    json_t *object = json_object();
    return (struct writer){object, !object};
}

/* The finished object, or NULL with what was gathered released. */
static json_t *object_end(struct writer *writer)
{
    if (!writer->failed)
        return writer->object;
    json_decref(writer->object);
    return NULL;
}

static json_t *milliseconds(uint64_t microseconds)
{
    return json_real((double)microseconds / 1000);
}

static json_t *whole_or_real(double value)
{
    return value == (double)(json_int_t)value ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *integer_or_null(uint64_t value, bool known)
{
    return known ? json_integer((json_int_t)value) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text && text[0] != '\0' ? hc_json_text_lossy(text) : json_null();
}

static json_t *base64(const char *data, size_t length)
{
    size_t encoded_length = 0;
    hc_cleanup_free char *encoded = hc_base64_encode(data, length, &encoded_length);

    return encoded ? hc_json_text(encoded, encoded_length) : NULL;
}

static json_t *usage_of(const struct job_facts *facts)
{
    struct writer usage = object_begin();

    put(&usage, "wall_ms", milliseconds(facts->wall));
    put(&usage, "cpu_ms", milliseconds(facts->cpu));
    put(&usage, "user_ms", milliseconds(facts->user));
    put(&usage, "system_ms", milliseconds(facts->system));
    put(&usage, "memory_peak", integer_or_null(facts->memory_peak, facts->memory_peak > 0));
    put(&usage, "pids_peak", integer_or_null(facts->pids_peak, (facts->counted & ISOLATION_PIDS) != 0));
    return object_end(&usage);
}

static json_t *limits_of(const struct limits *limits)
{
    struct writer object = object_begin();

    for (int id = 0; id < LIMIT_COUNT; id++) {
        double value = (double)limits->value[id];
        json_t *number = NULL;
        switch (limit_table[id].kind) {
        case LIMIT_KIND_DURATION:
            number = value == 0 ? json_null() : whole_or_real(value / 1e6);
            break;
        case LIMIT_KIND_MILLI:
            number = json_real(value / 1000);
            break;
        case LIMIT_KIND_SIZE:
        case LIMIT_KIND_NUMBER:
            number = json_integer((json_int_t)limits->value[id]);
            break;
        }
        put(&object, limit_table[id].name, number);
    }
    return object_end(&object);
}

static json_t *signal_or_null(int signal)
{
    return signal != 0 ? json_integer(signal) : json_null();
}

/* What a compiler had to say about a program that it accepted. */
static void put_stage_output(struct writer *object, const struct run_stage *stage)
{
    size_t length = 0;
    if (stage->output.total == 0)
        return;
    hc_cleanup_free char *bytes = capture_text(&stage->output, &length);
    if (!bytes) {
        object->failed = true;
        return;
    }
    json_t *text = hc_json_text(bytes, length);
    if (text)
        put(object, "output", text);
    else
        put(object, "output_base64", base64(bytes, length));
}

static json_t *stages_of(const struct result *result)
{
    json_t *list = json_array();

    for (size_t i = 0; i < result->stage_count; i++) {
        const struct run_stage *stage = &result->stages[i];
        struct writer object = object_begin();
        put(&object, "name", hc_json_text_lossy(stage->name));
        put(&object, "status", json_string(run_status_word(stage->status)));
        put(&object, "exit_code", json_integer(stage->exit_code));
        put(&object, "signal", signal_or_null(stage->signal));
        put(&object, "usage", usage_of(&stage->facts));
        put(&object, "limits", limits_of(&stage->limits));
        if (stage->cached)
            put(&object, "cached", json_true());
        put_stage_output(&object, stage);
        if (json_array_append_new(list, object_end(&object)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* A path is the guest's own bytes. One that is not UTF-8 has no `path` but a `path_base64`. */
static json_t *file_object(const struct result_file *file, bool content)
{
    struct writer object = object_begin();
    json_t *path = hc_json_text(file->path, strlen(file->path));

    put(&object, "path", path ? path : json_null());
    if (!path)
        put(&object, "path_base64", base64(file->path, strlen(file->path)));
    put(&object, "type", json_string(file->type));
    put(&object, "size", json_integer((json_int_t)file->size));
    put(&object, "truncated", json_boolean(file->truncated));
    if (content)
        put(&object, "base64", base64(file->content.data, file->content.length));
    return object_end(&object);
}

static json_t *files_of(const struct result *result)
{
    json_t *list = json_array();

    for (size_t i = 0; i < result->file_count; i++) {
        if (json_array_append_new(list, file_object(&result->files[i], true)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static void write_file(const struct result_file *file, struct hc_buf *out)
{
    enum { PIECE = 3 * 16 * 1024 }; /* a multiple of three needs no padding in between */
    hc_cleanup_json json_t *object = file_object(file, false);
    hc_cleanup_free char *text = hc_json_write(object, false);

    if (!text) {
        out->status = -ENOMEM;
        return;
    }
    hc_buf_add(out, text, strlen(text) - 1);
    hc_buf_add_str(out, ",\"base64\":\"");
    for (size_t at = 0; at < file->content.length; at += PIECE) {
        size_t left = file->content.length - at, length = 0;
        hc_cleanup_free char *piece = hc_base64_encode(file->content.data + at, left < PIECE ? left : PIECE, &length);
        if (!piece)
            out->status = -ENOMEM;
        hc_buf_add(out, piece, length);
    }
    hc_buf_add_str(out, "\"}");
}

/* Collected files can be large, and a server makes results for many: their contents are written as they are encoded,
 * without a tree of values in between. Takes `text`, an object. */
static char *add_files(char *text, const struct result *result)
{
    struct hc_buf out = HC_BUF_INIT(SIZE_MAX / 2);

    if (!text)
        return NULL;
    hc_buf_add(&out, text, strlen(text) - 1);
    free(text);
    for (size_t i = 0; i < result->file_count; i++) {
        hc_buf_add_str(&out, i == 0 ? ",\"files\":[" : ",");
        write_file(&result->files[i], &out);
    }
    hc_buf_add_str(&out, "]}");
    return hc_buf_take(&out, NULL);
}

static json_t *diagnosis_of(const struct result *result)
{
    struct diagnosis diagnosis;

    if (result->diagnosis)
        return diagnosis_to_json(result->diagnosis);
    return result_diagnose(result, &diagnosis) ? diagnosis_to_json(&diagnosis) : json_null();
}

static json_t *diagnosis_of_test(const struct run_test *test)
{
    struct diagnosis diagnosis;

    if (test->diagnosis)
        return diagnosis_to_json(test->diagnosis);
    return stage_diagnose(&test->job, &test->out, &test->err, &diagnosis) ? diagnosis_to_json(&diagnosis) : json_null();
}

static json_t *isolation_of(const struct result *result)
{
    bool full = (result->isolation & ISOLATION_ALL) == ISOLATION_ALL && !result->weak;
    struct writer object = object_begin();
    json_t *layers = json_array();

    for (unsigned bit = 0; bit < ISOLATION_LAYERS; bit++)
        if (result->isolation & 1U << bit &&
            json_array_append_new(layers, json_string(isolation_layer_words[bit])) != 0)
            object.failed = true;
    put(&object, "level", json_string(full ? "full" : "weak"));
    put(&object, "layers", layers);
    return object_end(&object);
}

static json_t *timing_of(const struct result *result)
{
    struct writer object = object_begin();

    put(&object, "start", json_string(result->start ? result->start : "cold"));
    put(&object, "queue_ms", milliseconds(result->queue_us));
    put(&object, "prepare_ms", milliseconds(result->prepare_us));
    put(&object, "run_ms", milliseconds(result->run_us));
    put(&object, "total_ms", milliseconds(result->total_us));
    return object_end(&object);
}

static void put_output(struct writer *object, const struct capture *captured_out, const struct capture *captured_err,
                       uint64_t files_skipped)
{
    size_t out_length = 0, err_length = 0;
    hc_cleanup_free char *out = capture_text(captured_out, &out_length);
    hc_cleanup_free char *err = capture_text(captured_err, &err_length);

    if (!out || !err) {
        object->failed = true;
        return;
    }
    json_t *out_text = hc_json_text(out, out_length), *err_text = hc_json_text(err, err_length);
    bool text = out_text && err_text;
    if (!text) {
        json_decref(out_text);
        json_decref(err_text);
        out_text = base64(out, out_length);
        err_text = base64(err, err_length);
    }
    put(object, "stdout", out_text);
    put(object, "stderr", err_text);
    put(object, "output_encoding", json_string(text ? "utf-8" : "base64"));
    struct writer truncated = object_begin();
    put(&truncated, "stdout", json_integer((json_int_t)capture_missing(captured_out)));
    put(&truncated, "stderr", json_integer((json_int_t)capture_missing(captured_err)));
    if (files_skipped > 0)
        put(&truncated, "files", json_integer((json_int_t)files_skipped));
    put(object, "truncated", object_end(&truncated));
}

static json_t *test_object(const struct run_test *test)
{
    static const char *const matches[] = {[MATCH_EXACT] = "exact", [MATCH_WHITESPACE] = "whitespace"};
    struct writer object = object_begin();

    put(&object, "name", hc_json_text_lossy(test->job.name));
    put(&object, "verdict", json_string(test_verdict(test)));
    put(&object, "passed", json_boolean(test->passed));
    put(&object, "match", text_or_null(matches[test->match]));
    put(&object, "exit_code", json_integer(test->job.exit_code));
    put(&object, "signal", signal_or_null(test->job.signal));
    put_output(&object, &test->out, &test->err, 0);
    put(&object, "usage", usage_of(&test->job.facts));
    put(&object, "limits", limits_of(&test->job.limits));
    put(&object, "diagnosis", diagnosis_of_test(test));
    return object_end(&object);
}

static json_t *tests_of(const struct result *result)
{
    if (result->tests_total == 0)
        return json_null();
    json_t *list = json_array();
    for (size_t i = 0; i < result->test_count; i++) {
        if (json_array_append_new(list, test_object(&result->tests[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *time_text(int64_t microseconds)
{
    time_t seconds = (time_t)(microseconds / 1000000);
    char date[32] = "", text[48];
    struct tm utc;

    if (gmtime_r(&seconds, &utc))
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, sizeof(text), "%s.%03dZ", date, (int)(microseconds / 1000 % 1000));
    return json_string(text);
}

/* It was checked when the request was read. */
static json_t *metadata_of(const struct result *result)
{
    json_t *metadata = NULL;

    if (!result->metadata)
        return json_object();
    return hc_json_read(result->metadata, strlen(result->metadata), 64, &metadata, NULL) == 0 ? metadata : NULL;
}

char *result_to_json(const struct result *result, bool pretty)
{
    struct writer object = object_begin();
    struct job_facts usage;

    result_usage(result, &usage);
    put(&object, "id", json_string(result->id));
    if (result->sandbox[0])
        put(&object, "sandbox", json_string(result->sandbox));
    put(&object, "status", json_string(run_status_word(result->status)));
    put(&object, "success", json_boolean(result_success(result)));
    put(&object, "exit_code", json_integer(result->exit_code));
    put(&object, "signal", signal_or_null(result->signal));
    put(&object, "timed_out", json_boolean(result->status == RUN_TIMEOUT));
    put_output(&object, &result->out, &result->err, result->files_skipped);
    put(&object, "language", text_or_null(result->language));
    put(&object, "language_version", text_or_null(result->version));
    put(&object, "usage", usage_of(&usage));
    put(&object, "timing", timing_of(result));
    put(&object, "isolation", isolation_of(result));
    put(&object, "stages", stages_of(result));
    put(&object, "tests", tests_of(result));
    if (result->tests_total > 0) {
        put(&object, "tests_passed", json_integer((json_int_t)result_tests_passed(result)));
        put(&object, "tests_total", json_integer((json_int_t)result->tests_total));
    }
    bool apart = !pretty && result->file_count > 0;
    if (!apart)
        put(&object, "files", files_of(result));
    put(&object, "diagnosis", diagnosis_of(result));
    put(&object, "created_at", time_text(result->created_at));
    put(&object, "metadata", metadata_of(result));
    hc_cleanup_json json_t *root = object_end(&object);
    char *text = hc_json_write(root, pretty);
    return apart ? add_files(text, result) : text;
}
