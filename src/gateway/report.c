/*
 * The debug report of a run: what it did, what went wrong, what was allowed, on one page, for a person or a program
 * that repairs code. Made from the result and the shape of the request, so it can be made at any time later.
 *
 * The upper members (status, exit_code, execution_time, timestamp, language, container_id, output, resource_usage,
 * error_type, error_message) and `analysis` are those that clients of older sandboxes know by these names.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "gateway/run_internal.h"
#include "text/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 64 << 20, OUTPUT_SHOWN = 64 << 10 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static json_t *shared(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value != NULL ? json_incref(value) : json_null();
}

static json_t *string_or_null(const char *text)
{
    return text[0] != '\0' ? hc_json_text_lossy(text) : json_null();
}

/* ---- what went wrong ---- */

struct verdict {
    bool good;
    const char *error_type;    /* of the report: "timeout", "execution_error", "" */
    const char *analysis_type; /* of the analysis */
    const char *exception;     /* "ValueError: …" of a Python program, or "" */
    const char *message, *hint;
    char line[512];
};

/* The last line of stderr that says something. */
static void last_line(const char *text, char *line, size_t size)
{
    size_t end = strlen(text);
    while (end > 0 && strchr("\n\r \t", text[end - 1]) != NULL)
        end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    size_t length = end - begin < size - 1 ? end - begin : size - 1;
    memcpy(line, text + begin, length);
    line[length] = '\0';
}

static void judge(const json_t *result, struct verdict *verdict)
{
    const char *status = text_of(result, "status"), *err = text_of(result, "stderr");
    const json_t *diagnosis = json_object_get(result, "diagnosis");
    *verdict = (struct verdict){.good = json_is_true(json_object_get(result, "success")), .exception = ""};
    verdict->message = text_of(diagnosis, "message");
    verdict->hint = text_of(diagnosis, "hint");
    last_line(err, verdict->line, sizeof verdict->line);
    verdict->error_type = verdict->good ? "" : strcmp(status, "timeout") == 0 ? "timeout" : "execution_error";
    if (verdict->good)
        verdict->analysis_type = "";
    else if (strcmp(status, "timeout") == 0)
        verdict->analysis_type = "timeout";
    else if (strcmp(status, "internal") == 0)
        verdict->analysis_type = "sandbox_error";
    else if (strcmp(text_of(result, "language"), "python") == 0 && strstr(err, "Traceback (most recent call") != NULL)
        verdict->analysis_type = "python_exception";
    else
        verdict->analysis_type = "execution_failure";
    if (strcmp(verdict->analysis_type, "python_exception") == 0)
        verdict->exception = verdict->line;
    /* What the program said of its own end is told in its own words. */
    bool told = strcmp(status, "error") == 0 && verdict->line[0] != '\0' &&
                json_is_string(json_object_get(json_object_get(diagnosis, "evidence"), "output"));
    if (!verdict->good && (verdict->message[0] == '\0' || told))
        verdict->message = verdict->line;
}

static json_t *analysis_of(const struct verdict *verdict)
{
    return json_pack("{s:b, s:o, s:o, s:o, s:o}", "is_error", !verdict->good, "error_type",
                     string_or_null(verdict->analysis_type), "exception", string_or_null(verdict->exception), "error",
                     verdict->good ? json_null() : string_or_null(verdict->message), "suggestion",
                     string_or_null(verdict->hint));
}

/* ---- as JSON ---- */

static json_t *build(const json_t *result, const json_t *shape, json_t *seen)
{
    struct verdict verdict;
    judge(result, &verdict);
    const json_t *usage = json_object_get(result, "usage");
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o}",
        "id", shared(result, "id"), "status", verdict.good ? "success" : "failure", "run_status",
        shared(result, "status"), "exit_code", shared(result, "exit_code"), "execution_time",
        json_number_value(json_object_get(usage, "wall_ms")) / 1000, "timestamp", shared(result, "created_at"),
        "language", shared(result, "language"), "language_version", shared(result, "language_version"), "container_id",
        shared(result, "id"), "output", "stdout", shared(result, "stdout"), "stderr", shared(result, "stderr"),
        "encoding", shared(result, "output_encoding"), "truncated", shared(result, "truncated"), "resource_usage",
        shared(result, "usage"), "error_type", string_or_null(verdict.error_type), "error_message",
        verdict.good ? json_null() : string_or_null(verdict.message), "analysis", analysis_of(&verdict), "diagnosis",
        shared(result, "diagnosis"), "seen", seen, "signal", shared(result, "signal"), "timing",
        shared(result, "timing"), "isolation", shared(result, "isolation"), "stages", shared(result, "stages"), "tests",
        shared(result, "tests"), "request", shape != NULL ? json_incref((json_t *)shape) : json_null());
}

/* ---- as text ---- */

/* A fence that the text cannot close: longer than any run of backticks in it. */
static void add_fenced(struct hc_buf *out, const char *title, const json_t *value)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), longest = 2, current = 0;
    if (text == NULL || length == 0)
        return;
    size_t shown = length < OUTPUT_SHOWN ? length : OUTPUT_SHOWN;
    while (shown < length && shown > 0 && ((unsigned char)text[shown] & 0xc0) == 0x80)
        shown--;
    for (size_t i = 0; i < shown; i++) {
        current = text[i] == '`' ? current + 1 : 0;
        longest = current > longest ? current : longest;
    }
    hc_buf_printf(out, "\n## %s\n\n", title);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i <= longest; i++)
            hc_buf_add_str(out, "`");
        hc_buf_add_str(out, "\n");
        if (side == 0) {
            hc_buf_add(out, text, shown);
            if (text[shown - 1] != '\n')
                hc_buf_add_str(out, "\n");
        }
    }
    if (shown < length)
        hc_buf_printf(out, "\n%zu more bytes are in the result.\n", length - shown);
}

/* A value in a row of a table: on one line, and without what would end the cell. */
static void add_row(struct hc_buf *out, const char *name, const char *value)
{
    if (value[0] == '\0')
        return;
    hc_buf_printf(out, "| %s | ", name);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '|')
            hc_buf_add_str(out, "\\|");
        else
            hc_buf_add(out, *c == '\n' || *c == '\r' ? " " : c, 1);
    }
    hc_buf_add_str(out, " |\n");
}

static void add_number(struct hc_buf *out, const char *name, const json_t *value, const char *unit)
{
    char text[64];
    if (!json_is_number(value))
        return;
    snprintf(text, sizeof text, "%.15g%s", json_number_value(value), unit);
    add_row(out, name, text);
}

static void add_facts(struct hc_buf *out, const json_t *report)
{
    const json_t *usage = json_object_get(report, "resource_usage"), *timing = json_object_get(report, "timing");
    hc_buf_add_str(out, "| fact | value |\n| --- | --- |\n");
    add_row(out, "status", text_of(report, "run_status"));
    add_number(out, "exit code", json_object_get(report, "exit_code"), "");
    add_number(out, "signal", json_object_get(report, "signal"), "");
    add_row(out, "language", text_of(report, "language"));
    add_row(out, "version", text_of(report, "language_version"));
    add_row(out, "created at", text_of(report, "timestamp"));
    add_number(out, "wall time", json_object_get(usage, "wall_ms"), " ms");
    add_number(out, "CPU time", json_object_get(usage, "cpu_ms"), " ms");
    add_number(out, "memory at its peak", json_object_get(usage, "memory_peak"), " bytes");
    add_number(out, "processes at their peak", json_object_get(usage, "pids_peak"), "");
    add_number(out, "waited in the queue", json_object_get(timing, "queue_ms"), " ms");
    add_row(out, "isolation", text_of(json_object_get(report, "isolation"), "level"));
}

/* The proof: figures of the kernel, and what was found in the output. */
static void add_evidence(struct hc_buf *out, const json_t *evidence)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)evidence, name, value)
    {
        if (json_is_string(value))
            add_row(out, name, json_string_value(value));
        else
            add_number(out, name, value, "");
    }
}

static void add_seen(struct hc_buf *out, const json_t *seen)
{
    if (!json_is_object(seen))
        return;
    add_number(out, "times that it failed so", json_object_get(seen, "count"), "");
    add_row(out, "first", text_of(seen, "first_at"));
    add_row(out, "similar code that succeeded", text_of(seen, "fixed_by"));
}

static void add_wrong(struct hc_buf *out, const json_t *report)
{
    const json_t *analysis = json_object_get(report, "analysis"), *diagnosis = json_object_get(report, "diagnosis");
    if (text_of(report, "error_type")[0] == '\0')
        return;
    hc_buf_add_str(out, "\n## What went wrong\n\n| | |\n| --- | --- |\n");
    add_row(out, "kind", text_of(analysis, "error_type"));
    add_row(out, "category", text_of(diagnosis, "category"));
    add_row(out, "message", text_of(report, "error_message"));
    add_row(out, "exception", text_of(analysis, "exception"));
    add_row(out, "file", text_of(diagnosis, "file"));
    add_number(out, "line", json_object_get(diagnosis, "line"), "");
    add_number(out, "column", json_object_get(diagnosis, "column"), "");
    add_row(out, "source", text_of(diagnosis, "source"));
    add_evidence(out, json_object_get(diagnosis, "evidence"));
    add_seen(out, json_object_get(report, "seen"));
    add_row(out, "what to do", text_of(analysis, "suggestion"));
}

static char *as_markdown(const json_t *report)
{
    struct hc_buf out = HC_BUF_INIT(TEXT_LIMIT);
    const json_t *output = json_object_get(report, "output");
    bool base64 = strcmp(text_of(output, "encoding"), "base64") == 0;
    hc_buf_printf(&out, "# %s: %s\n\n", text_of(report, "id"), text_of(report, "status"));
    add_facts(&out, report);
    add_wrong(&out, report);
    add_fenced(&out, base64 ? "Standard output, as base64" : "Standard output", json_object_get(output, "stdout"));
    add_fenced(&out, base64 ? "Standard error, as base64" : "Standard error", json_object_get(output, "stderr"));
    return hc_buf_take(&out, NULL);
}

char *report_make(const struct report_source *source, bool markdown, struct hc_err *err)
{
    hc_cleanup_json json_t *root = NULL, *asked = NULL;
    if (hc_json_read(source->result, strlen(source->result), 80, &root, err) < 0)
        return NULL;
    if (source->shape != NULL && hc_json_read(source->shape, strlen(source->shape), 16, &asked, err) < 0)
        return NULL;
    const char *fingerprint = text_of(json_object_get(root, "diagnosis"), "fingerprint");
    hc_cleanup_json json_t *report = build(root, asked, run_seen(source->store, source->tenant, fingerprint));
    char *text = report == NULL ? NULL : markdown ? as_markdown(report) : hc_json_write(report, true);
    if (text == NULL)
        hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    return text;
}
