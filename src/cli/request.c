/*
 * From the command line to a request. Each option is one row of APPLY or one call of hc_request_set; what the values
 * mean, and whether they are allowed, is the library's to say.
 */
#include "base/fd.h"
#include "cli/message.h"
#include "cli/run.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REQUEST_LIMIT = 256 * 1024 * 1024 };

static int set_field(hc_request *request, const char *field, const char *value, struct hc_err *err)
{
    hc_error *error = NULL;

    if (hc_request_set(request, field, value, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

static int set_read_only(hc_request *request, const char *text, struct hc_err *err)
{
    int read_only = text ? option_boolean("read-only", text, err) : 1;

    return read_only < 0 ? read_only : set_field(request, "read_only", read_only ? "true" : "false", err);
}

static int add_env(hc_request *request, const char *text, struct hc_err *err)
{
    hc_cleanup_free char *name = strdup(text);
    hc_error *error = NULL;

    if (!name)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    char *equals = strchr(name, '=');
    const char *value = equals ? equals + 1 : getenv(name);
    if (equals)
        *equals = '\0';
    if (!value) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--env %s: there is no such variable here to pass on", name);
        return hc_err_remedy(err, "give it a value: --env %s=VALUE", name);
    }
    if (hc_request_add_env(request, name, value, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

/* HOST:PATH[:ro|rw]. HOST may hold colons: PATH begins with '/', and the mode is one of two words. */
static int add_mount(hc_request *request, const char *text, struct hc_err *err)
{
    hc_cleanup_free char *spec = strdup(text);
    hc_cleanup_free char *folder = NULL;
    hc_error *error = NULL;
    int read_only = 1;

    if (!spec)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    char *colon = strrchr(spec, ':');
    if (colon && (strcmp(colon, ":ro") == 0 || strcmp(colon, ":rw") == 0)) {
        read_only = strcmp(colon, ":ro") == 0;
        *colon = '\0';
        colon = strrchr(spec, ':');
    }
    if (!colon || colon == spec || colon[1] != '/') {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--mount %s is not of the form HOST:PATH[:ro|rw]", text);
        return hc_err_remedy(err, "such as --mount /data:/data:ro");
    }
    *colon = '\0';
    if (spec[0] != '/') {
        hc_cleanup_free char *here = getcwd(NULL, 0);
        if (!here || asprintf(&folder, "%s/%s", here, spec) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot name the current folder");
    }
    if (hc_request_add_mount(request, folder ? folder : spec, colon + 1, read_only, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

static int add_collect(hc_request *request, const char *pattern, struct hc_err *err)
{
    hc_error *error = NULL;

    if (hc_request_add_collect(request, pattern, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

static int set_code(hc_request *request, const char *code, struct hc_err *err)
{
    return set_field(request, "code", code, err);
}

static const struct {
    int id;
    int (*apply)(hc_request *request, const char *value, struct hc_err *err);
} APPLY[] = {
    {RUN_CODE, set_code},   {RUN_ENV, add_env},         {RUN_FILE, files_add},
    {RUN_MOUNT, add_mount}, {RUN_COLLECT, add_collect}, {RUN_READ_ONLY, set_read_only},
};

int request_option(hc_request *request, const struct option *option, const char *value, struct hc_err *err)
{
    for (size_t row = 0; row < sizeof APPLY / sizeof *APPLY; row++)
        if (APPLY[row].id == option->id)
            return APPLY[row].apply(request, value, err);
    return option->field ? set_field(request, option->field, value, err) : 0;
}

static int apply_options(const struct run_line *line, hc_request *request, struct hc_err *err)
{
    struct options options;
    const struct option *option;
    const char *value;
    int status = 0;

    options_start(&options, line->table, line->argc, line->argv);
    while (status == 0 && options_next(&options, &option, &value, err) > 0)
        status = request_option(request, option, value, err);
    return status;
}

static int load_json(const struct cli *cli, hc_request *request, const char *path, struct hc_err *err)
{
    const bool from_stdin = strcmp(path, "-") == 0;
    hc_cleanup_fd int fd = from_stdin ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    hc_cleanup_free char *text = NULL;
    hc_error *error = NULL;
    size_t length = 0;

    if (!from_stdin && fd < 0)
        return files_missing(path, err);
    int status = hc_read_all(from_stdin ? STDIN_FILENO : fd, REQUEST_LIMIT, &text, &length);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, -status, "cannot read the request %s", path);
    if (cli->full->load(request, text, length, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

static int code_from_stdin(hc_request *request, struct hc_err *err)
{
    hc_cleanup_free char *text = NULL;
    hc_error *error = NULL;
    size_t length = 0;

    int status = hc_read_all(STDIN_FILENO, REQUEST_LIMIT, &text, &length);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, -status, "cannot read the code from stdin");
    if (hc_request_set_code(request, text, length, &error) < 0)
        return message_adopt(error, err);
    return 0;
}

/* *used: stdin has been read for the code, and is not the program's. */
static int apply_operands(const struct run_line *line, hc_request *request, bool *used, struct hc_err *err)
{
    const bool chosen = line->code || line->shell || line->entry || line->request;
    hc_error *error = NULL;
    int status = 0;

    for (int i = line->operand; status == 0 && i < line->argc; i++) {
        const char *word = line->argv[i];
        bool program = i == line->operand && !chosen && !line->command;
        if (program && strcmp(word, "-") == 0) {
            *used = true;
            status = code_from_stdin(request, err);
        } else if (program) {
            status = files_add_program(request, word, line->language, err);
        } else if (line->command ? hc_request_add_command(request, word, &error) < 0
                                 : hc_request_add_arg(request, word, &error) < 0) {
            status = message_adopt(error, err);
        }
    }
    return status;
}

static int check_input(int fd, const char *name, struct hc_err *err)
{
    struct stat info;
    if (fstat(fd, &info) < 0 || !S_ISDIR(info.st_mode))
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EISDIR, "%s is a folder, and cannot be a program's input", name);
    return hc_err_remedy(err, "name a file; a folder goes into the cell by --file");
}

static int connect_stdin(struct run_line *line, hc_request *request, bool used, struct hc_err *err)
{
    if (line->stdin_path && strcmp(line->stdin_path, "-") != 0) {
        line->stdin_fd = open(line->stdin_path, O_RDONLY | O_CLOEXEC);
        if (line->stdin_fd < 0)
            return files_missing(line->stdin_path, err);
        line->input_fd = line->stdin_fd;
        hc_request_stdin_fd(request, line->input_fd);
        return check_input(line->stdin_fd, line->stdin_path, err);
    }
    if (line->stdin_path && used)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "stdin cannot be both the code and the program's input");
    /* A JSON request says itself what its stdin is. */
    if (!used && (line->stdin_path || !line->request)) {
        line->input_fd = STDIN_FILENO;
        hc_request_stdin_fd(request, line->input_fd);
        return check_input(STDIN_FILENO, "stdin", err);
    }
    return 0;
}

int request_build(const struct cli *cli, struct run_line *line, hc_request *request, struct hc_err *err)
{
    bool used = line->request && strcmp(line->request, "-") == 0;
    int status = 0;

    if (line->request)
        status = load_json(cli, request, line->request, err);
    if (status == 0)
        status = apply_options(line, request, err);
    if (status == 0)
        status = apply_operands(line, request, &used, err);
    if (status == 0)
        status = connect_stdin(line, request, used, err);
    if (status == 0 && line->allow_weak)
        hc_request_allow_weak(request, 1);
    return status;
}
