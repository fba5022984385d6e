/* The command lines of hotcell sandbox, shell, cp and volume, and which function does each. */
#include "cli/help.h"
#include "cli/message.h"
#include "cli/sandbox.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

static void note(struct cli *cli, struct sandbox_line *line, const struct option *option, const char *value)
{
    if (cli_common_option(cli, option, value))
        return;
    if (option->id == OPTION_CONFIG)
        line->config = value;
    else if (option->id == SANDBOX_STATE)
        line->state = value;
    else if (option->id == RUN_QUIET)
        cli->quiet = true;
    else if (option->id == RUN_VERBOSE)
        cli->verbose = true;
    line->given[line->given_count++] = (struct given){option, value};
}

/* 1: all was read; 0: help is wanted; -EINVAL. */
static int read_words(struct cli *cli, int argc, char **argv, size_t free_operands, struct sandbox_line *line,
                      struct hc_err *err)
{
    struct options options;
    const struct option *option;
    const char *value;

    options_start(&options, line->verb->options, argc, argv);
    for (;;) {
        int found = options_next(&options, &option, &value, err);
        if (found < 0)
            return found;
        if (found > 0 && option->id == OPTION_HELP)
            return 0;
        if (found > 0)
            note(cli, line, option, value);
        else if (options.next >= argc)
            return 1;
        else
            line->operand[line->operands++] = argv[options.next++];
        if (found == 0 && free_operands && line->operands > free_operands) {
            while (options.next < argc)
                line->operand[line->operands++] = argv[options.next++];
            return 1;
        }
    }
}

static int check_place(const struct cli *cli, const struct sandbox_line *line, struct hc_err *err)
{
    if (!cli->server || (!line->state && !line->config))
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s is about this machine, but %s is to be asked",
            line->config ? "config" : "state", cli->server);
    return hc_err_remedy(err, "leave out one of the two (--server \"\" overrides $HOTCELL_SERVER)");
}

int sandbox_line_read(struct cli *cli, const struct verb *verb, int argc, char **argv, size_t free_operands,
                      struct sandbox_line *line)
{
    struct hc_err err = {0};
    /* A word such as -qv is several options: no more than it has letters. */
    size_t most = 1;

    for (int i = 0; i < argc; i++)
        most += strlen(argv[i]) + 1;
    *line = (struct sandbox_line){.verb = verb};
    line->given = calloc(most, sizeof *line->given);
    line->operand = calloc((size_t)argc + 1, sizeof *line->operand);
    if (!line->given || !line->operand) {
        message_no_memory(cli);
        return -ENOMEM;
    }
    int go_on = read_words(cli, argc, argv, free_operands, line, &err);
    if (go_on > 0 && check_place(cli, line, &err) < 0)
        go_on = -EINVAL;
    if (go_on == 0)
        help_verb(verb);
    if (go_on < 0) {
        cli->json = options_want_json(argc, argv);
        message_error(cli, &err);
    }
    return go_on;
}

void sandbox_line_release(struct sandbox_line *line)
{
    free(line->given);
    free(line->operand);
}

const char *sandbox_value(const struct sandbox_line *line, int id)
{
    for (size_t i = line->given_count; i-- > 0;)
        if (line->given[i].option->id == id)
            return line->given[i].value ? line->given[i].value : "";
    return NULL;
}

int sandbox_operands(const struct sandbox_line *line, size_t least, size_t most, struct hc_err *err)
{
    if (line->operands < least) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell %s needs more words: hotcell %s", line->verb->name,
                line->verb->synopsis);
        return hc_err_remedy(err, "hotcell sandbox list shows the ids");
    }
    if (line->operands > most)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell %s has no use for \"%s\"", line->verb->name,
                       line->operand[most]);
    return 0;
}

/* ---- which ---- */

static const struct {
    const struct verb *verb;
    size_t free_operands;
    int (*run)(struct cli *cli, const struct sandbox_line *line);
} RUN[] = {
    {&act_create, 0, sandbox_create},   {&act_list, 0, sandbox_list},
    {&act_inspect, 0, sandbox_inspect}, {&act_exec, 1, sandbox_exec},
    {&act_cp, 0, sandbox_cp},           {&verb_cp, 0, sandbox_cp},
    {&act_logs, 0, sandbox_logs},       {&verb_shell, 1, sandbox_shell},
    {&act_pause, 0, sandbox_pause},     {&act_resume, 0, sandbox_resume},
    {&act_rm, 0, sandbox_remove},       {&act_volume_create, 0, volume_create},
    {&act_volume_list, 0, volume_list}, {&act_volume_remove, 0, volume_remove},
};

enum { RUN_COUNT = sizeof RUN / sizeof *RUN };

bool sandbox_knows(const struct verb *verb)
{
    for (size_t i = 0; i < RUN_COUNT; i++)
        if (RUN[i].verb == verb)
            return true;
    return verb->acts;
}

static int do_verb(struct cli *cli, const struct verb *verb, int argc, char **argv)
{
    struct sandbox_line line;
    int code = EXIT_OURS;

    for (size_t i = 0; i < RUN_COUNT; i++) {
        if (RUN[i].verb != verb)
            continue;
        int go_on = sandbox_line_read(cli, verb, argc, argv, RUN[i].free_operands, &line);
        code = go_on > 0 ? RUN[i].run(cli, &line) : go_on < 0 ? EXIT_USAGE : EXIT_OK;
        sandbox_line_release(&line);
    }
    return code;
}

int sandbox_verb(struct cli *cli, const struct verb *verb, int argc, char **argv)
{
    struct hc_err err = {0};

    if (!verb->acts)
        return do_verb(cli, verb, argc, argv);
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help_verb(verb);
        return EXIT_OK;
    }
    const struct verb *act = verb_act(verb, word, &err);
    if (!act) {
        cli->json = options_want_json(argc, argv);
        return message_error(cli, &err);
    }
    return do_verb(cli, act, argc - 1, argv + 1);
}
