/*
 * What the server says of itself: languages, stats, health, readiness, metrics, the contract. All of it is answered at
 * once from memory, but for the history's totals, which are one query.
 */
#include "base/fd.h"
#include "gateway/gateway.h"
#include "gateway/languages.h"
#include "gateway/metrics.h"
#include "gateway/openapi.h"
#include "gateway/runs.h"
#include "gateway/sandboxes.h"
#include "run/isolation.h"
#include "text/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { METRICS_LIMIT = 4 << 20 };

static void reply_made(struct http_request *request, int status, char *json)
{
    if (json != NULL)
        reply_json(request, status, json);
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
    free(json);
}

static bool warden_up(const struct gateway *gateway)
{
    return gateway->link != NULL && link_alive(gateway->link) && gateway->isolation != 0 && !gateway->warden_silent;
}

static const char *isolation_level(const struct gateway *gateway)
{
    if (gateway->isolation == 0)
        return "unknown";
    return (gateway->isolation & ISOLATION_ALL) == ISOLATION_ALL ? "full" : "weak";
}

static json_t *isolation_json(const struct gateway *gateway)
{
    json_t *layers = json_array();
    for (unsigned bit = 0; layers != NULL && bit < ISOLATION_LAYERS; bit++)
        if (gateway->isolation & 1U << bit)
            json_array_append_new(layers, json_string(isolation_layer_words[bit]));
    return json_pack("{s:s, s:o}", "level", isolation_level(gateway), "layers", layers);
}

/* ---- health ---- */

void handle_health(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)gateway;
    (void)match;
    reply_json(request, 200, "{\"status\":\"ok\"}");
}

void handle_ready(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    /* Until the warden has said what it holds, no sandbox can be made or found. */
    bool warden = warden_up(gateway) && sandboxes_ready(gateway->sandboxes);
    bool store = store_status(gateway->store) == 0;
    bool strong = (gateway->isolation & ISOLATION_ALL) == ISOLATION_ALL || gateway->config->allow_weak;
    bool ready = warden && store && strong && !gateway->draining;
    hc_cleanup_json json_t *object =
        json_pack("{s:s, s:s, s:b, s:b, s:b}", "status", ready ? "ready" : "not_ready", "isolation",
                  isolation_level(gateway), "warden", warden, "store", store, "draining", gateway->draining);
    if (!ready)
        http_add_header(request, "Retry-After", "1");
    reply_made(request, ready ? 200 : 503, object != NULL ? hc_json_write(object, false) : NULL);
}

/* ---- languages, the contract ---- */

void handle_languages(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    reply_made(request, 200, catalogue_json(gateway->catalogue, gateway->config));
}

void handle_openapi(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)gateway;
    (void)match;
    reply_text(request, 200, "application/json", openapi_text, openapi_length);
}

/* ---- stats ---- */

static json_t *time_json(int64_t epoch_us)
{
    time_t seconds = (time_t)(epoch_us / 1000000);
    char date[32], text[48];
    struct tm utc;
    if (epoch_us == 0 || gmtime_r(&seconds, &utc) == NULL)
        return json_null();
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, sizeof text, "%s.%03dZ", date, (int)(epoch_us / 1000 % 1000));
    return json_string(text);
}

static json_t *milliseconds(uint64_t microseconds)
{
    return json_real((double)microseconds / 1000);
}

static json_t *limit_json(enum limit_id id, uint64_t value)
{
    switch (limit_table[id].kind) {
    case LIMIT_KIND_DURATION:
        return value > 0 ? json_real((double)value / 1e6) : json_null();
    case LIMIT_KIND_MILLI:
        return json_real((double)value / 1000);
    case LIMIT_KIND_SIZE:
    case LIMIT_KIND_NUMBER:
        break;
    }
    return json_integer((json_int_t)value);
}

/* As requests write them. A ceiling that is not set is null. */
static json_t *limits_json(const struct config *config, bool ceilings)
{
    struct limits defaults;
    json_t *object = json_object();
    limits_resolve(NULL, &config->defaults, &config->ceilings, &defaults, NULL);
    for (int id = 0; object != NULL && id < LIMIT_COUNT; id++) {
        json_t *value = json_null();
        if (!ceilings)
            value = limit_json((enum limit_id)id, defaults.value[id]);
        else if (config->ceilings.set[id])
            value = limit_json((enum limit_id)id, config->ceilings.value[id]);
        json_object_set_new(object, limit_table[id].name, value);
    }
    return object;
}

static json_t *server_limits_json(const struct server_config *server, const struct runs_counts *runs)
{
    const struct {
        const char *name;
        uint64_t value;
        bool time;
    } rows[] = {
        {"concurrent", runs->concurrent_limit, false},   {"queue", runs->queue_limit, false},
        {"queue_time_ms", server->queue_time, true},     {"connections", server->connections, false},
        {"header_bytes", server->header_bytes, false},   {"header_count", server->header_count, false},
        {"body_bytes", server->body_bytes, false},       {"body_total", server->body_total, false},
        {"write_backlog", server->write_backlog, false}, {"result_total", server->result_total, false},
        {"header_time_ms", server->header_time, true},   {"body_time_ms", server->body_time, true},
        {"idle_time_ms", server->idle_time, true},       {"write_time_ms", server->write_time, true},
        {"wait_time_ms", server->wait_time, true},       {"drain_time_ms", server->drain_time, true},
        {"keep_time_ms", server->keep_time, true},       {"keep_bytes", server->keep_bytes, false},
        {"hang_time_ms", server->hang_time, true},
    };
    json_t *object = json_object();
    for (size_t i = 0; object != NULL && i < sizeof rows / sizeof rows[0]; i++)
        json_object_set_new(object, rows[i].name,
                            rows[i].time ? milliseconds(rows[i].value) : json_integer((json_int_t)rows[i].value));
    return object;
}

static json_t *runs_json(const struct gateway *gateway, const struct runs_counts *counts)
{
    struct metrics_starts starts;
    json_t *by_start = json_object();
    metrics_starts(gateway->metrics, &starts);
    for (size_t i = 0; by_start != NULL && i < METRICS_STARTS; i++)
        json_object_set_new(by_start, starts.word[i], json_integer((json_int_t)starts.count[i]));
    json_t *by_status = json_object();
    for (int status = 0; by_status != NULL && status <= RUN_INTERNAL; status++)
        json_object_set_new(by_status, run_status_word((enum run_status)status),
                            json_integer((json_int_t)counts->by_status[status]));
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "queued", (json_int_t)counts->queued, "running",
                     (json_int_t)counts->running, "started", (json_int_t)counts->started, "finished",
                     (json_int_t)counts->finished, "by_status", by_status, "by_start", by_start);
}

/* Of all tenants, as the pool is. */
static json_t *sandboxes_json(const struct gateway *gateway)
{
    json_int_t count[SANDBOX_STOPPING + 1] = {0};
    for (const struct sandbox *sandbox = sandboxes_first(gateway->sandboxes); sandbox != NULL; sandbox = sandbox->next)
        count[sandbox->state]++;
    return json_pack("{s:I, s:I, s:I, s:I}", "running", count[SANDBOX_RUNNING], "paused", count[SANDBOX_PAUSED],
                     "failed", count[SANDBOX_FAILED], "limit", (json_int_t)gateway->config->sandboxes.max);
}

static json_t *pool_json(const struct pool_facts *pool)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ready", (json_int_t)pool->ready, "building",
                     (json_int_t)pool->building, "target", (json_int_t)pool->target, "hits", (json_int_t)pool->hits,
                     "misses", (json_int_t)pool->misses, "zygotes", (json_int_t)pool->zygotes, "primed",
                     (json_int_t)pool->primed);
}

static json_t *http_json(const struct gateway *gateway)
{
    struct http_counts counts;
    http_server_counts(gateway->http, &counts);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "connections", (json_int_t)counts.connections, "requests_active",
                     (json_int_t)counts.requests_active, "accepted", (json_int_t)counts.accepted, "refused",
                     (json_int_t)counts.refused, "requests", (json_int_t)counts.requests, "body_bytes",
                     (json_int_t)counts.body_bytes);
}

/* Of the caller's own runs; the operator's are everyone's. null where the store cannot tell. */
static json_t *history_json(const struct gateway *gateway, const struct caller *caller)
{
    struct store_totals totals = {0};
    if (store_totals(gateway->store, caller->operator_ ? NULL : caller->tenant, 0, &totals) < 0)
        return json_null();
    json_t *by_status = json_object();
    for (size_t i = 0; by_status != NULL && store_statuses[i] != NULL; i++)
        json_object_set_new(by_status, store_statuses[i], json_integer((json_int_t)totals.by_status[i]));
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:I, s:o}", "of", caller->operator_ ? "everyone" : caller->tenant,
                     "runs", (json_int_t)totals.runs, "by_status", by_status, "cpu_ms", milliseconds(totals.cpu_us),
                     "wall_ms", milliseconds(totals.wall_us), "bytes", (json_int_t)totals.bytes, "oldest_at",
                     time_json(totals.oldest));
}

static json_t *latencies_json(const struct gateway *gateway)
{
    hc_cleanup_free char *text = metrics_latencies(gateway->metrics);
    json_t *object = NULL;
    if (text == NULL || hc_json_read(text, strlen(text), 8, &object, NULL) < 0)
        return json_null();
    return object;
}

void handle_stats(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    const struct visit *visit = request->context;
    const struct config *config = gateway->config;
    struct runs_counts counts;
    runs_counts(gateway->runs, &counts);
    hc_cleanup_json json_t *object = json_pack(
        "{s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:{s:I, s:I, s:I, s:I}, s:{s:o, s:o, s:o}, s:o, s:{s:I, s:I}}",
        "version", HC_VERSION, "started_at", time_json(gateway->started_time), "uptime_ms",
        milliseconds(hc_now() - gateway->started_at), "draining", gateway->draining, "isolation",
        isolation_json(gateway), "runs", runs_json(gateway, &counts), "pool", pool_json(&gateway->pool), "latencies",
        latencies_json(gateway), "http", http_json(gateway), "process", "resident_bytes",
        (json_int_t)metrics_resident(gateway->metrics), "open_files", (json_int_t)metrics_open_files(gateway->metrics),
        "max_files", (json_int_t)metrics_max_files(gateway->metrics), "result_bytes", (json_int_t)gateway->results.used,
        "limits", "defaults", limits_json(config, false), "ceilings", limits_json(config, true), "server",
        server_limits_json(&config->server, &counts), "history", history_json(gateway, &visit->caller), "volumes",
        "count", (json_int_t)gateway->volume_count, "size", (json_int_t)gateway->volume_bytes);
    if (object != NULL)
        json_object_set_new(object, "sandboxes", sandboxes_json(gateway));
    reply_made(request, 200, object != NULL ? hc_json_write(object, false) : NULL);
}

/* ---- metrics ---- */

static double cpu_seconds(void)
{
    struct timespec used = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

char *metrics_prometheus(struct gateway *gateway)
{
    struct runs_counts runs;
    struct http_counts http;
    runs_counts(gateway->runs, &runs);
    http_server_counts(gateway->http, &http);
    const struct metrics_gauge gauges[] = {
        {"hotcell_warden_up", "Whether the warden answers", false, warden_up(gateway)},
        {"hotcell_isolation_full", "Whether every layer of isolation holds", false,
         (gateway->isolation & ISOLATION_ALL) == ISOLATION_ALL},
        {"hotcell_draining", "Whether the server is about to end", false, gateway->draining},
        {"hotcell_runs_queued", "Runs that wait for their turn", false, (double)runs.queued},
        {"hotcell_runs_running", "Runs under way", false, (double)runs.running},
        {"hotcell_runs_running_limit", "Runs that may be under way at once", false, (double)runs.concurrent_limit},
        {"hotcell_runs_queued_limit", "Runs that may wait", false, (double)runs.queue_limit},
        {"hotcell_runs_started_total", "Runs that were started", true, (double)runs.started},
        {"hotcell_pool_ready", "Cells that wait in the pool", false, gateway->pool.ready},
        {"hotcell_pool_building", "Cells that are being built for it", false, gateway->pool.building},
        {"hotcell_pool_target", "Cells that should wait, by demand", false, gateway->pool.target},
        {"hotcell_pool_hits_total", "Cells that were taken from the pool", true, (double)gateway->pool.hits},
        {"hotcell_pool_misses_total", "Cells that could have been, had one been there", true,
         (double)gateway->pool.misses},
        {"hotcell_zygotes", "Interpreters that wait to be forked", false, gateway->pool.zygotes},
        {"hotcell_primed", "Cells in which an interpreter waits for its program", false, gateway->pool.primed},
        {"hotcell_sandboxes", "Sandboxes that live on", false, (double)sandboxes_count(gateway->sandboxes, NULL)},
        {"hotcell_compile_cache_entries", "Compiles that are kept", false, (double)runs.compiled_entries},
        {"hotcell_compile_cache_bytes", "Memory that they take", false, (double)runs.compiled_bytes},
        {"hotcell_compile_cache_hits_total", "Compiles that were answered from them", true, (double)runs.compiled_hits},
        {"hotcell_compile_cache_misses_total", "Compiles that could have been, had they been there", true,
         (double)runs.compiled_misses},
        {"hotcell_http_connections", "Open connections", false, (double)http.connections},
        {"hotcell_http_requests_active", "Requests that are being answered", false, (double)http.requests_active},
        {"hotcell_http_connections_total", "Connections that were accepted", true, (double)http.accepted},
        {"hotcell_http_refused_total", "Requests that broke a rule of HTTP or a limit", true, (double)http.refused},
        {"hotcell_http_requests_total", "Requests that were read", true, (double)http.requests},
        {"hotcell_http_body_bytes", "Request bodies in memory", false, (double)http.body_bytes},
        {"hotcell_result_bytes", "Results of runs in memory", false, (double)gateway->results.used},
        {"hotcell_result_bytes_limit", "What they may take", false, (double)gateway->results.limit},
        {"hotcell_result_bytes_refused_total", "Results and replies for which there was no memory", true,
         (double)gateway->results.refused},
        {"process_resident_memory_bytes", "Resident memory of the gateway", false,
         (double)metrics_resident(gateway->metrics)},
        {"process_open_fds", "Open files of the gateway", false, (double)metrics_open_files(gateway->metrics)},
        {"process_max_fds", "Files that the gateway may have open", false, (double)metrics_max_files(gateway->metrics)},
        {"process_cpu_seconds_total", "CPU time of the gateway", true, cpu_seconds()},
        {"process_start_time_seconds", "When the gateway was started", false, (double)gateway->started_time / 1e6},
    };
    struct hc_buf text = HC_BUF_INIT(METRICS_LIMIT);
    metrics_write(gateway->metrics, gauges, sizeof gauges / sizeof gauges[0], &text);
    return hc_buf_take(&text, NULL);
}

void handle_metrics(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    hc_cleanup_free char *text = metrics_prometheus(gateway);
    if (text != NULL)
        reply_text(request, 200, "text/plain; version=0.0.4; charset=utf-8", text, strlen(text));
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}
