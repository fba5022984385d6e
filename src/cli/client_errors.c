/* hotcell history --errors: what failed before, how often, and what put it right. */
#include "cli/client_errors.h"

#include "base/fd.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include "store/store.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_LIMIT = 20, MOST = 1000, TARGET_MAX = 4096, MESSAGE_SHOWN = 60 };

/* ---- from the store ---- */

static json_t *time_json(int64_t microseconds)
{
    time_t seconds = (time_t)(microseconds / 1000000);
    char date[32], text[48];
    struct tm utc;

    if (!gmtime_r(&seconds, &utc) || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc) == 0)
        return json_null();
    snprintf(text, sizeof text, "%s.%03dZ", date, (int)(microseconds / 1000 % 1000));
    return json_string(text);
}

static json_t *text_or_null(const char *text)
{
    return text[0] ? hc_json_text_lossy(text) : json_null();
}

/* A store_error_fn; data is a json_t array. As the server writes it to an operator. */
static int collect_group(void *data, const struct error_group *group)
{
    json_t *object =
        json_pack("{s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:s, s:o, s:o, s:o}", "fingerprint", group->error.fingerprint,
                  "error_type", text_or_null(group->error.error_type), "category", text_or_null(group->error.category),
                  "language", text_or_null(group->language), "count", (json_int_t)group->count, "first_at",
                  time_json(group->first_at), "last_at", time_json(group->last_at), "last_run", group->last_run,
                  "message", hc_json_text_lossy(group->error.message), "fixed_by", text_or_null(group->fixed_by),
                  "tenant", hc_json_text_lossy(group->tenant));

    return json_array_append_new(data, object) == 0 ? 0 : -ENOMEM;
}

static int list_stored(struct rows *rows, const struct errors_filter *filter, json_t **out, struct hc_err *err)
{
    const struct error_filter wanted = {.fingerprint = filter->fingerprint,
                                        .error_type = filter->error_type,
                                        .language = filter->language,
                                        .limit = (size_t)filter->limit};
    json_t *list = json_array();
    int status = list ? store_error_list(rows->store, &wanted, collect_group, list) : -ENOMEM;

    if (status < 0) {
        json_decref(list);
        return hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot read the history");
    }
    *out = json_pack("{s:o}", "errors", list);
    return *out ? 0 : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

/* ---- from the server ---- */

static void add_parameter(struct hc_buf *target, const char *name, const char *value)
{
    if (!value)
        return;
    hc_buf_printf(target, "&%s=", name);
    http_add_encoded(target, value);
}

static int list_asked(struct rows *rows, const struct errors_filter *filter, json_t **out, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(TARGET_MAX);

    hc_buf_printf(&target, "/v1/history/errors?limit=%llu", (unsigned long long)filter->limit);
    add_parameter(&target, "fingerprint", filter->fingerprint);
    add_parameter(&target, "error_type", filter->error_type);
    add_parameter(&target, "language", filter->language);
    int status = hc_buf_status(&target);
    status = status < 0 ? hc_fail(err, HC_CLASS_REQUEST, EINVAL, "what to look for is too long")
                        : server_json(&rows->server, "GET", target.data, out, err);
    hc_buf_release(&target);
    return status;
}

int errors_list(struct rows *rows, const struct errors_filter *filter, json_t **out, struct hc_err *err)
{
    return rows->store ? list_stored(rows, filter, out, err) : list_asked(rows, filter, out, err);
}

/* ---- for people ---- */

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

static void add_group(struct table *table, const json_t *group)
{
    const char *fixed = json_text(group, "fixed_by"), *message = json_text(group, "message");
    char text[MESSAGE_SHOWN * 4 + 8];
    size_t length = 0;

    snprintf(text, sizeof text, "%lld", (long long)json_integer_value(json_object_get(group, "count")));
    table_add(table, TABLE_PLAIN, text);
    table_add(table, TABLE_PLAIN, client_time(json_text(group, "last_at"), text, sizeof text));
    table_add(table, TABLE_PLAIN, or_dash(json_text(group, "language")));
    table_add(table, TABLE_PLAIN, json_text(group, "category")[0] ? json_text(group, "category") : "unknown");
    table_add(table, TABLE_BAD, or_dash(json_text(group, "error_type")));
    for (size_t shown = 0; message[length] && shown < MESSAGE_SHOWN; length++)
        shown += ((unsigned char)message[length + 1] & 0xc0) != 0x80;
    snprintf(text, sizeof text, "%.*s%s", (int)(length < sizeof text - 8 ? length : sizeof text - 8), message,
             message[length] ? "…" : "");
    table_add(table, TABLE_PLAIN, text);
    table_add(table, fixed[0] ? TABLE_GOOD : TABLE_DIM, or_dash(fixed));
    table_add(table, TABLE_DIM, json_text(group, "fingerprint"));
}

static int show_groups(const json_t *groups)
{
    static const char *const heads[] = {"TIMES", "LAST",    "LANGUAGE", "CATEGORY",
                                        "ERROR", "MESSAGE", "FIXED BY", "FINGERPRINT"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(groups); i++)
        add_group(&table, json_array_get(groups, i));
    int status = table_print(&table);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

static int read_filter(const struct client_line *line, struct errors_filter *filter, struct hc_err *err)
{
    static const struct {
        enum client_option option;
        const char *name;
    } others[] = {{CLIENT_STATUS, "status"}, {CLIENT_BEFORE, "before"}};

    *filter = (struct errors_filter){.fingerprint = line->value[CLIENT_FINGERPRINT],
                                     .error_type = line->value[CLIENT_ERROR_TYPE],
                                     .language = line->value[CLIENT_LANGUAGE]};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (line->value[others[i].option]) {
            hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s does not go with --errors, which lists kinds of failures",
                    others[i].name);
            return hc_err_remedy(err, "leave out one of the two");
        }
    if (line->operands > 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell history takes no arguments, but there is \"%s\"",
                       line->operand[0]);
    return client_count(line, CLIENT_LIMIT, "limit", 1, MOST, DEFAULT_LIMIT, &filter->limit, err);
}

int client_errors(struct cli *cli, const struct client_line *line)
{
    json_cleanup json_t *found = NULL;
    struct errors_filter filter;
    struct rows rows = {0};
    struct hc_err err = {0};

    int status = read_filter(line, &filter, &err);
    if (status == 0)
        status = rows_open(cli, line, &rows, &err);
    if (status == 0)
        status = errors_list(&rows, &filter, &found, &err);
    rows_close(&rows);
    if (status < 0)
        return server_message(cli, &rows.server, &err);
    if (!cli->json)
        return show_groups(json_object_get(found, "errors"));
    hc_cleanup_free char *text = hc_json_write(found, false);
    status = text ? json_show(text) : -ENOMEM;
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}
