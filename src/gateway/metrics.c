/*
 * What is counted, and how it is written. Two kinds of histogram for each latency: the fixed buckets of Prometheus,
 * which can be added up over servers, and fine ones of a sixteenth of an octave, from which /v1/stats takes its
 * percentiles with an error of at most 6 %. Both count since the start of this process.
 *
 * What always holds: memory is bounded. Routes come from a table; languages and start kinds past SERIES_LIMIT share one
 * series, "other".
 */
#include "gateway/metrics.h"

#include "base/fd.h"
#include "text/json.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SERIES_LIMIT = 64, REPLIES_LIMIT = 512 };
enum { FINE_BITS = 4, FINE_OCTAVES = 37, FINE_COUNT = (FINE_OCTAVES - FINE_BITS + 1) << FINE_BITS };

/* Seconds; the last bucket, +Inf, is the count itself. */
static const double BOUNDS[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
enum { BOUND_COUNT = sizeof BOUNDS / sizeof BOUNDS[0] };

struct histogram {
    uint64_t bucket[BOUND_COUNT]; /* each for itself; they are summed up when written */
    uint64_t fine[FINE_COUNT];
    uint64_t count, sum; /* µs */
};

enum measure { MEASURE_TOTAL, MEASURE_QUEUE, MEASURE_PREPARE, MEASURE_RUN, MEASURE_COUNT };

static const struct {
    const char *name, *key, *help;
} MEASURES[MEASURE_COUNT] = {
    [MEASURE_TOTAL] = {"hotcell_run_seconds", "total_ms", "Time of a run from its request to its result"},
    [MEASURE_QUEUE] = {"hotcell_run_queue_seconds", "queue_ms", "Time that a run waited for its turn"},
    [MEASURE_PREPARE] = {"hotcell_run_prepare_seconds", "prepare_ms", "Time until the program was started"},
    [MEASURE_RUN] = {"hotcell_run_program_seconds", "run_ms", "Time that the program itself took"},
};

static const char *const STARTS[METRICS_STARTS] = {"warm", "primed", "cached", "cold"};

struct series { /* one language and start kind */
    char language[32], start[16];
    struct histogram measure[MEASURE_COUNT];
};

struct replies {
    const char *route; /* of ROUTES: constant */
    int status;
    uint64_t count;
};

struct metrics {
    struct series *series[SERIES_LIMIT];
    size_t series_count;
    struct replies replies[REPLIES_LIMIT];
    size_t replies_count;
    uint64_t runs[RUN_INTERNAL + 1];
    uint64_t starts[METRICS_STARTS];
    uint64_t cpu_us;
    int statm;
    DIR *files;
    uint64_t max_files;
};

int metrics_new(struct metrics **out)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL)
        return -ENOMEM;
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        metrics->max_files = limit.rlim_cur;
    metrics->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    metrics->files = opendir("/proc/self/fd");
    *out = metrics;
    return 0;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (size_t i = 0; i < metrics->series_count; i++)
        free(metrics->series[i]);
    hc_close(metrics->statm);
    if (metrics->files != NULL)
        closedir(metrics->files);
    free(metrics);
}

/* ---- counting ---- */

void metrics_request(struct metrics *metrics, const char *route, int status)
{
    for (size_t i = 0; i < metrics->replies_count; i++) {
        struct replies *row = &metrics->replies[i];
        if (row->status == status && strcmp(row->route, route) == 0) {
            row->count++;
            return;
        }
    }
    if (metrics->replies_count < REPLIES_LIMIT)
        metrics->replies[metrics->replies_count++] = (struct replies){route, status, 1};
}

/* Values below 2^FINE_BITS have a bucket each; above, every octave has 2^FINE_BITS of them. */
static size_t fine_index(uint64_t value)
{
    if (value < 1U << FINE_BITS)
        return (size_t)value;
    int octave = 63 - __builtin_clzll(value);
    if (octave >= FINE_OCTAVES)
        return FINE_COUNT - 1;
    size_t part = (size_t)(value >> (octave - FINE_BITS)) & ((1U << FINE_BITS) - 1);
    return ((size_t)(octave - FINE_BITS + 1) << FINE_BITS) + part;
}

/* The middle of a bucket, µs. */
static uint64_t fine_value(size_t index)
{
    if (index < 1U << FINE_BITS)
        return index;
    int shift = (int)(index >> FINE_BITS) - 1;
    uint64_t part = (index & ((1U << FINE_BITS) - 1)) | 1U << FINE_BITS;
    return (part << shift) + ((UINT64_C(1) << shift) >> 1);
}

static void observe(struct histogram *histogram, uint64_t microseconds)
{
    size_t i = 0;
    while (i < BOUND_COUNT && (double)microseconds > BOUNDS[i] * 1e6)
        i++;
    if (i < BOUND_COUNT)
        histogram->bucket[i]++;
    histogram->fine[fine_index(microseconds)]++;
    histogram->count++;
    histogram->sum += microseconds;
}

static struct series *find_series(const struct metrics *metrics, const char *language, const char *start)
{
    for (size_t i = 0; i < metrics->series_count; i++)
        if (strcmp(metrics->series[i]->language, language) == 0 && strcmp(metrics->series[i]->start, start) == 0)
            return metrics->series[i];
    return NULL;
}

/* NULL: out of memory. The last place is for what no longer fits. */
static struct series *series_for(struct metrics *metrics, const char *language, const char *start)
{
    struct series *series = find_series(metrics, language, start);
    if (series == NULL && metrics->series_count >= SERIES_LIMIT - 1) {
        language = "other";
        start = "any";
        series = find_series(metrics, language, start);
    }
    if (series != NULL)
        return series;
    series = calloc(1, sizeof *series);
    if (series == NULL)
        return NULL;
    snprintf(series->language, sizeof series->language, "%s", language);
    snprintf(series->start, sizeof series->start, "%s", start);
    metrics->series[metrics->series_count++] = series;
    return series;
}

void metrics_run(struct metrics *metrics, const struct result *result)
{
    if ((unsigned)result->status <= RUN_INTERNAL)
        metrics->runs[result->status]++;
    for (size_t i = 0; i < result->stage_count; i++)
        metrics->cpu_us += result->stages[i].facts.cpu;
    const char *start = result->start != NULL ? result->start : "cold";
    for (size_t i = 0; i < METRICS_STARTS; i++)
        metrics->starts[i] += strcmp(STARTS[i], start) == 0;
    struct series *series = series_for(metrics, result->language[0] != '\0' ? result->language : "command", start);
    if (series == NULL)
        return;
    observe(&series->measure[MEASURE_TOTAL], result->total_us);
    observe(&series->measure[MEASURE_QUEUE], result->queue_us);
    observe(&series->measure[MEASURE_PREPARE], result->prepare_us);
    observe(&series->measure[MEASURE_RUN], result->run_us);
}

void metrics_starts(const struct metrics *metrics, struct metrics_starts *starts)
{
    memcpy(starts->word, STARTS, sizeof STARTS);
    memcpy(starts->count, metrics->starts, sizeof metrics->starts);
}

/* ---- this process ---- */

uint64_t metrics_resident(const struct metrics *metrics)
{
    char text[128];
    ssize_t length = metrics->statm >= 0 ? pread(metrics->statm, text, sizeof text - 1, 0) : -1;
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *second = strchr(text, ' '); /* the first number is the size of the address space */
    return second != NULL ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

uint64_t metrics_open_files(const struct metrics *metrics)
{
    if (metrics->files == NULL)
        return 0;
    uint64_t count = 0;
    rewinddir(metrics->files);
    for (const struct dirent *entry; (entry = readdir(metrics->files)) != NULL;)
        count += entry->d_name[0] != '.';
    return count;
}

uint64_t metrics_max_files(const struct metrics *metrics)
{
    return metrics->max_files;
}

/* ---- Prometheus ---- */

static void put_label(struct hc_buf *out, const char *name, const char *value)
{
    hc_buf_printf(out, "%s=\"", name);
    for (const char *at = value; *at != '\0'; at++) {
        if (*at == '\n')
            hc_buf_add_str(out, "\\n");
        else if (*at == '"' || *at == '\\')
            hc_buf_printf(out, "\\%c", *at);
        else
            hc_buf_add(out, at, 1);
    }
    hc_buf_add_str(out, "\"");
}

static void put_head(struct hc_buf *out, const char *name, const char *kind, const char *help)
{
    hc_buf_printf(out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, kind);
}

static void put_labels(struct hc_buf *out, const char *name, const struct series *series)
{
    hc_buf_printf(out, "%s{", name);
    put_label(out, "language", series->language);
    hc_buf_add_str(out, ",");
    put_label(out, "start", series->start);
}

static void put_histogram(struct hc_buf *out, const struct series *series, enum measure measure)
{
    const struct histogram *histogram = &series->measure[measure];
    char name[64];
    uint64_t sum = 0;
    snprintf(name, sizeof name, "%s_bucket", MEASURES[measure].name);
    for (size_t i = 0; i <= BOUND_COUNT; i++) {
        put_labels(out, name, series);
        if (i < BOUND_COUNT)
            hc_buf_printf(out, ",le=\"%g\"} %" PRIu64 "\n", BOUNDS[i], sum += histogram->bucket[i]);
        else
            hc_buf_printf(out, ",le=\"+Inf\"} %" PRIu64 "\n", histogram->count);
    }
    snprintf(name, sizeof name, "%s_sum", MEASURES[measure].name);
    put_labels(out, name, series);
    hc_buf_printf(out, "} %.6f\n", (double)histogram->sum / 1e6);
    snprintf(name, sizeof name, "%s_count", MEASURES[measure].name);
    put_labels(out, name, series);
    hc_buf_printf(out, "} %" PRIu64 "\n", histogram->count);
}

static void put_counters(const struct metrics *metrics, struct hc_buf *out)
{
    put_head(out, "hotcell_http_replies_total", "counter", "HTTP replies by route and status");
    for (size_t i = 0; i < metrics->replies_count; i++) {
        const struct replies *row = &metrics->replies[i];
        hc_buf_add_str(out, "hotcell_http_replies_total{");
        put_label(out, "route", row->route[0] != '\0' ? row->route : "none");
        hc_buf_printf(out, ",status=\"%d\"} %" PRIu64 "\n", row->status, row->count);
    }
    put_head(out, "hotcell_runs_total", "counter", "Runs that have ended, by status");
    for (int status = 0; status <= RUN_INTERNAL; status++) {
        hc_buf_add_str(out, "hotcell_runs_total{");
        put_label(out, "status", run_status_word((enum run_status)status));
        hc_buf_printf(out, "} %" PRIu64 "\n", metrics->runs[status]);
    }
    put_head(out, "hotcell_run_starts_total", "counter", "Runs that have ended, by how their program was started");
    for (size_t i = 0; i < METRICS_STARTS; i++)
        hc_buf_printf(out, "hotcell_run_starts_total{start=\"%s\"} %" PRIu64 "\n", STARTS[i], metrics->starts[i]);
    put_head(out, "hotcell_runs_cpu_seconds_total", "counter", "CPU time that runs have used");
    hc_buf_printf(out, "hotcell_runs_cpu_seconds_total %.6f\n", (double)metrics->cpu_us / 1e6);
}

void metrics_write(const struct metrics *metrics, const struct metrics_gauge *gauges, size_t count, struct hc_buf *out)
{
    put_head(out, "hotcell_build_info", "gauge", "The version, as a label");
    hc_buf_add_str(out, "hotcell_build_info{");
    put_label(out, "version", HC_VERSION);
    hc_buf_add_str(out, "} 1\n");
    for (size_t i = 0; i < count; i++) {
        put_head(out, gauges[i].name, gauges[i].counter ? "counter" : "gauge", gauges[i].help);
        hc_buf_printf(out, "%s %.15g\n", gauges[i].name, gauges[i].value);
    }
    put_counters(metrics, out);
    for (int measure = 0; measure < MEASURE_COUNT && metrics->series_count > 0; measure++) {
        put_head(out, MEASURES[measure].name, "histogram", MEASURES[measure].help);
        for (size_t i = 0; i < metrics->series_count; i++)
            put_histogram(out, metrics->series[i], (enum measure)measure);
    }
}

/* ---- percentiles ---- */

/* The value that so many in a hundred observations do not exceed, ms. */
static json_t *percentile(const struct histogram *histogram, uint64_t percent)
{
    uint64_t wanted = (histogram->count * percent + 99) / 100, seen = 0;
    size_t i = 0;
    while (i < FINE_COUNT - 1 && (seen += histogram->fine[i]) < wanted)
        i++;
    return json_real((double)fine_value(i) / 1000);
}

static json_t *series_json(const struct series *series)
{
    json_t *object = json_pack("{s:I}", "count", (json_int_t)series->measure[MEASURE_TOTAL].count);
    for (int i = 0; object != NULL && i < MEASURE_COUNT; i++) {
        const struct histogram *histogram = &series->measure[i];
        json_object_set_new(object, MEASURES[i].key,
                            json_pack("{s:o, s:o, s:o}", "p50", percentile(histogram, 50), "p95",
                                      percentile(histogram, 95), "p99", percentile(histogram, 99)));
    }
    return object;
}

char *metrics_latencies(const struct metrics *metrics)
{
    hc_cleanup_json json_t *object = json_object();
    for (size_t i = 0; object != NULL && i < metrics->series_count; i++) {
        const struct series *series = metrics->series[i];
        json_t *language = json_object_get(object, series->language);
        if (language == NULL) {
            language = json_object();
            if (json_object_set_new(object, series->language, language) < 0)
                return NULL;
        }
        if (json_object_set_new(language, series->start, series_json(series)) < 0)
            return NULL;
    }
    return object != NULL ? hc_json_write(object, false) : NULL;
}
