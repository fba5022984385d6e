/* The tools that run something and wait for it, or look at what was run: fresh cells, sandboxes, interpreters. */
#include "gateway/tools_internal.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- parts of requests ---- */

void ask_encoded(struct tool_ask *ask, const char *text, bool keep_slashes)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text != '\0'; text++) {
        if (strchr(plain, *text) != NULL || (keep_slashes && *text == '/'))
            hc_buf_add(&ask->target, text, 1);
        else
            hc_buf_printf(&ask->target, "%%%02X", (unsigned char)*text);
    }
}

int ask_id(const struct tool_call *call, const char *name, struct tool_ask *ask, struct hc_err *err)
{
    const char *id = tool_text(call, name);
    if (id[0] == '.' || strpbrk(id, "/\\%") != NULL) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is \"%.60s\", which is no id", name, id);
        return hc_err_field(err, "%s", name);
    }
    ask_encoded(ask, id, false);
    return 0;
}

int ask_sandbox(const struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    hc_buf_add_str(&ask->target, "/v1/sandboxes/");
    return ask_id(call, "sandbox", ask, err);
}

void ask_query(const struct tool_call *call, struct tool_ask *ask, const char *const *names)
{
    char before = strchr(ask->target.data, '?') != NULL ? '&' : '?';
    for (; *names != NULL; names++) {
        const json_t *value = tool_argument(call, *names);
        if (value == NULL)
            continue;
        hc_buf_printf(&ask->target, "%c%s=", before, *names);
        before = '&';
        if (json_is_string(value))
            ask_encoded(ask, json_string_value(value), true);
        else if (json_is_boolean(value))
            hc_buf_add_str(&ask->target, json_is_true(value) ? "true" : "false");
        else if (json_is_integer(value))
            hc_buf_printf(&ask->target, "%lld", (long long)json_integer_value(value));
        else
            hc_buf_printf(&ask->target, "%.3f", json_number_value(value));
    }
}

void ask_copy(const struct tool_call *call, json_t *object, const char *const *names)
{
    for (; *names != NULL; names++) {
        const json_t *value = tool_argument(call, *names);
        if (value != NULL)
            json_object_set(object, *names, (json_t *)value);
    }
}

/* ---- run_code, run_command ---- */

static int refuse_without(const struct tool_call *call, const char *const *names, const char *why, struct hc_err *err)
{
    for (; *names != NULL; names++) {
        if (tool_argument(call, *names) == NULL)
            continue;
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s %s", *names, why);
        return hc_err_field(err, "%s", *names);
    }
    return 0;
}

static int ask_fresh(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const fields[] = {"code", "language", "command", "files", "stdin",
                                         "args", "env",      "collect", NULL};
    static const char *const limits[] = {"timeout", "memory", NULL};
    static const char *const others[] = {"session", "cwd", NULL};
    int status = refuse_without(call, others, "is for a sandbox; give \"sandbox\" too (create_sandbox makes one)", err);
    if (status < 0)
        return status;
    json_t *bounds = json_object();
    hc_buf_add_str(&ask->target, "/v1/runs");
    ask_copy(call, ask->json, fields);
    ask_copy(call, bounds, limits);
    json_object_set_new(ask->json, "limits", bounds);
    return 0;
}

static int ask_exec(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const fields[] = {"code", "language", "command", "stdin",   "args",
                                         "env",  "cwd",      "timeout", "session", NULL};
    static const char *const others[] = {"files", "collect", "memory", NULL};
    int status = refuse_without(call, others,
                                "is for a fresh cell, not for a sandbox; there are write_file, read_file, and the "
                                "limits of create_sandbox",
                                err);
    if (status == 0)
        status = ask_sandbox(call, ask, err);
    if (status < 0)
        return status;
    hc_buf_add_str(&ask->target, "/exec");
    ask_copy(call, ask->json, fields);
    return 0;
}

static int ask_run(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    ask->method = HTTP_POST;
    ask->json = json_object();
    ask->streamed = true;
    return tool_argument(call, "sandbox") != NULL ? ask_exec(call, ask, err) : ask_fresh(call, ask, err);
}

static int take_run(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *result = reply_read(call, err);
    json_t *content = json_array();
    if (result == NULL || content == NULL) {
        json_decref(content);
        return -EPROTO;
    }
    result_content(content, result);
    tool_finish(call, content, tool_project(result, json_object_get(call->definition, "outputSchema")));
    return 0;
}

/* ---- run_in_context: perhaps a new one first ---- */

enum { CONTEXT_MAKE, CONTEXT_EXECUTE };

static int ask_context(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const fields[] = {"code", "stdin", "timeout", NULL};
    const char *given = tool_text(call, "context"), *language = tool_text(call, "language");
    if (given != NULL)
        call->step = CONTEXT_EXECUTE;
    ask->method = HTTP_POST;
    int status = ask_sandbox(call, ask, err);
    if (status < 0)
        return status;
    hc_buf_add_str(&ask->target, "/contexts");
    if (call->step == CONTEXT_MAKE) {
        ask->json = json_pack("{s:s}", "language", language != NULL ? language : "python");
        return 0;
    }
    hc_buf_add_str(&ask->target, "/");
    if (given != NULL)
        status = ask_id(call, "context", ask, err);
    else
        ask_encoded(ask, json_string_value(call->kept), false);
    hc_buf_add_str(&ask->target, "/execute");
    ask->json = json_object();
    ask->streamed = true;
    ask_copy(call, ask->json, fields);
    return status;
}

/* What is an image is in the content, and not a second time in the structure. */
static void drop_images(json_t *structured)
{
    size_t index;
    json_t *item;
    json_array_foreach(json_object_get(structured, "results"), index, item)
    {
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type != NULL && strncmp(type, "image/", 6) == 0)
            json_object_del(item, "data");
    }
}

static int take_context(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    if (reply == NULL)
        return -EPROTO;
    if (call->step == CONTEXT_MAKE) {
        call->kept = json_incref(json_object_get(reply, "id"));
        call->step = CONTEXT_EXECUTE;
        return json_is_string(call->kept) ? 1 : hc_fail(err, HC_CLASS_OURS, EPROTO, "the context has no id");
    }
    json_t *content = json_array();
    json_t *structured = tool_project(reply, json_object_get(call->definition, "outputSchema"));
    result_content(content, reply);
    drop_images(structured);
    if (call->kept != NULL) { /* a new one: who reads the text alone must learn its id too */
        char note[160];
        int length = snprintf(note, sizeof note, "[context %.100s]", json_string_value(call->kept));
        content_add_text(content, note, (size_t)length);
    }
    tool_finish(call, content, structured);
    return 0;
}

/* ---- list_languages, get_history ---- */

static int ask_languages(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    (void)call, (void)err;
    hc_buf_add_str(&ask->target, "/v1/languages");
    return 0;
}

static int take_languages(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    if (reply == NULL)
        return -EPROTO;
    hc_cleanup_json json_t *whole = json_pack("{s:O}", "languages", reply);
    struct hc_buf text = HC_BUF_INIT(TOOL_TEXT_LIMIT);
    json_t *content = json_array(), *language;
    size_t index;
    json_array_foreach(reply, index, language)
    {
        const char *version = json_string_value(json_object_get(language, "version"));
        if (json_is_true(json_object_get(language, "available")))
            hc_buf_printf(&text, "%s%s%s\n", json_string_value(json_object_get(language, "name")),
                          version != NULL && version[0] != '\0' ? " " : "", version != NULL ? version : "");
    }
    if (text.length > 0)
        content_add_text(content, text.data, text.length);
    hc_buf_release(&text);
    tool_finish(call, content, tool_project(whole, json_object_get(call->definition, "outputSchema")));
    return 0;
}

static int ask_history(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const query[] = {"limit", "before", "language", "status", NULL};
    hc_buf_add_str(&ask->target, "/v1/runs");
    if (tool_argument(call, "run") == NULL) {
        if (tool_argument(call, "limit") == NULL)
            hc_buf_add_str(&ask->target, "?limit=20");
        ask_query(call, ask, query);
        return 0;
    }
    int status = refuse_without(call, query, "is for the list, not for one run", err);
    hc_buf_add_str(&ask->target, "/");
    return status < 0 ? status : ask_id(call, "run", ask, err);
}

static int take_history(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    if (reply == NULL)
        return -EPROTO;
    json_t *content = json_array();
    if (tool_argument(call, "run") == NULL) {
        content_add_json(content, reply);
        tool_finish(call, content, json_incref(reply));
        return 0;
    }
    result_content(content, reply);
    json_t *structured = json_pack("{s:O}", "run", reply);
    tool_finish(call, content, structured);
    return 0;
}

const struct tool_row TOOLS_RUN[] = {
    {"run_code", ask_run, take_run},
    {"run_command", ask_run, take_run},
    {"run_in_context", ask_context, take_context},
    {"list_languages", ask_languages, take_languages},
    {"get_history", ask_history, take_history},
    {0},
};
