/*
 * hotcell shell: the user's own terminal at one in a sandbox. Bytes go both ways as they are; the window's size goes
 * with them. What always holds: the user's terminal is as it was when this ends, whatever ends it (guard.h); and a
 * connection that breaks, or a signal, ends the looking on, not the shell in the sandbox.
 */
#include "base/fd.h"
#include "base/signame.h"
#include "cli/guard.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/sandbox.h"
#include "cli/stream.h"
#include "cli/ws_client.h"
#include "text/json.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { MESSAGE_MAX = 4 * 1024 * 1024, BACKLOG = 256 * 1024, KEYS = 4096, LEAST = 1, MOST = 1000, JSON_DEPTH = 8 };
enum { COMMAND_MAX = 500 };

struct shell {
    struct cli *cli;
    const struct sandbox_line *line;
    struct server server;
    char id[SANDBOX_ID], terminal[SANDBOX_ID];
    struct ws_client *socket;
    struct termios before;
    int signals;
    bool raw, over, detached;
    bool fresh, tilde; /* of the keys: a line begins; a tilde began it */
    int exit_code;
    struct hc_err err;
};

/* ---- to the sandbox ---- */

static struct winsize window_size(void)
{
    struct winsize size = {.ws_col = 80, .ws_row = 24};

    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < LEAST || size.ws_row < LEAST)
        size = (struct winsize){.ws_col = 80, .ws_row = 24};
    if (size.ws_col > MOST)
        size.ws_col = MOST;
    if (size.ws_row > MOST)
        size.ws_row = MOST;
    return size;
}

static int tell_size(struct shell *shell)
{
    struct winsize size = window_size();
    char text[96];

    int length = snprintf(text, sizeof text, "{\"type\":\"resize\",\"cols\":%u,\"rows\":%u}", size.ws_col, size.ws_row);
    return ws_send(shell->socket, WS_TEXT, text, (size_t)length);
}

/* As ssh has it: Enter, then "~." leaves; "~~" is a tilde. What is left of the keys is to be sent. */
static size_t read_keys(struct shell *shell, const char *keys, size_t length, char *out)
{
    size_t count = 0;

    for (size_t i = 0; i < length && !shell->detached; i++) {
        if (shell->tilde) {
            shell->tilde = false;
            shell->detached = keys[i] == '.';
            if (!shell->detached && keys[i] != '~')
                out[count++] = '~';
            if (!shell->detached)
                out[count++] = keys[i];
        } else if (shell->fresh && keys[i] == '~') {
            shell->tilde = true;
        } else {
            out[count++] = keys[i];
        }
        shell->fresh = !shell->tilde && (keys[i] == '\r' || keys[i] == '\n');
    }
    return count;
}

static int send_keys(struct shell *shell)
{
    char keys[KEYS], out[2 * KEYS];
    ssize_t count = read(STDIN_FILENO, keys, sizeof keys);

    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (count <= 0) { /* the terminal is gone */
        shell->detached = true;
        return 0;
    }
    size_t length = read_keys(shell, keys, (size_t)count, out);
    return length > 0 ? ws_send(shell->socket, WS_BINARY, out, length) : 0;
}

/* ---- from the sandbox ---- */

static int on_ready(struct shell *shell, const json_t *object)
{
    snprintf(shell->terminal, sizeof shell->terminal, "%s", json_text(object, "id"));
    int status = guard_raw(STDIN_FILENO, &shell->before);
    shell->raw = status == 0;
    shell->fresh = true;
    return status < 0 ? hc_fail_errno(&shell->err, HC_CLASS_HOST, -status, "this terminal cannot be made raw") : 0;
}

static int on_text(struct shell *shell, const struct ws_frames *frames)
{
    json_cleanup json_t *object = NULL;

    if (hc_json_read(frames->data, frames->length, JSON_DEPTH, &object, NULL) < 0)
        return hc_fail(&shell->err, HC_CLASS_HOST, EPROTO, "the server says something that is no JSON");
    const char *type = json_text(object, "type");
    if (strcmp(type, "ready") == 0)
        return on_ready(shell, object);
    if (strcmp(type, "exit") == 0) {
        shell->exit_code = (int)json_integer_value(json_object_get(object, "exit_code"));
        shell->over = true;
    } else if (strcmp(type, "error") == 0) {
        return hc_fail(&shell->err, HC_CLASS_REQUEST, EINVAL, "%s", json_text(object, "message"));
    }
    return 0;
}

static int on_close(struct shell *shell, const struct ws_frames *frames)
{
    enum { TAKEN_OVER = 4001 };

    if (frames->code == TAKEN_OVER)
        return hc_fail(&shell->err, HC_CLASS_HOST, EBUSY, "another client has taken this terminal over");
    return hc_fail(&shell->err, HC_CLASS_HOST, ECONNRESET, "the server has ended the connection: %s",
                   frames->length ? frames->data : "it did not say why");
}

static int take_frames(struct shell *shell)
{
    const struct ws_frames *frames;
    int event = WS_EVENT_MORE, status = 0;

    while (status == 0 && !shell->over && (event = ws_take(shell->socket, &frames)) > WS_EVENT_MORE) {
        if (event == WS_EVENT_MESSAGE && frames->opcode == WS_BINARY)
            status = stream_write(STDOUT_FILENO, frames->data, frames->length);
        else if (event == WS_EVENT_MESSAGE)
            status = on_text(shell, frames);
        else if (event == WS_EVENT_CLOSE)
            status = on_close(shell, frames);
        else
            status = hc_fail(&shell->err, HC_CLASS_HOST, EPROTO, "the server breaks the protocol: %s", frames->why);
    }
    return status < 0 ? status : event < 0 ? event : 0;
}

/* ---- signals ---- */

static int take_signal(struct shell *shell)
{
    struct signalfd_siginfo info;

    if (read(shell->signals, &info, sizeof info) != sizeof info)
        return 0;
    if (info.ssi_signo == SIGWINCH || info.ssi_signo == SIGCONT)
        return shell->terminal[0] ? tell_size(shell) : 0;
    shell->detached = true;
    shell->exit_code = 128 + (int)info.ssi_signo;
    return 0;
}

/* ---- all of it ---- */

static int serve(struct shell *shell)
{
    int status = 0;

    while (status == 0 && !shell->over && !shell->detached) {
        status = take_frames(shell); /* first: something may have come with the handshake, or be in OpenSSL's hands */
        if (status < 0 || shell->over)
            break;
        bool room = shell->raw && ws_pending(shell->socket) < BACKLOG;
        struct pollfd fds[] = {{.fd = ws_fd(shell->socket), .events = ws_events(shell->socket)},
                               {.fd = shell->signals, .events = POLLIN},
                               {.fd = room ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            status = -errno;
        if (status == 0 && fds[1].revents)
            status = take_signal(shell);
        if (status == 0 && fds[2].revents && !shell->detached)
            status = send_keys(shell);
        if (status == 0)
            status = ws_flush(shell->socket);
    }
    return status;
}

static void add_query(struct hc_buf *target, const char *name, const char *value)
{
    if (!value || !value[0])
        return;
    hc_buf_printf(target, "&%s=", name);
    http_add_encoded(target, value);
}

static int make_target(const struct shell *shell, struct hc_buf *target, struct hc_err *err)
{
    struct hc_buf command = HC_BUF_INIT(COMMAND_MAX);
    struct winsize size = window_size();

    for (size_t i = 1; i < shell->line->operands; i++)
        hc_buf_printf(&command, "%s%s", i > 1 ? " " : "", shell->line->operand[i]);
    int status = hc_buf_status(&command);
    hc_buf_printf(target, "/v1/sandboxes/%s/terminal?cols=%u&rows=%u", shell->id, size.ws_col, size.ws_row);
    add_query(target, "command", command.data);
    add_query(target, "cwd", sandbox_value(shell->line, SANDBOX_CWD));
    add_query(target, "id", sandbox_value(shell->line, SANDBOX_ATTACH));
    hc_buf_release(&command);
    if (status < 0 || hc_buf_status(target) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "the command has more than %d bytes", COMMAND_MAX);
    return 0;
}

/* The screen may be in the middle of anything: another page, a part of it that scrolls, the mouse, a hidden cursor,
 * keys that send something else. Leaving the other page and scrolling as a whole move the cursor: to where it was told
 * to be kept, which is why it is told first. A shell that came to its end leaves no line half written. */
static void tidy_screen(bool over)
{
    static const char codes[] = "\0337\033[?1049l\0337\033[r\0338\033[?1l\033>"
                                "\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[?25h\033[0m\r\n";

    (void)!write(STDOUT_FILENO, codes, sizeof codes - (over ? 3 : 1));
}

static int report(struct shell *shell, int status)
{
    if (shell->raw)
        tidy_screen(shell->over);
    if (shell->raw)
        guard_restore(STDIN_FILENO, &shell->before);
    if (shell->over)
        return shell->exit_code;
    if (status < 0 && !shell->err.code)
        hc_fail_errno(&shell->err, HC_CLASS_HOST, -status, "the connection to the server was lost");
    int code = status < 0 ? server_message(shell->cli, &shell->server, &shell->err) : shell->exit_code;
    if (shell->terminal[0] && !shell->cli->quiet && shell->err.code != EINVAL)
        message_note("the terminal goes on for a while; to take it up again: hotcell shell --attach %s %s",
                     shell->terminal, shell->id);
    return code;
}

/* As guard_run wants it. */
static int work(void *data)
{
    struct hc_buf target = HC_BUF_INIT(SANDBOX_TARGET);
    struct shell *shell = data;
    sigset_t signals;

    guard_signals(&signals);
    shell->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    shell->server.address.terms.wake = shell->signals;
    int status = shell->signals < 0 ? -errno : make_target(shell, &target, &shell->err);
    if (status == 0)
        status = ws_open(&shell->server, target.data, MESSAGE_MAX, &shell->socket, &shell->err);
    shell->server.address.terms.wake = -1;
    hc_buf_release(&target);
    if (status == 0)
        status = serve(shell);
    else if (status == -EINTR)
        status = take_signal(shell);
    int code = report(shell, status);
    ws_close(shell->socket);
    hc_close(shell->signals);
    return code;
}

int sandbox_shell(struct cli *cli, const struct sandbox_line *line)
{
    struct shell shell = {.cli = cli, .line = line, .signals = -1};
    struct hc_err err = {0};

    int status = sandbox_operands(line, 1, SIZE_MAX, &err);
    if (status == 0 && sandbox_value(line, SANDBOX_ATTACH) && line->operands > 1)
        status = hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "--attach takes up what runs already; \"%s\" would be new",
                         line->operand[1]);
    if (status == 0 && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))) {
        hc_fail(&err, HC_CLASS_REQUEST, ENOTTY, "hotcell shell needs a terminal, and stdin or stdout is none");
        status = hc_err_remedy(&err, "without one: hotcell sandbox exec ID -- COMMAND");
    }
    if (status == 0)
        status = sandbox_find(cli, line, line->operand[0], &shell.server, shell.id, &err);
    if (status < 0)
        return server_message(cli, &shell.server, &err);
    int fault = 0, code = guard_run(STDIN_FILENO, work, &shell, &fault);
    if (fault)
        message_note("what looked after the terminal was ended by %s", hc_signal_name(fault));
    if (code >= 0)
        return code;
    hc_fail_errno(&err, HC_CLASS_HOST, -code, "cannot look after the terminal");
    return message_error(cli, &err);
}
