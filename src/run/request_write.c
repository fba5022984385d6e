/*
 * A request as API.md's JSON object: what a client sends to a server. request_from_json reads back the same request.
 * Only what was set is written, so that the server's defaults hold for the rest. Without Jansson, because `hotcell run`
 * has none.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "run/request.h"
#include "run/request_fields.h"
#include "text/base64.h"
#include "text/json_plain.h"
#include "text/utf8.h"
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

/* `status` is 0 or the first failure, which is not the buffer's. */
struct writer {
    struct hc_buf text;
    struct hc_err *err;
    int status;
};

/* What comes next is another member or item. */
static void separate(struct writer *writer)
{
    const struct hc_buf *text = &writer->text;

    if (text->length > 0 && !strchr("{[:", text->data[text->length - 1]))
        hc_buf_add(&writer->text, ",", 1);
}

static void add(struct writer *writer, const char *text)
{
    hc_buf_add_str(&writer->text, text);
}

static void open_item(struct writer *writer, const char *bracket)
{
    separate(writer);
    add(writer, bracket);
}

/* Keys are this file's own words, or were checked as text. */
static void add_key(struct writer *writer, const char *key)
{
    separate(writer);
    hc_json_add_string(&writer->text, key, strlen(key));
    add(writer, ":");
}

static void open_member(struct writer *writer, const char *key, const char *bracket)
{
    add_key(writer, key);
    add(writer, bracket);
}

/* What must be text, because the program gets it as a string: JSON has no other. */
static bool is_text(struct writer *writer, const char *field, const char *value)
{
    if (hc_utf8_valid(value, strlen(value)))
        return true;
    if (writer->status == 0)
        writer->status = request_fail(writer->err, field, "has bytes that are not UTF-8, which JSON cannot carry");
    return false;
}

static void put_text(struct writer *writer, const char *key, const char *value)
{
    if (!value || !is_text(writer, key, value))
        return;
    add_key(writer, key);
    hc_json_add_string(&writer->text, value, strlen(value));
}

static void put_true(struct writer *writer, const char *key, bool value)
{
    add_key(writer, key);
    add(writer, value ? "true" : "false");
}

/* The object is left open. */
static void add_base64(struct writer *writer, const struct blob *blob)
{
    size_t length = 0;
    hc_cleanup_free char *encoded = hc_base64_encode(blob->data, blob->length, &length);

    if (!encoded && writer->status == 0)
        writer->status = request_no_memory(writer->err);
    add(writer, "{\"base64\":\"");
    if (encoded)
        hc_buf_add(&writer->text, encoded, length);
    add(writer, "\"");
}

/* Bytes: a string where they are one, else base64. */
static void put_bytes(struct writer *writer, const char *key, const struct blob *blob)
{
    const char *data = blob->data ? blob->data : "";

    add_key(writer, key);
    if (hc_utf8_valid(data, blob->length)) {
        hc_json_add_string(&writer->text, data, blob->length);
    } else {
        add_base64(writer, blob);
        add(writer, "}");
    }
}

static void put_words(struct writer *writer, const char *key, const struct words *words)
{
    open_member(writer, key, "[");
    for (size_t i = 0; writer->status == 0 && i < words->count; i++) {
        if (!is_text(writer, key, words->item[i]))
            break;
        separate(writer);
        hc_json_add_string(&writer->text, words->item[i], strlen(words->item[i]));
    }
    add(writer, "]");
}

/* Exact: as whole microseconds, thousandths, or a plain number. */
static void put_limit(struct writer *writer, enum limit_id id, uint64_t value)
{
    struct hc_buf *text = &writer->text;

    add_key(writer, limit_table[id].name);
    switch (limit_table[id].kind) {
    case LIMIT_KIND_DURATION:
        hc_buf_printf(text, "\"%" PRIu64 "us\"", value);
        return;
    case LIMIT_KIND_MILLI:
        hc_buf_printf(text, "\"%" PRIu64 ".%03" PRIu64 "\"", value / 1000, value % 1000);
        return;
    case LIMIT_KIND_SIZE:
    case LIMIT_KIND_NUMBER:
        hc_buf_printf(text, "\"%" PRIu64 "\"", value);
        return;
    }
}

static void put_limits(struct writer *writer, const struct limits *limits)
{
    bool any = false;

    for (int id = 0; id < LIMIT_COUNT; id++) {
        if (!limits->set[id])
            continue;
        if (!any)
            open_member(writer, "limits", "{");
        any = true;
        put_limit(writer, (enum limit_id)id, limits->value[id]);
    }
    if (any)
        add(writer, "}");
}

static void put_files(struct writer *writer, const struct request *request)
{
    open_member(writer, "files", "{");
    for (size_t i = 0; writer->status == 0 && i < request->file_count; i++) {
        const struct request_file *file = &request->files[i];
        if (!is_text(writer, "files", file->path))
            break;
        if (file->mode & 0111) {
            add_key(writer, file->path);
            add_base64(writer, &file->content);
            put_true(writer, "executable", true);
            add(writer, "}");
        } else {
            put_bytes(writer, file->path, &file->content);
        }
    }
    add(writer, "}");
}

static void put_env(struct writer *writer, const struct words *env)
{
    open_member(writer, "env", "{");
    for (size_t i = 0; writer->status == 0 && i < env->count; i++) {
        const char *pair = env->item[i], *equals = strchr(pair, '=');
        hc_cleanup_free char *name = strndup(pair, (size_t)(equals - pair));
        if (!name)
            writer->status = request_no_memory(writer->err);
        else if (is_text(writer, "env", name))
            put_text(writer, name, equals + 1);
    }
    add(writer, "}");
}

static void put_mounts(struct writer *writer, const struct request *request)
{
    open_member(writer, "mounts", "[");
    for (size_t i = 0; i < request->mount_count; i++) {
        const struct request_mount *mount = &request->mounts[i];
        open_item(writer, "{");
        put_text(writer, "host", mount->host);
        put_text(writer, "path", mount->path);
        put_true(writer, "read_only", mount->read_only);
        add(writer, "}");
    }
    add(writer, "]");
}

static void put_stages(struct writer *writer, const struct request *request)
{
    open_member(writer, "stages", "[");
    for (size_t i = 0; i < request->stage_count; i++) {
        const struct request_stage *stage = &request->stages[i];
        open_item(writer, "{");
        put_text(writer, "name", stage->name);
        put_words(writer, "command", &stage->command);
        put_limits(writer, &stage->limits);
        add(writer, "}");
    }
    add(writer, "]");
}

static void put_tests(struct writer *writer, const struct request *request)
{
    open_member(writer, "tests", "[");
    for (size_t i = 0; i < request->test_count; i++) {
        const struct request_test *test = &request->tests[i];
        open_item(writer, "{");
        put_text(writer, "name", test->name);
        if (test->has_input)
            put_bytes(writer, "stdin", &test->input);
        if (test->has_expect)
            put_bytes(writer, "expect_stdout", &test->expect_stdout);
        if (test->has_args)
            put_words(writer, "args", &test->args);
        put_limits(writer, &test->limits);
        add(writer, "}");
    }
    add(writer, "]");
}

static void put_program(struct writer *writer, const struct request *request)
{
    put_text(writer, "language", request->language);
    if (request->has_code)
        put_bytes(writer, "code", &request->code);
    put_text(writer, "entry", request->entry);
    if (request->command_shell)
        put_text(writer, "command", request->command.item[0]);
    else if (request->command.count > 0)
        put_words(writer, "command", &request->command);
    if (request->file_count > 0)
        put_files(writer, request);
    if (request->input.length > 0)
        put_bytes(writer, "stdin", &request->input);
    if (request->args.count > 0)
        put_words(writer, "args", &request->args);
    if (request->env.count > 0)
        put_env(writer, &request->env);
}

static void put_terms(struct writer *writer, const struct request *request)
{
    put_limits(writer, &request->limits);
    put_text(writer, "network", request->network);
    put_text(writer, "image", request->image);
    if (request->read_only >= 0)
        put_true(writer, "read_only", request->read_only);
    if (request->mount_count > 0)
        put_mounts(writer, request);
    if (request->stage_count > 0)
        put_stages(writer, request);
    if (request->test_count > 0)
        put_tests(writer, request);
    if (request->collect.count > 0)
        put_words(writer, "collect", &request->collect);
    if (request->metadata) { /* JSON already */
        add_key(writer, "metadata");
        add(writer, request->metadata);
    }
    if (request->stdin_open)
        put_true(writer, "stdin_open", true);
    if (request->no_cache)
        put_true(writer, "cache", false);
    if (request->async)
        put_true(writer, "async", true);
}

char *request_to_json(const struct request *request, struct hc_err *err)
{
    /* What is written was bounded when it was gathered. */
    struct writer writer = {.text = HC_BUF_INIT(SIZE_MAX / 2), .err = err};

    add(&writer, "{");
    put_program(&writer, request);
    put_terms(&writer, request);
    add(&writer, "}");
    char *json = writer.status == 0 ? hc_buf_take(&writer.text, NULL) : NULL;
    if (!json && writer.status == 0)
        request_no_memory(err);
    hc_buf_release(&writer.text);
    return json;
}
