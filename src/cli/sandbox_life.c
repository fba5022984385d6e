/* hotcell sandbox list, pause, resume and rm. */
#include "base/size.h"
#include "base/suggest.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/sandbox.h"
#include "cli/sandbox_show.h"
#include "cli/table.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- list ---- */

static int check_state(const char *word, struct hc_err *err)
{
    static const char *const states[] = {"running", "paused", "failed", "stopping"};
    enum { COUNT = sizeof states / sizeof *states };

    for (size_t i = 0; word && i < COUNT; i++)
        if (strcmp(states[i], word) == 0)
            return 0;
    if (!word)
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--status: there is no state \"%s\"", word);
    const char *nearest = hc_suggest(word, states, COUNT);
    return nearest ? hc_err_remedy(err, "did you mean %s?", nearest)
                   : hc_err_remedy(err, "there are running, paused, failed and stopping");
}

static void add_row(struct table *table, const json_t *sandbox)
{
    const json_t *limits = json_object_get(sandbox, "limits");
    const char *state = json_text(sandbox, "state");
    char text[64];

    table_add(table, TABLE_PLAIN, json_text(sandbox, "id"));
    table_add(table, show_state_style(state), state);
    table_add(table, TABLE_PLAIN, client_time(json_text(sandbox, "created_at"), text, sizeof text));
    table_add(table, TABLE_PLAIN, client_time(json_text(sandbox, "last_used_at"), text, sizeof text));
    snprintf(text, sizeof text, "%d", (int)json_integer_value(json_object_get(sandbox, "jobs")));
    table_add(table, TABLE_PLAIN, text);
    table_add(table, TABLE_PLAIN,
              hc_format_size((uint64_t)json_number_value(json_object_get(limits, "memory")), text, sizeof text));
    show_pairs(table, json_object_get(sandbox, "metadata"));
}

static int show_list(const json_t *list)
{
    static const char *const heads[] = {"ID", "STATE", "CREATED", "USED", "JOBS", "MEMORY", "METADATA"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(list); i++)
        add_row(&table, json_array_get(list, i));
    int status = table_print(&table);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

static int show_ids(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        printf("%s\n", json_text(json_array_get(list, i), "id"));
    return EXIT_OK;
}

int sandbox_list(struct cli *cli, const struct sandbox_line *line)
{
    const char *state = sandbox_value(line, SANDBOX_STATUS);
    json_cleanup json_t *answer = NULL;
    struct server server = {0};
    struct hc_err err = {0};
    char target[64] = "/v1/sandboxes";

    int status = sandbox_operands(line, 0, 0, &err);
    if (status == 0)
        status = check_state(state, &err);
    if (status == 0)
        status = sandbox_server(cli, line, &server, &err);
    if (state)
        snprintf(target, sizeof target, "/v1/sandboxes?state=%s", state);
    if (status == 0)
        status = sandbox_ask(&server, "GET", target, NULL, &answer, &err);
    if (status < 0)
        return server_message(cli, &server, &err);
    const json_t *list = json_object_get(answer, "sandboxes");
    if (cli->json)
        return sandbox_show_json(answer);
    return sandbox_value(line, SANDBOX_IDS) ? show_ids(list) : show_list(list);
}

/* ---- pause, resume, rm: the same for each id ---- */

struct change {
    const char *method, *path; /* what follows the id */
    const char *done;          /* what was done to it */
};

static int change_one(struct server *server, const struct change *change, const char *text, json_t *list,
                      struct hc_err *err)
{
    json_cleanup json_t *answer = NULL;
    char id[SANDBOX_ID], target[SANDBOX_ID + 64];

    int status = sandbox_resolve(server, text, id, err);
    if (status < 0)
        return status;
    snprintf(target, sizeof target, "/v1/sandboxes/%s%s", id, change->path);
    status = sandbox_ask(server, change->method, target, NULL, &answer, err);
    if (status == 0)
        json_array_append_new(list, answer ? json_incref(answer) : json_pack("{s:s, s:b}", "id", id, "removed", 1));
    return status;
}

/* Goes on after one that failed; the exit code is the first failure's. */
static int change_each(struct cli *cli, struct server *server, const struct change *change, const char *const *texts,
                       size_t count)
{
    json_cleanup json_t *list = json_array();
    int code = EXIT_OK;

    for (size_t i = 0; i < count; i++) {
        struct hc_err err = {0};
        int status = change_one(server, change, texts[i], list, &err);
        if (status < 0) {
            int failure = server_message(cli, server, &err);
            code = code ? code : failure;
        } else if (!cli->json) {
            message_note("the sandbox %s was %s", json_text(json_array_get(list, json_array_size(list) - 1), "id"),
                         change->done);
        }
    }
    if (!cli->json || json_array_size(list) == 0)
        return code;
    json_cleanup json_t *object = json_pack("{s:O}", "sandboxes", list);
    int shown = count == 1 ? sandbox_show_json(json_array_get(list, 0)) : sandbox_show_json(object);
    return code ? code : shown;
}

static int change(struct cli *cli, const struct sandbox_line *line, const struct change *change)
{
    struct server server = {0};
    struct hc_err err = {0};

    int status = sandbox_operands(line, 1, SIZE_MAX, &err);
    if (status == 0)
        status = sandbox_server(cli, line, &server, &err);
    return status < 0 ? message_error(cli, &err) : change_each(cli, &server, change, line->operand, line->operands);
}

int sandbox_pause(struct cli *cli, const struct sandbox_line *line)
{
    return change(cli, line, &(const struct change){"POST", "/pause", "paused"});
}

int sandbox_resume(struct cli *cli, const struct sandbox_line *line)
{
    return change(cli, line, &(const struct change){"POST", "/resume", "resumed"});
}

static const struct change REMOVAL = {"DELETE", "", "removed"};

static int remove_all(struct cli *cli, const struct sandbox_line *line)
{
    enum { MOST = 4096 };
    json_cleanup json_t *answer = NULL;
    struct server server = {0};
    struct hc_err err = {0};
    const char *ids[MOST];
    size_t count = 0;

    int status = sandbox_operands(line, 0, 0, &err);
    if (status == 0)
        status = sandbox_server(cli, line, &server, &err);
    if (status == 0)
        status = sandbox_ask(&server, "GET", "/v1/sandboxes", NULL, &answer, &err);
    if (status < 0)
        return server_message(cli, &server, &err);
    const json_t *list = json_object_get(answer, "sandboxes");
    for (size_t i = 0; i < json_array_size(list) && count < MOST; i++)
        if (strcmp(json_text(json_array_get(list, i), "state"), "stopping") != 0)
            ids[count++] = json_text(json_array_get(list, i), "id");
    return change_each(cli, &server, &REMOVAL, ids, count);
}

int sandbox_remove(struct cli *cli, const struct sandbox_line *line)
{
    return sandbox_value(line, SANDBOX_ALL) ? remove_all(cli, line) : change(cli, line, &REMOVAL);
}
