/* hotcell languages: what can be run here, in which version, and what to install for the rest. */
#include "base/fd.h"
#include "cli/full.h"
#include "cli/full_verbs.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void add_language(struct table *table, const json_t *language)
{
    hc_cleanup_free char *aliases = json_plain(json_object_get(language, "aliases"));
    char note[256] = "";

    table_add(table, TABLE_PLAIN, json_text(language, "name"));
    if (json_is_true(json_object_get(language, "available"))) {
        const char *version = json_text(language, "version");
        table_add(table, TABLE_GOOD, version[0] ? version : "installed");
        table_add(table, TABLE_PLAIN, json_text(language, "start"));
    } else {
        const char *package = json_text(language, "package");
        table_add(table, TABLE_BAD, "-");
        table_add(table, TABLE_PLAIN, "-");
        if (package[0])
            snprintf(note, sizeof note, "not installed: apt install %s", package);
        else
            snprintf(note, sizeof note, "not installed");
    }
    table_add(table, TABLE_PLAIN, json_text(language, "extension"));
    table_add(table, TABLE_DIM, aliases ? aliases : "-");
    table_add(table, TABLE_WARN, note);
}

static int show_table(const json_t *languages)
{
    static const char *const heads[] = {"LANGUAGE", "VERSION", "START", "FILES", "ALSO CALLED", ""};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(languages); i++)
        add_language(&table, json_array_get(languages, i));
    return table_print(&table);
}

static void show_names(const json_t *languages)
{
    for (size_t i = 0; i < json_array_size(languages); i++)
        puts(json_text(json_array_get(languages, i), "name"));
}

/* malloc'ed, or NULL with the exit code. */
static char *languages_here(const struct cli *cli, const char *config_path, int *exit_code)
{
    hc_config *config = NULL;
    hc_error *error = NULL;

    if (hc_config_load(config_path, &config, &error) < 0) {
        *exit_code = message_library(cli, error);
        return NULL;
    }
    char *text = hc_languages_json(config, &error);
    hc_config_free(config);
    if (!text)
        *exit_code = message_library(cli, error);
    return text;
}

static int show(const struct cli *cli, const char *config_path, bool names)
{
    int code = EXIT_OK;
    hc_cleanup_free char *text =
        cli->server ? cli->client->languages(cli, &code) : languages_here(cli, config_path, &code);

    if (!text)
        return code;
    json_cleanup json_t *languages = json_loads(text, 0, NULL);
    if (!languages)
        return message_no_memory(cli);
    if (names) {
        show_names(languages);
        return EXIT_OK;
    }
    int status = cli->json ? json_show(text) : show_table(languages);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

int full_languages(struct cli *cli, int argc, char **argv)
{
    const char *config_path = NULL;
    struct options options;
    const struct option *option;
    const char *value;
    struct hc_err err = {0};
    bool names = false;

    int go_on = verb_plain_options(cli, &verb_languages, argc, argv, &config_path);
    if (go_on <= 0)
        return go_on < 0 ? EXIT_USAGE : EXIT_OK;
    if (cli->server && !cli->client)
        return cli_handover(cli, PROGRAM_CLIENT);
    options_start(&options, verb_languages.options, argc, argv);
    while (options_next(&options, &option, &value, &err) > 0)
        names |= option->id == OPTION_NAMES;
    return show(cli, config_path, names);
}
