/*
 * Terminals of sandboxes over WebSocket: binary frames are bytes, text frames are JSON. A broken connection leaves the
 * terminal where it is; whoever comes back gets what it wrote last, first.
 */
#include "base/fd.h"
#include "base/signame.h"
#include "gateway/sandboxes.h"
#include "gateway/websocket.h"
#include "run/plan_internal.h"
#include "sandbox/terminal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 1 << 20, BACKLOG = 256 << 10, SIZE_MOST = 1000, INPUT_MAX = 1 << 20 };
#define PING_TIME (30 * 1000000ULL)
#define CLOSE_TIME (5 * 1000000ULL)
enum { WS_TAKEN_OVER = 4001, WS_FAILED = 1011 };

struct seat { /* one client at one terminal */
    struct sandbox *sandbox;
    struct terminal *terminal; /* NULL: it is over */
    struct websocket *socket;
    struct hc_buf input; /* that the program has not taken */
};

/* ---- to the client ---- */

static void say(struct seat *seat, json_t *object)
{
    hc_cleanup_free char *text = object != NULL ? hc_json_write(object, false) : NULL;
    json_decref(object);
    if (text != NULL)
        websocket_send(seat->socket, true, text, strlen(text));
}

static bool on_written(void *data, const char *bytes, size_t length)
{
    struct seat *seat = data;
    websocket_send(seat->socket, false, bytes, length);
    return websocket_pending(seat->socket) < BACKLOG;
}

static void on_drained(void *data, struct websocket *socket)
{
    (void)socket;
    struct seat *seat = data;
    if (seat->terminal != NULL)
        terminal_more(seat->terminal);
}

static void greet(struct seat *seat, struct terminal *terminal)
{
    uint64_t from = 0;
    size_t length = 0;
    hc_cleanup_free char *replay = job_log_read(terminal->log, 0, &from, &length);
    say(seat, json_pack("{s:s, s:s, s:I}", "type", "ready", "id", terminal->fixture.id, "replay",
                        (json_int_t)(replay != NULL ? length : 0)));
    if (replay != NULL && length > 0)
        websocket_send(seat->socket, false, replay, length);
}

static void on_ready(void *data, struct terminal *terminal)
{
    greet(data, terminal);
}

static void on_over(void *data, const struct warden_message *message, const struct hc_err *err)
{
    struct seat *seat = data;
    seat->terminal = NULL;
    if (message != NULL) {
        int number = message->facts.signal;
        say(seat,
            json_pack("{s:s, s:i, s:o}", "type", "exit", "exit_code", number ? 128 + number : message->facts.exit_code,
                      "signal", number ? json_string(hc_signal_name(number)) : json_null()));
        websocket_close(seat->socket, WS_NORMAL, "the program has ended");
    } else if (err != NULL) {
        say(seat, json_pack("{s:s, s:o}", "type", "error", "message", hc_json_text_lossy(err->message)));
        websocket_close(seat->socket, WS_FAILED, "the program could not be started");
    } else {
        websocket_close(seat->socket, WS_TAKEN_OVER, "another client has attached");
    }
}

/* ---- from the client ---- */

static void send_input(struct seat *seat)
{
    size_t taken = terminal_write(seat->terminal, seat->input.data, seat->input.length);
    if (taken == seat->input.length) {
        hc_buf_reset(&seat->input);
        websocket_resume(seat->socket);
        return;
    }
    memmove(seat->input.data, seat->input.data + taken, seat->input.length - taken);
    seat->input.length -= taken;
    websocket_pause(seat->socket); /* on_writable goes on */
}

static void on_writable(void *data)
{
    struct seat *seat = data;
    if (seat->terminal != NULL && seat->input.length > 0)
        send_input(seat);
}

static void hear(struct seat *seat, const char *text, size_t length)
{
    hc_cleanup_json json_t *object = NULL;
    if (hc_json_read(text, length, 8, &object, NULL) < 0)
        object = NULL;
    const char *type = json_string_value(json_object_get(object, "type"));
    json_int_t cols = json_integer_value(json_object_get(object, "cols"));
    json_int_t rows = json_integer_value(json_object_get(object, "rows"));
    if (type != NULL && strcmp(type, "resize") == 0 && cols > 0 && cols <= SIZE_MOST && rows > 0 && rows <= SIZE_MOST)
        terminal_resize(seat->terminal, (unsigned)cols, (unsigned)rows);
    else
        say(seat,
            json_pack("{s:s, s:s}", "type", "error", "message",
                      "a text frame is {\"type\": \"resize\", \"cols\": 80, \"rows\": 24}; bytes go in binary frames"));
}

static void on_message(void *data, struct websocket *socket, bool text, const char *bytes, size_t length)
{
    struct seat *seat = data;
    if (seat->terminal == NULL)
        return;
    if (text) {
        hear(seat, bytes, length);
    } else if (hc_buf_add(&seat->input, bytes, length) < 0) {
        websocket_close(socket, WS_FAILED, "the server is out of memory");
    } else {
        send_input(seat);
    }
}

static void on_closed(void *data, struct websocket *socket, unsigned code)
{
    (void)socket, (void)code;
    struct seat *seat = data;
    if (seat->terminal != NULL)
        terminal_detach(seat->terminal, seat);
    sandbox_release(seat->sandbox);
    hc_buf_release(&seat->input);
    free(seat);
}

/* ---- taking a seat ---- */

static bool read_size(struct http_request *request, const char *name, unsigned usual, unsigned *value)
{
    char text[16], *end = text, detail[96];
    int found = http_query_value(request, name, text, sizeof text);
    unsigned long number = found > 0 ? strtoul(text, &end, 10) : usual;
    *value = (unsigned)number;
    if (found == 0 || (found > 0 && end != text && *end == '\0' && number >= 1 && number <= SIZE_MOST))
        return true;
    snprintf(detail, sizeof detail, "%s must be a number from 1 to %d", name, SIZE_MOST);
    reply_problem(request, 400, "invalid_request", detail);
    return false;
}

static struct terminal_client client_of(struct seat *seat)
{
    return (struct terminal_client){
        .data = seat, .ready = on_ready, .written = on_written, .writable = on_writable, .ended = on_over};
}

static int start_terminal(struct gateway *gateway, struct seat *seat, const char *command, const char *cwd,
                          unsigned cols, unsigned rows, struct hc_err *err)
{
    struct sandbox *sandbox = seat->sandbox;
    struct words argv = {0}, env = {0};
    struct terminal_client client = client_of(seat);
    bool plain = strpbrk(command, " \t;|&<>()$`\"'\\") == NULL;
    int result = plain ? words_add(&argv, command) : words_add(&argv, "/bin/sh");
    if (result == 0 && !plain)
        result = words_add(&argv, "-c");
    if (result == 0 && !plain)
        result = words_add(&argv, command);
    if (result == 0)
        result = plan_set_env(&env, "TERM=xterm-256color");
    if (result == 0)
        result = plan_set_env(&env, "PS1=\\u@\\h:\\w\\$ ");
    if (result == 0)
        result = sandbox_env(sandbox, NULL, &env);
    struct terminal_plan plan = {.argv = &argv,
                                 .env = &env,
                                 .cwd = cwd[0] != '\0' ? cwd : sandbox->plan.cell.work_dir,
                                 .cols = cols,
                                 .rows = rows,
                                 .wait = gateway->config->sandboxes.terminal_time};
    if (result < 0)
        hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    else
        result = terminal_start(sandbox, &plan, &client, &seat->terminal, err);
    words_release(&argv);
    words_release(&env);
    return result;
}

/* The handshake comes first, so that what goes wrong after it is told in frames. */
static struct seat *sit_down(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox)
{
    static const struct websocket_options options = {
        .message_max = MESSAGE_MAX, .ping_time = PING_TIME, .close_time = CLOSE_TIME};
    struct seat *seat = calloc(1, sizeof *seat);
    int status = 503;
    const char *why = "the server is out of memory";
    if (seat != NULL) {
        *seat = (struct seat){.sandbox = sandbox, .input = HC_BUF_INIT(INPUT_MAX + MESSAGE_MAX)};
        struct websocket_handlers handlers = {
            .data = seat, .message = on_message, .drained = on_drained, .closed = on_closed};
        if (websocket_accept(gateway->loop, request, &options, &handlers, &seat->socket, &status, &why) == 0) {
            sandbox_hold(sandbox);
            return seat;
        }
    }
    free(seat);
    reply_problem(request, status, status == 503 ? "overloaded" : "invalid_request", why);
    return NULL;
}

void handle_terminal(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char *const known[] = {"cols", "rows", "command", "cwd", "id", NULL};
    char command[512] = "bash", cwd[1024] = "", id[64] = "", unknown[64];
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct hc_err err = {0};
    unsigned cols, rows;
    if (sandbox == NULL)
        return;
    if (http_query_unknown(request, known, unknown, sizeof unknown) != NULL ||
        http_query_value(request, "command", command, sizeof command) < 0 ||
        http_query_value(request, "cwd", cwd, sizeof cwd) < 0 || http_query_value(request, "id", id, sizeof id) < 0) {
        reply_problem(request, 400, "invalid_request", "the parameters are cols, rows, command, cwd and id");
        return;
    }
    if (!read_size(request, "cols", 80, &cols) || !read_size(request, "rows", 24, &rows))
        return;
    struct terminal *terminal = id[0] != '\0' ? terminal_find(sandbox, id) : NULL;
    if (id[0] != '\0' && (terminal == NULL || terminal->master < 0)) {
        reply_problem(request, 404, "not_found", "there is no such terminal in this sandbox");
        return;
    }
    struct seat *seat = sit_down(gateway, request, sandbox);
    if (seat == NULL)
        return;
    if (terminal != NULL) {
        struct terminal_client client = client_of(seat);
        seat->terminal = terminal;
        greet(seat, terminal);
        terminal_attach(terminal, &client);
        terminal_resize(terminal, cols, rows);
    } else if (start_terminal(gateway, seat, command[0] != '\0' ? command : "bash", cwd, cols, rows, &err) < 0) {
        on_over(seat, NULL, &err);
    }
}

/* ---- the others ---- */

static json_t *terminal_json(const struct terminal *terminal)
{
    char made[40];
    return json_pack("{s:s, s:o, s:i, s:i, s:b, s:s}", "id", terminal->fixture.id, "command",
                     hc_json_text_lossy(terminal->command), "cols", (int)terminal->cols, "rows", (int)terminal->rows,
                     "attached", terminal->attached, "created_at",
                     sandbox_time_text(terminal->fixture.created_at, made, sizeof made));
}

void handle_terminal_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    json_t *list = json_array();
    for (struct fixture *fixture = sandbox->fixtures; fixture != NULL; fixture = fixture->next)
        if (fixture->kind == &terminal_kind && fixture->running)
            json_array_append_new(list, terminal_json((struct terminal *)fixture));
    sandbox_reply(request, 200, json_pack("{s:o}", "terminals", list));
}

void handle_terminal_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    struct terminal *terminal = sandbox != NULL ? terminal_find(sandbox, route_value(match, "terminal")) : NULL;
    if (sandbox == NULL)
        return;
    if (terminal == NULL) {
        reply_problem(request, 404, "not_found", "there is no such terminal in this sandbox");
        return;
    }
    terminal_end(terminal);
    reply_text(request, 204, "text/plain", "", 0);
}
