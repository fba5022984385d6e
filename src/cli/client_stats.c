/* hotcell stats: /v1/stats for people. From a state folder alone, the part of it that the history can tell. */
#include "base/fd.h"
#include "base/size.h"
#include "cli/client_rows.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include "text/json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t number(const json_t *object, const char *key)
{
    double value = json_number_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

static const char *duration(const json_t *object, const char *key, char *text, size_t size)
{
    return hc_format_duration((uint64_t)(json_number_value(json_object_get(object, key)) * 1000), text, size);
}

static void add_fact(struct table *table, const char *name, const char *text)
{
    table_add(table, TABLE_HEAD, name);
    table_add(table, TABLE_PLAIN, text);
}

/* "12 completed, 1 timeout": those that are not 0. */
static void count_words(const json_t *by_status, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (void *at = json_object_iter((json_t *)by_status); at && used < size;
         at = json_object_iter_next((json_t *)by_status, at)) {
        json_int_t count = json_integer_value(json_object_iter_value(at));
        if (count > 0)
            used += (size_t)snprintf(text + used, size - used, "%s%" JSON_INTEGER_FORMAT " %s", used ? ", " : "", count,
                                     json_object_iter_key(at));
    }
}

static void add_history(struct table *table, const json_t *history)
{
    char line[512], text[48];

    if (!json_is_object(history))
        return;
    snprintf(line, sizeof line, "%" PRIu64 ", of %s", number(history, "runs"), json_text(history, "of"));
    add_fact(table, "runs recorded", line);
    count_words(json_object_get(history, "by_status"), line, sizeof line);
    if (line[0])
        add_fact(table, "they ended as", line);
    add_fact(table, "CPU time used", duration(history, "cpu_ms", text, sizeof text));
    add_fact(table, "time run", duration(history, "wall_ms", text, sizeof text));
    add_fact(table, "oldest", client_time(json_text(history, "oldest_at"), text, sizeof text));
    add_fact(table, "database", hc_format_size(number(history, "bytes"), text, sizeof text));
}

static void add_pool(struct table *table, const json_t *stats)
{
    const json_t *pool = json_object_get(stats, "pool");
    char line[256];

    count_words(json_object_get(json_object_get(stats, "runs"), "by_start"), line, sizeof line);
    if (line[0])
        add_fact(table, "they started", line);
    if (!json_is_object(pool))
        return;
    snprintf(line, sizeof line, "%" PRIu64 " of %" PRIu64 " ready, %" PRIu64 " hits, %" PRIu64 " misses",
             number(pool, "ready"), number(pool, "target"), number(pool, "hits"), number(pool, "misses"));
    add_fact(table, "pool of cells", line);
    snprintf(line, sizeof line, "%" PRIu64 " to be forked, %" PRIu64 " in cells of their own", number(pool, "zygotes"),
             number(pool, "primed"));
    add_fact(table, "waiting interpreters", line);
}

static void add_server(struct table *table, const json_t *stats)
{
    const json_t *runs = json_object_get(stats, "runs"), *http = json_object_get(stats, "http");
    const json_t *limits = json_object_get(json_object_get(stats, "limits"), "server");
    char line[256], text[48];

    if (!json_is_object(runs))
        return;
    snprintf(line, sizeof line, "hotcell %s, up for %s%s", json_text(stats, "version"),
             duration(stats, "uptime_ms", text, sizeof text),
             json_is_true(json_object_get(stats, "draining")) ? ", about to end" : "");
    add_fact(table, "server", line);
    add_fact(table, "isolation", json_text(json_object_get(stats, "isolation"), "level"));
    snprintf(line, sizeof line, "%" PRIu64 " of at most %" PRIu64, number(runs, "running"),
             number(limits, "concurrent"));
    add_fact(table, "running", line);
    snprintf(line, sizeof line, "%" PRIu64 " of at most %" PRIu64, number(runs, "queued"), number(limits, "queue"));
    add_fact(table, "queued", line);
    snprintf(line, sizeof line, "%" PRIu64 " started, %" PRIu64 " finished", number(runs, "started"),
             number(runs, "finished"));
    add_fact(table, "since its start", line);
    add_pool(table, stats);
    snprintf(line, sizeof line, "%" PRIu64 " open, %" PRIu64 " requests so far", number(http, "connections"),
             number(http, "requests"));
    add_fact(table, "connections", line);
    add_fact(table, "memory",
             hc_format_size(number(json_object_get(stats, "process"), "resident_bytes"), text, sizeof text));
}

/* One row for each language and way of starting. */
static int show_latencies(const json_t *latencies)
{
    static const char *const heads[] = {"LANGUAGE", "START", "RUNS", "P50", "P95", "P99"};
    static const char *const fields[] = {"p50", "p95", "p99"};
    struct table table;
    const char *language, *start;
    json_t *starts, *row;

    if (json_object_size(latencies) == 0)
        return 0;
    putchar('\n');
    fflush(stdout);
    table_start(&table, sizeof heads / sizeof *heads, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    json_object_foreach((json_t *)latencies, language, starts)
    {
        json_object_foreach(starts, start, row)
        {
            char text[48];
            table_add(&table, TABLE_PLAIN, language[0] ? language : "-");
            table_add(&table, TABLE_PLAIN, start);
            snprintf(text, sizeof text, "%" PRIu64, number(row, "count"));
            table_add(&table, TABLE_PLAIN, text);
            for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
                table_add(&table, TABLE_PLAIN,
                          duration(json_object_get(row, "total_ms"), fields[i], text, sizeof text));
        }
    }
    return table_print(&table);
}

static int show(const json_t *stats)
{
    struct table table;

    table_start(&table, 2, table_colour(STDOUT_FILENO));
    add_server(&table, stats);
    add_history(&table, json_object_get(stats, "history"));
    int status = table_print(&table);
    return status < 0 ? status : show_latencies(json_object_get(stats, "latencies"));
}

int client_stats(struct cli *cli, const struct client_line *line)
{
    json_cleanup json_t *stats = NULL;
    struct rows rows = {0};
    struct hc_err err = {0};

    int status = line->operands == 0
                     ? rows_open(cli, line, &rows, &err)
                     : hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "hotcell stats takes no arguments, but there is \"%s\"",
                               line->operand[0]);
    if (status == 0)
        status =
            rows.store ? rows_totals(&rows, &stats, &err) : server_json(&rows.server, "GET", "/v1/stats", &stats, &err);
    rows_close(&rows);
    if (status < 0)
        return server_message(cli, &rows.server, &err);
    hc_cleanup_free char *text = cli->json ? hc_json_write(stats, false) : NULL;
    status = !cli->json ? show(stats) : text ? json_show(text) : -ENOMEM;
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}
