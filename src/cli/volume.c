/* hotcell volume: folders that outlive sandboxes. */
#include "base/size.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/sandbox.h"
#include "cli/table.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- create ---- */

static int read_order(const struct sandbox_line *line, json_t **order, struct hc_err *err)
{
    const char *size = sandbox_value(line, SANDBOX_SIZE);
    uint64_t bytes = 0;

    if (line->operands != 1)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                       "hotcell volume create takes one name: hotcell volume create NAME");
    if (!size) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "a volume has a size, which was not given");
        return hc_err_remedy(err, "such as: hotcell volume create %s --size 1g", line->operand[0]);
    }
    if (hc_parse_size(size, &bytes, err) < 0)
        return hc_err_context(err, "--size");
    *order = json_pack("{s:s, s:I}", "name", line->operand[0], "size", (json_int_t)bytes);
    return *order ? 0 : hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the name of the volume is no UTF-8");
}

int volume_create(struct cli *cli, const struct sandbox_line *line)
{
    json_cleanup json_t *order = NULL, *answer = NULL;
    struct server server = {0};
    struct hc_err err = {0};

    int status = read_order(line, &order, &err);
    if (status == 0)
        status = sandbox_server(cli, line, &server, &err);
    if (status == 0)
        status = sandbox_ask(&server, "POST", "/v1/volumes", order, &answer, &err);
    if (status < 0)
        return server_message(cli, &server, &err);
    if (cli->json)
        return sandbox_show_json(answer);
    message_note("the volume %s was made", line->operand[0]);
    return EXIT_OK;
}

/* ---- list ---- */

static void add_size(struct table *table, const json_t *value)
{
    char text[48];

    table_add(table, TABLE_PLAIN,
              json_is_number(value) ? hc_format_size((uint64_t)json_number_value(value), text, sizeof text) : "-");
}

/* A count, or the ids themselves. */
static void add_users(struct table *table, const json_t *value)
{
    char *text = json_plain(value);

    table_add(table, TABLE_PLAIN, text ? text : "");
    free(text);
}

static int show_volumes(const json_t *volumes)
{
    static const char *const heads[] = {"NAME", "SIZE", "USED", "CREATED", "SANDBOXES"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;
    char when[32];

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(volumes); i++) {
        const json_t *volume = json_array_get(volumes, i);
        table_add(&table, TABLE_PLAIN, json_text(volume, "name"));
        add_size(&table, json_object_get(volume, "size"));
        add_size(&table, json_object_get(volume, "used"));
        table_add(&table, TABLE_PLAIN, client_time(json_text(volume, "created_at"), when, sizeof when));
        add_users(&table, json_object_get(volume, "sandboxes"));
    }
    int status = table_print(&table);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

int volume_list(struct cli *cli, const struct sandbox_line *line)
{
    json_cleanup json_t *answer = NULL;
    struct server server = {0};
    struct hc_err err = {0};

    int status = sandbox_operands(line, 0, 0, &err);
    if (status == 0)
        status = sandbox_server(cli, line, &server, &err);
    if (status == 0)
        status = sandbox_ask(&server, "GET", "/v1/volumes", NULL, &answer, &err);
    if (status < 0)
        return server_message(cli, &server, &err);
    return cli->json ? sandbox_show_json(answer) : show_volumes(json_object_get(answer, "volumes"));
}

/* ---- remove ---- */

static int remove_one(struct server *server, const char *name, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(SANDBOX_TARGET);
    json_cleanup json_t *answer = NULL;

    hc_buf_add_str(&target, "/v1/volumes/");
    http_add_encoded(&target, name);
    int status = !name[0] || hc_buf_status(&target) < 0
                     ? hc_fail(err, HC_CLASS_REQUEST, ENOENT, "that is no name of a volume")
                     : sandbox_ask(server, "DELETE", target.data, NULL, &answer, err);
    hc_buf_release(&target);
    return status;
}

int volume_remove(struct cli *cli, const struct sandbox_line *line)
{
    struct server server = {0};
    struct hc_err err = {0};
    int code = EXIT_OK;

    int status = line->operands > 0
                     ? sandbox_server(cli, line, &server, &err)
                     : hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "hotcell volume remove needs the name of a volume");
    if (status < 0)
        return message_error(cli, &err);
    for (size_t i = 0; i < line->operands; i++) {
        hc_err_clear(&err);
        status = remove_one(&server, line->operand[i], &err);
        if (status < 0) {
            int failure = server_message(cli, &server, &err);
            code = code ? code : failure;
        } else if (cli->json) {
            json_cleanup json_t *object = json_pack("{s:s, s:b}", "name", line->operand[i], "removed", 1);
            sandbox_show_json(object);
        } else {
            message_note("the volume %s was removed", line->operand[i]);
        }
    }
    return code;
}
