/* The tools for files of a sandbox. */
#include "base/fd.h"
#include "gateway/tools_internal.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds "/files/?path=PATH": behind the slash of that route some relative paths would be taken for absolute ones. */
static int ask_file(const struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    int status = ask_sandbox(call, ask, err);
    hc_buf_add_str(&ask->target, "/files/?path=");
    ask_encoded(ask, tool_text(call, "path"), true);
    return status;
}

static void finish_text(struct tool_call *call, json_t *structured, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void finish_text(struct tool_call *call, json_t *structured, const char *format, ...)
{
    char text[512];
    va_list arguments;
    json_t *content = json_array();
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    content_add_text(content, text, strlen(text));
    tool_finish(call, content, structured);
}

/* ---- read_file ---- */

static int ask_read(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    return ask_file(call, ask, err);
}

static size_t count_lines(const char *text, size_t length)
{
    size_t lines = 0;
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    return lines + (length > 0 && text[length - 1] != '\n');
}

/* The part that offset and limit ask for. */
static void cut_lines(const struct tool_call *call, const char **text, size_t *length)
{
    const json_t *offset = tool_argument(call, "offset"), *limit = tool_argument(call, "limit");
    size_t first = offset != NULL ? (size_t)json_integer_value(offset) : 1;
    size_t left = limit != NULL ? (size_t)json_integer_value(limit) : SIZE_MAX;
    const char *at = *text, *end = *text + *length;
    for (; first > 1 && at < end; first--) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline != NULL ? newline + 1 : end;
    }
    const char *stop = at;
    for (; left > 0 && stop < end; left--) {
        const char *newline = memchr(stop, '\n', (size_t)(end - stop));
        stop = newline != NULL ? newline + 1 : end;
    }
    *text = at;
    *length = (size_t)(stop - at);
}

static int take_read(struct tool_call *call, struct hc_err *err)
{
    (void)err;
    const char *bytes = call->body.data != NULL ? call->body.data : "", *path = tool_text(call, "path");
    size_t size = call->body.length, length = size;
    const char *type = content_type_of(path, bytes, length);
    bool text = hc_utf8_valid(bytes, length) && memchr(bytes, '\0', length) == NULL;
    json_t *content = json_array();
    json_t *structured = json_pack("{s:s, s:I, s:s}", "path", path, "size", (json_int_t)size, "mime_type", type);
    if (text) {
        const json_t *offset = tool_argument(call, "offset");
        json_object_set_new(structured, "lines", json_integer((json_int_t)count_lines(bytes, length)));
        json_object_set_new(structured, "first_line", offset != NULL ? json_incref((json_t *)offset) : json_integer(1));
        cut_lines(call, &bytes, &length);
        content_add_text(content, bytes, length);
        json_object_set_new(structured, "content", json_stringn(bytes, length));
        json_object_set_new(structured, "encoding", json_string("utf-8"));
    } else {
        char uri[TOOL_TARGET_LIMIT / 4];
        snprintf(uri, sizeof uri, "hotcell://sandbox/%.80s%s%.4096s", tool_text(call, "sandbox"),
                 path[0] == '/' ? "" : "/workspace/", path);
        content_add_bytes(content, uri, path, bytes, length);
        json_object_set_new(structured, "encoding", json_string("base64"));
    }
    tool_finish(call, content, structured);
    return 0;
}

/* ---- write_file ---- */

static int ask_write(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const query[] = {"append", NULL};
    const json_t *content = tool_argument(call, "content");
    const char *encoding = tool_text(call, "encoding"), *text = json_string_value(content);
    size_t length = json_string_length(content);
    ask->method = HTTP_PUT;
    int status = ask_file(call, ask, err);
    ask_query(call, ask, query);
    if (status < 0)
        return status;
    if (encoding != NULL && strcmp(encoding, "base64") == 0) {
        if (hc_base64_decode(text, length, &ask->bytes, &ask->length) == 0)
            return 0;
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "content is not base64, as encoding says");
        return hc_err_field(err, "content");
    }
    ask->bytes = malloc(length + 1);
    if (ask->bytes == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
    memcpy(ask->bytes, text, length + 1);
    ask->length = length;
    return 0;
}

static int take_write(struct tool_call *call, struct hc_err *err)
{
    (void)err;
    const char *path = tool_text(call, "path"), *encoding = tool_text(call, "encoding");
    size_t length = json_string_length(tool_argument(call, "content"));
    if (encoding != NULL && strcmp(encoding, "base64") == 0) {
        const char *text = tool_text(call, "content");
        length = length / 4 * 3 - (length > 0 && text[length - 1] == '=') - (length > 1 && text[length - 2] == '=');
    }
    json_t *structured = json_pack("{s:s, s:I}", "path", path, "bytes", (json_int_t)length);
    finish_text(call, structured, "wrote %zu bytes to %.400s", length, path);
    return 0;
}

/* ---- edit_file: read, then write ---- */

enum { EDIT_READ, EDIT_WRITE };

static int ask_edit(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    int status = ask_file(call, ask, err);
    if (status < 0 || call->step == EDIT_READ)
        return status;
    const json_t *text = json_object_get(call->kept, "text");
    ask->method = HTTP_PUT;
    ask->length = json_string_length(text);
    ask->bytes = malloc(ask->length + 1);
    if (ask->bytes == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
    memcpy(ask->bytes, json_string_value(text), ask->length + 1);
    return 0;
}

/* How often it is there, and where it is first. They may overlap: "aa" is twice in "aaa", and which one is meant is
 * not clear. */
static size_t count_matches(const char *text, size_t length, const json_t *wanted, size_t *first)
{
    const char *piece = json_string_value(wanted), *at = text;
    size_t size = json_string_length(wanted), count = 0;
    while ((at = memmem(at, length - (size_t)(at - text), piece, size)) != NULL) {
        if (count++ == 0)
            *first = (size_t)(at - text);
        at++;
    }
    return count;
}

static int replace(struct tool_call *call, struct hc_err *err)
{
    const char *text = call->body.data != NULL ? call->body.data : "", *path = tool_text(call, "path");
    const json_t *old = tool_argument(call, "old_text"), *new = tool_argument(call, "new_text");
    size_t length = call->body.length, first = 0;
    if (!hc_utf8_valid(text, length))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%.200s is not a text in UTF-8; write_file replaces it whole",
                       path);
    size_t count = count_matches(text, length, old, &first);
    if (count != 1) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                "old_text is in %.200s %zu times, and must be there exactly once; nothing was changed", path, count);
        return hc_err_remedy(err, count == 0 ? "read_file shows what is there: white space counts"
                                             : "give more of the lines around it");
    }
    struct hc_buf out = HC_BUF_INIT(TOOL_REPLY_LIMIT);
    hc_buf_add(&out, text, first);
    hc_buf_add(&out, json_string_value(new), json_string_length(new));
    size_t rest = first + json_string_length(old);
    hc_buf_add(&out, text + rest, length - rest);
    if (hc_buf_status(&out) == 0)
        call->kept = json_pack("{s:s%, s:I}", "text", out.data != NULL ? out.data : "", out.length, "line",
                               (json_int_t)count_lines(text, first) + (first == 0 || text[first - 1] == '\n'));
    hc_buf_release(&out);
    call->step = EDIT_WRITE;
    return call->kept != NULL ? 1 : hc_fail(err, HC_CLASS_HOST, ENOMEM, "the server is out of memory");
}

static int take_edit(struct tool_call *call, struct hc_err *err)
{
    if (call->step == EDIT_READ)
        return replace(call, err);
    const char *path = tool_text(call, "path");
    json_int_t line = json_integer_value(json_object_get(call->kept, "line"));
    json_int_t length = (json_int_t)json_string_length(json_object_get(call->kept, "text"));
    json_t *structured = json_pack("{s:s, s:I, s:I}", "path", path, "line", line, "bytes", length);
    finish_text(call, structured, "replaced it in line %lld of %.400s", (long long)line, path);
    return 0;
}

/* ---- list_files, search_files ---- */

static int ask_list(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const query[] = {"path", "depth", "limit", "after", NULL};
    int status = ask_sandbox(call, ask, err);
    hc_buf_add_str(&ask->target, tool_argument(call, "path") != NULL ? "/files" : "/files?path=/workspace");
    ask_query(call, ask, query);
    return status;
}

static int take_list(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    if (reply == NULL)
        return -EPROTO;
    struct hc_buf text = HC_BUF_INIT(TOOL_TEXT_LIMIT);
    json_t *content = json_array(), *entry;
    size_t index;
    json_array_foreach(json_object_get(reply, "entries"), index, entry)
    {
        const char *type = json_string_value(json_object_get(entry, "type"));
        const char *name = json_string_value(json_object_get(entry, "name"));
        bool folder = type != NULL && strcmp(type, "directory") == 0;
        hc_buf_printf(&text, "%s%s", name != NULL ? name : "(not UTF-8)", folder ? "/" : "");
        if (type != NULL && strcmp(type, "file") == 0)
            hc_buf_printf(&text, "  %lld", (long long)json_integer_value(json_object_get(entry, "size")));
        hc_buf_add_str(&text, "\n");
    }
    if (json_is_true(json_object_get(reply, "truncated")))
        hc_buf_add_str(&text, "(there are more: go on with \"after\")\n");
    if (!json_is_array(json_object_get(reply, "entries")))
        content_add_json(content, reply);
    else if (text.length == 0)
        content_add_text(content, "(empty)", 7);
    else
        content_add_text(content, text.data, text.length);
    hc_buf_release(&text);
    tool_finish(call, content, tool_project(reply, json_object_get(call->definition, "outputSchema")));
    return 0;
}

static int ask_search(struct tool_call *call, struct tool_ask *ask, struct hc_err *err)
{
    static const char *const query[] = {"path", "name", "content", "regex", "limit", NULL};
    if (tool_argument(call, "name") == NULL && tool_argument(call, "content") == NULL)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "say what to look for: name, content, or both");
    int status = ask_sandbox(call, ask, err);
    hc_buf_add_str(&ask->target, "/files/search");
    ask_query(call, ask, query);
    return status;
}

static int take_search(struct tool_call *call, struct hc_err *err)
{
    hc_cleanup_json json_t *reply = reply_read(call, err);
    if (reply == NULL)
        return -EPROTO;
    struct hc_buf text = HC_BUF_INIT(TOOL_TEXT_LIMIT);
    json_t *content = json_array(), *match;
    size_t index;
    json_array_foreach(json_object_get(reply, "matches"), index, match)
    {
        const char *path = json_string_value(json_object_get(match, "path"));
        const char *line = json_string_value(json_object_get(match, "text"));
        hc_buf_printf(&text, "%s", path != NULL ? path : "");
        if (line != NULL)
            hc_buf_printf(&text, ":%lld: %s", (long long)json_integer_value(json_object_get(match, "line")), line);
        hc_buf_add_str(&text, "\n");
    }
    if (json_is_true(json_object_get(reply, "truncated")))
        hc_buf_add_str(&text, "(there are more)\n");
    content_add_text(content, text.length > 0 ? text.data : "(nothing was found)", text.length > 0 ? text.length : 19);
    hc_buf_release(&text);
    tool_finish(call, content, tool_project(reply, json_object_get(call->definition, "outputSchema")));
    return 0;
}

const struct tool_row TOOLS_FILES[] = {
    {"read_file", ask_read, take_read},  {"write_file", ask_write, take_write},     {"edit_file", ask_edit, take_edit},
    {"list_files", ask_list, take_list}, {"search_files", ask_search, take_search}, {0},
};
