/* The command lines of hotcell-client's own verbs, and which function does each. */
#include "cli/client.h"

#include "base/size.h"
#include "cli/help.h"
#include "cli/message.h"
#include <errno.h>
#include <string.h>

static int one_operand(struct options *options, struct client_line *line, struct hc_err *err)
{
    const char *word = options->argv[options->next++];

    if (line->operands == CLIENT_OPERANDS)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is one word too many: \"%s\"", word);
    line->operand[line->operands++] = word;
    return 0;
}

/* 1: all was read; 0: help is wanted; -EINVAL. */
static int read_words(struct cli *cli, const struct verb *verb, int argc, char **argv, struct client_line *line,
                      struct hc_err *err)
{
    struct options options;
    const struct option *option;
    const char *value;

    options_start(&options, verb->options, argc, argv);
    for (;;) {
        int found = options_next(&options, &option, &value, err);
        if (found == 0 && options.next >= argc)
            return 1;
        if (found == 0)
            found = one_operand(&options, line, err);
        else if (found > 0 && option->id == OPTION_HELP)
            return 0;
        else if (found > 0 && option->id == OPTION_CONFIG)
            line->config = value;
        else if (found > 0 && !cli_common_option(cli, option, value))
            line->value[option->id] = value ? value : "";
        if (found < 0)
            return found;
    }
}

static int check_place(const struct cli *cli, const struct verb *verb, const struct client_line *line,
                       struct hc_err *err)
{
    if (!cli->server || !verb->remote || (!line->value[CLIENT_STATE] && !line->config))
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s is about this machine, but %s is to be asked",
            line->config ? "config" : "state", cli->server);
    return hc_err_remedy(err, "leave out one of the two (--server \"\" overrides $HOTCELL_SERVER)");
}

int client_options(struct cli *cli, const struct verb *verb, int argc, char **argv, struct client_line *line)
{
    struct hc_err err = {0};
    int go_on = read_words(cli, verb, argc, argv, line, &err);

    if (go_on > 0 && check_place(cli, verb, line, &err) < 0)
        go_on = -EINVAL;
    if (go_on == 0)
        help_verb(verb);
    if (go_on < 0) {
        cli->json = options_want_json(argc, argv);
        message_error(cli, &err);
    }
    return go_on;
}

int client_id(const struct verb *verb, const struct client_line *line, const char **id, struct hc_err *err)
{
    if (line->operands == 0) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell %s needs the id of a run", verb->name);
        return hc_err_remedy(err, "hotcell history lists them");
    }
    if (line->operands > 1)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell %s takes one id, but there is \"%s\" as well",
                       verb->name, line->operand[1]);
    *id = line->operand[0];
    return 0;
}

int client_count(const struct client_line *line, enum client_option option, const char *name, uint64_t low,
                 uint64_t high, uint64_t otherwise, uint64_t *count, struct hc_err *err)
{
    *count = otherwise;
    if (!line->value[option] || hc_parse_count(line->value[option], low, high, count, err) == 0)
        return 0;
    return hc_err_context(err, "--%s", name);
}

static const struct {
    const struct verb *verb;
    int (*run)(struct cli *cli, const struct client_line *line);
} RUN[] = {
    {&verb_history, client_history}, {&verb_show, client_show}, {&verb_cancel, client_cancel}, {&verb_why, client_why},
    {&verb_stats, client_stats},     {&verb_key, client_key},   {&verb_audit, client_audit},   {&verb_mcp, client_mcp},
};

static int client_verb(struct cli *cli, const struct verb *verb, int argc, char **argv)
{
    struct client_line line = {0};

    int go_on = client_options(cli, verb, argc, argv, &line);
    if (go_on <= 0)
        return go_on < 0 ? EXIT_USAGE : EXIT_OK;
    for (size_t i = 0; i < sizeof RUN / sizeof *RUN; i++)
        if (RUN[i].verb == verb)
            return RUN[i].run(cli, &line);
    return EXIT_OURS;
}

const struct client client_functions = {.verb = client_verb, .net = &connection_net, .languages = client_languages};
