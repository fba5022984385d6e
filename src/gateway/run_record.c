/*
 * What is written about a run: its shape when it is asked for, its record, line of log and audit entries when it is
 * over. What always holds: the shape has names and sizes and no contents, so that the history of a run does not keep
 * its code, input or secrets longer than the result has to.
 */
#include "base/fd.h"
#include "base/log.h"
#include "gateway/languages.h"
#include "gateway/metrics.h"
#include "gateway/run_internal.h"
#include "gateway/unwrap.h"
#include "run/explain.h"
#include "text/json_out.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHAPE_NAMES = 64 }; /* names of files or variables, at most: a shape stays small */

int64_t run_time_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

const char *run_time_text(int64_t when, char *text, size_t size)
{
    time_t seconds = (time_t)(when / 1000000);
    struct tm utc;
    size_t length = gmtime_r(&seconds, &utc) != NULL ? strftime(text, size, "%Y-%m-%dT%H:%M:%S", &utc) : 0;
    snprintf(text + length, size - length, ".%03dZ", (int)(when / 1000 % 1000));
    return text;
}

/* ---- the request ---- */

static bool language_known(void *data, const char *name)
{
    return catalogue_find(data, name) != NULL;
}

int run_unwrap(struct gateway *gateway, struct request *request, struct hc_err *err)
{
    if (!request->has_code)
        return 0;
    struct unwrapped found = {0};
    int result = unwrap_code(request->code.data, request->code.length, language_known, gateway->catalogue, &found);
    if (result < 0)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    bool named = found.language[0] != '\0' && catalogue_find(gateway->catalogue, found.language) != NULL;
    if (named)
        result = request_set(request, "language", found.language, err);
    free(request->code.data);
    request->code = (struct blob){.data = found.code, .length = found.length};
    return result;
}

/* ---- shape ---- */

static void put_file_shapes(struct hc_json_out *out, const struct request *request)
{
    hc_json_put_open(out, "files", '[');
    for (size_t i = 0; i < request->file_count && i < SHAPE_NAMES; i++) {
        hc_json_put_open(out, NULL, '{');
        hc_json_put_lossy(out, "path", request->files[i].path);
        hc_json_put_integer(out, "size", (int64_t)request->files[i].content.length);
        hc_json_put_close(out, '}');
    }
    hc_json_put_close(out, ']');
}

static void put_env_names(struct hc_json_out *out, const struct request *request)
{
    hc_json_put_open(out, "env", '[');
    for (size_t i = 0; i < request->env.count && i < SHAPE_NAMES; i++) {
        hc_cleanup_free char *name = strndup(request->env.item[i], strcspn(request->env.item[i], "="));
        if (name != NULL)
            hc_json_put_lossy(out, NULL, name);
    }
    hc_json_put_close(out, ']');
}

static void put_limit_shapes(struct hc_json_out *out, const struct request *request)
{
    hc_json_put_open(out, "limits", '{');
    for (int id = 0; id < LIMIT_COUNT; id++) {
        double value = (double)request->limits.value[id];
        double unit = limit_table[id].kind == LIMIT_KIND_DURATION ? 1e6
                      : limit_table[id].kind == LIMIT_KIND_MILLI  ? 1e3
                                                                  : 1;
        if (request->limits.set[id])
            hc_json_put_real(out, limit_table[id].name, value / unit);
    }
    hc_json_put_close(out, '}');
}

static void put_mount_shapes(struct hc_json_out *out, const struct request *request)
{
    hc_json_put_open(out, "mounts", '[');
    for (size_t i = 0; i < request->mount_count; i++) {
        hc_json_put_open(out, NULL, '{');
        hc_json_put_lossy(out, "host", request->mounts[i].host);
        hc_json_put_lossy(out, "path", request->mounts[i].path);
        hc_json_put_bool(out, "read_only", request->mounts[i].read_only);
        hc_json_put_close(out, '}');
    }
    hc_json_put_close(out, ']');
}

static char *shape_of(const struct run *run)
{
    const struct request *request = run->work->request;
    struct hc_json_out out = HC_JSON_OUT(false);

    hc_json_put_open(&out, NULL, '{');
    hc_json_put_known(&out, "language", run->row.language);
    hc_json_put_known(&out, "entry", run->work->plan.entry);
    hc_json_put_integer(&out, "code_bytes", (int64_t)request->code.length);
    hc_json_put_integer(&out, "command_words", (int64_t)request->command.count);
    put_file_shapes(&out, request);
    hc_json_put_integer(&out, "stdin_bytes", (int64_t)request->input.length);
    hc_json_put_integer(&out, "args", (int64_t)request->args.count);
    put_env_names(&out, request);
    put_limit_shapes(&out, request);
    put_mount_shapes(&out, request);
    hc_json_put_integer(&out, "stages", (int64_t)request->stage_count);
    hc_json_put_integer(&out, "tests", (int64_t)request->test_count);
    hc_json_put_integer(&out, "collect", (int64_t)request->collect.count);
    hc_json_put_close(&out, '}');
    return hc_json_out_take(&out);
}

void run_describe(struct run *run)
{
    if (run->shape == NULL && run->work != NULL && run->work->request != NULL)
        run->row.shape = run->shape = shape_of(run);
}

/* ---- audit ---- */

/* Whether one more may be written in this second. */
static bool audit_allowed(struct audit_budget *budget, unsigned most)
{
    uint64_t second = hc_now() / 1000000;
    if (second != budget->second) {
        budget->second = second;
        budget->count = 0;
    }
    if (budget->count >= most) {
        budget->left_out++;
        return false;
    }
    budget->count++;
    return true;
}

static bool is_change(const char *event)
{
    return strncmp(event, "sandbox_", 8) == 0 || strncmp(event, "volume_", 7) == 0 || strncmp(event, "mcp_", 4) == 0;
}

/* Takes the detail. */
static void write_audit(struct runs *runs, const char *event, const char *tenant, const char *run, json_t *taken)
{
    hc_cleanup_json json_t *detail = taken;
    bool change = is_change(event);
    struct audit_budget *budget = change ? &runs->changes : &runs->refusals;
    if (runs->gateway->audit == NULL || !audit_allowed(budget, change ? RUNS_AUDIT_CHANGES : RUNS_AUDIT_REFUSALS))
        return;
    if (detail != NULL && budget->left_out > 0)
        json_object_set_new(detail, "left_out_before", json_integer((json_int_t)budget->left_out));
    hc_cleanup_free char *text = detail != NULL ? hc_json_write(detail, false) : NULL;
    int result = audit_add(runs->gateway->audit, event, tenant, run, text);
    if (result < 0)
        hc_log(HC_LOG_ERROR, "audit: %s was not written: %s", event, strerror(-result));
    else
        budget->left_out = 0;
}

void runs_audit(struct runs *runs, const char *event, const char *tenant, const char *run, const char *reason)
{
    write_audit(runs, event, tenant, run, json_pack("{s:o}", "reason", hc_json_text_lossy(reason)));
}

void runs_audit_calls(struct runs *runs, const char *tenant, const char *run, const char *sandbox, const char *job,
                      const struct reported *calls)
{
    if (!reported_any(calls))
        return;
    json_t *list = json_array();
    for (unsigned i = 0; i < REPORTED_MAX && reported_name(i) != NULL; i++)
        if (calls->count[i] > 0)
            json_array_append_new(list,
                                  json_pack("{s:s, s:i}", "name", reported_name(i), "count", (int)calls->count[i]));
    json_t *detail = json_pack("{s:o, s:s*, s:s*}", "calls", list, "sandbox", sandbox, "job", job);
    write_audit(runs, "blocked_call", tenant, run, detail);
}

void runs_audit_refusal(struct runs *runs, const char *tenant, const struct hc_err *err)
{
    bool mount = strncmp(err->field, "mounts", 6) == 0 && (err->code == EACCES || err->code == EPERM);
    if (err->class != HC_CLASS_REQUEST)
        return;
    char reason[sizeof err->field + sizeof err->message + 4];
    bool said = strncmp(err->message, err->field, strlen(err->field)) == 0; /* also when there is none */
    snprintf(reason, sizeof reason, "%s%s%s", said ? "" : err->field, said ? "" : ": ", err->message);
    runs_audit(runs, mount ? "mount_denied" : "request_refused", tenant, NULL, reason);
}

/* Stages, then tests. */
static const struct run_stage *job_of(const struct result *result, size_t index)
{
    return index < result->stage_count ? &result->stages[index] : &result->tests[index - result->stage_count].job;
}

/* The limit that a run met, as its status or its facts tell; NULL: none. */
static const char *limit_met(const struct result *result)
{
    for (size_t i = 0; i < result->stage_count + result->test_count; i++)
        if (job_of(result, i)->facts.end == JOB_CPU_TIME)
            return "cpu_time";
    switch (result->status) {
    case RUN_TIMEOUT:
        return "timeout";
    case RUN_OOM:
        return "memory";
    case RUN_PIDS_LIMIT:
        return "pids";
    case RUN_OUTPUT_LIMIT:
        return "output";
    default:
        return NULL;
    }
}

/* The filter ends a program with SIGSYS for calls of a foreign architecture, and only refuses those that are counted
 * (cell/witness.h). No honest program makes either. */
static void audit_blocked_calls(const struct run *run)
{
    const struct result *result = &run->work->result;
    struct reported calls = {{0}};
    bool foreign = false;
    for (size_t i = 0; i < result->stage_count + result->test_count; i++) {
        reported_sum(&calls, &job_of(result, i)->facts.calls);
        foreign = foreign || job_of(result, i)->signal == SIGSYS;
    }
    if (foreign)
        runs_audit(run->runs, "blocked_call", run->row.tenant, run->row.id,
                   "ended by SIGSYS: a call of a foreign architecture");
    runs_audit_calls(run->runs, run->row.tenant, run->row.id, result->sandbox[0] != '\0' ? result->sandbox : NULL, NULL,
                     &calls);
}

/* ---- the record ---- */

/* The warden knows only that it was told to end it. */
static void name_who_stopped(struct result *result)
{
    for (size_t i = 0; i < result->stage_count; i++)
        if (result->stages[i].facts.end == JOB_CANCELLED)
            result->stages[i].facts.end = JOB_SHUTDOWN;
    for (size_t i = 0; i < result->test_count; i++)
        if (result->tests[i].job.facts.end == JOB_CANCELLED)
            result->tests[i].job.facts.end = JOB_SHUTDOWN;
}

static void fill_result(struct run *run)
{
    const struct gateway *gateway = run->runs->gateway;
    struct result *result = &run->work->result;
    uint64_t now = hc_now(), begun = run->driven_at > 0 ? run->driven_at : now;
    snprintf(result->id, sizeof result->id, "%s", run->row.id);
    snprintf(result->language, sizeof result->language, "%s", run->row.language);
    if (run->row.language[0] != '\0')
        snprintf(result->version, sizeof result->version, "%s",
                 catalogue_version(gateway->catalogue, run->row.language));
    if (run->work->place != NULL)
        snprintf(result->sandbox, sizeof result->sandbox, "%s", run->work->place->sandbox);
    result->isolation = gateway->isolation_last;
    result->weak = (result->isolation & ISOLATION_ALL) != ISOLATION_ALL;
    if (run->stopped)
        name_who_stopped(result);
    result->start = result_start(result);
    result->created_at = run->row.created_at;
    result->queue_us = begun - run->queued_at;
    result->total_us = now - run->queued_at;
    result_time(result, begun);
    if (run->work->planned && result->status != RUN_COMPLETED)
        result_explain_plan(result, &run->work->plan);
    if (run->work->request != NULL && run->work->request->metadata != NULL && result->metadata == NULL)
        result->metadata = strdup(run->work->request->metadata);
}

static void fill_row(struct run *run)
{
    const struct result *result = &run->work->result;
    struct run_row *row = &run->row;
    row->exit_code = result->exit_code;
    row->ended_at = run_time_now();
    row->queue_us = result->queue_us;
    struct job_facts used;
    result_usage(result, &used);
    row->wall_us = used.wall;
    row->cpu_us = used.cpu;
    row->memory_peak = used.memory_peak;
    snprintf(row->status, sizeof row->status, "%s", run_status_word(result->status));
}

static bool is_shown(const struct capture *capture, const struct hc_buf *shown)
{
    return capture->total == shown->length && capture_missing(capture) == 0;
}

/* Whether events can be told from the result alone: all that was shown is in its two streams. */
static bool result_tells_all(const struct run *run)
{
    if (run->shown_count != run->work->result.stage_count)
        return run->shown_count == 0;
    for (size_t i = 0; i + 1 < run->shown_count; i++)
        if (run->shown[i].stream[0].length + run->shown[i].stream[1].length > 0)
            return false;
    if (run->shown_count == 0)
        return true;
    const struct run_shown *last = &run->shown[run->shown_count - 1];
    return is_shown(&run->work->result.out, &last->stream[0]) && is_shown(&run->work->result.err, &last->stream[1]);
}

void run_log_line(const struct run *run)
{
    const struct run_row *row = &run->row;
    const struct hc_log_field fields[] = {
        {"id", row->id, 0},
        {"kind", row->kind, 0},
        {"tenant", row->tenant, 0},
        {"language", row->language[0] != '\0' ? row->language : "-", 0},
        {"status", row->status, 0},
        {"exit_code", NULL, row->exit_code},
        {"wall_ms", NULL, (double)row->wall_us / 1000},
        {"cpu_ms", NULL, (double)row->cpu_us / 1000},
        {"memory_peak", NULL, (double)row->memory_peak},
        {"queue_ms", NULL, (double)row->queue_us / 1000},
        {"why", run->why, 0}, /* last: most runs have none */
    };
    size_t count = sizeof fields / sizeof *fields - (run->why[0] == '\0');
    hc_log_event(HC_LOG_INFO, "run", fields, count);
}

static void write_texts(struct run *run)
{
    if (!run->starved && !result_tells_all(run)) {
        struct events_source source;
        run_shown_source(run, &source);
        run->row.log = run->log = events_pack(&source);
        run->row.log_length = run->log != NULL ? strlen(run->log) : 0;
    }
    run->row.result = run->json = result_to_json(&run->work->result, false);
    run->row.result_length = run->json != NULL ? strlen(run->json) : 0;
}

/* What it wrote goes; that it was there, and why it is not shown, stays. */
static void write_without_output(struct run *run)
{
    struct result *result = &run->work->result;
    const struct run_row used = run->row; /* what it used was used */
    result_release(result);
    result->internal = run->failure;
    result_judge(result);
    free(HC_TAKE_PTR(run->json));
    free(HC_TAKE_PTR(run->log));
    run->row.log = NULL;
    run->row.log_length = 0;
    fill_result(run);
    fill_row(run);
    run_learn(run);
    run->row.wall_us = used.wall_us;
    run->row.cpu_us = used.cpu_us;
    run->row.memory_peak = used.memory_peak;
    write_texts(run);
    run_afford(run, run_bytes(run));
}

/* The text is there once for the record and once more on its way: in the store's queue, then in the reply. */
static bool can_afford_texts(struct run *run)
{
    return run_afford(run, run_bytes(run) + run->row.result_length + run->row.log_length);
}

int run_conclude(struct run *run)
{
    run_describe(run);
    fill_result(run);
    fill_row(run);
    audit_blocked_calls(run); /* while the facts are there: a run that is starved loses them */
    run_learn(run);
    if (!run->starved)
        write_texts(run);
    if (!run->starved && !can_afford_texts(run))
        run_starve(run);
    if (run->starved)
        write_without_output(run);
    metrics_run(run->runs->gateway->metrics, &run->work->result);
    const char *limit = limit_met(&run->work->result);
    if (limit != NULL)
        runs_audit(run->runs, "limit_hit", run->row.tenant, run->row.id, limit);
    return run->json != NULL ? 0 : -ENOMEM;
}
