/*
 * The verbs of the command line. Each has one constant: what it is called, what its help says, which options it takes,
 * and the function that does it. verbs.c has the table of them.
 *
 * There are three programs, and each can do what those before it can. `hotcell` runs programs on this machine; it is
 * small and starts fast. `hotcell-full` has the functions of struct full besides, which need Jansson, and
 * `hotcell-client` those of struct client, which need SQLite and OpenSSL. Where one of these is wanted, a program
 * becomes the one that has it by exec, with the same command line; nobody who uses it has to know.
 */
#ifndef HC_CLI_VERBS_H
#define HC_CLI_VERBS_H

#include "cli/options.h"
#include "hotcell.h"
#include <stdbool.h>
#include <stddef.h>

struct connection_net;
struct run_outcome;
struct verb;

enum program { PROGRAM_HOTCELL, PROGRAM_FULL, PROGRAM_CLIENT };

/* What the whole program needs to know about how it talks, and to whom. Owned by cli_main, filled by the options. */
struct cli {
    bool json;                   /* results and errors as JSON on stdout */
    bool quiet;                  /* no line about the result on stderr */
    bool verbose;                /* what was measured, and what was written */
    const char *server;          /* a URL, or NULL: this machine */
    const char *ca, *key_file;   /* --ca and --key-file, or NULL */
    const struct full *full;     /* NULL in `hotcell` */
    const struct client *client; /* NULL but in `hotcell-client` */
    char **argv;                 /* the whole command line, for handover */
};

/* What needs JSON. */
struct full {
    int (*verb)(struct cli *cli, const struct verb *verb, int argc, char **argv); /* as verb->run */
    /* Of hotcell run: --request, --json, --verbose. */
    int (*load)(hc_request *request, const char *json, size_t length, hc_error **error);
    const char *(*result)(const void *result, bool pretty); /* of an hc_result; NULL: out of memory */
    char *(*pretty)(const char *json);                      /* the same text, indented: malloc'ed */
    void (*measures)(const struct run_outcome *outcome);
};

/* What needs a network or a database. Each returns an exit code; every message has been printed. */
struct client {
    int (*verb)(struct cli *cli, const struct verb *verb, int argc, char **argv); /* as verb->run */
    const struct connection_net *net;                                             /* of connections: hosts and TLS */
    /* The list that hc_languages_json gives here, from the server: malloc'ed, or NULL and an exit code. */
    char *(*languages)(const struct cli *cli, int *exit_code);
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
    const char *also;               /* another word for it, or NULL */
    const char *summary;            /* one line, for the list of verbs */
    const char *synopsis;           /* what follows "hotcell " */
    const char *details;            /* a paragraph or two */
    const struct option *options;   /* ends with a row of zeros */
    const struct example *examples; /* ends with a row of zeros */
    const struct verb *const *acts; /* what it does by a second word, ends with NULL; or NULL: it takes none */
    bool remote;                    /* takes --server */
    enum program program;           /* the first that can do it */
    /* argv[0] is the verb. Returns the exit code; every message has been printed. NULL where `hotcell` cannot do it:
     * then struct full or struct client can. */
    int (*run)(struct cli *cli, int argc, char **argv);
};

extern const struct verb verb_run, verb_version, verb_help;
/* full_verbs.c */
extern const struct verb verb_serve, verb_languages, verb_doctor, verb_config;
/* mcp_verbs.c */
extern const struct verb verb_mcp, verb_mcp_wrap, verb_tools;
/* client_verbs.c */
extern const struct verb verb_history, verb_show, verb_why, verb_cancel, verb_stats, verb_key, verb_audit;
/* sandbox_verbs.c */
extern const struct verb verb_sandbox, verb_shell, verb_cp, verb_volume;

/* The whole program. `full` and `client` are NULL where it does not have them. Returns the exit code. */
int cli_main(int argc, char **argv, const struct full *full, const struct client *client);
/* Become that program, with the same command line. Returns an exit code only where that failed. */
int cli_handover(const struct cli *cli, enum program program);

/* All verbs, in the order in which help lists them. NULL past the end. */
const struct verb *verb_at(size_t index);
/* NULL, and a message with the nearest verb, when there is no such verb. */
const struct verb *verb_find(const struct cli *cli, const char *name);
/* The act that the word after the verb names; NULL, and an error with the nearest one, when it names none. */
const struct verb *verb_act(const struct verb *verb, const char *word, struct hc_err *err);

/* --json, --server, --ca, --key-file: whether it was one of these, and is done. */
bool cli_common_option(struct cli *cli, const struct option *option, const char *value);
/* For a verb that takes no operands and only the common options. 1: go on; 0: help was printed; negative: a message
 * was. */
int verb_plain_options(struct cli *cli, const struct verb *verb, int argc, char **argv, const char **config_path);

#endif
