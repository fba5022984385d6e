/* hotcell sandbox inspect: one sandbox as a table for people. */
#include "base/fd.h"
#include "base/size.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/sandbox.h"
#include "cli/sandbox_show.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAIRS_CEILING = 64 * 1024 };

enum table_style show_state_style(const char *state)
{
    if (strcmp(state, "running") == 0)
        return TABLE_GOOD;
    return strcmp(state, "failed") == 0 ? TABLE_BAD : TABLE_WARN;
}

void show_pairs(struct table *table, const json_t *object)
{
    struct hc_buf buf = HC_BUF_INIT(PAIRS_CEILING);
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        hc_cleanup_free char *text = json_plain(value);
        hc_buf_printf(&buf, "%s%s=%s", buf.length ? ", " : "", key, text ? text : "");
    }
    table_add(table, TABLE_PLAIN, hc_buf_status(&buf) == 0 && buf.data ? buf.data : "");
    hc_buf_release(&buf);
}

/* ---- one ---- */

static void add_fact(struct table *table, const char *name, const char *text)
{
    table_add(table, TABLE_HEAD, name);
    table_add(table, TABLE_PLAIN, text);
}

static const char *size_of(const json_t *object, const char *key, char *text, size_t size)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? hc_format_size((uint64_t)json_number_value(value), text, size) : "?";
}

static const char *seconds_of(const json_t *object, const char *key, const char *otherwise, char *text, size_t size)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_number(value) || json_number_value(value) == 0)
        return otherwise;
    return hc_format_duration((uint64_t)(json_number_value(value) * 1e6), text, size);
}

static void add_usage(struct table *table, const json_t *sandbox)
{
    const json_t *usage = json_object_get(sandbox, "usage"), *limits = json_object_get(sandbox, "limits");
    const json_t *disk = json_object_get(usage, "disk"), *network = json_object_get(usage, "network");
    char line[256], a[48], b[48], c[48];

    if (!json_is_object(usage))
        return;
    snprintf(line, sizeof line, "%s of %s, at most %s so far", size_of(usage, "memory", a, sizeof a),
             size_of(limits, "memory", b, sizeof b), size_of(usage, "memory_peak", c, sizeof c));
    add_fact(table, "memory", line);
    snprintf(line, sizeof line, "%s used, at most %g at one time",
             hc_format_duration((uint64_t)(json_number_value(json_object_get(usage, "cpu_ms")) * 1000), a, sizeof a),
             json_number_value(json_object_get(limits, "cpus")));
    add_fact(table, "cpu", line);
    snprintf(line, sizeof line, "%d of %d", (int)json_number_value(json_object_get(usage, "pids")),
             (int)json_number_value(json_object_get(limits, "pids")));
    add_fact(table, "processes", line);
    if (json_is_object(disk)) {
        snprintf(line, sizeof line, "%s of %s in %d of %d files", size_of(disk, "used", a, sizeof a),
                 size_of(disk, "limit", b, sizeof b), (int)json_number_value(json_object_get(disk, "inodes")),
                 (int)json_number_value(json_object_get(disk, "inodes_limit")));
        add_fact(table, "disk", line);
    }
    snprintf(line, sizeof line, "%s; %s received, %s sent", json_text(sandbox, "network"),
             size_of(network, "received", a, sizeof a), size_of(network, "sent", b, sizeof b));
    add_fact(table, "network", line);
}

static void add_life(struct table *table, const json_t *sandbox)
{
    const json_t *usage = json_object_get(sandbox, "usage");
    char line[256], a[48], b[48];

    snprintf(line, sizeof line, "%s, %s old", client_time(json_text(sandbox, "created_at"), a, sizeof a),
             seconds_of(usage, "age_s", "0 s", b, sizeof b));
    add_fact(table, "created", line);
    snprintf(line, sizeof line, "%s, idle for %s", client_time(json_text(sandbox, "last_used_at"), a, sizeof a),
             seconds_of(usage, "idle_s", "0 s", b, sizeof b));
    add_fact(table, "used", line);
    const char *idle = seconds_of(sandbox, "idle_timeout", NULL, a, sizeof a);
    const char *life = seconds_of(sandbox, "max_lifetime", NULL, b, sizeof b);
    snprintf(line, sizeof line, "%s%s%s%s", idle ? idle : "", idle ? " without use" : "",
             idle && life ? ", or at an age of "
             : life       ? "an age of "
                          : "",
             life ? life : "");
    add_fact(table, "ends after", idle || life ? line : "nothing but rm");
    if (json_text(sandbox, "expires_at")[0])
        add_fact(table, "expires", client_time(json_text(sandbox, "expires_at"), a, sizeof a));
}

static void add_contents(struct table *table, const json_t *sandbox)
{
    static const char *const kinds[] = {"jobs", "sessions", "contexts", "terminals"};
    char line[160] = "";

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(line);
        snprintf(line + length, sizeof line - length, "%s%d %s", i ? ", " : "",
                 (int)json_integer_value(json_object_get(sandbox, kinds[i])), kinds[i]);
    }
    add_fact(table, "in it", line);
}

/* "cache at /cache, read-only", of volumes ("name") and mounts ("host"). */
static void add_places(struct table *table, const char *title, const json_t *list, const char *key)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        char line[512];
        snprintf(line, sizeof line, "%s at %s%s", json_text(one, key), json_text(one, "path"),
                 json_is_true(json_object_get(one, "read_only")) ? ", read-only" : "");
        add_fact(table, i ? "" : title, line);
    }
}

static int show_sandbox(const json_t *sandbox)
{
    const char *state = json_text(sandbox, "state");
    int recovered = (int)json_integer_value(json_object_get(sandbox, "recovered"));
    struct table table;
    char line[160];

    table_start(&table, 2, table_colour(STDOUT_FILENO));
    add_fact(&table, "id", json_text(sandbox, "id"));
    table_add(&table, TABLE_HEAD, "state");
    table_add(&table, show_state_style(state), state);
    if (json_text(sandbox, "reason")[0])
        add_fact(&table, "why", json_text(sandbox, "reason"));
    add_life(&table, sandbox);
    add_usage(&table, sandbox);
    add_contents(&table, sandbox);
    snprintf(line, sizeof line, "%s, %s; works in %s", json_text(sandbox, "image"),
             json_is_false(json_object_get(sandbox, "read_only")) ? "a layer to write to" : "read-only",
             json_text(sandbox, "work_dir"));
    add_fact(&table, "root", line);
    add_places(&table, "volumes", json_object_get(sandbox, "volumes"), "name");
    add_places(&table, "mounts", json_object_get(sandbox, "mounts"), "host");
    add_fact(&table, "isolation", json_text(json_object_get(sandbox, "isolation"), "level"));
    if (recovered > 0) {
        snprintf(line, sizeof line, "%d time%s", recovered, recovered == 1 ? "" : "s");
        add_fact(&table, "recovered", line);
    }
    if (json_object_size(json_object_get(sandbox, "metadata")) > 0) {
        table_add(&table, TABLE_HEAD, "metadata");
        show_pairs(&table, json_object_get(sandbox, "metadata"));
    }
    int status = table_print(&table);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

int sandbox_inspect(struct cli *cli, const struct sandbox_line *line)
{
    json_cleanup json_t *sandbox = NULL;
    struct server server = {0};
    struct hc_err err = {0};
    char id[SANDBOX_ID], target[SANDBOX_ID + 32];

    int status = sandbox_operands(line, 1, 1, &err);
    if (status == 0)
        status = sandbox_find(cli, line, line->operand[0], &server, id, &err);
    if (status == 0) {
        snprintf(target, sizeof target, "/v1/sandboxes/%s", id);
        status = sandbox_ask(&server, "GET", target, NULL, &sandbox, &err);
    }
    if (status < 0)
        return server_message(cli, &server, &err);
    return cli->json ? sandbox_show_json(sandbox) : show_sandbox(sandbox);
}
