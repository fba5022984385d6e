/* The server that is asked: where it is, which key opens it, and what its refusals mean on a command line. */
#ifndef HC_CLI_SERVER_H
#define HC_CLI_SERVER_H

#include "base/err.h"
#include "cli/http_client.h"
#include "cli/verbs.h"

struct server {
    struct http_server_address address;
    char key[256];
    char code[32]; /* the word of the last problem that it told; "" when it was none */
};

/* By --server, --ca, --key-file and the environment. Nothing is sent. */
int server_find(const struct cli *cli, struct server *server, struct hc_err *err);
/* The key of --key-file or $HOTCELL_KEY, if there is one. */
int server_find_key(const struct cli *cli, struct server *server, struct hc_err *err);
/* An answer that is not a 2xx becomes an error. */
int server_ask(struct server *server, const struct http_ask *ask, struct http_answer *answer, struct hc_err *err);
/* What an answer that is not a 2xx says. Returns -errno. */
int server_problem(struct server *server, int status, unsigned retry_after, const char *body, size_t length,
                   struct hc_err *err);
/* message_error, with the server's own word for it in JSON. */
int server_message(const struct cli *cli, const struct server *server, const struct hc_err *err);

#endif
