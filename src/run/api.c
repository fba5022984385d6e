/*
 * The plain part of include/hotcell.h: errors, configuration, requests and results as the layers below have them,
 * behind opaque types. Nothing here starts anything, or needs Jansson.
 */
#include "run/engine.h"
#include "run/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct hc_error {
    struct hc_err err;
};

const char *hc_version(void)
{
    return HC_VERSION;
}

/* ---- errors ---- */

int engine_give_error(hc_error **out, const struct hc_err *err)
{
    int code = err->code ? err->code : EIO;
    if (out) {
        *out = malloc(sizeof **out);
        if (*out)
            (*out)->err = *err;
    }
    return -code;
}

static const char no_error[] = "out of memory";
const char *hc_error_message(const hc_error *error)
{
    return error ? error->err.message : no_error;
}
const char *hc_error_field(const hc_error *error)
{
    return error ? error->err.field : "";
}
const char *hc_error_remedy(const hc_error *error)
{
    return error ? error->err.remedy : "";
}
const char *hc_error_class(const hc_error *error)
{
    return hc_class_info(error ? error->err.class : HC_CLASS_OURS)->word;
}
int hc_error_exit_code(const hc_error *error)
{
    return hc_class_info(error ? error->err.class : HC_CLASS_OURS)->exit_code;
}
void hc_error_free(hc_error *error)
{
    free(error);
}

/* ---- configuration ---- */

int hc_config_load(const char *path, hc_config **out, hc_error **error)
{
    struct hc_err err = {0};
    hc_config *config = calloc(1, sizeof *config);
    if (!config)
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (!config || config_load(path, &config->config, &err) < 0) {
        free(config);
        return engine_give_error(error, &err);
    }
    *out = config;
    return 0;
}

int hc_config_set(hc_config *config, const char *key, const char *value, hc_error **error)
{
    struct hc_err err = {0};
    return config_set(config->config, key, value, "command line", &err) < 0 ? engine_give_error(error, &err) : 0;
}

void hc_config_free(hc_config *config)
{
    if (!config)
        return;
    config_free(config->config);
    free(config);
}

const struct config *engine_config(const hc_config *config)
{
    return config->config;
}

/* ---- requests ---- */

hc_request *hc_request_new(void)
{
    hc_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->input = -1;
    request->request = request_new();
    if (request->request)
        return request;
    free(request);
    return NULL;
}

void hc_request_free(hc_request *request)
{
    if (!request)
        return;
    request_free(request->request);
    free(request);
}

#define TRY(call)                                                                                                      \
    struct hc_err err = {0};                                                                                           \
    return (call) < 0 ? engine_give_error(error, &err) : 0

int hc_request_set(hc_request *request, const char *field, const char *value, hc_error **error)
{
    TRY(request_set(request->request, field, value, &err));
}
int hc_request_set_code(hc_request *request, const char *data, size_t length, hc_error **error)
{
    TRY(request_set_code(request->request, data, length, &err));
}
int hc_request_set_stdin(hc_request *request, const char *data, size_t length, hc_error **error)
{
    TRY(request_set_input(request->request, data, length, &err));
}
int hc_request_add_command(hc_request *request, const char *word, hc_error **error)
{
    TRY(request_add_command(request->request, word, &err));
}
int hc_request_add_arg(hc_request *request, const char *word, hc_error **error)
{
    TRY(request_add_arg(request->request, word, &err));
}
int hc_request_add_env(hc_request *request, const char *name, const char *value, hc_error **error)
{
    TRY(request_add_env(request->request, name, value, &err));
}
int hc_request_add_file(hc_request *request, const char *path, const char *data, size_t length, unsigned mode,
                        hc_error **error)
{
    TRY(request_add_file(request->request, path, data, length, mode, &err));
}
int hc_request_add_mount(hc_request *request, const char *host, const char *path, int read_only, hc_error **error)
{
    TRY(request_add_mount(request->request, host, path, read_only != 0, &err));
}
int hc_request_add_collect(hc_request *request, const char *pattern, hc_error **error)
{
    TRY(request_add_collect(request->request, pattern, &err));
}
void hc_request_allow_weak(hc_request *request, int allow)
{
    request->request->allow_weak = allow != 0;
}
void hc_request_stdin_fd(hc_request *request, int fd)
{
    request->input = fd;
}
void hc_request_on_output(hc_request *request, hc_output_fn fn, void *data)
{
    request->output = fn;
    request->output_data = data;
}

void hc_request_endless(hc_request *request, int endless)
{
    request->endless = endless != 0;
}

char *hc_request_json(const hc_request *request, hc_error **error)
{
    struct hc_err err = {0};
    char *json = request_to_json(request->request, &err);
    if (!json)
        engine_give_error(error, &err);
    return json;
}

/* ---- results ---- */

void hc_result_free(hc_result *result)
{
    if (!result)
        return;
    result_release(&result->result);
    language_free(result->language);
    free(result->kept);
    free(result->out);
    free(result->err);
    free(result->json);
    free(result);
}

const char *hc_result_status(const hc_result *result)
{
    return run_status_word(result->result.status);
}
int hc_result_exit_code(const hc_result *result)
{
    return result->result.exit_code;
}
const char *hc_result_summary(const hc_result *result)
{
    hc_result *own = (hc_result *)result; /* what the program said is read when it is first asked for */
    if (own->kept && !own->result.diagnosis) {
        result_explain_kept(&own->result, own->language, own->kept);
        result_summary(&own->result, own->summary, sizeof own->summary);
    }
    return own->summary;
}

static const char *text_of(const struct capture *capture, char **kept, size_t *kept_length, size_t *length)
{
    if (!*kept)
        *kept = capture_text(capture, kept_length);
    if (length)
        *length = *kept ? *kept_length : 0;
    return *kept ? *kept : "";
}

const char *hc_result_stdout(const hc_result *result, size_t *length)
{
    hc_result *own = (hc_result *)result; /* the text is made when it is first asked for */
    return text_of(&own->result.out, &own->out, &own->out_length, length);
}
const char *hc_result_stderr(const hc_result *result, size_t *length)
{
    hc_result *own = (hc_result *)result;
    return text_of(&own->result.err, &own->err, &own->err_length, length);
}

size_t hc_result_file_count(const hc_result *result)
{
    return result->result.file_count;
}
const char *hc_result_file(const hc_result *result, size_t index, const char **content, size_t *length)
{
    if (index >= result->result.file_count)
        return NULL;
    const struct result_file *file = &result->result.files[index];
    *content = file->content.data;
    *length = file->content.length;
    return file->path;
}
const char *hc_result_file_type(const hc_result *result, size_t index)
{
    if (index >= result->result.file_count)
        return NULL;
    const struct result_file *file = &result->result.files[index];
    return file->truncated ? "truncated" : file->type;
}
