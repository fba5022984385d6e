/* hotcell config: every setting that is in force, and where it came from. */
#include "base/fd.h"
#include "cli/full.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { VALUE_WIDTH = 48 };

/* Cuts the next line off a value that is too long for its column, at a blank. Returns what is left; "" at the end. */
static char *cut_line(char *text)
{
    if (strlen(text) <= VALUE_WIDTH)
        return text + strlen(text);
    char *blank = text + VALUE_WIDTH;
    while (blank > text && *blank != ' ')
        blank--;
    if (blank == text)
        return text + strlen(text);
    *blank = '\0';
    return blank + 1;
}

static void add_setting(struct table *table, const json_t *setting)
{
    const json_t *value = json_object_get(setting, "value");
    hc_cleanup_free char *text = json_plain(value);
    enum table_style style = json_equal(value, json_object_get(setting, "default")) ? TABLE_PLAIN : TABLE_GOOD;

    if (!text) {
        table->status = -ENOMEM;
        return;
    }
    char *rest = cut_line(text);
    table_add(table, TABLE_PLAIN, json_text(setting, "key"));
    table_add(table, style, text);
    table_add(table, TABLE_PLAIN, json_text(setting, "origin"));
    table_add(table, TABLE_DIM, json_text(setting, "summary"));
    while (*rest) {
        char *line = rest;
        rest = cut_line(line);
        table_add(table, TABLE_PLAIN, "");
        table_add(table, style, line);
        table_add(table, TABLE_PLAIN, "");
        table_add(table, TABLE_PLAIN, "");
    }
}

static int show_table(const json_t *settings)
{
    struct table table;

    table_start(&table, 4, table_colour(STDOUT_FILENO));
    table_add(&table, TABLE_HEAD, "KEY");
    table_add(&table, TABLE_HEAD, "VALUE");
    table_add(&table, TABLE_HEAD, "FROM");
    table_add(&table, TABLE_HEAD, "WHAT IT IS");
    for (size_t i = 0; table.status == 0 && i < json_array_size(settings); i++)
        add_setting(&table, json_array_get(settings, i));
    return table_print(&table);
}

int full_config(struct cli *cli, int argc, char **argv)
{
    const char *config_path = NULL;
    hc_config *config = NULL;
    hc_error *error = NULL;
    hc_cleanup_free char *text = NULL;

    int go_on = verb_plain_options(cli, &verb_config, argc, argv, &config_path);
    if (go_on <= 0)
        return go_on < 0 ? EXIT_USAGE : EXIT_OK;
    if (hc_config_load(config_path, &config, &error) < 0)
        return message_library(cli, error);
    text = hc_config_json(config);
    hc_config_free(config);
    if (!text)
        return message_no_memory(cli);
    json_cleanup json_t *settings = json_loads(text, 0, NULL);
    if (!settings)
        return message_no_memory(cli);
    int status = cli->json ? json_show(text) : show_table(settings);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}
