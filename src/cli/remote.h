/*
 * hotcell run on a server: the one that was named (--server), or one that happens to run on this machine (local.c). The
 * latter is a way to be faster and nothing else: whatever it cannot do as a run here would be done is declined.
 */
#ifndef HC_CLI_REMOTE_H
#define HC_CLI_REMOTE_H

#include "cli/run.h"
#include "cli/server.h"
#include "hotcell.h"
#include "text/json_plain.h"
#include <stdbool.h>

enum { REMOTE_DECLINED = -1 };

struct remote_place {
    struct server server;
    bool optional;      /* the run can be done here as well */
    const char *expect; /* what the server must say of itself, or NULL; see struct http_ask */
    char why[448];      /* it declined */

    /* What is no run of its own, but is told in the same events. */
    const char *target; /* where the request is sent; NULL: /v1/runs */
    const char *watch;  /* the events of something that is under way; nothing is sent, and nothing ended; or NULL */
    bool once;          /* nobody can come back for it: a lost connection is the end of it */
    /* The request as that target has it, from that of a run: malloc'ed, or NULL with an error. NULL: as it is. */
    char *(*rewrite)(void *data, const char *json, struct hc_err *err);
    void *data;
};

/* remote_run.c: the exit code; or, where it was optional, REMOTE_DECLINED: nothing has been written, and nothing of the
 * program has run. */
int remote_run(const struct cli *cli, struct run_line *line, hc_request *request, struct remote_place *place);

/* remote_input.c: the program's stdin. */
struct remote_input {
    int fd; /* what is sent as it comes; -1: nothing */
    struct http_server_address address;
    struct connection_aside aside;
    struct http_exchange *sending; /* a piece that was not answered yet */
    char target[128];
    bool ended;
};

/* Input of which all is there goes into the request, which it then belongs to wherever it is run; of other input the
 * request says that it follows. 0 or -errno. */
int remote_input_prepare(struct remote_input *input, struct run_line *line, hc_request *request, struct hc_err *err);
/* The run has begun: from now on its input is sent while its events are waited for. */
void remote_input_begin(struct remote_input *input, const struct server *server, const char *id);
void remote_input_end(struct remote_input *input);

/* remote_result.c: a result that came as JSON, in the words that the library has for one of its own. */
/* The line that hc_result_summary makes of a result. `text` has room for 512 bytes. Returned for convenience. */
const char *remote_summary(struct hc_peek result, char *text, size_t size);
/* The collected files: free with remote_files_free. -EPROTO, -ENOMEM. */
int remote_files(struct hc_peek result, struct run_file **files, size_t *count);
void remote_files_free(struct run_file *files, size_t count);

/* local.c: the exit code of a run on this machine's own server, or REMOTE_DECLINED with the reason in `why`. */
int local_run(const struct cli *cli, struct run_line *line, const hc_config *config, hc_request *request, char *why,
              size_t size);

#endif
