/*
 * API.md's request object, from JSON. One table names every field of each object and the function that reads it; a name
 * that is not in the table is an error. null is the same as leaving the field out. Every error names its field as a
 * person would write it: files.data.bin.base64, limits.memory, tests[2].stdin. After an error the request holds part of
 * what was asked and is only good to be freed.
 */
#include "run/request.h"

#include "base/fd.h"
#include "run/request_fields.h"
#include "run/request_metadata.h"
#include "text/base64.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_DEPTH = 32, FIELD_SIZE = 128 };

/* Reads `value`, which is not null, into `target`; `field` is its full name. */
typedef int (*read_fn)(void *target, const char *field, const json_t *value, struct hc_err *err);

struct field {
    const char *name;
    read_fn read;
};

/* Each key of `object` by its entry in `fields`. `prefix` is "" or ends in a dot. */
static int read_object(void *target, const char *prefix, const json_t *object, const struct field *fields, size_t count,
                       struct hc_err *err)
{
    const char *known[32];
    const char *key;
    json_t *value;

    for (size_t i = 0; i < count; i++)
        known[i] = fields[i].name;
    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        while (i < count && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == count)
            return request_unknown(key, prefix, known, count, err);
        if (json_is_null(value))
            continue;
        char field[FIELD_SIZE];
        snprintf(field, sizeof(field), "%s%s", prefix, key);
        int status = fields[i].read(target, field, value, err);
        if (status < 0)
            return status;
    }
    return 0;
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* A string that will become a C string: argv, environment, names. NULL with the error set. */
static const char *plain_string(const char *field, const json_t *value, struct hc_err *err)
{
    if (!json_is_string(value)) {
        request_fail(err, field, "must be a string");
        return NULL;
    }
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value)) {
        request_fail(err, field, "must not hold a NUL character");
        return NULL;
    }
    return text;
}

static int read_base64(struct blob *blob, const char *field, const json_t *value, struct hc_err *err)
{
    const json_t *text = json_object_get(value, "base64");
    char inner[FIELD_SIZE + 8];
    struct blob decoded = {0};

    if (json_object_size(value) != 1 || !text)
        return request_fail(err, field, "must be a string, or an object with the one field \"base64\"");
    snprintf(inner, sizeof(inner), "%s.base64", field);
    if (!json_is_string(text))
        return request_fail(err, inner, "must be a string");
    int status = hc_base64_decode(json_string_value(text), json_string_length(text), &decoded.data, &decoded.length);
    if (status == -ENOMEM)
        return request_no_memory(err);
    if (status < 0)
        return request_fail(err, inner, "is not valid base64 (RFC 4648, with padding)");
    free(blob->data);
    *blob = decoded;
    return 0;
}

/* Bytes: a string, or {"base64": "…"}. */
static int read_blob(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct blob *blob = target;

    if (json_is_object(value))
        return read_base64(blob, field, value, err);
    if (!json_is_string(value))
        return request_fail(err, field, "must be a string, or an object with the one field \"base64\"");
    return blob_set(blob, json_string_value(value), json_string_length(value)) < 0 ? request_no_memory(err) : 0;
}

static int read_words(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    size_t index;
    json_t *item;

    if (!json_is_array(value))
        return request_fail(err, field, "must be a list of strings");
    json_array_foreach(value, index, item)
    {
        char name[FIELD_SIZE + 24];
        snprintf(name, sizeof(name), "%s[%zu]", field, index);
        const char *text = plain_string(name, item, err);
        if (!text)
            return -EINVAL;
        int status = request_add_word(target, field, text, err);
        if (status < 0)
            return status;
    }
    return 0;
}

static int read_name(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    const char *text = plain_string(field, value, err);
    char **name = target;

    if (!text)
        return -EINVAL;
    if (strlen(text) > 64)
        return request_fail(err, field, "is longer than 64 bytes");
    free(*name);
    *name = strdup(text);
    return *name ? 0 : request_no_memory(err);
}

static int read_limit(struct limits *limits, const char *field, const char *name, const json_t *value,
                      struct hc_err *err)
{
    int id = limit_find(name), status;

    if (json_is_null(value))
        return 0;
    if (json_is_string(value)) {
        const char *text = plain_string(field, value, err);
        status = text ? limit_parse((enum limit_id)id, text, &limits->value[id], err) : -EINVAL;
    } else if (json_is_number(value)) {
        status = limit_from_number((enum limit_id)id, json_number_value(value), &limits->value[id], err);
    } else {
        return request_fail(err, field, "must be a number or a string");
    }
    if (status < 0) {
        hc_err_field(err, "%s", field); /* limits.c does not know that this may be tests[2].limits.memory */
        return status;
    }
    limits->set[id] = true;
    return 0;
}

static int read_limits(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    const char *key;
    json_t *item;

    if (!json_is_object(value))
        return request_fail(err, field, "must be an object");
    json_object_foreach((json_t *)value, key, item)
    {
        char name[FIELD_SIZE * 2], prefix[FIELD_SIZE + 2];
        snprintf(prefix, sizeof(prefix), "%s.", field);
        snprintf(name, sizeof(name), "%s%s", prefix, key);
        if (limit_find(key) < 0)
            return request_unknown_limit(key, prefix, err);
        int status = read_limit(target, name, key, item, err);
        if (status < 0)
            return status;
    }
    return 0;
}

/* ---- stages and tests ---- */

static int read_stage_name(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_name(&((struct request_stage *)target)->name, field, value, err);
}

/* A stage has no flag for the shell: a string becomes the words that ask for one. */
static int read_stage_command(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct words *command = &((struct request_stage *)target)->command;

    if (!json_is_string(value)) {
        int status = read_words(command, field, value, err);
        if (status == 0 && (command->count == 0 || command->item[0][0] == '\0'))
            return request_fail(err, field, "names no program");
        return status;
    }
    const char *text = plain_string(field, value, err);
    if (!text)
        return -EINVAL;
    if (text[0] == '\0')
        return request_fail(err, field, "is empty");
    if (words_add(command, "/bin/sh") < 0 || words_add(command, "-c") < 0 || words_add(command, text) < 0)
        return request_no_memory(err);
    return 0;
}

static int read_stage_limits(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_limits(&((struct request_stage *)target)->limits, field, value, err);
}

/* A stage's limits may also stand beside its command: {"command": […], "timeout": 10}. */
static int read_stage_limit(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_limit(&((struct request_stage *)target)->limits, field, strrchr(field, '.') + 1, value, err);
}

static int read_stage(struct request_stage *stage, const char *prefix, const json_t *value, struct hc_err *err)
{
    struct field fields[3 + LIMIT_COUNT] = {
        {"name", read_stage_name},
        {"command", read_stage_command},
        {"limits", read_stage_limits},
    };

    for (int id = 0; id < LIMIT_COUNT; id++)
        fields[3 + id] = (struct field){limit_table[id].name, read_stage_limit};
    int status = read_object(stage, prefix, value, fields, COUNT_OF(fields), err);
    if (status == 0 && stage->command.count == 0) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%scommand is missing", prefix);
        hc_err_field(err, "%scommand", prefix);
        return -EINVAL;
    }
    return status;
}

static int read_test_name(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_name(&((struct request_test *)target)->name, field, value, err);
}

static int read_test_stdin(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct request_test *test = target;

    test->has_input = true;
    return read_blob(&test->input, field, value, err);
}

static int read_test_expect(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct request_test *test = target;

    test->has_expect = true;
    return read_blob(&test->expect_stdout, field, value, err);
}

static int read_test_args(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct request_test *test = target;

    test->has_args = true;
    return read_words(&test->args, field, value, err);
}

static int read_test_limits(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_limits(&((struct request_test *)target)->limits, field, value, err);
}

static int read_test(struct request_test *test, const char *prefix, const json_t *value, struct hc_err *err)
{
    static const struct field fields[] = {
        {"name", read_test_name}, {"stdin", read_test_stdin},   {"expect_stdout", read_test_expect},
        {"args", read_test_args}, {"limits", read_test_limits},
    };

    return read_object(test, prefix, value, fields, COUNT_OF(fields), err);
}

static int check_list(const char *field, const json_t *value, size_t most, struct hc_err *err)
{
    char what[64];
    size_t index;
    json_t *item;

    if (!json_is_array(value))
        return request_fail(err, field, "must be a list of objects");
    if (json_array_size(value) > most) {
        snprintf(what, sizeof(what), "has more than %zu items", most);
        return request_fail(err, field, what);
    }
    json_array_foreach(value, index, item)
    {
        char name[FIELD_SIZE + 24];
        snprintf(name, sizeof(name), "%s[%zu]", field, index);
        if (!json_is_object(item))
            return request_fail(err, name, "must be an object");
    }
    return 0;
}

static int read_stages(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct request *request = target;
    int status = check_list(field, value, REQUEST_MAX_STAGES, err);
    size_t count = json_array_size(value);

    if (status < 0 || count == 0)
        return status;
    if (request->stage_count > 0)
        return request_fail(err, field, "was already given");
    request->stages = calloc(count, sizeof(*request->stages));
    if (!request->stages)
        return request_no_memory(err);
    request->stage_count = count;
    for (size_t i = 0; i < count && status == 0; i++) {
        char prefix[FIELD_SIZE];
        snprintf(prefix, sizeof(prefix), "stages[%zu].", i);
        status = read_stage(&request->stages[i], prefix, json_array_get(value, i), err);
    }
    return status;
}

static int read_tests(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct request *request = target;
    int status = check_list(field, value, REQUEST_MAX_TESTS, err);
    size_t count = json_array_size(value);

    if (status < 0 || count == 0)
        return status;
    if (request->test_count > 0)
        return request_fail(err, field, "was already given");
    request->tests = calloc(count, sizeof(*request->tests));
    if (!request->tests)
        return request_no_memory(err);
    request->test_count = count;
    for (size_t i = 0; i < count && status == 0; i++) {
        char prefix[FIELD_SIZE];
        snprintf(prefix, sizeof(prefix), "tests[%zu].", i);
        status = read_test(&request->tests[i], prefix, json_array_get(value, i), err);
    }
    return status;
}

/* ---- the request's own fields ---- */

/* language, entry, network, image: request_set checks and copies them, as it does for the command line. */
static int read_text(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    const char *text = plain_string(field, value, err);
    return text ? request_set(target, field, text, err) : -EINVAL;
}

static int read_code(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct request *request = target;

    request->has_code = true;
    return read_blob(&request->code, field, value, err);
}

static int read_stdin(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_blob(&((struct request *)target)->input, field, value, err);
}

static int read_command(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct request *request = target;
    struct words words = {0};

    if (json_is_string(value)) {
        const char *text = plain_string(field, value, err);
        return text ? request_set(request, "shell", text, err) : -EINVAL;
    }
    int status = read_words(&words, field, value, err);
    if (status == 0 && words.count == 0)
        status = request_fail(err, field, "is an empty list");
    for (size_t i = 0; i < words.count && status == 0; i++)
        status = request_add_command(request, words.item[i], err);
    words_release(&words);
    return status;
}

/* A file: bytes as everywhere, or {"base64": "…", "executable": true}. */
static int read_file(struct blob *blob, unsigned *mode, const char *field, const json_t *value, struct hc_err *err)
{
    const json_t *executable = json_object_get(value, "executable");
    char inner[FIELD_SIZE + 16];

    if (!executable)
        return read_blob(blob, field, value, err);
    snprintf(inner, sizeof(inner), "%s.executable", field);
    if (!json_is_boolean(executable))
        return request_fail(err, inner, "must be true or false");
    *mode = json_is_true(executable) ? 0755 : 0644;
    hc_cleanup_json json_t *rest = json_copy((json_t *)value);
    if (!rest)
        return request_no_memory(err);
    json_object_del(rest, "executable");
    return read_blob(blob, field, rest, err);
}

static int read_files(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    const char *path;
    json_t *content;

    if (!json_is_object(value))
        return request_fail(err, field, "must be an object of file names and contents");
    json_object_foreach((json_t *)value, path, content)
    {
        struct blob blob = {0};
        char name[FIELD_SIZE];
        snprintf(name, sizeof(name), "%s.%s", field, path);
        unsigned mode = 0644;
        int status = read_file(&blob, &mode, name, content, err);
        if (status == 0)
            status = request_add_file(target, path, blob.data, blob.length, mode, err);
        free(blob.data);
        if (status < 0)
            return status;
    }
    return 0;
}

static int read_args(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_words(&((struct request *)target)->args, field, value, err);
}

static int read_env(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    const char *key;
    json_t *item;

    if (!json_is_object(value))
        return request_fail(err, field, "must be an object of names and strings");
    json_object_foreach((json_t *)value, key, item)
    {
        char name[FIELD_SIZE];
        snprintf(name, sizeof(name), "%s.%s", field, key);
        const char *text = plain_string(name, item, err);
        int status = text ? request_add_env(target, key, text, err) : -EINVAL;
        if (status < 0)
            return status;
    }
    return 0;
}

static int read_request_limits(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    return read_limits(&((struct request *)target)->limits, field, value, err);
}

static int read_read_only(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    if (!json_is_boolean(value))
        return request_fail(err, field, "must be true or false");
    ((struct request *)target)->read_only = json_is_true(value);
    return 0;
}

static int read_stdin_open(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    if (!json_is_boolean(value))
        return request_fail(err, field, "must be true or false");
    ((struct request *)target)->stdin_open = json_is_true(value);
    return 0;
}

static int read_async(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    if (!json_is_boolean(value))
        return request_fail(err, field, "must be true or false");
    ((struct request *)target)->async = json_is_true(value);
    return 0;
}

static int read_cache(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    if (!json_is_boolean(value))
        return request_fail(err, field, "must be true or false");
    ((struct request *)target)->no_cache = json_is_false(value);
    return 0;
}

static int read_collect(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    struct words words = {0};
    int status = read_words(&words, field, value, err);

    for (size_t i = 0; i < words.count && status == 0; i++)
        status = request_add_collect(target, words.item[i], err);
    words_release(&words);
    return status;
}

static int read_metadata(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    (void)field;
    return request_take_metadata(target, value, err);
}

struct mount_fields {
    const char *host, *path;
    bool read_only;
};

static int read_mount_host(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    const char *text = plain_string(field, value, err);
    ((struct mount_fields *)target)->host = text;
    return text ? 0 : -EINVAL;
}

static int read_mount_path(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    const char *text = plain_string(field, value, err);
    ((struct mount_fields *)target)->path = text;
    return text ? 0 : -EINVAL;
}

static int read_mount_read_only(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    if (!json_is_boolean(value))
        return request_fail(err, field, "must be true or false");
    ((struct mount_fields *)target)->read_only = json_is_true(value);
    return 0;
}

static int read_mounts(void *target, const char *field, const json_t *value, struct hc_err *err)
{
    static const struct field fields[] = {
        {"host", read_mount_host},
        {"path", read_mount_path},
        {"read_only", read_mount_read_only},
    };
    int status = check_list(field, value, REQUEST_MAX_MOUNTS, err);

    for (size_t i = 0; i < json_array_size(value) && status == 0; i++) {
        struct mount_fields mount = {.read_only = true};
        char prefix[FIELD_SIZE];
        snprintf(prefix, sizeof(prefix), "mounts[%zu].", i);
        status = read_object(&mount, prefix, json_array_get(value, i), fields, COUNT_OF(fields), err);
        if (status < 0)
            return status;
        if (!mount.host || !mount.path) {
            snprintf(prefix, sizeof(prefix), "mounts[%zu].%s", i, mount.host ? "path" : "host");
            return request_fail(err, prefix, "is missing");
        }
        status = request_add_mount(target, mount.host, mount.path, mount.read_only, err);
        if (status < 0 && err)
            hc_err_field(err, "mounts[%zu]", i);
    }
    return status;
}

int request_from_json(struct request *request, const char *text, size_t length, struct hc_err *err)
{
    static const struct field fields[] = {
        {"language", read_text},
        {"code", read_code},
        {"files", read_files},
        {"entry", read_text},
        {"command", read_command},
        {"stdin", read_stdin},
        {"args", read_args},
        {"env", read_env},
        {"limits", read_request_limits},
        {"network", read_text},
        {"image", read_text},
        {"read_only", read_read_only},
        {"mounts", read_mounts},
        {"stages", read_stages},
        {"tests", read_tests},
        {"collect", read_collect},
        {"metadata", read_metadata},
        {"async", read_async},
        {"cache", read_cache},
        {"stdin_open", read_stdin_open},
    };
    hc_cleanup_json json_t *root = NULL;

    int status = hc_json_read(text, length, REQUEST_DEPTH, &root, err);
    if (status < 0)
        return status;
    if (!json_is_object(root))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the request must be a JSON object");
    return read_object(request, "", root, fields, COUNT_OF(fields), err);
}
