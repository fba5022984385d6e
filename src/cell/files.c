/*
 * The file helper: which operation, with which words, and how its outcome is told. What always holds: exactly one head
 * is written; what an operation does not know of is refused by name.
 */
#include "cell/files.h"

#include "base/fd.h"
#include "base/size.h"
#include "cell/files_internal.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const key_names[FILES_KEYS] = {
    [FILES_PATH] = "path",           [FILES_FROM] = "from",       [FILES_TO] = "to",
    [FILES_AFTER] = "after",         [FILES_NAME] = "name",       [FILES_CONTENT] = "content",
    [FILES_LIMIT] = "limit",         [FILES_DEPTH] = "depth",     [FILES_OFFSET] = "offset",
    [FILES_LENGTH] = "length",       [FILES_SUFFIX] = "suffix",   [FILES_MODE] = "mode",
    [FILES_APPEND] = "append",       [FILES_PARENTS] = "parents", [FILES_RECURSIVE] = "recursive",
    [FILES_OVERWRITE] = "overwrite", [FILES_FOLLOW] = "follow",   [FILES_REGEX] = "regex",
    [FILES_MAX_SIZE] = "max_size",   [FILES_TIME] = "time",       [FILES_WATCHES] = "watches",
    [FILES_ENTRIES] = "entries",     [FILES_RECOVER] = "recover",
};

#define KEY(name) (1u << FILES_##name)

static const struct operation {
    const char *name;
    int (*run)(struct files *files, struct hc_err *err);
    uint32_t keys;
} operations[] = {
    {"list", files_list, KEY(PATH) | KEY(LIMIT) | KEY(DEPTH) | KEY(AFTER)},
    {"stat", files_stat, KEY(PATH) | KEY(FOLLOW)},
    {"read", files_read, KEY(PATH) | KEY(OFFSET) | KEY(LENGTH) | KEY(SUFFIX)},
    {"write", files_write, KEY(PATH) | KEY(MODE) | KEY(APPEND) | KEY(PARENTS) | KEY(LIMIT) | KEY(LENGTH)},
    {"delete", files_delete, KEY(PATH) | KEY(RECURSIVE)},
    {"move", files_move, KEY(FROM) | KEY(TO) | KEY(OVERWRITE) | KEY(PARENTS)},
    {"mkdir", files_mkdir, KEY(PATH) | KEY(PARENTS) | KEY(MODE)},
    {"disk", files_disk, KEY(PATH)},
    {"search", files_search,
     KEY(PATH) | KEY(NAME) | KEY(CONTENT) | KEY(REGEX) | KEY(LIMIT) | KEY(MAX_SIZE) | KEY(TIME)},
    {"watch", files_watch, KEY(PATH) | KEY(RECURSIVE) | KEY(WATCHES)},
    {"pack", files_pack, KEY(PATH) | KEY(LIMIT) | KEY(RECOVER)},
    {"unpack", files_unpack, KEY(PATH) | KEY(LIMIT) | KEY(ENTRIES) | KEY(RECOVER)},
};

/* What a failure is called. What is not here is a fault of ours. */
static const struct {
    int code;
    const char *word;
} codes[] = {
    {ENOENT, "not_found"},
    {EACCES, "forbidden"},
    {EPERM, "forbidden"},
    {EROFS, "forbidden"},
    {EEXIST, "conflict"},
    {ENOTEMPTY, "conflict"},
    {EISDIR, "conflict"},
    {ENOTDIR, "conflict"},
    {EBUSY, "conflict"},
    {ELOOP, "conflict"},
    {ENXIO, "conflict"},
    {ETXTBSY, "conflict"},
    {EMLINK, "conflict"},
    {EFBIG, "too_large"},
    {EOVERFLOW, "too_large"},
    {ENOSPC, "no_space"},
    {EDQUOT, "no_space"},
    {EINVAL, "invalid_request"},
    {ENAMETOOLONG, "invalid_request"},
    {ERANGE, "invalid_request"},
    {EBADMSG, "invalid_request"},
};

static const char *code_word(int code)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].code == code)
            return codes[i].word;
    return "internal";
}

/* ---- the words ---- */

int files_number(const struct files *files, enum files_key key, uint64_t low, uint64_t high, uint64_t *value,
                 struct hc_err *err)
{
    if (!files->value[key])
        return 0;
    if (hc_parse_count(files->value[key], low, high, value, err) < 0)
        return hc_err_context(err, "%s", key_names[key]);
    return 0;
}

int files_switch(const struct files *files, enum files_key key, bool *value, struct hc_err *err)
{
    const char *text = files->value[key];
    if (!text)
        return 0;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s: '%.40s' is neither true nor false", key_names[key], text);
    *value = text[0] == 't';
    return 0;
}

int files_mode(const struct files *files, int *mode, struct hc_err *err)
{
    const char *text = files->value[FILES_MODE];
    *mode = FILES_NO_MODE;
    if (!text)
        return 0;
    size_t length = strlen(text);
    if (length == 0 || length > 5 || strspn(text, "01234567") != length) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "mode: '%.40s' is not an octal number", text);
        return hc_err_remedy(err, "give a mode such as 0644");
    }
    int bits = (int)strtol(text, NULL, 8);
    if (bits & ~01777) { /* the filter of system calls refuses them as well */
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "mode: '%s' has bits that files in a cell cannot have", text);
        return hc_err_remedy(err, "leave out set-user-id and set-group-id");
    }
    *mode = bits;
    return 0;
}

int files_path(const struct files *files, enum files_key key, char path[4096], struct hc_err *err)
{
    const char *text = files->value[key];
    if (!text && key != FILES_PATH)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is missing", key_names[key]);
    if (!text || !*text)
        text = ".";
    size_t length = strlen(text);
    if (length >= 4096)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "%s: a path of %zu bytes; 4095 are the most",
                       key_names[key], length);
    memcpy(path, text, length + 1);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    return 0;
}

int files_fail(struct hc_err *err, int code, const char *what, const char *path)
{
    switch (code) {
    case ENOSPC:
    case EDQUOT:
        hc_fail(err, HC_CLASS_REQUEST, code, "cannot %s %s: the disk of the sandbox is full", what, path);
        return hc_err_remedy(err, "delete files, or make a sandbox with a larger disk or more inodes");
    case EFBIG:
        return hc_fail(err, HC_CLASS_REQUEST, code, "cannot %s %s: it would be larger than a file may be", what, path);
    case ENXIO:
        return hc_fail(err, HC_CLASS_REQUEST, code, "cannot %s %s: it is not a regular file", what, path);
    default:
        return hc_fail_errno(err, HC_CLASS_REQUEST, code, "cannot %s %s", what, path);
    }
}

static int find_key(const char *word, const char *equals)
{
    for (int key = 0; equals && key < FILES_KEYS; key++)
        if (strlen(key_names[key]) == (size_t)(equals - word) && strncmp(key_names[key], word, equals - word) == 0)
            return key;
    return -1;
}

static int read_words(struct files *files, const struct operation *operation, char *const *words, uint32_t count,
                      struct hc_err *err)
{
    for (uint32_t i = 1; i < count; i++) {
        const char *equals = strchr(words[i], '=');
        int key = find_key(words[i], equals);
        if (key < 0 || !(operation->keys >> key & 1))
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s does not know '%.60s'", operation->name, words[i]);
        if (files->value[key])
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is given twice", key_names[key]);
        files->value[key] = equals + 1;
    }
    return 0;
}

/* ---- the head ---- */

void files_head_begin(struct files *files)
{
    files_json_open(&files->head, NULL, '{');
    files_json_bool(&files->head, "ok", true);
}

int files_head_end(struct files *files, struct hc_err *err)
{
    files_json_close(&files->head, '}');
    files->headed = true;
    int status = files_json_line(&files->head);
    return status < 0 ? hc_fail_errno(err, HC_CLASS_OURS, -status, "nobody reads the head") : 0;
}

static void tell_failure(struct files *files, const struct hc_err *err)
{
    struct files_json *head = &files->head;
    files_json_open(head, NULL, '{');
    files_json_bool(head, "ok", false);
    files_json_number(head, "errno", err->code);
    files_json_text(head, "code", code_word(err->code));
    files_json_text(head, "message", err->message);
    if (err->remedy[0])
        files_json_text(head, "remedy", err->remedy);
    if (files->told_size)
        files_json_number(head, "size", files->size);
    files_json_close(head, '}');
    files_json_line(head);
}

static int run(struct files *files, char *const *words, uint32_t count, struct hc_err *err)
{
    const char *name = count > 0 ? words[0] : "";
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (strcmp(operations[i].name, name) != 0)
            continue;
        int status = read_words(files, &operations[i], words, count, err);
        return status < 0 ? status : operations[i].run(files, err);
    }
    return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is no operation '%.60s' on files", name);
}

int files_run(char *const *words, uint32_t count)
{
    struct files *files = calloc(1, sizeof *files);
    struct hc_err err = {0};
    int status = 1;

    if (!files)
        return status;
    /* A reader that has gone and a file that is too large are answers of write(2), not ends of the process. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    files_json_init(&files->head, STDERR_FILENO);
    files_json_init(&files->body, STDOUT_FILENO);
    int result = run(files, words, count, &err);
    if (result < 0 && !files->headed)
        tell_failure(files, &err);
    status = result < 0 && files->headed;
    free(files);
    return status;
}

void files_main(char *const *words, uint32_t count)
{
    _exit(files_run(words, count));
}
