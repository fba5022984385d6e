/* Help, made from the tables of verbs and options. */
#ifndef HC_CLI_HELP_H
#define HC_CLI_HELP_H

#include "cli/verbs.h"
#include <stdio.h>

void help_verb(const struct verb *verb); /* on stdout */
void help_short(FILE *out);

#endif
