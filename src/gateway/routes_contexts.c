/* Contexts over HTTP: interpreters that keep their variables. One execution of each at a time. */
#include "base/fd.h"
#include "gateway/languages.h"
#include "gateway/speak.h"
#include "run/language.h"
#include "run/plan_internal.h"
#include "run/warm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *context_json(const struct speaker *speaker)
{
    static const char *const starts[] = {[START_COLD] = "cold", [START_WARM] = "warm", [START_PRIMED] = "primed"};
    char made[40], used[40];
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "id", speaker->fixture.id, "language",
                     speaker->language, "language_version", speaker->version, "state", speaker_state_word(speaker),
                     "start", starts[speaker->start <= START_PRIMED ? speaker->start : START_COLD], "created_at",
                     sandbox_time_text(speaker->fixture.created_at, made, sizeof made), "last_used_at",
                     sandbox_time_text(speaker->used_at, used, sizeof used), "executions", (json_int_t)speaker->calls);
}

/* ---- making one ---- */

struct making {                   /* request->data */
    struct http_request *request; /* NULL: it has hung up */
    struct speaker *speaker;
};

static void on_maker_gone(struct http_request *request)
{
    struct making *making = request->data;
    making->request = NULL;
    speaker_end(making->speaker);
}

static void on_started(void *data, struct speaker *speaker, const struct hc_err *err)
{
    struct making *making = data;
    struct http_request *request = making->request;
    free(making);
    if (request == NULL)
        return;
    request->on_gone = NULL;
    if (err != NULL)
        reply_error(request, err);
    else
        sandbox_reply(request, 201, context_json(speaker));
}

static int no_context(const struct language *language, const char *name, struct hc_err *err)
{
    const char *missing;
    if (language == NULL)
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is no language \"%.40s\"", name);
    else if (!language_available(language, &missing))
        hc_fail(err, HC_CLASS_HOST, ENOENT, "%s is not installed on this machine: there is no %s", language->name,
                missing);
    else
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s has no contexts", language->name);
    hc_err_field(err, "language");
    return language != NULL && err->class == HC_CLASS_HOST
               ? hc_err_remedy(err, "apt install %s", language->package)
               : hc_err_remedy(err, "use python, javascript, ruby, bash or r");
}

/* {"K": "V"} as words. */
static int read_env(const json_t *object, struct words *env, struct hc_err *err)
{
    const char *key;
    json_t *value;
    int result = 0;
    if (object == NULL || json_is_null(object))
        return 0;
    if (!json_is_object(object)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "env must be an object of texts");
        return hc_err_field(err, "env");
    }
    json_object_foreach((json_t *)object, key, value)
    {
        hc_cleanup_free char *word = NULL;
        if (!json_is_string(value) || key[0] == '\0' || strchr(key, '=') != NULL ||
            strlen(json_string_value(value)) != json_string_length(value)) {
            hc_fail(err, HC_CLASS_REQUEST, EINVAL, "env.%.40s must be a text without NUL, with a name without \"=\"",
                    key);
            return hc_err_field(err, "env.%.40s", key);
        }
        if (asprintf(&word, "%s=%s", key, json_string_value(value)) < 0) {
            word = NULL;
            result = -ENOMEM;
        }
        if (result == 0)
            result = words_add(env, word);
        if (result < 0)
            return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    return 0;
}

struct choice { /* what a context is to be */
    const struct language *language;
    const char *cwd, *preload;
    char *path; /* cwd, when it had to be put together */
    struct words argv, env, own;
    uint64_t warm;
};

static void choice_release(struct choice *choice)
{
    words_release(&choice->argv);
    words_release(&choice->env);
    words_release(&choice->own);
    free(choice->path);
}

static int choose(struct gateway *gateway, const struct sandbox *sandbox, const json_t *body, const char *name,
                  struct choice *choice, struct hc_err *err)
{
    const struct language *language = catalogue_find(gateway->catalogue, name);
    const char *missing, *work = sandbox->plan.cell.work_dir;
    if (language == NULL || !language_available(language, &missing) || !language->context.run.present)
        return no_context(language, name, err);
    choice->language = language;
    int result = read_env(json_object_get(body, "env"), &choice->own, err);
    for (size_t i = 0; i < sandbox->request->env.count && result == 0; i++)
        result = words_add(&choice->own, sandbox->request->env.item[i]);
    if (result == 0)
        result = warm_choose_context(gateway->config, language, choice->preload, &choice->own, &choice->warm, err);
    if (result == 0)
        result =
            language_expand_warm(language, &language->context.run.command, work, &sandbox->limits, &choice->argv, err);
    if (result < 0)
        return result;
    result = plan_base_env(work, language, &choice->env);
    for (size_t i = 0; i < sandbox->request->env.count && result == 0; i++)
        result = plan_set_env(&choice->env, sandbox->request->env.item[i]);
    for (size_t i = 0; i < choice->own.count && result == 0; i++)
        result = plan_set_env(&choice->env, choice->own.item[i]);
    if (result == 0 && choice->cwd != NULL && choice->cwd[0] != '/') {
        result = asprintf(&choice->path, "%s/%s", work, choice->cwd) < 0 ? -ENOMEM : 0;
        choice->cwd = choice->path;
    }
    if (choice->cwd == NULL)
        choice->cwd = work;
    return result < 0 ? hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory") : 0;
}

void handle_context_create(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char *const known[] = {"language", "cwd", "env", "preload", NULL};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    bool bad = false;
    if (sandbox == NULL)
        return;
    hc_cleanup_json json_t *body = sandbox_body(request);
    if (body == NULL || !sandbox_body_knows(request, body, known))
        return;
    struct choice choice HC_CLEANUP(choice_release) = {.cwd = sandbox_text(request, body, "cwd", &bad)};
    const char *language = bad ? NULL : sandbox_text(request, body, "language", &bad);
    choice.preload = bad ? NULL : sandbox_text(request, body, "preload", &bad);
    if (bad)
        return;
    struct hc_err err = {0};
    struct making *making = calloc(1, sizeof *making);
    int result = making != NULL ? choose(gateway, sandbox, body, language != NULL ? language : "python", &choice, &err)
                                : hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result == 0 && choice.language != NULL) {
        struct speaker_plan plan = {.language = choice.language->name,
                                    .argv = &choice.argv,
                                    .env = &choice.env,
                                    .cwd = choice.cwd,
                                    .warm = choice.warm};
        making->request = request;
        result = speaker_start(sandbox, &context_kind, &plan, on_started, making, &making->speaker, &err);
    }
    if (result < 0) {
        free(making);
        reply_error(request, &err);
        return;
    }
    request->data = making;
    request->on_gone = on_maker_gone;
}

/* ---- the others ---- */

static struct speaker *context_asked(struct gateway *gateway, struct http_request *request,
                                     const struct route_match *match, struct sandbox **out)
{
    const char *id = route_value(match, "context"); /* before a reply, which may be the end of the request */
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    struct speaker *speaker = sandbox != NULL ? speaker_find(sandbox, &context_kind, id) : NULL;
    char detail[160];
    if (sandbox != NULL && speaker == NULL) {
        snprintf(detail, sizeof detail, "there is no context \"%.80s\" in this sandbox", id);
        reply_problem(request, 404, "not_found", detail);
    }
    *out = sandbox;
    return speaker;
}

void handle_context_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_asked(gateway, request, match);
    if (sandbox == NULL)
        return;
    json_t *list = json_array();
    for (struct fixture *fixture = sandbox->fixtures; fixture != NULL; fixture = fixture->next)
        if (fixture->kind == &context_kind && fixture->running)
            json_array_append_new(list, context_json((struct speaker *)fixture));
    sandbox_reply(request, 200, json_pack("{s:o}", "contexts", list));
}

void handle_context_get(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox;
    struct speaker *speaker = context_asked(gateway, request, match, &sandbox);
    if (speaker != NULL)
        sandbox_reply(request, 200, context_json(speaker));
}

void handle_context_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox;
    struct speaker *speaker = context_asked(gateway, request, match, &sandbox);
    if (speaker == NULL)
        return;
    speaker_end(speaker);
    sandbox_used(sandbox);
    reply_text(request, 204, "text/plain", "", 0);
}

void handle_context_interrupt(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox;
    struct speaker *speaker = context_asked(gateway, request, match, &sandbox);
    if (speaker == NULL)
        return;
    speaker_interrupt(speaker);
    sandbox_used(sandbox);
    sandbox_reply(request, 202, context_json(speaker));
}

void handle_context_execute(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char *const known[] = {"code", "stdin", "timeout", "output", "metadata", NULL};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct speaker *speaker = sandbox != NULL ? context_asked(gateway, request, match, &sandbox) : NULL;
    struct speak_order order = {0};
    if (speaker == NULL)
        return;
    hc_cleanup_json json_t *body = sandbox_body(request);
    if (body == NULL || !sandbox_body_knows(request, body, known))
        return;
    const json_t *code = json_object_get(body, "code");
    if (!json_is_string(code)) {
        struct hc_err err = {0};
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "code must be a text: what is to be executed");
        hc_err_field(&err, "code");
        reply_error(request, &err);
        return;
    }
    if (!speak_order(gateway, request, sandbox, body, &order))
        return;
    order.code = json_string_value(code);
    order.code_length = json_string_length(code);
    speak(gateway, request, speaker, &order);
}
