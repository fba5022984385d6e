/*
 * POST /execute, for clients that were written for another sandbox: {"generated_code", "timeout", "language"} in,
 * {"process_status", "stdout", "stderr"} out, in every answer that is made here, and with process_status one of
 * completed, error, timeout. Such clients look at nothing else, so what ended a run is told in a line of stderr.
 *
 * What that shape cannot say is said as well as it can be: bytes that are not UTF-8 become U+FFFD (POST /v1/runs gives
 * them whole), and a timeout over the operator's ceiling is lowered to it, because these clients send what they like.
 */
#include "base/fd.h"
#include "gateway/gateway.h"
#include "gateway/languages.h"
#include "gateway/runs.h"
#include "gateway/unwrap.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_DEPTH = 64, MESSAGE_SIZE = 1024 };

/* One request while its run is under way: request->data. */
struct execution {
    struct http_request *request;
    struct run *run;
};

/* What was asked, checked. */
struct order {
    struct unwrapped code;
    const char *language;
    double timeout; /* seconds */
};

/* ---- answers ---- */

static void answer(struct http_request *request, int http_status, const char *process_status, json_t *out, json_t *err)
{
    hc_cleanup_json json_t *object =
        json_pack("{s:s, s:o, s:o}", "process_status", process_status, "stdout", out, "stderr", err);
    hc_cleanup_free char *text = hc_json_write(object, false);

    if (text)
        reply_json(request, http_status, text);
    else
        reply_json(request, 500, "{\"process_status\":\"error\",\"stdout\":\"\",\"stderr\":\"out of memory\"}");
}

static void answer_text(struct http_request *request, int http_status, const char *process_status, const char *err)
{
    answer(request, http_status, process_status, json_string(""), hc_json_text_lossy(err));
}

static void refuse(struct http_request *request, const char *message)
{
    answer_text(request, 400, "error", message);
}

static void refuse_language(struct gateway *gateway, struct http_request *request)
{
    char list[MESSAGE_SIZE - 64], message[MESSAGE_SIZE];

    catalogue_list(gateway->catalogue, list, sizeof(list));
    snprintf(message, sizeof(message), "Only python execution is supported, besides: %s", list);
    refuse(request, message);
}

/* The run was not started, or never had its turn. */
static void answer_failure(struct http_request *request, const struct hc_err *err, unsigned retry_seconds)
{
    int status = hc_class_info(err->class)->http_status;
    char message[sizeof(err->message) + sizeof(err->remedy) + 4], seconds[16];

    if (err->code == EDQUOT)
        status = 429;
    else if (err->code == EAGAIN)
        status = 503;
    else if (strcmp(err->field, "language") == 0)
        status = 400; /* one that is not installed: to ask again does not help */
    if (status == 429 || status == 503) {
        snprintf(seconds, sizeof(seconds), "%u", retry_seconds > 0 ? retry_seconds : 1);
        http_add_header(request, "Retry-After", seconds);
    }
    snprintf(message, sizeof(message), "%s%s%s", err->message, err->remedy[0] ? "; " : "", err->remedy);
    answer_text(request, status >= 400 ? status : 500, "error", message);
}

/* ---- the result, in the old shape ---- */

/* A stream of API.md's result as a JSON string, with `line`, if there is one, after it. NULL: out of memory. */
static json_t *stream_text(const json_t *result, const char *name, const char *line)
{
    const json_t *value = json_object_get(result, name), *encoding = json_object_get(result, "output_encoding");
    hc_cleanup_free char *decoded = NULL;
    const char *bytes = json_string_value(value);
    size_t length = json_string_length(value);
    json_t *text = NULL;

    if (!bytes)
        return NULL;
    if (strcmp(json_string_value(encoding), "base64") == 0) {
        if (hc_base64_decode(bytes, length, &decoded, &length) < 0)
            return NULL;
        bytes = decoded;
    }
    /* A byte that is replaced becomes three. */
    struct hc_buf buf = HC_BUF_INIT(3 * length + strlen(line) + 2);
    hc_utf8_replace(&buf, bytes, length);
    if (line[0] && length > 0 && bytes[length - 1] != '\n')
        hc_buf_add_str(&buf, "\n");
    if (line[0])
        hc_buf_printf(&buf, "%s\n", line);
    if (hc_buf_status(&buf) == 0)
        text = hc_json_text(buf.data, buf.length);
    hc_buf_release(&buf);
    return text;
}

/* What ended it, where the program itself may not have said so. */
static void end_line(const json_t *result, const char *status, char *line, size_t size)
{
    static const char *const ours[] = {"oom", "output_limit", "pids_limit", "killed", "internal"};
    const char *message = json_string_value(json_object_get(json_object_get(result, "diagnosis"), "message"));
    bool told = json_is_null(json_object_get(result, "signal"));

    line[0] = '\0';
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strcmp(status, ours[i]) == 0)
            told = false;
    }
    if (!told)
        snprintf(line, size, "hotcell: %s%s%s", status, message ? ": " : "", message ? message : "");
}

static void answer_result(struct http_request *request, const char *json)
{
    hc_cleanup_json json_t *result = NULL;
    char line[MESSAGE_SIZE];
    const char *status;

    if (hc_json_read(json, strlen(json), BODY_DEPTH, &result, NULL) < 0 ||
        !(status = json_string_value(json_object_get(result, "status")))) {
        answer_text(request, 500, "error", "out of memory");
        return;
    }
    if (strcmp(status, "timeout") == 0) {
        answer(request, 200, "timeout", stream_text(result, "stdout", ""), json_string("Timed out\n"));
    } else if (strcmp(status, "completed") == 0) {
        answer(request, 200, "completed", stream_text(result, "stdout", ""), stream_text(result, "stderr", ""));
    } else {
        end_line(result, status, line, sizeof(line));
        answer(request, 200, "error", stream_text(result, "stdout", ""), stream_text(result, "stderr", line));
    }
}

/* ---- the run ---- */

static void run_ended(void *data, struct run *run, const char *json)
{
    struct execution *execution = data;
    struct http_request *request = execution->request;
    const struct hc_err *failure = run_failure(run);

    request->on_gone = NULL;
    request->data = NULL;
    free(execution);
    if (failure)
        answer_failure(request, failure, 0);
    else
        answer_result(request, json);
}

static void client_gone(struct http_request *request)
{
    struct execution *execution = request->data;

    run_unwatch(execution->run, execution);
    free(execution);
}

/* Seconds, within what the operator and the table allow: the caller has answered those of zero and less. */
static uint64_t timeout_within(const struct config *config, double seconds)
{
    const struct limit_info *info = &limit_table[LIMIT_TIMEOUT];
    uint64_t most = config->ceilings.set[LIMIT_TIMEOUT] ? config->ceilings.value[LIMIT_TIMEOUT] : info->high;
    double microseconds = seconds * 1e6 + 0.5;

    if (microseconds >= (double)most)
        return most;
    return microseconds < (double)info->low ? info->low : (uint64_t)microseconds;
}

static struct request *make_request(const struct gateway *gateway, const struct order *order, struct hc_err *err)
{
    struct request *request = request_new();

    if (!request) {
        hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
        return NULL;
    }
    request->code_apart = true;
    request->limits.set[LIMIT_TIMEOUT] = true;
    request->limits.value[LIMIT_TIMEOUT] = timeout_within(gateway->config, order->timeout);
    /* What a request leaves in the workspace can be imported by the next, though the code itself is elsewhere. */
    if (request_set(request, "language", order->language, err) < 0 ||
        request_add_env(request, "PYTHONPATH", gateway->config->work_dir, err) < 0 ||
        request_set_code(request, order->code.code, order->code.length, err) < 0) {
        request_free(request);
        return NULL;
    }
    return request;
}

static void start(struct gateway *gateway, struct http_request *http, const struct order *order)
{
    const struct visit *visit = http->context;
    struct execution *execution = calloc(1, sizeof(*execution));
    struct run_options options = {.caller = visit->caller,
                                  .shared_workspace = true,
                                  .kind = "execute",
                                  .request_text = http->body,
                                  .request_length = http->body_length};
    struct run_watcher watcher = {.data = execution, .ended = run_ended};
    struct hc_err err = {0};
    unsigned retry_seconds = 0;

    if (!execution) {
        answer_text(http, 500, "error", "out of memory");
        return;
    }
    struct request *request = make_request(gateway, order, &err);
    if (!request || runs_start(gateway->runs, request, &options, &watcher, &execution->run, &retry_seconds, &err) < 0) {
        free(execution);
        answer_failure(http, &err, retry_seconds);
        return;
    }
    execution->request = http;
    http->data = execution;
    http->on_gone = client_gone;
}

/* ---- the request ---- */

static bool is_language(void *data, const char *name)
{
    return catalogue_find(data, name) != NULL;
}

static const char *type_word(const json_t *value)
{
    static const char *const words[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",   [JSON_STRING] = "a string", [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a number",    [JSON_TRUE] = "a boolean", [JSON_FALSE] = "a boolean", [JSON_NULL] = "null"};

    return words[json_typeof(value)];
}

/* False: it has answered. */
static bool check_type(struct http_request *request, const json_t *value, bool right, const char *name,
                       const char *kind)
{
    char message[128];

    if (right)
        return true;
    snprintf(message, sizeof(message), "Invalid field: %s must be %s, not %s", name, kind, type_word(value));
    refuse(request, message);
    return false;
}

static bool check_present(struct http_request *request, const json_t *body, const char *name)
{
    char message[64];

    if (json_object_get(body, name))
        return true;
    snprintf(message, sizeof(message), "Missing required field: %s", name);
    refuse(request, message);
    return false;
}

/* The checks are in the order in which those clients know them. False: it has answered. */
static bool read_order(struct gateway *gateway, struct http_request *request, const json_t *body, struct order *order)
{
    const json_t *code = json_object_get(body, "generated_code"), *timeout = json_object_get(body, "timeout");
    const json_t *language = json_object_get(body, "language");

    if (!check_present(request, body, "generated_code") || !check_present(request, body, "timeout"))
        return false;
    if (language && !check_type(request, language, json_is_string(language), "language", "a string"))
        return false;
    order->language = language ? json_string_value(language) : "python";
    if (!is_language(gateway->catalogue, order->language)) {
        refuse_language(gateway, request);
        return false;
    }
    if (!check_type(request, code, json_is_string(code), "generated_code", "a string") ||
        !check_type(request, timeout, json_is_number(timeout), "timeout", "a number of seconds"))
        return false;
    order->timeout = json_number_value(timeout);
    if (unwrap_code(json_string_value(code), json_string_length(code), is_language, gateway->catalogue, &order->code) <
        0) {
        answer_text(request, 500, "error", "out of memory");
        return false;
    }
    if (order->code.language[0] != '\0')
        order->language = order->code.language;
    if (is_language(gateway->catalogue, order->language))
        return true;
    refuse_language(gateway, request);
    free(order->code.code);
    return false;
}

void handle_execute(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    hc_cleanup_json json_t *body = NULL;
    struct order order = {0};

    (void)match;
    if (!content_is_json(request)) {
        refuse(request, "Request must be JSON");
        return;
    }
    int status = hc_json_read(request->body, request->body_length, BODY_DEPTH, &body, NULL);
    if (status == -ENOMEM) {
        answer_text(request, 500, "error", "out of memory");
        return;
    }
    if (status < 0 || json_is_null(body)) {
        refuse(request, "Invalid JSON data");
        return;
    }
    if (!check_type(request, body, json_is_object(body), "the body", "an object") ||
        !read_order(gateway, request, body, &order))
        return;
    if (order.timeout <= 0)
        answer_text(request, 200, "timeout", "Timed out\n");
    else
        start(gateway, request, &order);
    free(order.code.code);
}

/* ---- GET / ---- */

void handle_root(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char page[] =
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>hotcell</title>\n"
        "<h1>hotcell</h1>\n<p>Runs code that nobody trusts, each run in a cell of its own.</p>\n<ul>\n"
        "<li><code>POST /v1/runs</code>: run code</li>\n<li><code>POST /execute</code>: run code in the shared "
        "workspace</li>\n<li><a href=\"/v1/languages\">/v1/languages</a></li>\n"
        "<li><a href=\"/v1/runs\">/v1/runs</a>: the history</li>\n<li><a href=\"/v1/stats\">/v1/stats</a></li>\n"
        "<li><a href=\"/openapi.json\">/openapi.json</a>: everything there is</li>\n</ul>\n</html>\n";

    (void)gateway;
    (void)match;
    if (http_accepts(request, "text/html"))
        reply_text(request, 200, "text/html; charset=utf-8", page, sizeof(page) - 1);
    else
        reply_json(request, 200, "{\"status\":\"ok\"}");
}
