/* See client_relay.h. */
#include "cli/client_relay.h"

#include "base/fd.h"
#include "base/loop.h"
#include "cli/interrupt.h"
#include "cli/sse.h"
#include "text/base64.h"
#include "text/json.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 64 << 20, READ_SIZE = 65536, DEPTH = 64, JOBS_MAX = 64, HEADERS_MAX = 8192 };
enum { END_TIME = 2 * 1000 * 1000, ANSWER_MAX_BYTES = 512 << 20 };
static const char VERSION_KEY[] = "io.modelcontextprotocol/protocolVersion";

struct relay;

/* One message that waits for its answer. */
struct job {
    struct job *next;
    struct relay *relay;
    json_t *message;
    char *text;
    struct server server; /* a copy, with a wake of its own */
    int wake;             /* an eventfd: hang up */
    bool cancelled;
    bool answered;
    struct sse sse;
};

struct relay {
    struct server *server;
    pthread_mutex_t lock; /* of all below, and of stdout */
    pthread_cond_t fewer; /* jobs */
    struct job *jobs;
    size_t count;
    char session[128], version[32];
    char *hello; /* the initialize message, to begin again with when the server has forgotten the session */
    bool broken; /* stdout */
    int wake;    /* the main thread's: something has changed */
};

/* ---- out ---- */

/* A message is one line: newlines in it are space between values, for in strings they are escaped. */
static void put_line(struct relay *relay, const char *text, size_t length)
{
    hc_cleanup_free char *line = malloc(length + 1);

    if (!line)
        return;
    for (size_t i = 0; i < length; i++)
        line[i] = (char)(text[i] == '\n' || text[i] == '\r' ? ' ' : text[i]);
    line[length] = '\n';
    pthread_mutex_lock(&relay->lock);
    if (!relay->broken && hc_write_all(STDOUT_FILENO, line, length + 1) < 0) {
        relay->broken = true;
        eventfd_write(relay->wake, 1);
    }
    pthread_mutex_unlock(&relay->lock);
}

static void put_error(struct relay *relay, const json_t *id, int code, const char *text)
{
    hc_cleanup_json json_t *error =
        json_pack("{s:s, s:o, s:{s:i, s:o}}", "jsonrpc", "2.0", "id", id ? json_incref((json_t *)id) : json_null(),
                  "error", "code", code, "message", hc_json_text_lossy(text));
    hc_cleanup_free char *line = error ? hc_json_write(error, false) : NULL;

    if (line)
        put_line(relay, line, strlen(line));
}

static const json_t *id_of(const json_t *message)
{
    const json_t *id = json_object_get(message, "id");
    return json_object_get(message, "method") && (json_is_string(id) || json_is_integer(id)) ? id : NULL;
}

static bool is_method(const json_t *message, const char *method)
{
    const char *own = json_string_value(json_object_get(message, "method"));
    return own && strcmp(own, method) == 0;
}

/* ---- headers ---- */

/* As the value of a header: as it is, or wrapped where it could not be one. */
static void add_header(struct hc_buf *head, const char *name, const char *value)
{
    bool plain = value[0] && value[0] != ' ' && value[strlen(value) - 1] != ' ' && strncmp(value, "=?base64?", 9) != 0;

    for (const char *at = value; *at; at++)
        plain = plain && *at >= ' ' && *at <= '~';
    size_t length;
    hc_cleanup_free char *wrapped = plain ? NULL : hc_base64_encode(value, strlen(value), &length);
    if (plain)
        hc_buf_printf(head, "%s: %s\r\n", name, value);
    else if (wrapped)
        hc_buf_printf(head, "%s: =?base64?%s?=\r\n", name, wrapped);
}

static void add_headers(struct relay *relay, const json_t *message, struct hc_buf *head)
{
    const json_t *params = json_object_get(message, "params");
    const char *version = json_string_value(json_object_get(json_object_get(params, "_meta"), VERSION_KEY));
    const char *method = json_string_value(json_object_get(message, "method"));
    const char *name = json_string_value(json_object_get(params, "name"));

    if (!name)
        name = json_string_value(json_object_get(params, "uri"));
    if (version) {
        add_header(head, "MCP-Protocol-Version", version);
        if (method)
            add_header(head, "Mcp-Method", method);
        if (name)
            add_header(head, "Mcp-Name", name);
        return;
    }
    if (is_method(message, "initialize"))
        return;
    pthread_mutex_lock(&relay->lock);
    if (relay->version[0])
        add_header(head, "MCP-Protocol-Version", relay->version);
    if (relay->session[0])
        add_header(head, "Mcp-Session-Id", relay->session);
    pthread_mutex_unlock(&relay->lock);
}

/* ---- one message, there and back ---- */

static void take_answer(struct job *job, const char *text, size_t length)
{
    if (is_method(job->message, "initialize")) {
        hc_cleanup_json json_t *answer = NULL;
        hc_json_read(text, length, DEPTH, &answer, NULL);
        const char *version = json_string_value(json_object_get(json_object_get(answer, "result"), "protocolVersion"));
        pthread_mutex_lock(&job->relay->lock);
        snprintf(job->relay->version, sizeof job->relay->version, "%s", version ? version : "");
        pthread_mutex_unlock(&job->relay->lock);
    }
    job->answered = true;
    put_line(job->relay, text, length);
}

static int on_event(void *data, const struct sse_event *event)
{
    take_answer(data, event->data, event->length);
    return 0;
}

static void take_refusal(struct job *job, int status, const char *body, size_t length)
{
    hc_cleanup_json json_t *problem = NULL;
    char text[1024];

    hc_json_read(body, length, DEPTH, &problem, NULL);
    if (json_object_get(problem, "jsonrpc")) { /* the server's own words */
        const json_t *error = json_object_get(problem, "error");
        const char *message = json_string_value(json_object_get(error, "message"));
        snprintf(text, sizeof text, "%s", message ? message : "refused");
        if (id_of(job->message) && json_is_null(json_object_get(problem, "id")))
            put_error(job->relay, id_of(job->message), (int)json_integer_value(json_object_get(error, "code")), text);
        else
            put_line(job->relay, body, length);
        return;
    }
    const char *detail = json_string_value(json_object_get(problem, "detail"));
    if (detail)
        snprintf(text, sizeof text, "%s", detail);
    else
        snprintf(text, sizeof text, "the server answered with %d", status);
    if (id_of(job->message))
        put_error(job->relay, id_of(job->message), -32603, text);
}

/* Reads the answer to its end. 0, or -errno when the connection was lost. */
static int read_answer(struct job *job, struct http_exchange *exchange, struct hc_err *err)
{
    const struct http_response *response = http_response_of(exchange);
    bool stream = strcmp(response->content_type, "text/event-stream") == 0;
    struct hc_buf body = HC_BUF_INIT(ANSWER_MAX_BYTES);
    int more = 1;

    while (more > 0) {
        more = http_read(exchange, &body, err);
        if (more >= 0 && stream && body.length > 0) {
            int status = sse_feed(&job->sse, body.data, body.length, on_event, job);
            more = status < 0 ? hc_fail(err, HC_CLASS_HOST, EPROTO, "the server's stream cannot be read") : more;
            hc_buf_reset(&body);
        }
    }
    if (more == 0 && !stream && response->status / 100 == 2 && body.length > 0)
        take_answer(job, body.data, body.length);
    else if (more == 0 && !stream && response->status / 100 != 2)
        take_refusal(job, response->status, body.data ? body.data : "", body.length);
    hc_buf_release(&body);
    return more;
}

static void keep_session(struct job *job, const struct http_response *response)
{
    if (!is_method(job->message, "initialize") || !response->session[0])
        return;
    pthread_mutex_lock(&job->relay->lock);
    snprintf(job->relay->session, sizeof job->relay->session, "%s", response->session);
    free(job->relay->hello);
    job->relay->hello = strdup(job->text);
    pthread_mutex_unlock(&job->relay->lock);
}

static int open_exchange(struct job *job, struct http_exchange **exchange, struct hc_err *err)
{
    struct hc_buf head = HC_BUF_INIT(HEADERS_MAX);

    add_headers(job->relay, job->message, &head);
    const struct http_ask ask = {.method = "POST",
                                 .target = "/mcp",
                                 .accept = "application/json, text/event-stream",
                                 .headers = hc_buf_status(&head) == 0 ? head.data : NULL,
                                 .body = job->text,
                                 .length = strlen(job->text)};
    int status = http_open(&job->server.address, &ask, exchange, err);
    hc_buf_release(&head);
    return status;
}

/* The server does not know the session any more: it was started anew. The client has no part in that. */
static bool begin_again(struct job *job)
{
    struct relay *relay = job->relay;
    hc_cleanup_free char *hello = NULL;
    struct http_exchange *exchange = NULL;

    pthread_mutex_lock(&relay->lock);
    hello = relay->session[0] && relay->hello ? strdup(relay->hello) : NULL;
    pthread_mutex_unlock(&relay->lock);
    if (!hello || is_method(job->message, "initialize"))
        return false;
    const struct http_ask ask = {.method = "POST",
                                 .target = "/mcp",
                                 .accept = "application/json, text/event-stream",
                                 .body = hello,
                                 .length = strlen(hello)};
    if (http_open(&job->server.address, &ask, &exchange, NULL) < 0)
        return false;
    bool known = http_response_of(exchange)->status == 200 && http_response_of(exchange)->session[0];
    pthread_mutex_lock(&relay->lock);
    if (known)
        snprintf(relay->session, sizeof relay->session, "%s", http_response_of(exchange)->session);
    pthread_mutex_unlock(&relay->lock);
    http_close(exchange);
    return known;
}

static void carry(struct job *job)
{
    struct http_exchange *exchange = NULL;
    struct hc_err err = {0};
    int status = open_exchange(job, &exchange, &err);

    if (status == 0 && http_response_of(exchange)->status == 404 && begin_again(job)) {
        http_close(exchange);
        exchange = NULL;
        status = open_exchange(job, &exchange, &err);
    }
    if (status == 0) {
        keep_session(job, http_response_of(exchange));
        status = read_answer(job, exchange, &err);
        http_close(exchange);
    }
    if (status < 0 && !job->cancelled && !job->answered && id_of(job->message))
        put_error(job->relay, id_of(job->message), -32603, err.message);
}

/* ---- jobs ---- */

static void job_free(struct job *job)
{
    json_decref(job->message);
    free(job->text);
    hc_close(job->wake);
    sse_release(&job->sse);
    free(job);
}

static void *work(void *data)
{
    struct job *job = data;
    struct relay *relay = job->relay;

    carry(job);
    pthread_mutex_lock(&relay->lock);
    for (struct job **at = &relay->jobs; *at; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            break;
        }
    }
    relay->count--;
    pthread_cond_signal(&relay->fewer);
    eventfd_write(relay->wake, 1);
    pthread_mutex_unlock(&relay->lock);
    job_free(job);
    return NULL;
}

static struct job *job_new(struct relay *relay, const char *text, json_t *message)
{
    struct job *job = calloc(1, sizeof *job);

    if (!job)
        return NULL;
    job->relay = relay;
    job->message = json_incref(message);
    job->text = strdup(text);
    job->wake = eventfd(0, EFD_CLOEXEC);
    job->server = *relay->server;
    if (relay->server->address.key)
        job->server.address.key = job->server.key;
    job->server.address.terms.wake = job->wake;
    sse_start(&job->sse);
    if (job->text && job->wake >= 0)
        return job;
    job_free(job);
    return NULL;
}

static int start(struct relay *relay, struct job *job)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_mutex_lock(&relay->lock);
    while (relay->count >= JOBS_MAX)
        pthread_cond_wait(&relay->fewer, &relay->lock);
    job->next = relay->jobs;
    relay->jobs = job;
    relay->count++;
    pthread_mutex_unlock(&relay->lock);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int code = pthread_create(&thread, &attributes, work, job);
    pthread_attr_destroy(&attributes);
    return -code;
}

/* The transport's own way to cancel: hang up, and the server ends what it was asked for. */
static void cancel(struct relay *relay, const json_t *message)
{
    const json_t *id = json_object_get(json_object_get(message, "params"), "requestId");

    pthread_mutex_lock(&relay->lock);
    for (struct job *job = relay->jobs; id && job; job = job->next) {
        if (!id_of(job->message) || !json_equal(id_of(job->message), id))
            continue;
        job->cancelled = true;
        eventfd_write(job->wake, 1);
    }
    pthread_mutex_unlock(&relay->lock);
}

/* ---- in ---- */

static void take_line(struct relay *relay, const char *line, size_t length)
{
    hc_cleanup_json json_t *message = NULL;
    struct hc_err err = {0};

    if (length == 0 || strspn(line, " \t\r") == length)
        return;
    if (memchr(line, '\0', length) || hc_json_read(line, length, DEPTH, &message, &err) < 0) {
        put_error(relay, NULL, -32700, err.message[0] ? err.message : "a message must not hold a NUL");
        return;
    }
    if (is_method(message, "notifications/cancelled")) {
        cancel(relay, message);
        return;
    }
    struct job *job = job_new(relay, line, message);
    if (!job) {
        put_error(relay, id_of(message), -32603, "out of memory");
        return;
    }
    /* What needs no answer keeps its place in the order. */
    if (id_of(message) || json_is_array(message)) {
        if (start(relay, job) < 0)
            put_error(relay, id_of(message), -32603, "out of threads");
        return;
    }
    carry(job);
    job_free(job);
}

static void take_lines(struct relay *relay, struct hc_buf *input)
{
    char *at = input->data, *end = input->data + input->length;

    for (char *newline; at < end && (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
        *newline = '\0';
        take_line(relay, at, (size_t)(newline - at));
    }
    size_t left = (size_t)(end - at);
    memmove(input->data, at, left);
    input->length = left;
    input->data[left] = '\0';
}

/* 1: more may come; 0: the end; -errno. */
static int read_input(struct relay *relay, struct hc_buf *input, struct hc_err *err)
{
    hc_cleanup_free char *piece = malloc(READ_SIZE);

    if (!piece)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    ssize_t count = read(STDIN_FILENO, piece, READ_SIZE);
    if (count < 0)
        return errno == EINTR || errno == EAGAIN ? 1 : hc_fail_errno(err, HC_CLASS_HOST, errno, "reading stdin");
    hc_buf_add(input, piece, (size_t)count);
    if (count == 0 && input->length > 0)
        hc_buf_add_str(input, "\n");
    if (hc_buf_status(input) != 0)
        return hc_fail(err, HC_CLASS_REQUEST, EFBIG, "a message is longer than %d MiB", LINE_MAX_BYTES >> 20);
    if (input->length > 0)
        take_lines(relay, input);
    return count > 0;
}

static bool is_over(struct relay *relay, bool ended)
{
    pthread_mutex_lock(&relay->lock);
    bool over = relay->broken || (ended && relay->count == 0);
    pthread_mutex_unlock(&relay->lock);
    return over || interrupt_caught();
}

static int serve(struct relay *relay, struct hc_err *err)
{
    struct hc_buf input = HC_BUF_INIT(LINE_MAX_BYTES);
    int more = 1;

    while (more >= 0 && !is_over(relay, more == 0)) {
        /* A reader of ours that is gone makes stdout ready with POLLERR, whatever is asked for. */
        struct pollfd fds[] = {{.fd = more > 0 ? STDIN_FILENO : -1, .events = POLLIN},
                               {.fd = relay->wake, .events = POLLIN},
                               {.fd = STDOUT_FILENO}};
        if (poll(fds, 3, -1) < 0)
            continue; /* a signal */
        if (fds[1].revents)
            eventfd_read(relay->wake, &(eventfd_t){0});
        if (fds[2].revents & (POLLERR | POLLHUP | POLLNVAL))
            break;
        if (fds[0].revents)
            more = read_input(relay, &input, err);
    }
    hc_buf_release(&input);
    return more < 0 ? more : 0;
}

/* Hangs up on all that is still under way, and waits for the threads, which use what is about to go. */
static void end_jobs(struct relay *relay)
{
    pthread_mutex_lock(&relay->lock);
    for (struct job *job = relay->jobs; job; job = job->next) {
        job->cancelled = true;
        eventfd_write(job->wake, 1);
    }
    while (relay->count > 0)
        pthread_cond_wait(&relay->fewer, &relay->lock);
    pthread_mutex_unlock(&relay->lock);
}

static void end_session(struct relay *relay)
{
    char header[160];
    struct http_answer answer = {0};

    if (!relay->session[0])
        return;
    snprintf(header, sizeof header, "Mcp-Session-Id: %s\r\n", relay->session);
    const struct http_ask ask = {.method = "DELETE", .target = "/mcp", .headers = header, .patience = END_TIME};
    relay->server->address.terms.wake = -1;
    if (http_fetch(&relay->server->address, &ask, &answer, NULL) == 0)
        free(answer.body);
}

int relay_run(struct server *server, struct hc_err *err)
{
    struct relay relay = {.server = server, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

    if (relay.wake < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making an eventfd");
    pthread_mutex_init(&relay.lock, NULL);
    pthread_cond_init(&relay.fewer, NULL);
    interrupt_begin();
    interrupt_wake(relay.wake);
    int status = serve(&relay, err);
    end_jobs(&relay);
    end_session(&relay);
    interrupt_wake(-1);
    free(relay.hello);
    hc_close(relay.wake);
    pthread_mutex_destroy(&relay.lock);
    pthread_cond_destroy(&relay.fewer);
    return status;
}
