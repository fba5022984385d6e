/*
 * What the files of hotcell sandbox, shell, cp and volume share: their command lines, the server that has the
 * sandboxes, and ids.
 */
#ifndef HC_CLI_SANDBOX_H
#define HC_CLI_SANDBOX_H

#include "base/buf.h"
#include "base/err.h"
#include "cli/sandbox_verbs.h"
#include "cli/server.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { SANDBOX_ID = 64, SANDBOX_TARGET = 16 * 1024 };

/* ---- the command line: sandbox_line.c ---- */
struct given {
    const struct option *option;
    const char *value; /* NULL when it has none */
};

/* Strings are borrowed from argv. */
struct sandbox_line {
    const struct verb *verb;
    struct given *given; /* the verb's own options, in their order */
    size_t given_count;
    const char **operand;
    size_t operands;
    const char *config, *state;
};

/* Options may stand anywhere, but after `free` operands the next word that is no option ends them; 0: they never end.
 * 1: go on; 0: help was printed; negative: a message was. Release it in each case. */
int sandbox_line_read(struct cli *cli, const struct verb *verb, int argc, char **argv, size_t free_operands,
                      struct sandbox_line *line);
void sandbox_line_release(struct sandbox_line *line);
/* The last value of an option, "" for one without; NULL: it was not given. */
const char *sandbox_value(const struct sandbox_line *line, int id);
/* -EINVAL unless there are from `least` to `most` operands. */
int sandbox_operands(const struct sandbox_line *line, size_t least, size_t most, struct hc_err *err);

/* ---- the server: sandbox_server.c ---- */
/* The one that was named, or that of this machine. Nothing is sent. */
int sandbox_server(const struct cli *cli, const struct sandbox_line *line, struct server *server, struct hc_err *err);
/* server_ask with a JSON body, or none, and an answer that is read as JSON: *out is NULL when it has no body. */
int sandbox_ask(struct server *server, const char *method, const char *target, const json_t *body, json_t **out,
                struct hc_err *err);
/* An id as it was typed, whole or abbreviated, becomes the whole one. */
int sandbox_resolve(struct server *server, const char *text, char id[SANDBOX_ID], struct hc_err *err);
/* What every verb with one sandbox begins with: server and id. */
int sandbox_find(const struct cli *cli, const struct sandbox_line *line, const char *text, struct server *server,
                 char id[SANDBOX_ID], struct hc_err *err);
/* Writes a JSON value to stdout; the exit code. */
int sandbox_show_json(const json_t *value);

/* ---- the verbs ---- */
bool sandbox_knows(const struct verb *verb);
/* As verb->run. */
int sandbox_verb(struct cli *cli, const struct verb *verb, int argc, char **argv);

int sandbox_create(struct cli *cli, const struct sandbox_line *line);
int sandbox_list(struct cli *cli, const struct sandbox_line *line);
int sandbox_inspect(struct cli *cli, const struct sandbox_line *line);
int sandbox_exec(struct cli *cli, const struct sandbox_line *line);
int sandbox_cp(struct cli *cli, const struct sandbox_line *line);
int sandbox_logs(struct cli *cli, const struct sandbox_line *line);
int sandbox_shell(struct cli *cli, const struct sandbox_line *line);
int sandbox_pause(struct cli *cli, const struct sandbox_line *line);
int sandbox_resume(struct cli *cli, const struct sandbox_line *line);
int sandbox_remove(struct cli *cli, const struct sandbox_line *line);
int volume_create(struct cli *cli, const struct sandbox_line *line);
int volume_list(struct cli *cli, const struct sandbox_line *line);
int volume_remove(struct cli *cli, const struct sandbox_line *line);

#endif
