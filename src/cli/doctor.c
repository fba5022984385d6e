/* hotcell doctor: every layer of a cell, whether this machine has it, and the command that would bring it. */
#include "base/fd.h"
#include "cli/full.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What each level means to a person, and the exit code that scripts test. */
static const struct level {
    const char *word, *verdict;
    int exit_code;
} LEVELS[] = {
    {"full", "Runs are safe: every layer of the cell is in force.", EXIT_OK},
    {"weak", "Runs are weaker than they should be, and are refused without --allow-weak.", EXIT_WEAK},
    {"none", "No run is possible on this machine.", EXIT_NONE},
};

static const struct level *find_level(const char *word)
{
    enum { COUNT = sizeof LEVELS / sizeof *LEVELS };

    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(LEVELS[i].word, word) == 0)
            return &LEVELS[i];
    return &LEVELS[COUNT - 1];
}

static enum table_style status_style(const char *status)
{
    return strcmp(status, "ok") == 0 ? TABLE_GOOD : strcmp(status, "weak") == 0 ? TABLE_WARN : TABLE_BAD;
}

static int show_table(const json_t *checks)
{
    struct table table;

    table_start(&table, 3, table_colour(STDOUT_FILENO));
    table_add(&table, TABLE_HEAD, "LAYER");
    table_add(&table, TABLE_HEAD, "STATUS");
    table_add(&table, TABLE_HEAD, "FOUND");
    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        const char *status = json_text(check, "status"), *remedy = json_text(check, "remedy");
        table_add(&table, TABLE_PLAIN, json_text(check, "name"));
        table_add(&table, status_style(status), status);
        table_add(&table, TABLE_PLAIN, json_text(check, "detail"));
        if (remedy[0]) {
            char line[512];
            snprintf(line, sizeof line, "%s: %s", strcmp(status, "ok") == 0 ? "better" : "to fix", remedy);
            table_add(&table, TABLE_PLAIN, "");
            table_add(&table, TABLE_PLAIN, "");
            table_add(&table, TABLE_WARN, line);
        }
    }
    return table_print(&table);
}

static void show_verdict(const json_t *report, const struct level *level, bool accepted)
{
    json_t *limits = json_object_get(report, "limits_enforced");

    printf("\nStarted as %s. Limits:", strcmp(json_text(report, "as"), "root") == 0 ? "root" : "an ordinary user");
    for (void *at = json_object_iter(limits), *next; at; at = next) {
        next = json_object_iter_next(limits, at);
        printf(" %s %s%s", json_object_iter_key(at),
               json_is_true(json_object_iter_value(at)) ? "enforced" : "not enforced", next ? "," : ".");
    }
    printf("\n%s\n", level->exit_code == EXIT_WEAK && accepted
                         ? "Runs are weaker than they should be; the configuration allows them (isolation.allow_weak)."
                         : level->verdict);
}

int full_doctor(struct cli *cli, int argc, char **argv)
{
    const char *config_path = NULL;
    hc_config *config = NULL;
    hc_error *error = NULL;
    hc_cleanup_free char *text = NULL;
    int accepted = 0;

    int go_on = verb_plain_options(cli, &verb_doctor, argc, argv, &config_path);
    if (go_on <= 0)
        return go_on < 0 ? EXIT_USAGE : EXIT_OK;
    if (hc_config_load(config_path, &config, &error) < 0)
        return message_library(cli, error);
    text = hc_doctor_json(config, &accepted, &error);
    hc_config_free(config);
    if (!text)
        return message_library(cli, error);

    json_cleanup json_t *report = json_loads(text, 0, NULL);
    if (!report)
        return message_no_memory(cli);
    const struct level *level = find_level(json_text(report, "level"));
    int status = cli->json ? json_show(text) : show_table(json_object_get(report, "checks"));
    if (status < 0)
        return message_cannot_write(status);
    if (!cli->json)
        show_verdict(report, level, accepted);
    return level->exit_code;
}
