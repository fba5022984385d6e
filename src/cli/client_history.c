/* hotcell history, show and cancel: the runs of a server, one by one. */
#include "base/fd.h"
#include "base/size.h"
#include "base/suggest.h"
#include "cli/client_errors.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include "store/store.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_LIMIT = 20, MOST = 1000, TARGET_MAX = 4096, PATIENCE = 60 * 1000 * 1000 };

static int show_json(const json_t *value)
{
    hc_cleanup_free char *text = hc_json_write(value, false);
    int status = text ? json_show(text) : -ENOMEM;

    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

/* ---- history ---- */

static enum table_style status_style(const char *status)
{
    if (strcmp(status, "completed") == 0)
        return TABLE_GOOD;
    return strcmp(status, "queued") == 0 || strcmp(status, "running") == 0 ? TABLE_WARN : TABLE_BAD;
}

static const char *duration_text(const json_t *value, char *text, size_t size)
{
    if (!json_is_number(value))
        return "-";
    return hc_format_duration((uint64_t)(json_number_value(value) * 1000), text, size);
}

static const char *size_text(const json_t *value, char *text, size_t size)
{
    return json_is_number(value) ? hc_format_size((uint64_t)json_number_value(value), text, size) : "-";
}

static void add_run(struct table *table, const json_t *run)
{
    const json_t *exit_code = json_object_get(run, "exit_code");
    bool ended = json_is_integer(exit_code);
    char text[48];

    table_add(table, TABLE_PLAIN, json_text(run, "id"));
    table_add(table, TABLE_PLAIN, client_time(json_text(run, "created_at"), text, sizeof text));
    table_add(table, status_style(json_text(run, "status")), json_text(run, "status"));
    table_add(table, TABLE_PLAIN, json_text(run, "language")[0] ? json_text(run, "language") : "-");
    snprintf(text, sizeof text, "%d", (int)json_integer_value(exit_code));
    table_add(table, TABLE_PLAIN, ended ? text : "-");
    table_add(table, TABLE_PLAIN, ended ? duration_text(json_object_get(run, "wall_ms"), text, sizeof text) : "-");
    table_add(table, TABLE_PLAIN, ended ? size_text(json_object_get(run, "memory_peak"), text, sizeof text) : "-");
}

static int show_runs(const json_t *runs)
{
    static const char *const heads[] = {"ID", "WHEN", "STATUS", "LANGUAGE", "EXIT", "TIME", "MEMORY"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(runs); i++)
        add_run(&table, json_array_get(runs, i));
    int status = table_print(&table);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

static int check_status(const char *word, struct hc_err *err)
{
    size_t count = 0;

    for (; word && store_statuses[count]; count++)
        if (strcmp(store_statuses[count], word) == 0)
            return 0;
    if (!word)
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--status: there is no status \"%s\"", word);
    const char *nearest = hc_suggest(word, store_statuses, count);
    if (nearest)
        return hc_err_remedy(err, "did you mean %s?", nearest);
    return hc_err_remedy(err, "such as completed, error, timeout, oom or killed");
}

static int read_filter(const struct client_line *line, struct rows_filter *filter, struct hc_err *err)
{
    *filter = (struct rows_filter){.language = line->value[CLIENT_LANGUAGE],
                                   .status = line->value[CLIENT_STATUS],
                                   .before = line->value[CLIENT_BEFORE]};
    if (line->operands > 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell history takes no arguments, but there is \"%s\"",
                       line->operand[0]);
    if (line->value[CLIENT_ERROR_TYPE] || line->value[CLIENT_FINGERPRINT])
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s goes with --errors alone",
                       line->value[CLIENT_ERROR_TYPE] ? "error-type" : "fingerprint");
    int status = client_count(line, CLIENT_LIMIT, "limit", 1, MOST, DEFAULT_LIMIT, &filter->limit, err);
    return status < 0 ? status : check_status(filter->status, err);
}

int client_history(struct cli *cli, const struct client_line *line)
{
    json_cleanup json_t *found = NULL;
    struct rows_filter filter;
    struct rows rows = {0};
    struct hc_err err = {0};

    if (line->value[CLIENT_ERRORS])
        return client_errors(cli, line);
    int status = read_filter(line, &filter, &err);
    if (status == 0)
        status = rows_open(cli, line, &rows, &err);
    if (status == 0)
        status = rows_list(&rows, &filter, &found, &err);
    rows_close(&rows);
    if (status < 0)
        return server_message(cli, &rows.server, &err);
    return cli->json ? show_json(found) : show_runs(json_object_get(found, "runs"));
}

/* ---- show ---- */

static void add_fact(struct table *table, const char *name, enum table_style style, const char *text)
{
    table_add(table, TABLE_HEAD, name);
    table_add(table, style, text);
}

static void add_usage(struct table *table, const json_t *run)
{
    const json_t *usage = json_object_get(run, "usage"), *timing = json_object_get(run, "timing");
    char line[160], wall[32], cpu[32], memory[32];

    if (!json_is_object(usage))
        return;
    snprintf(line, sizeof line, "%s by the clock, %s of CPU, at most %s of memory",
             duration_text(json_object_get(usage, "wall_ms"), wall, sizeof wall),
             duration_text(json_object_get(usage, "cpu_ms"), cpu, sizeof cpu),
             size_text(json_object_get(usage, "memory_peak"), memory, sizeof memory));
    add_fact(table, "used", TABLE_PLAIN, line);
    snprintf(line, sizeof line, "%s start, %s in the queue, %s in all", json_text(timing, "start"),
             duration_text(json_object_get(timing, "queue_ms"), wall, sizeof wall),
             duration_text(json_object_get(timing, "total_ms"), cpu, sizeof cpu));
    add_fact(table, "timing", TABLE_PLAIN, line);
    add_fact(table, "isolation", TABLE_PLAIN, json_text(json_object_get(run, "isolation"), "level"));
}

static void add_files(struct table *table, const json_t *files)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        char line[512], size[32];
        snprintf(line, sizeof line, "%s (%s)", json_text(file, "path"),
                 size_text(json_object_get(file, "size"), size, sizeof size));
        add_fact(table, i ? "" : "files", TABLE_PLAIN, line);
    }
}

/* What it wrote, below a line that says which stream it was. Control characters do not reach the terminal. */
static void print_stream(const char *title, const json_t *text, bool encoded)
{
    if (!json_is_string(text) || json_string_length(text) == 0)
        return;
    if (encoded) {
        printf("\n%s is not text; --json has it as base64.\n", title);
        return;
    }
    const char *data = json_string_value(text);
    size_t length = json_string_length(text);
    printf("\n%s:\n", title);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)data[i];
        bool c1 = byte == 0xc2 && i + 1 < length && (unsigned char)data[i + 1] <= 0x9f;
        bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f || c1;
        putchar(control && isatty(STDOUT_FILENO) ? '?' : byte);
        i += c1 && isatty(STDOUT_FILENO);
    }
    if (data[length - 1] != '\n')
        putchar('\n');
}

static int show_run(const json_t *run)
{
    const char *status = json_text(run, "status"), *version = json_text(run, "language_version");
    bool encoded = strcmp(json_text(run, "output_encoding"), "base64") == 0;
    char line[512], when[32];
    struct table table;

    table_start(&table, 2, table_colour(STDOUT_FILENO));
    add_fact(&table, "id", TABLE_PLAIN, json_text(run, "id"));
    add_fact(&table, "status", status_style(status), status);
    if (json_is_integer(json_object_get(run, "exit_code"))) {
        snprintf(line, sizeof line, "%d", (int)json_integer_value(json_object_get(run, "exit_code")));
        add_fact(&table, "exit code", TABLE_PLAIN, line);
        if (result_json_summary(run, line, sizeof line)[0])
            add_fact(&table, "why", TABLE_PLAIN, line);
    }
    client_add_tests(&table, run);
    snprintf(line, sizeof line, "%s%s%s", json_text(run, "language"), version[0] ? " " : "", version);
    add_fact(&table, "language", TABLE_PLAIN, line[0] ? line : "-");
    add_fact(&table, "created", TABLE_PLAIN, client_time(json_text(run, "created_at"), when, sizeof when));
    add_usage(&table, run);
    add_files(&table, json_object_get(run, "files"));
    int printed = table_print(&table);
    if (printed < 0)
        return message_cannot_write(printed);
    print_stream("stdout", json_object_get(run, "stdout"), encoded);
    print_stream("stderr", json_object_get(run, "stderr"), encoded);
    return EXIT_OK;
}

/* ---- report and cancel: what only a server does ---- */

static int find_server(const struct cli *cli, const struct client_line *line, struct server *server, struct hc_err *err)
{
    return cli->server ? server_find(cli, server, err) : server_find_local(cli, line, server, err);
}

static int ask_about(struct server *server, const char *method, const char *id, const char *rest, const char *accept,
                     struct http_answer *answer, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(TARGET_MAX);

    hc_buf_add_str(&target, "/v1/runs/");
    http_add_encoded(&target, id);
    hc_buf_add_str(&target, rest);
    struct http_ask ask = {.method = method, .target = target.data, .accept = accept, .patience = PATIENCE};
    int status = hc_buf_status(&target) < 0 ? hc_fail(err, HC_CLASS_REQUEST, ENOENT, "that is no id of a run")
                                            : server_ask(server, &ask, answer, err);
    hc_buf_release(&target);
    return status;
}

static int show_report(const struct cli *cli, const struct client_line *line, const char *id)
{
    struct rows rows = {0};
    struct http_answer answer = {0};
    struct hc_err err = {0};

    int status = find_server(cli, line, &rows.server, &err);
    if (status == 0)
        status =
            ask_about(&rows.server, "GET", id, "/report", cli->json ? "application/json" : "text/plain", &answer, &err);
    if (status == -ENOENT && rows.server.code[0])
        rows_suggest(&rows, id, &err);
    if (status < 0)
        return server_message(cli, &rows.server, &err);
    status = json_show(answer.body);
    free(answer.body);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

int client_show(struct cli *cli, const struct client_line *line)
{
    json_cleanup json_t *run = NULL;
    struct rows rows = {0};
    struct hc_err err = {0};
    const char *id = NULL;

    int status = client_id(&verb_show, line, &id, &err);
    if (status == 0 && line->value[CLIENT_REPORT])
        return show_report(cli, line, id);
    if (status == 0)
        status = rows_open(cli, line, &rows, &err);
    if (status == 0)
        status = rows_get(&rows, id, &run, &err);
    rows_close(&rows);
    if (status < 0)
        return server_message(cli, &rows.server, &err);
    return cli->json ? show_json(run) : show_run(run);
}

int client_cancel(struct cli *cli, const struct client_line *line)
{
    struct rows rows = {0};
    struct http_answer answer = {0};
    struct hc_err err = {0};
    const char *id = NULL;

    int status = client_id(&verb_cancel, line, &id, &err);
    if (status == 0)
        status = find_server(cli, line, &rows.server, &err);
    if (status == 0)
        status = ask_about(&rows.server, "DELETE", id, "", NULL, &answer, &err);
    if (status == -ENOENT && rows.server.code[0])
        rows_suggest(&rows, id, &err);
    if (status < 0)
        return server_message(cli, &rows.server, &err);
    if (cli->json)
        status = json_show(answer.body);
    else
        message_note("the run %s was ended", id);
    free(answer.body);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}
