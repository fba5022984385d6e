/* The runs of a server, from the server or from its state folder: the same JSON either way. */
#ifndef HC_CLI_CLIENT_ROWS_H
#define HC_CLI_CLIENT_ROWS_H

#include "cli/client.h"

struct store;

/* Where runs are looked up. Zeros to begin with. */
struct rows {
    struct server server; /* when store is NULL */
    struct store *store;
};

struct rows_filter {
    const char *language, *status, *before; /* NULL: any */
    uint64_t limit;
};

int rows_open(const struct cli *cli, const struct client_line *line, struct rows *rows, struct hc_err *err);
void rows_close(struct rows *rows);
/* GET /v1/runs. */
int rows_list(struct rows *rows, const struct rows_filter *filter, json_t **out, struct hc_err *err);
/* GET /v1/runs/{id}: the result, or the state of a run that has not ended. -ENOENT with the nearest id as the remedy.
 */
int rows_get(struct rows *rows, const char *id, json_t **out, struct hc_err *err);
/* Of the state folder alone: what /v1/stats has as "history". */
int rows_totals(struct rows *rows, json_t **out, struct hc_err *err);
/* An error about an id that there is not: names the nearest of the last ones. */
void rows_suggest(struct rows *rows, const char *id, struct hc_err *err);

#endif
