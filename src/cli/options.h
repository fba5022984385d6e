/*
 * A table-driven option parser. The same table makes --help, so an option cannot exist without its text. Options end at
 * the first word that is none, as in `env` and `ssh`: what follows belongs to the program that is run.
 */
#ifndef HC_CLI_OPTIONS_H
#define HC_CLI_OPTIONS_H

#include "base/err.h"
#include <stdbool.h>

enum option_id {
    OPTION_END = 0,
    OPTION_HEADING, /* not an option: `summary` is a title in --help */
    OPTION_HELP,
    OPTION_JSON,
    OPTION_CONFIG,
    OPTION_SERVER,
    OPTION_CA,
    OPTION_KEY_FILE,
    OPTION_FIRST_OWN /* a verb's own begin here */
};

struct option {
    int id;
    char letter;          /* 'c' for -c, or 0 */
    const char *name;     /* "timeout" for --timeout, or NULL */
    const char *argument; /* what --help calls its value; NULL: it takes none */
    bool optional;        /* the value may be left out, and is given as --name=VALUE only */
    const char *field;    /* of hc_request_set, for the options that are just that */
    const char *summary;
};

#define OPTION_ROW_HELP                                                                                                \
    {                                                                                                                  \
        OPTION_HELP, 'h', "help", NULL, false, NULL, "show this help"                                                  \
    }
#define OPTION_ROW_JSON(text)                                                                                          \
    {                                                                                                                  \
        OPTION_JSON, 0, "json", NULL, false, NULL, text                                                                \
    }
#define OPTION_ROW_CONFIG                                                                                              \
    {                                                                                                                  \
        OPTION_CONFIG, 0, "config", "FILE", false, NULL, "read this configuration file after the usual ones"           \
    }

/* For the verbs that a server can do as well. */
#define OPTION_ROW_SERVER                                                                                              \
    {                                                                                                                  \
        OPTION_SERVER, 0, "server", "URL", false, NULL,                                                                \
            "do it on this server: http://HOST:PORT, https://HOST:PORT or unix:PATH ($HOTCELL_SERVER)"                 \
    }
#define OPTION_ROW_CA                                                                                                  \
    {                                                                                                                  \
        OPTION_CA, 0, "ca", "FILE", false, NULL, "with https, trust the certificates in this file alone ($HOTCELL_CA)" \
    }
#define OPTION_ROW_KEY_FILE                                                                                            \
    {                                                                                                                  \
        OPTION_KEY_FILE, 0, "key-file", "FILE", false, NULL, "take the server's key from this file (or $HOTCELL_KEY)"  \
    }

struct options {
    const struct option *table;
    char **argv;
    int argc;
    int next;            /* the word to look at next; the first operand once options_next has returned 0 */
    const char *letters; /* what is left of a word such as -qv */
    bool dashes;         /* the options were ended by "--" */
};

/* argv[0] is skipped. */
void options_start(struct options *options, const struct option *table, int argc, char **argv);
/* 1: *option and *value (NULL when it has none) are the next; 0: no more; -EINVAL: wrong usage, with the nearest name.
 */
int options_next(struct options *options, const struct option **option, const char **value, struct hc_err *err);
/* Whether --json is among the words, for an error that comes before the options were all understood. */
bool options_want_json(int argc, char **argv);
/* "true", "yes", "on", "1" and their opposites. 0 or 1, or -EINVAL. */
int option_boolean(const char *name, const char *text, struct hc_err *err);

#endif
