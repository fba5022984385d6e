/* Counters, histograms, percentiles, and Prometheus' text format. */
#include "base/fd.h"
#include "gateway/metrics.h"
#include "text/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the standard headers that it needs */
#include <cmocka.h>

static struct metrics *fresh(void)
{
    struct metrics *metrics = NULL;
    assert_int_equal(metrics_new(&metrics), 0);
    return metrics;
}

static void run(struct metrics *metrics, const char *language, const char *start, uint64_t total_us)
{
    struct result result = {.status = RUN_COMPLETED, .start = start, .total_us = total_us};
    snprintf(result.language, sizeof result.language, "%s", language);
    metrics_run(metrics, &result);
}

static char *text_of(const struct metrics *metrics)
{
    struct hc_buf buf = HC_BUF_INIT(1 << 20);
    metrics_write(metrics, NULL, 0, &buf);
    char *text = hc_buf_take(&buf, NULL);
    assert_non_null(text);
    return text;
}

static size_t lines_with(const char *text, const char *beginning)
{
    size_t count = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        count += strncmp(line, beginning, strlen(beginning)) == 0;
    }
    return count;
}

static void test_replies_are_counted_by_route_and_status(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    metrics_request(metrics, "/v1/runs", 200);
    metrics_request(metrics, "/v1/runs", 200);
    metrics_request(metrics, "/v1/runs", 400);
    metrics_request(metrics, "", 404);
    hc_cleanup_free char *text = text_of(metrics);
    assert_non_null(strstr(text, "\nhotcell_http_replies_total{route=\"/v1/runs\",status=\"200\"} 2\n"));
    assert_non_null(strstr(text, "\nhotcell_http_replies_total{route=\"/v1/runs\",status=\"400\"} 1\n"));
    assert_non_null(strstr(text, "\nhotcell_http_replies_total{route=\"none\",status=\"404\"} 1\n"));
    metrics_free(metrics);
}

static void test_starts_are_counted_by_kind(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    run(metrics, "python", "warm", 1);
    run(metrics, "ruby", "warm", 1);
    run(metrics, "", NULL, 1);
    run(metrics, "c", "cached", 1);
    struct metrics_starts starts;
    metrics_starts(metrics, &starts);
    assert_string_equal(starts.word[0], "warm");
    assert_int_equal(starts.count[0], 2);
    hc_cleanup_free char *text = text_of(metrics);
    assert_non_null(strstr(text, "\nhotcell_run_starts_total{start=\"warm\"} 2\n"));
    assert_non_null(strstr(text, "\nhotcell_run_starts_total{start=\"primed\"} 0\n"));
    assert_non_null(strstr(text, "\nhotcell_run_starts_total{start=\"cached\"} 1\n"));
    assert_non_null(strstr(text, "\nhotcell_run_starts_total{start=\"cold\"} 1\n"));
    metrics_free(metrics);
}

static void test_buckets_add_up_and_bounds_are_inclusive(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    run(metrics, "python", "cold", 1000);      /* exactly 1 ms */
    run(metrics, "python", "cold", 1001);      /* over it */
    run(metrics, "python", "cold", 301000000); /* over all bounds */
    hc_cleanup_free char *text = text_of(metrics);
#define BUCKET "\nhotcell_run_seconds_bucket{language=\"python\",start=\"cold\",le="
    assert_non_null(strstr(text, BUCKET "\"0.001\"} 1\n"));
    assert_non_null(strstr(text, BUCKET "\"0.0025\"} 2\n"));
    assert_non_null(strstr(text, BUCKET "\"300\"} 2\n"));
    assert_non_null(strstr(text, BUCKET "\"+Inf\"} 3\n"));
    assert_non_null(strstr(text, "\nhotcell_run_seconds_count{language=\"python\",start=\"cold\"} 3\n"));
    assert_non_null(strstr(text, "\nhotcell_run_seconds_sum{language=\"python\",start=\"cold\"} 301.002001\n"));
    assert_non_null(strstr(text, "\nhotcell_runs_total{status=\"completed\"} 3\n"));
    metrics_free(metrics);
}

static void test_each_metric_has_one_head(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    run(metrics, "python", "cold", 10);
    run(metrics, "ruby", "cold", 10);
    hc_cleanup_free char *text = text_of(metrics);
    assert_int_equal(lines_with(text, "# TYPE hotcell_run_seconds histogram"), 1);
    assert_int_equal(lines_with(text, "# TYPE hotcell_runs_total counter"), 1);
    metrics_free(metrics);
}

static void test_gauges_are_written_as_given(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    const struct metrics_gauge gauges[] = {{"a_gauge", "Help", false, 0.5}, {"a_total", "Help", true, 12345678901.0}};
    struct hc_buf buf = HC_BUF_INIT(1 << 20);
    metrics_write(metrics, gauges, 2, &buf);
    hc_cleanup_free char *text = hc_buf_take(&buf, NULL);
    assert_non_null(strstr(text, "# TYPE a_gauge gauge\na_gauge 0.5\n"));
    assert_non_null(strstr(text, "# TYPE a_total counter\na_total 12345678901\n"));
    metrics_free(metrics);
}

static void test_label_values_are_escaped(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    run(metrics, "a\"b\\c\nd", "cold", 10);
    hc_cleanup_free char *text = text_of(metrics);
    assert_non_null(strstr(text, "{language=\"a\\\"b\\\\c\\nd\",start=\"cold\"} 1\n"));
    metrics_free(metrics);
}

static void test_label_values_are_bounded_in_number(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    for (int i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof name, "language%d", i);
        run(metrics, name, "cold", 10);
    }
    run(metrics, "language0", "cold", 10);
    hc_cleanup_free char *text = text_of(metrics);
    assert_int_equal(lines_with(text, "hotcell_run_seconds_count{"), 64);
    assert_non_null(strstr(text, "hotcell_run_seconds_count{language=\"language0\",start=\"cold\"} 2\n"));
    assert_non_null(strstr(text, "hotcell_run_seconds_count{language=\"other\",start=\"any\"} 937\n"));
    metrics_free(metrics);
}

static double latency(const json_t *object, const char *language, const char *start, const char *which)
{
    const json_t *series = json_object_get(json_object_get(object, language), start);
    return json_real_value(json_object_get(json_object_get(series, "total_ms"), which));
}

static void test_percentiles_are_within_six_percent(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    for (uint64_t i = 1; i <= 10000; i++)
        run(metrics, "python", "cold", i * 100); /* 0.1 ms to 1 s */
    run(metrics, "", "cold", 7);
    hc_cleanup_free char *text = metrics_latencies(metrics);
    hc_cleanup_json json_t *object = NULL;
    assert_int_equal(hc_json_read(text, strlen(text), 8, &object, NULL), 0);
    assert_true(fabs(latency(object, "python", "cold", "p50") - 500) < 30);
    assert_true(fabs(latency(object, "python", "cold", "p95") - 950) < 57);
    assert_true(fabs(latency(object, "python", "cold", "p99") - 990) < 60);
    assert_true(fabs(latency(object, "command", "cold", "p99") - 0.007) < 1e-9);
    metrics_free(metrics);
}

static void test_any_time_has_a_place(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    run(metrics, "python", "cold", 0);
    run(metrics, "python", "cold", UINT64_MAX);
    hc_cleanup_free char *text = metrics_latencies(metrics);
    assert_non_null(text);
    metrics_free(metrics);
}

static void test_this_process_has_memory_and_files(void **state)
{
    (void)state;
    struct metrics *metrics = fresh();
    assert_true(metrics_resident(metrics) > 100000);
    uint64_t before = metrics_open_files(metrics);
    assert_true(before >= 3);
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(metrics_open_files(metrics), before + 1);
    fclose(file);
    assert_true(metrics_max_files(metrics) >= before);
    metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies_are_counted_by_route_and_status),
        cmocka_unit_test(test_starts_are_counted_by_kind),
        cmocka_unit_test(test_buckets_add_up_and_bounds_are_inclusive),
        cmocka_unit_test(test_each_metric_has_one_head),
        cmocka_unit_test(test_gauges_are_written_as_given),
        cmocka_unit_test(test_label_values_are_escaped),
        cmocka_unit_test(test_label_values_are_bounded_in_number),
        cmocka_unit_test(test_percentiles_are_within_six_percent),
        cmocka_unit_test(test_any_time_has_a_place),
        cmocka_unit_test(test_this_process_has_memory_and_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
