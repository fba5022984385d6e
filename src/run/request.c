/*
 * A request and its setters. What always holds: everything in a request was copied, has the shape that request.h
 * promises (paths are relative and clean, words hold no NUL, counts are within their limits), and a setter that fails
 * has changed nothing.
 */
#include "run/request.h"

#include "base/suggest.h"
#include "cell/archive.h"
#include "run/request_fields.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request *request_new(void)
{
    struct request *request = calloc(1, sizeof(*request));
    if (request) {
        request->read_only = -1;
        request->allow_weak = -1;
    }
    return request;
}

void request_free(struct request *request)
{
    if (!request)
        return;
    for (size_t i = 0; i < request->file_count; i++) {
        free(request->files[i].path);
        free(request->files[i].content.data);
    }
    for (size_t i = 0; i < request->mount_count; i++) {
        free(request->mounts[i].host);
        free(request->mounts[i].path);
    }
    for (size_t i = 0; i < request->stage_count; i++)
        request_stage_release(&request->stages[i]);
    for (size_t i = 0; i < request->test_count; i++)
        request_test_release(&request->tests[i]);
    struct words *lists[] = {&request->command, &request->args, &request->env, &request->collect};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        words_release(lists[i]);
    void *plain[] = {request->apart,  request->cwd,        request->language, request->code.data, request->entry,
                     request->files,  request->input.data, request->network,  request->image,     request->mounts,
                     request->stages, request->tests,      request->metadata};
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        free(plain[i]);
    free(request);
}

void request_stage_release(struct request_stage *stage)
{
    free(stage->name);
    words_release(&stage->command);
}

void request_test_release(struct request_test *test)
{
    free(test->name);
    free(test->input.data);
    free(test->expect_stdout.data);
    words_release(&test->args);
}

int request_no_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

int request_fail(struct hc_err *err, const char *field, const char *what)
{
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s: %s", field, what);
    hc_err_field(err, "%s", field);
    return -EINVAL;
}

int blob_set(struct blob *blob, const char *data, size_t length)
{
    char *copy = length < SIZE_MAX ? malloc(length + 1) : NULL;
    if (!copy)
        return -ENOMEM;
    if (length > 0)
        memcpy(copy, data, length);
    copy[length] = '\0';
    free(blob->data);
    *blob = (struct blob){copy, length};
    return 0;
}

static int set_blob(struct blob *blob, const char *data, size_t length, struct hc_err *err)
{
    return blob_set(blob, data, length) < 0 ? request_no_memory(err) : 0;
}

int request_set_code(struct request *request, const char *data, size_t length, struct hc_err *err)
{
    int status = set_blob(&request->code, data, length, err);
    if (status == 0)
        request->has_code = true;
    return status;
}

int request_set_input(struct request *request, const char *data, size_t length, struct hc_err *err)
{
    return set_blob(&request->input, data, length, err);
}

static int set_text(char **text, const char *field, const char *value, struct hc_err *err)
{
    if (value[0] == '\0')
        return request_fail(err, field, "is empty");
    char *copy = strdup(value);
    if (!copy)
        return request_no_memory(err);
    free(*text);
    *text = copy;
    return 0;
}

static int check_file_path(const char *field, const char *path, struct hc_err *err)
{
    if (archive_path_check(path, strlen(path)) == 0)
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s: the path \"%s\" is not accepted", field, path);
    hc_err_field(err, "%s", field);
    hc_err_remedy(err,
                  "give a path below the working directory: relative, without \"..\", \".\" or empty parts, of at "
                  "most %d bytes",
                  ARCHIVE_PATH_MAX);
    return -EINVAL;
}

static int set_entry(struct request *request, const char *value, struct hc_err *err)
{
    int status = check_file_path("entry", value, err);
    return status < 0 ? status : set_text(&request->entry, "entry", value, err);
}

static int set_shell(struct request *request, const char *value, struct hc_err *err)
{
    struct words command = {0};

    if (value[0] == '\0')
        return request_fail(err, "command", "is empty");
    if (words_add(&command, value) < 0)
        return request_no_memory(err);
    words_release(&request->command);
    request->command = command;
    request->command_shell = true;
    return 0;
}

/* 0 or 1, or -EINVAL. */
static int read_boolean(const char *field, const char *value, struct hc_err *err)
{
    static const char *const on[] = {"true", "yes", "on", "1"}, *const off[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
        if (strcmp(value, on[i]) == 0 || strcmp(value, off[i]) == 0)
            return strcmp(value, on[i]) == 0;
    }
    return request_fail(err, field, "must be true or false");
}

static int set_read_only(struct request *request, const char *value, struct hc_err *err)
{
    int read_only = read_boolean("read_only", value, err);

    if (read_only >= 0)
        request->read_only = read_only;
    return read_only < 0 ? read_only : 0;
}

static int set_async(struct request *request, const char *value, struct hc_err *err)
{
    int async = read_boolean("async", value, err);

    if (async >= 0)
        request->async = async;
    return async < 0 ? async : 0;
}

static int set_stdin_open(struct request *request, const char *value, struct hc_err *err)
{
    int open = read_boolean("stdin_open", value, err);

    if (open >= 0)
        request->stdin_open = open;
    return open < 0 ? open : 0;
}

static int set_language(struct request *request, const char *value, struct hc_err *err)
{
    return set_text(&request->language, "language", value, err);
}

static int set_network(struct request *request, const char *value, struct hc_err *err)
{
    return set_text(&request->network, "network", value, err);
}

static int set_image(struct request *request, const char *value, struct hc_err *err)
{
    return set_text(&request->image, "image", value, err);
}

static int set_code(struct request *request, const char *value, struct hc_err *err)
{
    return request_set_code(request, value, strlen(value), err);
}

static int set_stdin(struct request *request, const char *value, struct hc_err *err)
{
    return request_set_input(request, value, strlen(value), err);
}

static const struct {
    const char *name;
    int (*set)(struct request *request, const char *value, struct hc_err *err);
} SETTERS[] = {
    {"language", set_language},     {"code", set_code},           {"entry", set_entry},
    {"shell", set_shell},           {"stdin", set_stdin},         {"network", set_network},
    {"image", set_image},           {"read_only", set_read_only}, {"async", set_async},
    {"stdin_open", set_stdin_open},
};

enum { SETTER_COUNT = sizeof(SETTERS) / sizeof(SETTERS[0]) };

int request_unknown(const char *field, const char *prefix, const char *const *known, size_t count, struct hc_err *err)
{
    const char *near = hc_suggest(field, known, count);

    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "unknown field \"%s%s\"", prefix, field);
    hc_err_field(err, "%s%s", prefix, field);
    if (near)
        hc_err_remedy(err, "did you mean \"%s%s\"?", prefix, near);
    return -EINVAL;
}

int request_unknown_limit(const char *name, const char *prefix, struct hc_err *err)
{
    const char *known[LIMIT_COUNT];

    for (int id = 0; id < LIMIT_COUNT; id++)
        known[id] = limit_table[id].name;
    return request_unknown(name, prefix, known, LIMIT_COUNT, err);
}

int request_set(struct request *request, const char *field, const char *value, struct hc_err *err)
{
    static const char prefix[] = "limits.";
    const char *known[SETTER_COUNT];

    if (strncmp(field, prefix, strlen(prefix)) == 0) {
        const char *name = field + strlen(prefix);
        int id = limit_find(name);
        if (id < 0)
            return request_unknown_limit(name, prefix, err);
        int status = limit_parse((enum limit_id)id, value, &request->limits.value[id], err);
        if (status == 0)
            request->limits.set[id] = true;
        return status;
    }
    for (size_t i = 0; i < SETTER_COUNT; i++) {
        if (strcmp(field, SETTERS[i].name) == 0)
            return SETTERS[i].set(request, value, err);
        known[i] = SETTERS[i].name;
    }
    return request_unknown(field, "", known, SETTER_COUNT, err);
}

int request_add_word(struct words *words, const char *field, const char *word, struct hc_err *err)
{
    if (words->count >= REQUEST_MAX_WORDS)
        return request_fail(err, field, "has more than 4096 items");
    return words_add(words, word) < 0 ? request_no_memory(err) : 0;
}

int request_add_command(struct request *request, const char *word, struct hc_err *err)
{
    if (request->command_shell)
        return request_fail(err, "command", "was already given as one string for the shell");
    if (request->command.count == 0 && word[0] == '\0')
        return request_fail(err, "command", "names no program: its first word is empty");
    return request_add_word(&request->command, "command", word, err);
}

int request_add_arg(struct request *request, const char *word, struct hc_err *err)
{
    return request_add_word(&request->args, "args", word, err);
}

int request_add_env(struct request *request, const char *name, const char *value, struct hc_err *err)
{
    size_t length = strlen(name);
    char *pair = NULL;

    if (length == 0 || strchr(name, '=')) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "env: \"%s\" is not a name for a variable", name);
        hc_err_field(err, "env.%s", name);
        return -EINVAL;
    }
    if (asprintf(&pair, "%s=%s", name, value) < 0)
        return request_no_memory(err);
    for (size_t i = 0; i < request->env.count; i++) {
        if (strncmp(request->env.item[i], pair, length + 1) == 0) {
            free(request->env.item[i]);
            request->env.item[i] = pair;
            return 0;
        }
    }
    int status = request_add_word(&request->env, "env", pair, err);
    free(pair);
    return status;
}

/* The same path twice, or one file where another needs a folder: both would fail in the cell, later and less
 * clearly. */
static bool paths_clash(const char *a, const char *b)
{
    size_t length = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    const char *longer = strlen(a) > length ? a : b;

    return strncmp(a, b, length) == 0 && (longer[length] == '\0' || longer[length] == '/');
}

int request_add_file(struct request *request, const char *path, const char *data, size_t length, unsigned mode,
                     struct hc_err *err)
{
    struct request_file file = {.mode = mode & 0777};

    int status = check_file_path("files", path, err);
    if (status < 0)
        return status;
    if (request->file_count >= REQUEST_MAX_FILES)
        return request_fail(err, "files", "has more than 1024 files");
    for (size_t i = 0; i < request->file_count; i++) {
        if (paths_clash(request->files[i].path, path)) {
            if (strcmp(request->files[i].path, path) == 0)
                hc_fail(err, HC_CLASS_REQUEST, EEXIST, "files: \"%s\" is given twice", path);
            else
                hc_fail(err, HC_CLASS_REQUEST, EEXIST, "files: \"%s\" and \"%s\" cannot both be there",
                        request->files[i].path, path);
            hc_err_field(err, "files.%s", path);
            return -EEXIST;
        }
    }
    struct request_file *grown = reallocarray(request->files, request->file_count + 1, sizeof(*grown));
    if (!grown)
        return request_no_memory(err);
    request->files = grown;
    file.path = strdup(path);
    if (!file.path || blob_set(&file.content, data, length) < 0) {
        free(file.path);
        return request_no_memory(err);
    }
    request->files[request->file_count++] = file;
    return 0;
}

int request_add_mount(struct request *request, const char *host, const char *path, bool read_only, struct hc_err *err)
{
    if (request->mount_count >= REQUEST_MAX_MOUNTS)
        return request_fail(err, "mounts", "has more than 16 mounts");
    if (host[0] == '\0')
        return request_fail(err, "mounts.host", "is empty");
    if (path[0] != '/')
        return request_fail(err, "mounts.path", "must be an absolute path in the cell");
    struct request_mount *grown = reallocarray(request->mounts, request->mount_count + 1, sizeof(*grown));
    if (!grown)
        return request_no_memory(err);
    request->mounts = grown;
    struct request_mount mount = {strdup(host), strdup(path), read_only};
    if (!mount.host || !mount.path) {
        free(mount.host);
        free(mount.path);
        return request_no_memory(err);
    }
    request->mounts[request->mount_count++] = mount;
    return 0;
}

int request_add_collect(struct request *request, const char *pattern, struct hc_err *err)
{
    while (strncmp(pattern, "./", 2) == 0)
        pattern += 2;
    if (archive_path_check(pattern, strlen(pattern)) == 0)
        return request_add_word(&request->collect, "collect", pattern, err);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "collect: the pattern \"%s\" is not accepted", pattern);
    hc_err_field(err, "collect");
    hc_err_remedy(err, "give a pattern relative to the working directory, such as out/*.png or **/*.csv");
    return -EINVAL;
}
