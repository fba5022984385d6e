/* GET /v1/runs: the history, newest first, a page at a time. It is read from the store alone, which has every run from
 * the moment that it was accepted. */
#include "base/fd.h"
#include "base/size.h"
#include "gateway/languages.h"
#include "gateway/run_internal.h"
#include "text/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_DEFAULT = 50, LIST_LIMIT = 1000 };

struct listing {
    json_t *runs;
    size_t limit;
    bool more, failed, operator_;
    char last[sizeof((struct run_row *)0)->id];
};

static json_t *time_or_null(int64_t when)
{
    char text[32];
    return when > 0 ? json_string(run_time_text(when, text, sizeof text)) : json_null();
}

static int list_row(void *data, const struct run_row *row)
{
    struct listing *listing = data;
    if (json_array_size(listing->runs) == listing->limit) {
        listing->more = true;
        return 1;
    }
    bool ended = row->ended_at > 0;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:f, s:f, s:f, s:o}", "id", row->id, "kind", row->kind, "status",
        row->status, "language", row->language[0] != '\0' ? hc_json_text_lossy(row->language) : json_null(),
        "exit_code", ended ? json_integer(row->exit_code) : json_null(), "async", row->keep_going, "created_at",
        time_or_null(row->created_at), "started_at", time_or_null(row->started_at), "ended_at",
        time_or_null(row->ended_at), "wall_ms", (double)row->wall_us / 1000, "cpu_ms", (double)row->cpu_us / 1000,
        "queue_ms", (double)row->queue_us / 1000, "memory_peak",
        row->memory_peak > 0 ? json_integer((json_int_t)row->memory_peak) : json_null());
    if (object != NULL && listing->operator_)
        json_object_set_new(object, "tenant", hc_json_text_lossy(row->tenant));
    memcpy(listing->last, row->id, sizeof listing->last);
    if (json_array_append_new(listing->runs, object) == 0)
        return 0;
    listing->failed = true;
    return 1;
}

struct list_query {
    char limit[16], before[40], language[32], status[24];
};

static bool is_status(const char *word)
{
    for (size_t i = 0; store_statuses[i] != NULL; i++)
        if (strcmp(store_statuses[i], word) == 0)
            return true;
    return false;
}

static const char *list_statuses(char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; store_statuses[i] != NULL && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%s",
                                   i == 0                          ? ""
                                   : store_statuses[i + 1] == NULL ? " and "
                                                                   : ", ",
                                   store_statuses[i]);
    return text;
}

/* "run_" and letters and digits. */
static bool is_id(const char *text)
{
    return strncmp(text, "run_", 4) == 0 &&
           text[4 + strspn(text + 4, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")] == '\0';
}

/* 0; otherwise err says what is wrong. Every field is "" where it was not given. */
static int read_list_query(const struct http_request *request, struct list_query *query, uint64_t *limit,
                           struct hc_err *err)
{
    static const char *const known[] = {"limit", "before", "language", "status", NULL};
    const struct {
        const char *name;
        char *text;
        size_t size;
    } fields[] = {{"limit", query->limit, sizeof query->limit},
                  {"before", query->before, sizeof query->before},
                  {"language", query->language, sizeof query->language},
                  {"status", query->status, sizeof query->status}};
    char name[64];
    if (http_query_unknown(request, known, name, sizeof name) != NULL)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                       "there is no parameter \"%s\"; there are limit, before, language and status", name);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (http_query_value(request, fields[i].name, fields[i].text, fields[i].size) < 0)
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the value of %s is malformed, too long, or there twice",
                           fields[i].name);
    *limit = LIST_DEFAULT;
    if (query->limit[0] != '\0' && hc_parse_count(query->limit, 1, LIST_LIMIT, limit, err) < 0)
        return hc_err_field(err, "limit");
    if (query->status[0] != '\0' && !is_status(query->status)) {
        char statuses[160];
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is no status \"%s\"; there are %s", query->status,
                list_statuses(statuses, sizeof statuses));
        return hc_err_field(err, "status");
    }
    if (query->before[0] != '\0' && !is_id(query->before)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%s\" is not the id of a run", query->before);
        return hc_err_field(err, "before");
    }
    return 0;
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

void handle_run_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    const struct caller *caller = request->context;
    struct list_query query = {0};
    struct hc_err err = {0};
    uint64_t limit;
    if (read_list_query(request, &query, &limit, &err) < 0) {
        reply_error(request, &err);
        return;
    }
    const struct language *language =
        query.language[0] != '\0' ? catalogue_find(gateway->catalogue, query.language) : NULL;
    struct run_filter filter = {
        .tenant = caller->operator_ ? NULL : caller->tenant,
        .language = language != NULL ? language->name : or_null(query.language),
        .status = or_null(query.status),
        .before = or_null(query.before),
        .limit = limit + 1, /* one more tells whether there is a next page */
    };
    struct listing listing = {.runs = json_array(), .limit = limit, .operator_ = caller->operator_};
    int result = listing.runs != NULL ? store_run_list(gateway->store, &filter, list_row, &listing) : -ENOMEM;
    if (result < 0 || listing.failed) {
        json_decref(listing.runs);
        reply_problem(request, 500, "internal", "the history cannot be read");
        return;
    }
    hc_cleanup_json json_t *answer =
        json_pack("{s:o, s:o}", "runs", listing.runs, "next", listing.more ? json_string(listing.last) : json_null());
    hc_cleanup_free char *text = answer != NULL ? hc_json_write(answer, false) : NULL;
    if (text != NULL)
        reply_json(request, 200, text);
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}
