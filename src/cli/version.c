/* hotcell version. */
#include "cli/message.h"
#include "cli/verbs.h"
#include "hotcell.h"
#include <stdio.h>

static int run_version(struct cli *cli, int argc, char **argv)
{
    int go_on = verb_plain_options(cli, &verb_version, argc, argv, NULL);

    if (go_on <= 0)
        return go_on < 0 ? EXIT_USAGE : EXIT_OK;
    printf(cli->json ? "{\"version\":\"%s\"}\n" : "hotcell %s\n", hc_version());
    return EXIT_OK;
}

const struct verb verb_version = {
    .name = "version",
    .summary = "print the version",
    .synopsis = "version [--json]",
    .details = "Prints the version of the library that does the work.",
    .options = (const struct option[]){OPTION_ROW_JSON("as a JSON object"), OPTION_ROW_HELP, {0}},
    .examples = (const struct example[]){{"hotcell version", "such as \"hotcell 0.1.0\""}, {0}},
    .run = run_version,
};
