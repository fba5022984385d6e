/* What /metrics and /v1/stats tell: counters, gauges, and latency histograms by language and start kind. */
#ifndef HC_GATEWAY_METRICS_H
#define HC_GATEWAY_METRICS_H

#include "base/buf.h"
#include "gateway/gateway.h"
#include "run/result.h"

/* Before the gateway is sealed: what /proc tells of this process is opened here and read later. */
int metrics_new(struct metrics **out);
void metrics_free(struct metrics *metrics);
/* One HTTP reply. `route`: a pattern of ROUTES, or "" where there was none. */
void metrics_request(struct metrics *metrics, const char *route, int status);
void metrics_run(struct metrics *metrics, const struct result *result); /* one run that has ended */
/* Prometheus' text format; and the latencies part of /v1/stats (p50, p95, p99 by language and start) as a JSON object.
 * malloc'ed; NULL: out of memory. */
char *metrics_prometheus(struct gateway *gateway);
char *metrics_latencies(const struct metrics *metrics);
/* How many runs have started in each way: the words of result_start, and how often. */
enum { METRICS_STARTS = 4 };
struct metrics_starts {
    const char *word[METRICS_STARTS];
    uint64_t count[METRICS_STARTS];
};
void metrics_starts(const struct metrics *metrics, struct metrics_starts *starts);

/* What is counted elsewhere, or is a state rather than a count. */
struct metrics_gauge {
    const char *name;
    const char *help;
    bool counter; /* it only grows */
    double value;
};
/* metrics_prometheus, with its gauges given. */
void metrics_write(const struct metrics *metrics, const struct metrics_gauge *gauges, size_t count, struct hc_buf *out);
uint64_t metrics_resident(const struct metrics *metrics);   /* bytes; 0: not known */
uint64_t metrics_open_files(const struct metrics *metrics); /* 0: not known */
uint64_t metrics_max_files(const struct metrics *metrics);

#endif
