/*
 * hotcell run on a server. The request is sent once; what comes back is a stream of events, which end with the result.
 * What always holds: every byte of output is written exactly once and in order, also across a lost connection, because
 * the server goes on after the id of the last event that arrived whole; and whatever ends this program ends the run.
 */
#include "cli/remote.h"

#include "base/fd.h"
#include "base/loop.h"
#include "cli/interrupt.h"
#include "cli/message.h"
#include "cli/sse.h"
#include "text/base64.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PIECE_LIMIT = 1024 * 1024 };
/* µs */
enum { FIRST_PAUSE = 100 * 1000, LONGEST_PAUSE = 2 * 1000 * 1000, RESUME_TIME = 30 * 1000 * 1000 };
enum { AT_ONCE = 1000 * 1000 /* for a server to answer that nobody asked for */ };
enum { CANCEL_TIME = 5 * 1000 * 1000, SILENCE = 90 * 1000 * 1000 /* a server says every 15 s that it is there */ };

struct remote {
    const struct cli *cli;
    struct remote_place *place;
    struct server *server; /* the place's */
    const char *body;      /* the request */
    struct sse sse;
    struct stream stream;
    struct remote_input input;
    bool resumed;          /* a connection was lost on the way */
    char id[64];           /* of the run; "" until it is known */
    char last[128];        /* the id of the last event that came whole; "": none yet */
    char *result;          /* JSON text, once it is over */
    char *pretty;          /* the same, indented */
    bool begun;            /* something of it has happened */
    struct hc_err failure; /* why there is no result, in the server's words */
};

/* ---- events ---- */

static int on_start(struct remote *remote, struct hc_peek data)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789_"; /* it becomes part of a path */
    char id[sizeof remote->id + 1];

    hc_peek_copy(hc_peek_member(data, "id"), id, sizeof id);
    if (!id[0] || strlen(id) >= sizeof remote->id || id[strspn(id, plain)])
        return -EPROTO;
    memcpy(remote->id, id, strlen(id) + 1);
    return 0;
}

static int on_output(struct remote *remote, int fd, struct hc_peek data)
{
    const struct hc_peek text = hc_peek_member(data, "text");
    hc_cleanup_free char *bytes = NULL, *decoded = NULL;
    size_t length = 0;

    if (remote->cli->json)
        return 0;
    int status = hc_peek_string(text.at ? text : hc_peek_member(data, "base64"), &bytes, &length);
    if (status == 0 && !text.at && hc_base64_decode(bytes, length, &decoded, &length) < 0)
        status = -EPROTO;
    return status < 0 ? status : stream_output(&remote->stream, fd, decoded ? decoded : bytes, length);
}

static int on_result(struct remote *remote, const struct sse_event *event, struct hc_peek data)
{
    int64_t code;

    if (hc_peek_integer(hc_peek_member(data, "exit_code"), &code) < 0 || memchr(event->data, '\0', event->length))
        return -EPROTO;
    remote->result = strndup(event->data, event->length);
    return remote->result ? 0 : -ENOMEM;
}

/* It was accepted and never had its turn, or could not be recorded. */
static int on_failure(struct remote *remote, const struct sse_event *event, struct hc_peek data)
{
    int64_t status = 0;

    hc_peek_integer(hc_peek_member(data, "status"), &status);
    return server_problem(remote->server, (int)status, 0, event->data, event->length, &remote->failure);
}

/* An sse_fn. */
static int on_event(void *context, const struct sse_event *event)
{
    struct remote *remote = context;
    const struct hc_peek data = hc_peek_text(event->data, event->length);
    int status = 0;

    if (remote->result || !hc_peek_is_object(data))
        return -EPROTO;
    if (strcmp(event->name, "start") == 0) {
        status = on_start(remote, data);
    } else if (strcmp(event->name, "error") == 0) {
        status = on_failure(remote, event, data);
    } else {
        remote->begun = true;
        remote_input_begin(&remote->input, remote->server, remote->id);
        if (strcmp(event->name, "stdout") == 0)
            status = on_output(remote, STDOUT_FILENO, data);
        else if (strcmp(event->name, "stderr") == 0)
            status = on_output(remote, STDERR_FILENO, data);
        else if (strcmp(event->name, "result") == 0)
            status = on_result(remote, event, data);
    }
    if (status == 0)
        snprintf(remote->last, sizeof remote->last, "%s", event->id);
    return status;
}

/* ---- one connection ---- */

static int refused(struct remote *remote, struct http_exchange *exchange, struct hc_err *err)
{
    const struct http_response *response = http_response_of(exchange);
    struct hc_buf body = HC_BUF_INIT(PIECE_LIMIT);
    int more = 1;

    while (more > 0)
        more = http_read(exchange, &body, NULL);
    int status = server_problem(remote->server, response->status, response->retry_after, body.data ? body.data : "",
                                body.length, err);
    hc_buf_release(&body);
    return status;
}

/* Events until the result, or until the connection or the output fails. */
static int follow(struct remote *remote, struct http_exchange *exchange, struct hc_err *err)
{
    struct hc_buf piece = HC_BUF_INIT(PIECE_LIMIT);
    int more = 1, status = 0;

    sse_restart(&remote->sse);
    while (more > 0 && status == 0 && !remote->result) {
        more = http_read(exchange, &piece, err);
        if (more >= 0 && piece.length > 0)
            status = sse_feed(&remote->sse, piece.data, piece.length, on_event, remote);
        hc_buf_reset(&piece);
    }
    hc_buf_release(&piece);
    if (remote->failure.code) {
        hc_err_clear(err);
        *err = remote->failure;
    } else if (status == -EPROTO) {
        hc_fail(err, HC_CLASS_HOST, EPROTO, "the server's events cannot be understood");
    }
    if (status < 0 || remote->result)
        return status;
    return more < 0 ? more : hc_fail(err, HC_CLASS_HOST, ECONNRESET, "the connection to the server was lost");
}

/* 0 with a result; -errno. *opened: the server had begun to answer. */
static int attempt(struct remote *remote, bool *opened, struct hc_err *err)
{
    struct http_ask ask = {.method = "POST", .target = "/v1/runs", .accept = "text/event-stream", .patience = SILENCE};
    struct http_exchange *exchange = NULL;
    char target[128];

    if (remote->place->target)
        ask.target = remote->place->target;
    if (remote->id[0] || remote->place->watch) {
        snprintf(target, sizeof target, "/v1/runs/%s/events", remote->id);
        ask.method = "GET";
        ask.target = remote->place->watch ? remote->place->watch : target;
        ask.last_event_id = remote->last[0] ? remote->last : NULL;
    } else {
        ask.expect = remote->place->expect;
        ask.head_patience = remote->place->optional ? AT_ONCE : 0;
        ask.body = remote->body;
        ask.length = strlen(remote->body);
    }
    int status = http_open(&remote->server->address, &ask, &exchange, err);
    if (status < 0)
        return status;
    *opened = true;
    const struct http_response *response = http_response_of(exchange);
    if (response->status == 200 && strcmp(response->content_type, "text/event-stream") == 0)
        status = follow(remote, exchange, err);
    else
        status = refused(remote, exchange, err);
    http_close(exchange);
    return status;
}

/* ---- many ---- */

static bool was_lost(int status)
{
    return status == -ECONNRESET || status == -ETIMEDOUT || status == -ECONNREFUSED || status == -EPIPE ||
           status == -EAGAIN || status == -ENETUNREACH || status == -EHOSTUNREACH || status == -ECONNABORTED;
}

static void pause_for(const struct remote *remote, uint64_t microseconds)
{
    poll(&(struct pollfd){.fd = remote->server->address.terms.wake, .events = POLLIN}, 1, (int)(microseconds / 1000));
}

/* Until there is a result, going on where a connection was lost. */
static int run_to_end(struct remote *remote, struct hc_err *err)
{
    uint64_t pause = FIRST_PAUSE, give_up = 0;

    for (;;) {
        bool opened = false;
        int status = attempt(remote, &opened, err);
        bool final = remote->failure.code || remote->stream.status || interrupt_caught() || remote->place->once;
        if (status == 0 || !remote->id[0] || !was_lost(status) || final)
            return status;
        if (opened || !give_up) {
            pause = FIRST_PAUSE;
            give_up = hc_now() + RESUME_TIME;
        }
        if (hc_now() > give_up) {
            hc_err_context(err, "the run %s", remote->id);
            return status;
        }
        remote->resumed = true;
        pause_for(remote, pause);
        pause = pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE;
        hc_err_clear(err);
    }
}

/* Closing the connection ends a run already; asking for it as well makes it certain, through any proxy. */
static void cancel(struct remote *remote)
{
    char target[128];
    struct http_answer answer = {0};
    const struct http_ask ask = {.method = "DELETE", .target = target, .patience = CANCEL_TIME};

    if (!remote->id[0] || remote->place->watch)
        return;
    snprintf(target, sizeof target, "/v1/runs/%s", remote->id);
    remote->server->address.terms.wake = -1;
    http_fetch(&remote->server->address, &ask, &answer, NULL);
    free(answer.body);
}

/* ---- the end ---- */

static const char *result_text(const void *data, bool pretty)
{
    const struct remote *remote = data;

    return pretty ? remote->pretty : remote->result;
}

static int report(const struct cli *cli, const struct run_line *line, struct remote *remote)
{
    const struct hc_peek root = hc_peek_text(remote->result, strlen(remote->result));
    struct run_file *files = NULL;
    char summary[512];
    size_t count = 0;
    int64_t code = 0;
    struct hc_err err = {0};

    int status = line->collect_fd >= 0 ? remote_files(root, &files, &count) : 0;
    if (status < 0) {
        hc_fail_errno(&err, HC_CLASS_HOST, -status, "the collected files cannot be read");
        return message_error(cli, &err);
    }
    hc_peek_integer(hc_peek_member(root, "exit_code"), &code);
    if (cli->json && isatty(STDOUT_FILENO))
        remote->pretty = cli->full->pretty(remote->result);
    const struct url *url = &remote->server->address.url;
    struct run_outcome outcome = {.exit_code = (int)code,
                                  .summary = remote_summary(root, summary, sizeof summary),
                                  .files = files,
                                  .file_count = count,
                                  .data = remote,
                                  .server = url->scheme == URL_UNIX ? url->path : url->authority,
                                  .json = result_text};
    if (remote->resumed && hc_peek_is(hc_peek_member(root, "status"), "killed") && !cli->quiet)
        message_note("the connection to the server was lost, which ended the run");
    int exit_code = run_report(cli, line, &outcome, &remote->stream);
    remote_files_free(files, count);
    if (remote->place->watch && exit_code == (int)code)
        return EXIT_OK; /* the job may have failed; the looking on has not */
    return exit_code;
}

/* Whether the run may be done here instead: the server refused it, was not there, or never began it. A connection that
 * was lost after it had begun to answer is no such case: nobody knows what has happened. */
static bool declined(const struct remote *remote, const struct hc_err *err)
{
    if (!remote->place->optional || remote->begun || remote->stream.status || interrupt_caught())
        return false;
    if (remote->id[0] && !remote->failure.code)
        return false;
    snprintf(remote->place->why, sizeof remote->place->why, "%s", err->message);
    return true;
}

static int finish(const struct cli *cli, const struct run_line *line, struct remote *remote, int status,
                  const struct hc_err *err)
{
    if (status == 0)
        return report(cli, line, remote);
    if (declined(remote, err))
        return REMOTE_DECLINED;
    if (interrupt_caught() || remote->stream.status)
        cancel(remote);
    if (remote->stream.status && remote->stream.status != -EINTR)
        return run_cannot_write(cli, &remote->stream);
    if (interrupt_caught() && remote->place->watch)
        return 128 + interrupt_caught();
    if (interrupt_caught())
        return run_interrupted(cli, &remote->stream);
    if (!err->code)
        return message_no_memory(cli);
    return server_message(cli, remote->server, err);
}

/* ---- the beginning ---- */

static int refuse_local_options(const struct run_line *line, struct hc_err *err)
{
    if (line->allow_weak)
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--allow-weak is the server's own to decide (isolation.allow_weak)");
    else if (line->config)
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--config is about this machine, but a server is to run it");
    return -err->code;
}

static char *build_body(struct remote *remote, struct run_line *line, hc_request *request, struct hc_err *err)
{
    hc_error *error = NULL;

    if (!remote->place->optional && refuse_local_options(line, err) < 0)
        return NULL;
    if (remote_input_prepare(&remote->input, line, request, err) < 0)
        return NULL;
    char *body = NULL;
    if (hc_request_set(request, "async", "false", &error) == 0) /* a command line waits */
        body = hc_request_json(request, &error);
    if (!body)
        message_adopt(error, err);
    if (!body || !remote->place->rewrite)
        return body;
    char *other = remote->place->rewrite(remote->place->data, body, err);
    free(body);
    return other;
}

int remote_run(const struct cli *cli, struct run_line *line, hc_request *request, struct remote_place *place)
{
    struct remote remote = {.cli = cli, .place = place, .server = &place->server};
    struct hc_err err = {0};

    hc_cleanup_free char *body = build_body(&remote, line, request, &err);
    if (!body) {
        snprintf(place->why, sizeof place->why, "%s", err.message);
        return place->optional ? REMOTE_DECLINED : message_error(cli, &err);
    }
    hc_cleanup_fd int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    remote.body = body;
    remote.server->address.terms.wake = wake;
    remote.server->address.terms.aside = &remote.input.aside;
    interrupt_wake(wake);
    interrupt_begin();
    sse_start(&remote.sse);
    int status = run_to_end(&remote, &err);
    remote_input_end(&remote.input);
    int code = finish(cli, line, &remote, status, &err);
    interrupt_wake(-1);
    sse_release(&remote.sse);
    free(remote.result);
    free(remote.pretty);
    return code;
}
