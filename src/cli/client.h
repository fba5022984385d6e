/*
 * What the files of hotcell-client share: the command line of its verbs, the server that is asked, and the state folder
 * that is read where there is none.
 */
#ifndef HC_CLI_CLIENT_H
#define HC_CLI_CLIENT_H

#include "base/err.h"
#include "cli/client_verbs.h"
#include "cli/remote.h"
#include "cli/server.h"
#include "cli/verbs.h"
#include <jansson.h>
#include <limits.h>

/* ---- the command line: client.c ---- */
enum { CLIENT_OPERANDS = 3 };

struct client_line {
    const char *operand[CLIENT_OPERANDS];
    size_t operands;
    const char *value[CLIENT_OPTION_END]; /* by enum client_option; "" for one without a value; NULL: not given */
    const char *config;
};

extern const struct client client_functions; /* what main gives to cli_main */
/* Unlike those of `run`, options may stand anywhere. 1: go on; 0: help was printed; negative: a message was. */
int client_options(struct cli *cli, const struct verb *verb, int argc, char **argv, struct client_line *line);
/* The operand that is an id of a run, and the only one. */
int client_id(const struct verb *verb, const struct client_line *line, const char **id, struct hc_err *err);
/* A count given by an option, or `otherwise`. */
int client_count(const struct client_line *line, enum client_option option, const char *name, uint64_t low,
                 uint64_t high, uint64_t otherwise, uint64_t *count, struct hc_err *err);

/* ---- the server: client_server.c ---- */
/* The unix socket of this machine's server. */
int server_find_local(const struct cli *cli, const struct client_line *line, struct server *server, struct hc_err *err);
/* server_ask for a target that takes no body; the answer is read as JSON. */
int server_json(struct server *server, const char *method, const char *target, json_t **out, struct hc_err *err);

/* ---- the state folder: client_state.c ---- */
struct state_place {
    char folder[PATH_MAX];
    char socket[PATH_MAX]; /* of the server that uses it */
};

int state_find(const struct client_line *line, struct state_place *place, struct hc_err *err);
/* Give up root's rights for those of the database's owner: a database is never parsed as root, and what is made belongs
 * to who must use it. For good: nothing of root's is opened after it. */
int state_enter(const struct state_place *place, struct hc_err *err);
enum state_use {
    STATE_READ,
    STATE_CHANGE, /* of what is there */
    STATE_MAKE,   /* also the folder, where it is missing */
};
/* The audit log, before state_enter, for it is not the database owner's. The fd, or -errno. */
int state_audit(const struct state_place *place, enum state_use use, struct hc_err *err);

/* ---- results: client_result.c ---- */
/* remote_summary of a result that was read. */
const char *result_json_summary(const json_t *result, char *text, size_t size);
/* "2026-01-02 03:04:05" in local time from an RFC 3339 string; as it is when it is none. */
struct table;

const char *client_time(const char *rfc3339, char *text, size_t size);
/* Two columns: how many tests of a run passed, and of the others the verdict and the reason. Nothing where it has none.
 */
void client_add_tests(struct table *table, const json_t *run);

/* ---- the verbs: client_*.c ---- */
int client_history(struct cli *cli, const struct client_line *line);
int client_show(struct cli *cli, const struct client_line *line);
int client_why(struct cli *cli, const struct client_line *line);
int client_cancel(struct cli *cli, const struct client_line *line);
int client_stats(struct cli *cli, const struct client_line *line);
int client_key(struct cli *cli, const struct client_line *line);
int client_mcp(struct cli *cli, const struct client_line *line);
int client_audit(struct cli *cli, const struct client_line *line);
char *client_languages(const struct cli *cli, int *exit_code);

#endif
