/*
 * hotcell sandbox exec. An exec is a run in a cell that is there already: it is sent and followed as a run on a server
 * is (remote_run.c), with the same live output, exit codes and Ctrl-C. A detached one is a job that nobody waits for.
 */
#include "base/fd.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/remote.h"
#include "cli/sandbox.h"
#include "cli/sandbox_jobs.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BODY_DEPTH = 64, LINE_MAX_BYTES = 4 * 1024 * 1024, SESSION_INPUT = 4 * 1024 * 1024 };

struct exec {
    const struct sandbox_line *line;
    const char *session, *code, *shell;
    const char *const *command; /* what follows the id */
    size_t words;
};

static int no_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

/* ---- the command line ---- */

static int check_session(const struct sandbox_line *line, const struct exec *exec, struct hc_err *err)
{
    static const struct {
        int id;
        const char *name;
    } others[] = {
        {RUN_CODE, "-c"}, {RUN_LANGUAGE, "-l"}, {RUN_SHELL, "--shell"}, {RUN_ENV, "-e"}, {SANDBOX_DETACH, "-d"}};

    for (size_t i = 0; exec->session && i < sizeof others / sizeof *others; i++)
        if (sandbox_value(line, others[i].id)) {
            hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s cannot be given with --session", others[i].name);
            return hc_err_remedy(err, "a session is a shell: write it into the command");
        }
    return 0;
}

static int read_exec(const struct sandbox_line *line, struct exec *exec, struct hc_err *err)
{
    *exec = (struct exec){.line = line,
                          .session = sandbox_value(line, SANDBOX_SESSION),
                          .code = sandbox_value(line, RUN_CODE),
                          .shell = sandbox_value(line, RUN_SHELL)};
    int status = sandbox_operands(line, 1, SIZE_MAX, err);
    if (status < 0)
        return status;
    exec->command = line->operand + 1;
    exec->words = line->operands - 1;
    if (exec->code && exec->shell)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "-c and --shell are two programs; give one");
    if (exec->words == 0 && !exec->code && !exec->shell) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is nothing to run in the sandbox");
        return hc_err_remedy(err, "hotcell sandbox exec ID -- COMMAND, or -c CODE; hotcell shell ID opens a terminal");
    }
    if (sandbox_value(line, RUN_LANGUAGE) && !exec->code)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "-l %s is for code: give it with -c CODE",
                       sandbox_value(line, RUN_LANGUAGE));
    if (sandbox_value(line, SANDBOX_NAME) && !sandbox_value(line, SANDBOX_DETACH)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--name is for a job that is left running");
        return hc_err_remedy(err, "give -d as well");
    }
    return check_session(line, exec, err);
}

/* The words as one line, for a shell that is there already. */
static char *join(const struct exec *exec)
{
    struct hc_buf buf = HC_BUF_INIT(LINE_MAX_BYTES);

    for (size_t i = 0; i < exec->words; i++) {
        hc_buf_add_str(&buf, i ? " " : "");
        hc_buf_add_str(&buf, exec->command[i]);
    }
    return hc_buf_take(&buf, NULL);
}

static int fill_request(const struct exec *exec, hc_request *request, struct hc_err *err)
{
    hc_error *error = NULL;
    int status = 0;

    for (size_t i = 0; status == 0 && i < exec->line->given_count; i++)
        status = request_option(request, exec->line->given[i].option, exec->line->given[i].value, err);
    if (status == 0 && exec->session) {
        hc_cleanup_free char *text = join(exec);
        if (!text)
            return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "the command is too long");
        return hc_request_set(request, "shell", text, &error) < 0 ? message_adopt(error, err) : 0;
    }
    for (size_t i = 0; status == 0 && i < exec->words; i++)
        if ((exec->code || exec->shell ? hc_request_add_arg(request, exec->command[i], &error)
                                       : hc_request_add_command(request, exec->command[i], &error)) < 0)
            status = message_adopt(error, err);
    return status;
}

/* ---- the request as an exec has it ---- */

static void move_up(json_t *body, const char *key)
{
    json_t *limits = json_object_get(body, "limits"), *value = json_object_get(limits, key);

    if (value)
        json_object_set(body, key, value);
}

static int set_text(json_t *body, const char *key, const char *text, struct hc_err *err)
{
    if (!text)
        return 0;
    json_t *value = json_string(text);
    if (!value)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s is no UTF-8", key);
    return json_object_set_new(body, key, value) < 0 ? no_memory(err) : 0;
}

/* As remote_place has it; data is a struct exec. */
static char *rewrite(void *data, const char *json, struct hc_err *err)
{
    const struct exec *exec = data;
    json_cleanup json_t *body = NULL;

    int status = hc_json_read(json, strlen(json), BODY_DEPTH, &body, err);
    if (status < 0)
        return NULL;
    move_up(body, "timeout");
    move_up(body, "output");
    json_object_del(body, "limits");
    if (sandbox_value(exec->line, SANDBOX_DETACH))
        json_object_set_new(body, "detach", json_true());
    status = set_text(body, "cwd", sandbox_value(exec->line, SANDBOX_CWD), err);
    if (status == 0)
        status = set_text(body, "name", sandbox_value(exec->line, SANDBOX_NAME), err);
    if (status == 0)
        status = set_text(body, "session", exec->session, err);
    char *text = status == 0 ? hc_json_write(body, false) : NULL;
    if (status == 0 && !text)
        no_memory(err);
    return text;
}

/* ---- its input ---- */

/* A terminal is passed on only when that was asked for: a job that does not read would otherwise swallow what is typed
 * ahead for the shell. */
static bool wants_input(const struct exec *exec)
{
    bool apart = exec->session || sandbox_value(exec->line, SANDBOX_DETACH);
    struct stat info;

    if (sandbox_value(exec->line, SANDBOX_INTERACTIVE))
        return true;
    return !apart && fstat(STDIN_FILENO, &info) == 0 && !isatty(STDIN_FILENO);
}

/* A session's call takes its input whole. */
static int read_whole(hc_request *request, struct hc_err *err)
{
    hc_cleanup_free char *text = NULL;
    hc_error *error = NULL;
    size_t length = 0;

    int status = hc_read_all(STDIN_FILENO, SESSION_INPUT, &text, &length);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, -status, "cannot read stdin for the session");
    if (length > 0 && hc_request_set_stdin(request, text, length, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

/* ---- the two ways ---- */

static int follow(const struct cli *cli, struct exec *exec, hc_request *request, const struct server *server,
                  const char *target)
{
    struct run_line line = {.stdin_fd = -1, .input_fd = -1, .collect_fd = -1};
    struct remote_place place = {
        .server = *server, .target = target, .once = exec->session, .rewrite = rewrite, .data = exec};
    struct hc_err err = {0};

    if (place.server.address.key)
        place.server.address.key = place.server.key;
    if (wants_input(exec) && exec->session && read_whole(request, &err) < 0)
        return message_error(cli, &err);
    if (wants_input(exec) && !exec->session)
        line.input_fd = STDIN_FILENO;
    return remote_run(cli, &line, request, &place);
}

static int detach(const struct cli *cli, struct exec *exec, hc_request *request, struct server *server, const char *id,
                  const char *target)
{
    bool input = wants_input(exec);
    json_cleanup json_t *body = NULL, *job = NULL;
    hc_error *error = NULL;
    struct hc_err err = {0};

    if (input && hc_request_set(request, "stdin_open", "true", &error) < 0)
        return message_library(cli, error);
    hc_cleanup_free char *json = hc_request_json(request, &error);
    if (!json)
        return message_library(cli, error);
    hc_cleanup_free char *text = rewrite(exec, json, &err);
    int status = text ? hc_json_read(text, strlen(text), BODY_DEPTH, &body, &err) : -err.code;
    if (status == 0)
        status = sandbox_ask(server, "POST", target, body, &job, &err);
    if (status < 0)
        return server_message(cli, server, &err);
    if (cli->json)
        sandbox_show_json(job);
    else
        printf("%s\n", json_text(job, "id"));
    fflush(stdout);
    if (input && jobs_send_input(server, id, json_text(job, "id"), STDIN_FILENO, &err) < 0)
        return server_message(cli, server, &err);
    return EXIT_OK;
}

int sandbox_exec(struct cli *cli, const struct sandbox_line *line)
{
    char id[SANDBOX_ID], target[SANDBOX_ID + 32];
    struct server server = {0};
    struct hc_err err = {0};
    struct exec exec;

    hc_request *request = hc_request_new();
    int status = request ? read_exec(line, &exec, &err) : no_memory(&err);
    if (status == 0)
        status = fill_request(&exec, request, &err);
    if (status == 0)
        status = sandbox_find(cli, line, line->operand[0], &server, id, &err);
    int code;
    if (status < 0) {
        code = server_message(cli, &server, &err);
    } else {
        snprintf(target, sizeof target, "/v1/sandboxes/%s/exec", id);
        code = sandbox_value(line, SANDBOX_DETACH) ? detach(cli, &exec, request, &server, id, target)
                                                   : follow(cli, &exec, request, &server, target);
    }
    hc_request_free(request);
    return code;
}
