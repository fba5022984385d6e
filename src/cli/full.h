/* What hotcell-full and hotcell-client have, and `hotcell` has not. */
#ifndef HC_CLI_FULL_H
#define HC_CLI_FULL_H

#include "cli/verbs.h"

extern const struct full full_functions; /* what main gives to cli_main */

int full_serve(struct cli *cli, int argc, char **argv);
int full_languages(struct cli *cli, int argc, char **argv);
int full_doctor(struct cli *cli, int argc, char **argv);
int full_tools(struct cli *cli, int argc, char **argv);
int full_config(struct cli *cli, int argc, char **argv);

#endif
