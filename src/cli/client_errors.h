/* The errors of a server's history, from the server or from its state folder: the same JSON either way. */
#ifndef HC_CLI_CLIENT_ERRORS_H
#define HC_CLI_CLIENT_ERRORS_H

#include "cli/client_rows.h"

struct errors_filter {
    const char *fingerprint, *error_type, *language; /* NULL: any */
    uint64_t limit;
};

/* GET /v1/history/errors. */
int errors_list(struct rows *rows, const struct errors_filter *filter, json_t **out, struct hc_err *err);
/* hotcell history --errors. */
int client_errors(struct cli *cli, const struct client_line *line);

#endif
