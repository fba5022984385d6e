/*
 * Content for models: the parts of a result as text, images and files. Text is what a person would want to see of it,
 * and no more, for every word of it is paid for; the whole is in the structured content.
 */
#include "base/fd.h"
#include "gateway/tools_internal.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { RESULT_DEPTH = 64 };

void content_add_text(json_t *content, const char *text, size_t length)
{
    json_array_append_new(content, json_pack("{s:s, s:o}", "type", "text", "text", json_stringn(text, length)));
}

void content_add_json(json_t *content, const json_t *value)
{
    hc_cleanup_free char *text = hc_json_write(value, true);
    if (text != NULL)
        content_add_text(content, text, strlen(text));
}

/* ---- files ---- */

const char *content_image_type(const char *bytes, size_t length)
{
    static const struct {
        const char *magic;
        size_t length, offset;
        const char *type;
    } known[] = {{"\x89PNG\r\n\x1a\n", 8, 0, "image/png"},
                 {"\xff\xd8\xff", 3, 0, "image/jpeg"},
                 {"GIF87a", 6, 0, "image/gif"},
                 {"GIF89a", 6, 0, "image/gif"},
                 {"WEBP", 4, 8, "image/webp"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (length >= known[i].offset + known[i].length &&
            memcmp(bytes + known[i].offset, known[i].magic, known[i].length) == 0)
            return known[i].type;
    return NULL;
}

const char *content_type_of(const char *path, const char *bytes, size_t length)
{
    static const struct {
        const char *ending, *type;
    } known[] = {{".html", "text/html"},     {".json", "application/json"}, {".csv", "text/csv"},
                 {".md", "text/markdown"},   {".svg", "image/svg+xml"},     {".xml", "application/xml"},
                 {".css", "text/css"},       {".js", "text/javascript"},    {".py", "text/x-python"},
                 {".pdf", "application/pdf"}};
    const char *image = content_image_type(bytes, length);
    if (image != NULL)
        return image;
    size_t path_length = strlen(path);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t ending = strlen(known[i].ending);
        if (path_length > ending && strcasecmp(path + path_length - ending, known[i].ending) == 0)
            return known[i].type;
    }
    return hc_utf8_valid(bytes, length) && memchr(bytes, '\0', length) == NULL ? "text/plain"
                                                                               : "application/octet-stream";
}

void content_add_bytes(json_t *content, const char *uri, const char *path, const char *bytes, size_t length)
{
    const char *type = content_type_of(path, bytes, length);
    bool text = hc_utf8_valid(bytes, length) && memchr(bytes, '\0', length) == NULL;
    size_t encoded_length;
    hc_cleanup_free char *encoded = text ? NULL : hc_base64_encode(bytes, length, &encoded_length);
    if (!text && encoded == NULL)
        return;
    if (content_image_type(bytes, length) != NULL) {
        json_array_append_new(content,
                              json_pack("{s:s, s:s, s:s}", "type", "image", "data", encoded, "mimeType", type));
        return;
    }
    json_array_append_new(content, json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "resource", "resource", "uri", uri,
                                             "mimeType", type, text ? "text" : "blob",
                                             text ? json_stringn(bytes, length) : json_string(encoded)));
}

static void add_file(json_t *content, const char *run, const json_t *file)
{
    const char *path = json_string_value(json_object_get(file, "path"));
    const char *encoded = json_string_value(json_object_get(file, "base64"));
    hc_cleanup_free char *bytes = NULL;
    size_t length;
    char uri[1024];
    if (path == NULL || encoded == NULL || hc_base64_decode(encoded, strlen(encoded), &bytes, &length) < 0)
        return;
    snprintf(uri, sizeof uri, "hotcell://run/%.80s/%.900s", run, path);
    content_add_bytes(content, uri, path, bytes, length);
}

/* ---- results ---- */

static void add_stream(struct hc_buf *text, const json_t *result, const char *name, bool titled)
{
    const json_t *value = json_object_get(result, name);
    if (json_string_length(value) == 0)
        return;
    const char *encoding = json_string_value(json_object_get(result, "output_encoding"));
    bool encoded = encoding != NULL && strcmp(encoding, "base64") == 0;
    if (text->length > 0 && text->data[text->length - 1] != '\n')
        hc_buf_add_str(text, "\n");
    if (titled || encoded)
        hc_buf_printf(text, "[%s%s]\n", name, encoded ? ", base64" : "");
    hc_buf_add(text, json_string_value(value), json_string_length(value));
}

static void add_diagnosis(struct hc_buf *text, const json_t *diagnosis)
{
    const char *message = json_string_value(json_object_get(diagnosis, "message"));
    const char *hint = json_string_value(json_object_get(diagnosis, "hint"));
    if (message != NULL)
        hc_buf_printf(text, ": %s", message);
    if (hint != NULL)
        hc_buf_printf(text, " (hint: %s)", hint);
}

/* "[timeout, exit code 124: … (hint: …)]" of what did not complete. */
static void add_status(struct hc_buf *text, const json_t *result)
{
    const json_t *code = json_object_get(result, "exit_code");
    if (text->length > 0 && text->data[text->length - 1] != '\n')
        hc_buf_add_str(text, "\n");
    const char *status = json_string_value(json_object_get(result, "status"));
    hc_buf_printf(text, "[%s", status != NULL ? status : "unknown");
    if (json_is_integer(code))
        hc_buf_printf(text, ", exit code %lld", (long long)json_integer_value(code));
    add_diagnosis(text, json_object_get(result, "diagnosis"));
    hc_buf_add_str(text, "]\n");
}

static void add_results(json_t *content, const json_t *results)
{
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)results, index, item)
    {
        const char *type = json_string_value(json_object_get(item, "type"));
        const json_t *data = json_object_get(item, "data");
        if (type == NULL || !json_is_string(data))
            continue;
        if (strncmp(type, "image/", 6) == 0 && strcmp(type, "image/svg+xml") != 0)
            json_array_append_new(content,
                                  json_pack("{s:s, s:O, s:s}", "type", "image", "data", data, "mimeType", type));
        else if (strcmp(type, "text/plain") == 0)
            content_add_text(content, json_string_value(data), json_string_length(data));
    }
}

void result_content(json_t *content, const json_t *result)
{
    struct hc_buf text = HC_BUF_INIT(TOOL_TEXT_LIMIT);
    const char *traceback = json_string_value(json_object_get(json_object_get(result, "error"), "traceback"));
    const json_t *files = json_object_get(result, "files"), *shown = json_object_get(result, "results");
    const char *id = json_string_value(json_object_get(result, "id"));
    bool failed = !json_is_true(json_object_get(result, "success"));
    add_stream(&text, result, "stdout", false);
    add_stream(&text, result, "stderr", true);
    if (traceback != NULL)
        hc_buf_printf(&text, "%s%s\n", text.length > 0 ? "\n" : "", traceback);
    if (failed)
        add_status(&text, result);
    if (text.length == 0 && json_array_size(files) == 0 && json_array_size(shown) == 0)
        hc_buf_add_str(&text, "(no output)");
    if (hc_buf_status(&text) == 0 && text.length > 0)
        content_add_text(content, text.data, text.length);
    hc_buf_release(&text);
    add_results(content, shown);
    size_t index;
    json_t *file;
    json_array_foreach((json_t *)files, index, file) add_file(content, id != NULL ? id : "", file);
}

/* ---- replies ---- */

json_t *reply_read(const struct tool_call *call, struct hc_err *err)
{
    json_t *reply = NULL;
    const char *body = call->body.data != NULL ? call->body.data : "";
    if (hc_json_read(body, call->body.length, RESULT_DEPTH, &reply, NULL) == 0)
        return reply;
    hc_fail(err, HC_CLASS_OURS, EPROTO, "the server's own answer is not JSON");
    return NULL;
}

int take_json(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    json_t *content = json_array();
    if (reply == NULL || content == NULL) {
        json_decref(content);
        return reply == NULL ? -EPROTO : hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
    }
    json_t *structured = tool_project(reply, json_object_get(call->definition, "outputSchema"));
    content_add_json(content, structured);
    tool_finish(call, content, structured);
    return 0;
}
