/*
 * Shell sessions over HTTP: an exec with a session is a call of a shell that keeps its state, and is started by the
 * first of them. What always holds: one call of a session at a time; the name of a session is its sandbox's own.
 */
#include "base/fd.h"
#include "gateway/languages.h"
#include "gateway/speak.h"
#include "run/language.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls ---- */

struct first { /* request->data: a call that waits for its session to be there */
    struct gateway *gateway;
    struct http_request *request; /* NULL: it has hung up */
    struct speak_order order;     /* with texts of its own */
};

static void first_free(struct first *first)
{
    free((char *)first->order.code);
    free((char *)first->order.input);
    free(first->order.metadata);
    free(first);
}

static void on_first_gone(struct http_request *request)
{
    ((struct first *)request->data)->request = NULL;
}

static void on_started(void *data, struct speaker *speaker, const struct hc_err *err)
{
    struct first *first = data;
    struct http_request *request = first->request;
    if (request != NULL)
        request->on_gone = NULL;
    if (request != NULL && err != NULL)
        reply_error(request, err);
    else if (request != NULL)
        speak(first->gateway, request, speaker, &first->order);
    first_free(first);
}

static struct first *first_new(struct gateway *gateway, struct http_request *request, struct speak_order *order)
{
    struct first *first = calloc(1, sizeof *first);
    char *code = malloc(order->code_length + 1), *input = malloc(order->input_length + 1);
    if (first == NULL || code == NULL || input == NULL) {
        free(first);
        free(code);
        free(input);
        return NULL;
    }
    memcpy(code, order->code, order->code_length + 1);
    memcpy(input, order->input, order->input_length + 1);
    *first = (struct first){.gateway = gateway, .request = request, .order = *order};
    first->order.code = code;
    first->order.input = input;
    order->metadata = NULL;
    return first;
}

static int start_shell(struct gateway *gateway, struct sandbox *sandbox, const char *name, const char *cwd,
                       struct first *first, struct hc_err *err)
{
    const struct language *bash = catalogue_find(gateway->catalogue, "bash");
    struct words argv = {0}, env = {0};
    struct speaker *speaker;
    if (bash == NULL || !bash->context.run.present) {
        hc_fail(err, HC_CLASS_HOST, ENOENT, "there is no bash on this machine, which sessions need");
        hc_err_field(err, "language");
        return hc_err_remedy(err, "apt install bash");
    }
    int result = language_expand_warm(bash, &bash->context.run.command, sandbox->plan.cell.work_dir, &sandbox->limits,
                                      &argv, err);
    if (result == 0 && sandbox_env(sandbox, NULL, &env) < 0)
        result = hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    struct speaker_plan plan = {.language = "bash",
                                .name = name,
                                .argv = &argv,
                                .env = &env,
                                .cwd = cwd != NULL ? cwd : sandbox->plan.cell.work_dir};
    if (result == 0)
        result = speaker_start(sandbox, &session_kind, &plan, on_started, first, &speaker, err);
    words_release(&argv);
    words_release(&env);
    return result;
}

static bool check_call(struct http_request *request, const json_t *body, const char *session)
{
    static const char *const others[] = {"code", "language", "args", "env", "detach", "stdin_open", "name", NULL};
    struct hc_err err = {0};
    for (size_t i = 0; others[i] != NULL; i++) {
        const json_t *value = json_object_get(body, others[i]);
        if (value == NULL || json_is_null(value) || json_is_false(value))
            continue;
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "%s cannot be given with session", others[i]);
        hc_err_field(&err, "%s", others[i]);
        hc_err_remedy(&err, "put it into the command: a session is a shell");
    }
    if (!err.code && !json_is_string(json_object_get(body, "command"))) {
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "with session, command must be a text: a piece of shell");
        hc_err_field(&err, "command");
    }
    if (!err.code)
        (void)sandbox_check_name("session", session, &err);
    if (err.code)
        reply_error(request, &err);
    return !err.code;
}

void handle_session_call(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox,
                         const json_t *body, const char *session)
{
    struct speak_order order = {0};
    struct hc_err err = {0};
    if (!check_call(request, body, session) || !speak_order(gateway, request, sandbox, body, &order))
        return;
    order.code = json_string_value(json_object_get(body, "command"));
    order.code_length = json_string_length(json_object_get(body, "command"));
    struct speaker *speaker = speaker_find(sandbox, &session_kind, session);
    const json_t *cwd = json_object_get(body, "cwd");
    if (speaker != NULL && cwd != NULL && !json_is_null(cwd)) {
        free(order.metadata);
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "cwd cannot be given to a session that is there already");
        hc_err_field(&err, "cwd");
        hc_err_remedy(&err, "put a cd into the command: a session is a shell");
        reply_error(request, &err);
        return;
    }
    if (speaker != NULL) {
        speak(gateway, request, speaker, &order);
        return;
    }
    struct first *first = first_new(gateway, request, &order);
    free(order.metadata);
    if (first == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    request->data = first;
    request->on_gone = on_first_gone;
    if (start_shell(gateway, sandbox, session, json_string_value(cwd), first, &err) == 0)
        return;
    request->on_gone = NULL;
    first_free(first);
    reply_error(request, &err);
}

/* ---- the others ---- */

static json_t *session_json(const struct speaker *speaker)
{
    char made[40], used[40];
    return json_pack("{s:s, s:s, s:s, s:s, s:I}", "name", speaker->name, "state", speaker_state_word(speaker),
                     "created_at", sandbox_time_text(speaker->fixture.created_at, made, sizeof made), "last_used_at",
                     sandbox_time_text(speaker->used_at, used, sizeof used), "calls", (json_int_t)speaker->calls);
}

void handle_session_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    json_t *list = json_array();
    for (struct fixture *fixture = sandbox->fixtures; fixture != NULL; fixture = fixture->next)
        if (fixture->kind == &session_kind && fixture->running)
            json_array_append_new(list, session_json((struct speaker *)fixture));
    sandbox_reply(request, 200, json_pack("{s:o}", "sessions", list));
}

static struct speaker *session_asked(struct gateway *gateway, struct http_request *request,
                                     const struct route_match *match)
{
    const char *name = route_value(match, "name"); /* before a reply, which may be the end of the request */
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    struct speaker *speaker = sandbox != NULL ? speaker_find(sandbox, &session_kind, name) : NULL;
    char detail[160];
    if (sandbox != NULL && speaker == NULL) {
        snprintf(detail, sizeof detail, "there is no session \"%.80s\" in this sandbox", name);
        reply_problem(request, 404, "not_found", detail);
    }
    if (speaker != NULL)
        sandbox_used(sandbox);
    return speaker;
}

void handle_session_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct speaker *speaker = session_asked(gateway, request, match);
    if (speaker == NULL)
        return;
    speaker_end(speaker);
    reply_text(request, 204, "text/plain", "", 0);
}

void handle_session_interrupt(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct speaker *speaker = session_asked(gateway, request, match);
    if (speaker == NULL)
        return;
    speaker_interrupt(speaker);
    sandbox_reply(request, 202, session_json(speaker));
}
