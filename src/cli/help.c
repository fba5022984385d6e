/*
 * hotcell help [VERB]. No list of options or verbs is written here: all of it comes from the tables that the parser
 * uses.
 */
#include "cli/help.h"

#include "cli/message.h"
#include <string.h>

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

void help_short(FILE *out)
{
    const struct verb *verb;

    fputs("hotcell runs code that nobody trusts, each time in a fresh, sealed cell.\n\n", out);
    for (size_t i = 0; (verb = verb_at(i)); i++)
        fprintf(out, "  hotcell %-12s %s\n", verb->name, verb->summary);
    fputs("\nTry:  hotcell run -c 'print(42)'\n      hotcell help run\n", out);
}

/* Words are never broken; `used` columns of the first line are taken. An empty line in the text begins a paragraph. */
static void print_wrapped(const char *text, int indent, int used)
{
    int column = used;

    while (*text) {
        int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        if (strncmp(text, "\n\n", 2) == 0) {
            printf("\n\n%*s", indent, "");
            column = indent;
        }
        text += strspn(text, " \n");
    }
    putchar('\n');
}

static void print_option(const struct option *option)
{
    char left[80];
    int length = option->letter ? snprintf(left, sizeof left, "  -%c%s", option->letter, option->name ? ", " : "")
                                : snprintf(left, sizeof left, "      ");

    if (option->name)
        length += snprintf(left + length, sizeof left - (size_t)length, "--%s", option->name);
    if (option->argument)
        length +=
            snprintf(left + length, sizeof left - (size_t)length, option->optional ? "[=%s]" : " %s", option->argument);
    if (length >= HELP_COLUMN - 1)
        printf("%s\n%*s", left, HELP_COLUMN, "");
    else
        printf("%-*s", HELP_COLUMN, left);
    print_wrapped(option->summary, HELP_COLUMN, HELP_COLUMN);
}

void help_verb(const struct verb *verb)
{
    printf("Usage: hotcell %s\n\n", verb->synopsis);
    print_wrapped(verb->details, 0, 0);
    if (verb->options->id != OPTION_HEADING)
        printf("\nOptions:\n");
    for (const struct option *option = verb->options; option->id != OPTION_END; option++) {
        if (option->id == OPTION_HEADING)
            printf("\n%s:\n", option->summary);
        else
            print_option(option);
    }
    printf("\nExamples:\n");
    for (const struct example *example = verb->examples; example->command; example++)
        printf("  %-62s # %s\n", example->command, example->purpose);
}

static int run_help(struct cli *cli, int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-') {
        const struct verb *verb = verb_find(cli, argv[1]);
        if (!verb)
            return EXIT_USAGE;
        help_verb(verb);
        return EXIT_OK;
    }
    if (argc > 1) {
        int go_on = verb_plain_options(cli, &verb_help, argc, argv, NULL);
        if (go_on <= 0)
            return go_on < 0 ? EXIT_USAGE : EXIT_OK;
    }
    help_short(stdout);
    printf("\nhotcell help VERB explains one. The whole manual: man hotcell\n");
    return EXIT_OK;
}

const struct verb verb_help = {
    .name = "help",
    .summary = "explain a verb and its options",
    .synopsis = "help [VERB]",
    .details = "Without a verb, lists them all. hotcell VERB --help shows the same text.",
    .options = (const struct option[]){OPTION_ROW_HELP, {0}},
    .examples = (const struct example[]){{"hotcell help", "all verbs"}, {"hotcell help run", "one of them"}, {0}},
    .run = run_help,
};
