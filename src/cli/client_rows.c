/* See client_rows.h. */
#include "cli/client_rows.h"

#include "base/suggest.h"
#include "cli/json.h"
#include "store/store.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TARGET_MAX = 4096, JSON_DEPTH = 64, RECENT = 200 };

int rows_open(const struct cli *cli, const struct client_line *line, struct rows *rows, struct hc_err *err)
{
    struct state_place place;

    if (cli->server)
        return server_find(cli, &rows->server, err);
    int status = state_find(line, &place, err);
    if (status == 0)
        status = state_enter(&place, err);
    return status < 0 ? status : store_open(place.folder, NULL, true, &rows->store, err);
}

void rows_close(struct rows *rows)
{
    if (rows->store)
        store_close(rows->store);
}

/* ---- from the store ---- */

static json_t *time_json(int64_t microseconds)
{
    time_t seconds = (time_t)(microseconds / 1000000);
    char date[32], text[48];
    struct tm utc;

    if (microseconds == 0 || !gmtime_r(&seconds, &utc) || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc) == 0)
        return json_null();
    snprintf(text, sizeof text, "%s.%03dZ", date, (int)(microseconds / 1000 % 1000));
    return json_string(text);
}

static json_t *milliseconds(uint64_t microseconds)
{
    return json_real((double)microseconds / 1000);
}

static json_t *text_or_null(const char *text)
{
    return text[0] ? hc_json_text_lossy(text) : json_null();
}

/* As the server writes it to an operator. */
static json_t *row_json(const struct run_row *row)
{
    bool ended = row->ended_at != 0;

    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", row->id, "kind",
                     row->kind, "status", row->status, "language", text_or_null(row->language), "exit_code",
                     ended ? json_integer(row->exit_code) : json_null(), "async", row->keep_going, "created_at",
                     time_json(row->created_at), "started_at", time_json(row->started_at), "ended_at",
                     time_json(row->ended_at), "wall_ms", milliseconds(row->wall_us), "cpu_ms",
                     milliseconds(row->cpu_us), "queue_ms", milliseconds(row->queue_us), "memory_peak",
                     row->memory_peak ? json_integer((json_int_t)row->memory_peak) : json_null(), "tenant",
                     text_or_null(row->tenant));
}

struct listing {
    json_t *runs;
    uint64_t limit;
    bool more; /* there is a next page */
};

/* A store_row_fn; data is a struct listing. */
static int collect_row(void *data, const struct run_row *row)
{
    struct listing *listing = data;

    listing->more = json_array_size(listing->runs) == listing->limit;
    if (listing->more)
        return 1;
    return json_array_append_new(listing->runs, row_json(row)) == 0 ? 0 : -ENOMEM;
}

static int cannot_read(int status, struct hc_err *err)
{
    return hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot read the history");
}

static int list_stored(struct rows *rows, const struct rows_filter *filter, json_t **out, struct hc_err *err)
{
    const struct run_filter wanted = {.language = filter->language,
                                      .status = filter->status,
                                      .before = filter->before,
                                      .limit = (size_t)filter->limit + 1};
    struct listing listing = {.runs = json_array(), .limit = filter->limit};

    int status = store_run_list(rows->store, &wanted, collect_row, &listing);
    if (status < 0) {
        json_decref(listing.runs);
        return cannot_read(status, err);
    }
    const json_t *last = json_array_get(listing.runs, json_array_size(listing.runs) - 1);
    json_t *next = listing.more ? json_string(json_text(last, "id")) : json_null();
    *out = json_pack("{s:o, s:o}", "runs", listing.runs, "next", next);
    return *out ? 0 : cannot_read(-ENOMEM, err);
}

/* A store_row_fn; data is a json_t **. */
static int take_result(void *data, const struct run_row *row)
{
    json_t **out = data;

    if (row->result && hc_json_read(row->result, row->result_length, JSON_DEPTH, out, NULL) == 0)
        return 0;
    *out = row_json(row);
    return *out ? 0 : -ENOMEM;
}

static int get_stored(struct rows *rows, const char *id, json_t **out, struct hc_err *err)
{
    int found = store_run_get(rows->store, NULL, id, take_result, out);

    if (found < 0)
        return cannot_read(found, err);
    return *out ? 0 : hc_fail(err, HC_CLASS_REQUEST, ENOENT, "there is no run \"%s\"", id);
}

int rows_totals(struct rows *rows, json_t **out, struct hc_err *err)
{
    struct store_totals totals = {0};

    int status = store_totals(rows->store, NULL, 0, &totals);
    if (status < 0)
        return cannot_read(status, err);
    json_t *by_status = json_object();
    for (size_t i = 0; store_statuses[i]; i++)
        json_object_set_new(by_status, store_statuses[i], json_integer((json_int_t)totals.by_status[i]));
    *out = json_pack("{s:{s:s, s:I, s:o, s:o, s:o, s:I, s:o}}", "history", "of", "everyone", "runs",
                     (json_int_t)totals.runs, "by_status", by_status, "cpu_ms", milliseconds(totals.cpu_us), "wall_ms",
                     milliseconds(totals.wall_us), "bytes", (json_int_t)totals.bytes, "oldest_at",
                     time_json(totals.oldest));
    return *out ? 0 : cannot_read(-ENOMEM, err);
}

/* ---- from the server ---- */

static void add_parameter(struct hc_buf *target, const char *name, const char *value)
{
    if (!value)
        return;
    hc_buf_printf(target, "&%s=", name);
    http_add_encoded(target, value);
}

static int list_asked(struct rows *rows, const struct rows_filter *filter, json_t **out, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(TARGET_MAX);

    hc_buf_printf(&target, "/v1/runs?limit=%llu", (unsigned long long)filter->limit);
    add_parameter(&target, "language", filter->language);
    add_parameter(&target, "status", filter->status);
    add_parameter(&target, "before", filter->before);
    int status = hc_buf_status(&target);
    status = status < 0 ? hc_fail(err, HC_CLASS_REQUEST, EINVAL, "what to look for is too long")
                        : server_json(&rows->server, "GET", target.data, out, err);
    hc_buf_release(&target);
    return status;
}

static int get_asked(struct rows *rows, const char *id, json_t **out, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(TARGET_MAX);

    hc_buf_add_str(&target, "/v1/runs/");
    http_add_encoded(&target, id);
    int status = hc_buf_status(&target);
    status = status < 0 ? hc_fail(err, HC_CLASS_REQUEST, ENOENT, "that is no id of a run")
                        : server_json(&rows->server, "GET", target.data, out, err);
    hc_buf_release(&target);
    return status;
}

/* ---- either ---- */

int rows_list(struct rows *rows, const struct rows_filter *filter, json_t **out, struct hc_err *err)
{
    return rows->store ? list_stored(rows, filter, out, err) : list_asked(rows, filter, out, err);
}

void rows_suggest(struct rows *rows, const char *id, struct hc_err *err)
{
    const struct rows_filter recent = {.limit = RECENT};
    const char *ids[RECENT];
    json_cleanup json_t *found = NULL;
    size_t count = 0;

    if (rows_list(rows, &recent, &found, NULL) < 0)
        return;
    const json_t *list = json_object_get(found, "runs");
    for (size_t i = 0; i < json_array_size(list) && count < RECENT; i++)
        ids[count++] = json_text(json_array_get(list, i), "id");
    const char *nearest = hc_suggest(id, ids, count);
    if (nearest)
        hc_err_remedy(err, "did you mean %s?", nearest);
    else
        hc_err_remedy(err, "hotcell history lists them");
}

int rows_get(struct rows *rows, const char *id, json_t **out, struct hc_err *err)
{
    int status = rows->store ? get_stored(rows, id, out, err) : get_asked(rows, id, out, err);

    if (status == -ENOENT)
        rows_suggest(rows, id, err);
    return status;
}
