/*
 * The verbs of the command line. Each is one file with one constant: what it is called, what its help says, which
 * options it takes, and the function that does it. main.c has the table of them.
 */
#ifndef HC_CLI_VERBS_H
#define HC_CLI_VERBS_H

#include "cli/options.h"
#include <stdbool.h>
#include <stddef.h>

/* What the whole program needs to know about how it talks. Owned by main, filled by the options of the verb. */
struct cli {
    bool json;    /* results and errors as JSON on stdout */
    bool quiet;   /* no line about the result on stderr */
    bool verbose; /* what was measured, and what was written */
};

enum cli_exit { /* the man page explains these under EXIT STATUS */
                EXIT_OK = 0,
                EXIT_WEAK = 1,  /* doctor: runs only with --allow-weak */
                EXIT_USAGE = 2, /* the command line, or a value in it, is wrong */
                EXIT_NONE = 3,  /* doctor: no run at all */
                EXIT_OURS = 125,
};

struct example {
    const char *command, *purpose;
};

struct verb {
    const char *name;
    const char *summary;            /* one line, for the list of verbs */
    const char *synopsis;           /* what follows "hotcell " */
    const char *details;            /* a paragraph or two */
    const struct option *options;   /* ends with a row of zeros */
    const struct example *examples; /* ends with a row of zeros */
    /* argv[0] is the verb. Returns the exit code; every message has been printed. */
    int (*run)(struct cli *cli, int argc, char **argv);
};

extern const struct verb verb_run, verb_languages, verb_doctor, verb_config, verb_version, verb_help;

/* All verbs, in the order in which help lists them. NULL past the end. */
const struct verb *verb_at(size_t index);
/* NULL, and a message with the nearest verb, when there is no such verb. */
const struct verb *verb_find(const struct cli *cli, const char *name);

/* For a verb that takes no operands and only the common options. 1: go on; 0: help was printed; negative: a message
 * was. */
int verb_plain_options(struct cli *cli, const struct verb *verb, int argc, char **argv, const char **config_path);

#endif
