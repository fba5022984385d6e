/* The tools for sandboxes and for what goes on in them without being waited for. */
#include "base/fd.h"
#include "gateway/tools_internal.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- sandboxes ---- */

static int ask_create(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    (void)err;
    static const char *const fields[] = {"files", "env", "idle_timeout", "metadata", NULL};
    static const char *const limits[] = {"memory", "cpus", "disk", "timeout", NULL};
    json_t *bounds = json_object();
    ask->method = HTTP_POST;
    ask->json = json_object();
    hc_buf_add_str(&ask->target, "/v1/sandboxes");
    ask_copy(call, ask->json, fields);
    ask_copy(call, bounds, limits);
    json_object_set_new(ask->json, "limits", bounds);
    return 0;
}

static void add_facts(struct hc_buf *text, const json_t *sandbox)
{
    const char *id = json_string_value(json_object_get(sandbox, "id"));
    const char *state = json_string_value(json_object_get(sandbox, "state"));
    const char *folder = json_string_value(json_object_get(sandbox, "work_dir"));
    const char *until = json_string_value(json_object_get(sandbox, "expires_at"));
    const json_t *metadata = json_object_get(sandbox, "metadata");
    hc_buf_printf(text, "%s: %s, working directory %s", id != NULL ? id : "?", state != NULL ? state : "?",
                  folder != NULL ? folder : "/workspace");
    if (until != NULL)
        hc_buf_printf(text, ", until %s unless it is used", until);
    hc_cleanup_free char *notes = json_object_size(metadata) > 0 ? hc_json_write(metadata, false) : NULL;
    hc_buf_printf(text, "%s%s\n", notes != NULL ? ", " : "", notes != NULL ? notes : "");
}

static int take_facts(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    if (reply == NULL)
        return -EPROTO;
    const json_t *list = json_object_get(reply, "sandboxes");
    struct hc_buf text = HC_BUF_INIT(TOOL_TEXT_LIMIT);
    json_t *content = json_array(), *sandbox;
    size_t index;
    if (list == NULL)
        add_facts(&text, reply);
    json_array_foreach((json_t *)list, index, sandbox) add_facts(&text, sandbox);
    if (text.length == 0)
        hc_buf_add_str(&text, "(there is none)");
    if (hc_buf_status(&text) == 0)
        content_add_text(content, text.data, text.length);
    hc_buf_release(&text);
    tool_finish(call, content, tool_project(reply, json_object_get(call->definition, "outputSchema")));
    return 0;
}

static int ask_list(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    (void)err;
    static const char *const query[] = {"state", NULL};
    hc_buf_add_str(&ask->target, "/v1/sandboxes");
    ask_query(call, ask, query);
    return 0;
}

static int ask_delete(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    ask->method = HTTP_DELETE;
    return ask_sandbox(call, ask, err);
}

static int take_delete(struct tool_call *call, struct hc_err *err)
{
    (void)err;
    const char *id = tool_text(call, "sandbox");
    json_t *content = json_array();
    char text[128];
    int length = snprintf(text, sizeof text, "%.80s is deleted", id);
    content_add_text(content, text, (size_t)length);
    tool_finish(call, content, json_pack("{s:s}", "deleted", id));
    return 0;
}

/* ---- commands that are left alone ---- */

static int ask_start(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const fields[] = {"command", "cwd", "env", "name", "timeout", NULL};
    ask->method = HTTP_POST;
    int status = ask_sandbox(call, ask, err);
    hc_buf_add_str(&ask->target, "/exec");
    ask->json = json_pack("{s:b}", "detach", 1);
    ask_copy(call, ask->json, fields);
    return status;
}

static int ask_job(const struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    int status = ask_sandbox(call, ask, err);
    hc_buf_add_str(&ask->target, "/jobs/");
    return status < 0 ? status : ask_id(call, "job", ask, err);
}

static int ask_check(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const query[] = {"wait", "stdout_from", "stderr_from", NULL};
    int status = ask_job(call, ask, err);
    if (status == 0)
        ask_query(call, ask, query);
    return status;
}

static int take_check(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    if (reply == NULL)
        return -EPROTO;
    const json_t *result = json_object_get(reply, "result");
    json_t *content = json_array();
    hc_cleanup_json json_t *shown = json_deep_copy(reply);
    json_object_set(shown, "success", json_is_object(result) ? json_object_get(result, "success") : json_true());
    if (json_is_object(result)) { /* what it has written is in both; how it ended is in the result */
        json_object_set(shown, "status", json_object_get(result, "status"));
        json_object_set(shown, "exit_code", json_object_get(result, "exit_code"));
        json_object_set(shown, "diagnosis", json_object_get(result, "diagnosis"));
    }
    result_content(content, shown);
    if (!json_is_object(result))
        content_add_text(content, "[still running]", 15);
    tool_finish(call, content, tool_project(reply, json_object_get(call->definition, "outputSchema")));
    return 0;
}

static int ask_stop(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    const char *signal = tool_text(call, "signal");
    int status = ask_job(call, ask, err);
    ask->method = HTTP_DELETE;
    if (signal == NULL)
        return status;
    ask->method = HTTP_POST;
    hc_buf_add_str(&ask->target, "/signal");
    ask->json = json_pack("{s:s}", "signal", signal);
    return status;
}

static int take_stop(struct tool_call *call, struct hc_err *err)
{
    (void)err;
    const char *signal = tool_text(call, "signal"), *job = tool_text(call, "job");
    json_t *content = json_array();
    char text[160];
    int length = snprintf(text, sizeof text, "sent %s to %.80s", signal != NULL ? signal : "KILL", job);
    content_add_text(content, text, (size_t)length);
    tool_finish(call, content, json_pack("{s:s, s:s}", "job", job, "signal", signal != NULL ? signal : "KILL"));
    return 0;
}

/* ---- previews ---- */

static int ask_preview(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const fields[] = {"expires_in", NULL};
    ask->method = HTTP_POST;
    int status = ask_sandbox(call, ask, err);
    hc_buf_printf(&ask->target, "/ports/%lld", (long long)json_integer_value(tool_argument(call, "port")));
    ask->json = json_object();
    ask_copy(call, ask->json, fields);
    return status;
}

/* A link of the server's own is a path. Whoever asks by TCP has shown an address that leads here. */
static int take_preview(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    const char *url = json_string_value(json_object_get(reply, "url"));
    if (url == NULL)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the server gave no link");
    const char *host = http_header(call->from, "host");
    bool complete = url[0] != '/' || call->from->listener != HTTP_LISTEN_TCP || host == NULL;
    struct hc_buf text = HC_BUF_INIT(TOOL_TARGET_LIMIT);
    hc_buf_printf(&text, "%s%s%s", complete ? "" : call->from->tls ? "https://" : "http://", complete ? "" : host, url);
    json_t *content = json_array();
    if (hc_buf_status(&text) == 0) {
        content_add_text(content, text.data, text.length);
        json_object_set_new(reply, "url", json_string(text.data));
    }
    hc_buf_release(&text);
    tool_finish(call, content, tool_project(reply, json_object_get(call->definition, "outputSchema")));
    return 0;
}

const struct tool_row TOOLS_SANDBOX[] = {
    {"create_sandbox", ask_create, take_facts},     {"list_sandboxes", ask_list, take_facts},
    {"delete_sandbox", ask_delete, take_delete},    {"start_command", ask_start, take_json},
    {"check_command", ask_check, take_check},       {"stop_command", ask_stop, take_stop},
    {"get_preview_url", ask_preview, take_preview}, {0},
};
