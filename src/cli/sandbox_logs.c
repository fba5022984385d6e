/* Detached jobs: hotcell sandbox logs, and the input of a job that was just begun. */
#include "base/fd.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/remote.h"
#include "cli/sandbox.h"
#include "cli/sandbox_jobs.h"
#include "cli/stream.h"
#include "cli/table.h"
#include "text/base64.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE = 60 * 1000 * 1000 /* µs */, FIRST_PAUSE = 2, LONGEST_PAUSE = 500 /* ms */ };
/* The server takes a piece of this size whole or not at all, because a pipe does. */
enum { PIECE = 4096 };

/* ---- input ---- */

/* 1: it was taken; 0: not now; -EPIPE: the job reads no more; -errno. */
static int send_piece(struct server *server, const char *target, const char *piece, size_t length, struct hc_err *err)
{
    const struct http_ask ask = {.method = "POST",
                                 .target = target,
                                 .type = "application/octet-stream",
                                 .body = piece,
                                 .length = length,
                                 .patience = PATIENCE};
    struct http_answer answer = {0};

    int status = http_fetch(&server->address, &ask, &answer, err);
    if (status < 0)
        return status;
    if (answer.status / 100 == 2)
        status = 1;
    else if (answer.status == 409)
        status = -EPIPE;
    else if (answer.status != 429)
        status = server_problem(server, answer.status, answer.retry_after, answer.body, answer.length, err);
    free(answer.body);
    return status;
}

static int send_patiently(struct server *server, const char *target, const char *piece, size_t length,
                          struct hc_err *err)
{
    int pause = FIRST_PAUSE, taken = 0;

    while ((taken = send_piece(server, target, piece, length, err)) == 0) {
        poll(NULL, 0, pause);
        pause = pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE;
    }
    return taken;
}

int jobs_send_input(struct server *server, const char *sandbox, const char *job, int fd, struct hc_err *err)
{
    char target[2 * SANDBOX_ID + 64], piece[PIECE];
    int status = 1;

    snprintf(target, sizeof target, "/v1/sandboxes/%s/jobs/%.64s/stdin", sandbox, job);
    while (status > 0) {
        ssize_t count = read(fd, piece, sizeof piece);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot read stdin for the job");
        if (count == 0)
            break;
        status = send_patiently(server, target, piece, (size_t)count, err);
    }
    snprintf(target, sizeof target, "/v1/sandboxes/%s/jobs/%.64s/stdin?end=true", sandbox, job);
    if (status > 0)
        status = send_patiently(server, target, "", 0, err);
    return status == -EPIPE || status > 0 ? 0 : status;
}

/* ---- the list ---- */

static void add_job(struct table *table, const json_t *job)
{
    const json_t *exit_code = json_object_get(job, "exit_code");
    const char *state = json_text(job, "state"), *name = json_text(job, "name");
    char text[64];

    table_add(table, TABLE_PLAIN, json_text(job, "id"));
    table_add(table, TABLE_PLAIN, name[0] ? name : "-");
    table_add(table, strcmp(state, "running") == 0 ? TABLE_GOOD : TABLE_PLAIN, state);
    snprintf(text, sizeof text, "%d", (int)json_integer_value(exit_code));
    table_add(table, TABLE_PLAIN, json_is_integer(exit_code) ? text : "-");
    table_add(table, TABLE_PLAIN, client_time(json_text(job, "started_at"), text, sizeof text));
    table_add(table, TABLE_PLAIN, client_time(json_text(job, "ended_at"), text, sizeof text));
    table_add(table, TABLE_PLAIN, json_text(job, "command"));
}

static int show_jobs(const json_t *jobs)
{
    static const char *const heads[] = {"JOB", "NAME", "STATE", "EXIT", "STARTED", "ENDED", "COMMAND"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(jobs); i++)
        add_job(&table, json_array_get(jobs, i));
    int status = table_print(&table);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

/* ---- one ---- */

static int show_stream(const json_t *job, const char *name, int fd)
{
    bool encoded = strcmp(json_text(job, "output_encoding"), "base64") == 0;
    const json_t *value = json_object_get(job, name);
    const char *text = json_string_value(value);
    hc_cleanup_free char *decoded = NULL;
    size_t length = json_string_length(value);

    if (!text)
        return 0;
    if (encoded && hc_base64_decode(text, length, &decoded, &length) < 0)
        return -EPROTO;
    return stream_write(fd, decoded ? decoded : text, length);
}

static int show_job(const struct cli *cli, const json_t *job)
{
    const json_t *truncated = json_object_get(job, "truncated");
    json_int_t missing = json_integer_value(json_object_get(truncated, "stdout")) +
                         json_integer_value(json_object_get(truncated, "stderr"));

    if (missing > 0 && !cli->quiet)
        message_note("the first %lld bytes are not remembered any more", (long long)missing);
    int status = show_stream(job, "stdout", STDOUT_FILENO);
    if (status == 0)
        status = show_stream(job, "stderr", STDERR_FILENO);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

/* The exit code of whoever looks on is his own: it is the job that failed, not the looking. */
static int watch(struct cli *cli, const struct server *server, const char *target)
{
    struct run_line line = {.stdin_fd = -1, .input_fd = -1, .collect_fd = -1};
    struct remote_place place = {.server = *server, .watch = target};
    hc_request *request = hc_request_new();

    if (!request)
        return message_no_memory(cli);
    if (place.server.address.key)
        place.server.address.key = place.server.key;
    int code = remote_run(cli, &line, request, &place);
    hc_request_free(request);
    return code;
}

/* "/v1/sandboxes/ID/jobs[/JOB[/events]]" */
static int make_target(struct hc_buf *target, const char *id, const char *job, bool events, struct hc_err *err)
{
    hc_buf_printf(target, "/v1/sandboxes/%s/jobs", id);
    if (job) {
        hc_buf_add_str(target, "/");
        http_add_encoded(target, job);
    }
    if (events)
        hc_buf_add_str(target, "/events");
    return hc_buf_status(target) < 0 ? hc_fail(err, HC_CLASS_REQUEST, ENOENT, "that is no id of a job") : 0;
}

int sandbox_logs(struct cli *cli, const struct sandbox_line *line)
{
    const char *job = line->operands > 1 ? line->operand[1] : NULL;
    bool follow = sandbox_value(line, SANDBOX_FOLLOW);
    struct hc_buf target = HC_BUF_INIT(SANDBOX_TARGET);
    json_cleanup json_t *answer = NULL;
    struct server server = {0};
    struct hc_err err = {0};
    char id[SANDBOX_ID];

    int status = sandbox_operands(line, 1, 2, &err);
    if (status == 0 && follow && !job) {
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "-f needs to know which job: hotcell sandbox logs -f ID JOB");
        status = hc_err_remedy(&err, "hotcell sandbox logs ID lists them");
    }
    if (status == 0)
        status = sandbox_find(cli, line, line->operand[0], &server, id, &err);
    if (status == 0)
        status = make_target(&target, id, job, follow, &err);
    int code = EXIT_OK;
    if (status == 0 && follow)
        code = watch(cli, &server, target.data);
    else if (status == 0)
        status = sandbox_ask(&server, "GET", target.data, NULL, &answer, &err);
    hc_buf_release(&target);
    if (status < 0)
        return server_message(cli, &server, &err);
    if (follow)
        return code;
    if (cli->json)
        return sandbox_show_json(answer);
    return job ? show_job(cli, answer) : show_jobs(json_object_get(answer, "jobs"));
}
