/* hotcell why: the diagnosis of a run, for people. */
#include "base/fd.h"
#include "base/size.h"
#include "cli/client_errors.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 200, PAGES = 10 };

/* ---- which run ---- */

static bool has_failed(const json_t *row)
{
    const char *status = json_text(row, "status");

    return strcmp(status, "completed") != 0 && strcmp(status, "queued") != 0 && strcmp(status, "running") != 0;
}

/* The newest that did not complete, among the last two thousand. */
static int find_last(struct rows *rows, char *id, size_t size, struct hc_err *err)
{
    char before[64] = "";

    for (int page = 0; page < PAGES; page++) {
        const struct rows_filter filter = {.before = before[0] ? before : NULL, .limit = PAGE};
        json_cleanup json_t *found = NULL;
        int status = rows_list(rows, &filter, &found, err);
        if (status < 0)
            return status;
        const json_t *list = json_object_get(found, "runs");
        for (size_t i = 0; i < json_array_size(list); i++)
            if (has_failed(json_array_get(list, i))) {
                snprintf(id, size, "%s", json_text(json_array_get(list, i), "id"));
                return 0;
            }
        if (!json_text(found, "next")[0])
            break;
        snprintf(before, sizeof before, "%s", json_text(found, "next"));
    }
    hc_fail(err, HC_CLASS_REQUEST, ENOENT, "no run has failed lately");
    return hc_err_remedy(err, "hotcell history lists the runs; hotcell why ID explains one");
}

/* The group of its fingerprint, or NULL. A run of another tenant may have the same: its language and type are then the
 * same, too, and the newest is shown. */
static json_t *find_seen(struct rows *rows, const json_t *run)
{
    const char *fingerprint = json_text(json_object_get(run, "diagnosis"), "fingerprint");
    const struct errors_filter filter = {.fingerprint = fingerprint, .limit = 1};
    json_cleanup json_t *found = NULL;

    if (!fingerprint[0] || errors_list(rows, &filter, &found, NULL) < 0)
        return NULL;
    json_t *group = json_array_get(json_object_get(found, "errors"), 0);
    return group ? json_incref(group) : NULL;
}

/* ---- for people ---- */

static void add_fact(struct table *table, const char *name, enum table_style style, const char *text)
{
    if (!text[0])
        return;
    table_add(table, TABLE_HEAD, name);
    table_add(table, style, text);
}

static void add_place(struct table *table, const json_t *diagnosis)
{
    const json_t *line = json_object_get(diagnosis, "line"), *column = json_object_get(diagnosis, "column");
    char text[320];
    int length;

    if (!json_text(diagnosis, "file")[0])
        return;
    length = snprintf(text, sizeof text, "%.200s", json_text(diagnosis, "file"));
    if (json_is_integer(line))
        length += snprintf(text + length, sizeof text - (size_t)length, ", line %d", (int)json_integer_value(line));
    if (json_is_integer(column))
        snprintf(text + length, sizeof text - (size_t)length, ", column %d", (int)json_integer_value(column));
    add_fact(table, "where", TABLE_PLAIN, text);
    const char *source = json_text(diagnosis, "source");
    add_fact(table, "source", TABLE_PLAIN, source + strspn(source, " \t"));
}

/* What is worth a unit gets it by its name: bytes of memory, milliseconds. */
static const char *figure(const char *name, const json_t *value, char *text, size_t size)
{
    static const char *const sizes[] = {"memory_peak",  "memory_limit", "disk_limit",
                                        "output_limit", "stdout_bytes", "stderr_bytes"};
    size_t length = strlen(name);
    double number = json_number_value(value);

    if (length > 3 && strcmp(name + length - 3, "_ms") == 0)
        return hc_format_duration((uint64_t)(number * 1000), text, size);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i], name) == 0)
            return hc_format_size((uint64_t)number, text, size);
    snprintf(text, size, "%.15g", number);
    return text;
}

static void add_evidence(struct table *table, const json_t *evidence)
{
    const char *name, *title = "proof";
    json_t *value;

    json_object_foreach((json_t *)evidence, name, value)
    {
        char text[320], number[64];
        snprintf(text, sizeof text, "%s: %.250s", name,
                 json_is_string(value) ? json_string_value(value) : figure(name, value, number, sizeof number));
        table_add(table, TABLE_HEAD, title);
        table_add(table, TABLE_PLAIN, text);
        title = "";
    }
}

static void add_seen(struct table *table, const json_t *seen)
{
    json_int_t count = json_integer_value(json_object_get(seen, "count"));
    char text[160], when[32];

    if (count < 1)
        return;
    if (count == 1)
        snprintf(text, sizeof text, "this once");
    else
        snprintf(text, sizeof text, "%lld times since %s", (long long)count,
                 client_time(json_text(seen, "first_at"), when, sizeof when));
    add_fact(table, "failed so", TABLE_PLAIN, text);
    add_fact(table, "fixed by", TABLE_GOOD, json_text(seen, "fixed_by"));
}

static int show_why(const json_t *run, const json_t *seen)
{
    const json_t *diagnosis = json_object_get(run, "diagnosis");
    const char *category = json_text(diagnosis, "category");
    struct table table;

    table_start(&table, 2, table_colour(STDOUT_FILENO));
    add_fact(&table, "run", TABLE_PLAIN, json_text(run, "id"));
    add_fact(&table, "status", has_failed(run) ? TABLE_BAD : TABLE_GOOD, json_text(run, "status"));
    if (json_is_object(diagnosis)) {
        add_fact(&table, "category", category[0] ? TABLE_BAD : TABLE_WARN,
                 category[0] ? category : "unknown: nothing that is certain says why");
        add_fact(&table, "error", TABLE_PLAIN, json_text(diagnosis, "error_type"));
        add_fact(&table, "message", TABLE_PLAIN, json_text(diagnosis, "message"));
        add_place(&table, diagnosis);
        add_evidence(&table, json_object_get(diagnosis, "evidence"));
        add_fact(&table, "what to do", TABLE_GOOD, json_text(diagnosis, "hint"));
        add_seen(&table, seen);
    } else if (!json_is_false(json_object_get(run, "success")) || has_failed(run)) {
        add_fact(&table, "why", TABLE_PLAIN, has_failed(run) ? "there is no diagnosis" : "it has not failed");
    }
    client_add_tests(&table, run);
    int status = table_print(&table);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

static int show_json(const json_t *run, json_t *seen)
{
    json_cleanup json_t *answer = json_object();
    static const char *const names[] = {"id", "status", "exit_code", "signal", "language", "created_at", "diagnosis"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(run, names[i]);
        json_object_set_new(answer, names[i], value ? json_incref(value) : json_null());
    }
    json_object_set_new(answer, "seen", seen ? json_incref(seen) : json_null());
    hc_cleanup_free char *text = hc_json_write(answer, false);
    int status = text ? json_show(text) : -ENOMEM;
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

int client_why(struct cli *cli, const struct client_line *line)
{
    json_cleanup json_t *run = NULL, *seen = NULL;
    struct rows rows = {0};
    struct hc_err err = {0};
    char last[64];
    const char *id = last;

    int status = line->operands > 0 ? client_id(&verb_why, line, &id, &err) : 0;
    if (status == 0)
        status = rows_open(cli, line, &rows, &err);
    if (status == 0 && line->operands == 0)
        status = find_last(&rows, last, sizeof last, &err);
    if (status == 0)
        status = rows_get(&rows, id, &run, &err);
    if (status == 0)
        seen = find_seen(&rows, run);
    rows_close(&rows);
    if (status < 0)
        return server_message(cli, &rows.server, &err);
    return cli->json ? show_json(run, seen) : show_why(run, seen);
}
