/* What hotcell itself says: errors and notes on stderr, or errors as JSON on stdout where JSON was asked for. */
#ifndef HC_CLI_MESSAGE_H
#define HC_CLI_MESSAGE_H

#include "base/err.h"
#include "cli/verbs.h"
#include "hotcell.h"

/* Print an error and its remedy; the exit code to end with. */
int message_error(const struct cli *cli, const struct hc_err *err);
/* The same, with a word of a server's own for the JSON; "": the usual one. */
int message_problem(const struct cli *cli, const struct hc_err *err, const char *code);
/* The same for an error of the library, which is freed. */
int message_library(const struct cli *cli, hc_error *error);
/* Moves an error of the library, which is freed, into err. Returns -err->code. */
int message_adopt(hc_error *error, struct hc_err *err);
/* For a failed allocation, where there is no error to print. */
int message_no_memory(const struct cli *cli);
/* For output that could not be written; status is the -errno. */
int message_cannot_write(int status);
/* "hotcell: …" on stderr. */
void message_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The one line about a result; what comes before the first ':' or ';' is red on a terminal. */
void message_summary(const char *summary);

#endif
