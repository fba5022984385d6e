/*
 * The public library: include/hotcell.h in terms of the layers below. An engine is a keeper and its warden; opening it
 * starts them and does not wait, so that their start overlaps with whatever the caller does next, and hc_run's own
 * preparations.
 */
#include "run/engine.h"

#include "base/fd.h"
#include "run/drive.h"
#include "run/isolation.h"
#include "run/locate.h"
#include "run/plan.h"
#include "run/result.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct hc_error {
    struct hc_err err;
};

struct hc_config {
    struct config *config;
};

struct hc_request {
    struct request *request;
    int input;
    hc_output_fn output;
    void *output_data;
};

struct hc_result {
    struct result result;
    struct language *language; /* its version is found when it is first asked for */
    char summary[256];
    char *out, *err, *json;
    size_t out_length, err_length;
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

char *hc_config_json(const hc_config *config)
{
    return config_to_json(config->config);
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

int hc_request_load(hc_request *request, const char *json, size_t length, hc_error **error)
{
    TRY(request_from_json(request->request, json, length, &err));
}
int hc_request_set(hc_request *request, const char *field, const char *value, hc_error **error)
{
    TRY(request_set(request->request, field, value, &err));
}
int hc_request_set_code(hc_request *request, const char *data, size_t length, hc_error **error)
{
    TRY(request_set_code(request->request, data, length, &err));
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

/* ---- the engine ---- */

/* A warden sees no more of the host than the mounts of the run that it was started for. */
static int start_warden(hc_engine *engine, const struct plan *plan, struct hc_err *err)
{
    char libexec[4096];
    int result = locate_libexec(libexec, sizeof libexec, err);
    if (result < 0)
        return result;
    const struct config *config = engine->config;
    struct keeper_plan start = {.image = {.etc = config->image_etc.item, .etc_count = config->image_etc.count},
                                .uid_base = config->uid_base,
                                .uid_count = config->uid_count,
                                .libexec = libexec};
    if (plan) {
        start.image.host = plan->hosts.item;
        start.image.host_writable = plan->host_writable;
        start.image.host_count = plan->hosts.count;
    }
    engine->greeted = false;
    return keeper_start(&start, &engine->keeper, err);
}

int hc_engine_open(const hc_config *config, hc_engine **out, hc_error **error)
{
    struct hc_err err = {0};
    hc_engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
        return engine_give_error(error, &err);
    }
    engine->config = config->config;
    engine->cancel = engine->keeper.socket = -1;
    engine->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->cancel < 0)
        hc_fail_errno(&err, HC_CLASS_HOST, errno, "making an eventfd");
    /* Where mounts are possible, what the warden is to see is known only with the request. */
    bool mounts = engine->config->read_paths.count || engine->config->write_paths.count;
    if (engine->cancel < 0 || (!mounts && start_warden(engine, NULL, &err) < 0)) {
        hc_engine_close(engine);
        return engine_give_error(error, &err);
    }
    *out = engine;
    return 0;
}

void hc_engine_close(hc_engine *engine)
{
    if (!engine)
        return;
    keeper_stop(&engine->keeper);
    hc_close(engine->cancel);
    free(engine);
}

void hc_engine_single(hc_engine *engine)
{
    engine->single = true;
}

void hc_engine_cancel(hc_engine *engine)
{
    int code = errno;
    uint64_t one = 1;
    if (write(engine->cancel, &one, sizeof one) < 0)
        errno = code;
    errno = code;
}

static int take_greeting(hc_engine *engine, const struct warden_message *message, struct hc_err *err)
{
    if (message->err.code) {
        *err = message->err;
        return -err->code;
    }
    engine->isolation = message->isolation;
    engine->cgroup_mode = message->setup.cgroup_mode;
    memcpy(engine->why, message->err.message, sizeof engine->why);
    memcpy(engine->remedy, message->err.remedy, sizeof engine->remedy);
    engine->greeted = true;
    return 0;
}

int engine_greet(hc_engine *engine, struct hc_err *err)
{
    if (engine->greeted)
        return 0;
    int result = engine->keeper.pid ? 0 : start_warden(engine, NULL, err);
    if (result < 0)
        return result;
    struct warden_message message;
    size_t count = 0;
    ssize_t size;
    do
        size = hc_recv_fds(engine->keeper.socket, &message, sizeof message, NULL, 0, &count);
    while (size == -EINTR || size == -ECONNRESET);
    if (size != (ssize_t)sizeof message || message.type != WARDEN_HELLO)
        return hc_fail(err, HC_CLASS_OURS, EPIPE, "the warden died before it said anything");
    return take_greeting(engine, &message, err);
}

static bool weak_allowed(const hc_engine *engine, const struct request *request)
{
    return request->allow_weak < 0 ? engine->config->allow_weak : request->allow_weak;
}

static int check_isolation(const hc_engine *engine, const struct request *request, struct hc_err *err)
{
    if ((engine->isolation & ISOLATION_ALL) == ISOLATION_ALL || weak_allowed(engine, request))
        return 0;
    char missing[128];
    isolation_words(~engine->isolation & ISOLATION_ALL, missing, sizeof missing);
    hc_fail(err, HC_CLASS_HOST, EPERM, "this machine cannot enforce: %s%s%s", missing, engine->why[0] ? "; " : "",
            engine->why);
    return hc_err_remedy(err, "%s%sor accept it with --allow-weak ([isolation] allow_weak = true)", engine->remedy,
                         engine->remedy[0] ? "; " : "see hotcell doctor; ");
}

struct greeting {
    hc_engine *engine;
    const struct request *request;
};

static int on_hello(void *data, const struct warden_message *message, struct hc_err *err)
{
    const struct greeting *greeting = data;
    int result = take_greeting(greeting->engine, message, err);
    return result < 0 ? result : check_isolation(greeting->engine, greeting->request, err);
}

static uint64_t now_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void fill_timing(struct result *result, uint64_t begun)
{
    result->total_us = now_us(CLOCK_MONOTONIC) - begun;
    const struct run_stage *last = result->stage_count ? &result->stages[result->stage_count - 1] : NULL;
    if (!last)
        return;
    result->run_us = last->facts.wall;
    uint64_t started = result->stages[0].facts.started_at;
    result->prepare_us = started > begun ? started - begun : 0;
}

/* The warden that a plan needs: a running one will do for a run without mounts. */
static int provide_warden(hc_engine *engine, const struct plan *plan, struct hc_err *err)
{
    if (engine->keeper.pid && !plan->hosts.count)
        return 0;
    keeper_stop(&engine->keeper);
    return start_warden(engine, plan, err);
}

static int run(hc_engine *engine, const hc_request *request, hc_result *out, struct hc_err *err)
{
    uint64_t begun = now_us(CLOCK_MONOTONIC);
    struct result *result = &out->result;
    result->created_at = (int64_t)now_us(CLOCK_REALTIME);
    struct plan plan;
    int status = plan_make(engine->config, request->request, &plan, err);
    if (status < 0)
        return status;
    status = result_id(result->id, sizeof result->id, result->created_at);
    if (status < 0)
        hc_fail_errno(err, HC_CLASS_HOST, -status, "making an id");
    if (status == 0)
        status = provide_warden(engine, &plan, err);
    if (status == 0 && engine->greeted)
        status = check_isolation(engine, request->request, err);
    if (status == 0) {
        struct greeting greeting = {engine, request->request};
        struct drive_options options = {.input = request->input,
                                        .cancel = engine->cancel,
                                        .output = request->output,
                                        .output_data = request->output_data,
                                        .required = weak_allowed(engine, request->request) ? 0 : ISOLATION_ALL,
                                        .final = engine->single,
                                        .hello = on_hello,
                                        .hello_data = &greeting};
        status = drive_run(engine->keeper.socket, &plan, &options, result, err);
    }
    if (status == 0) {
        result->isolation = engine->isolation;
        result->weak = (engine->isolation & ISOLATION_ALL) != ISOLATION_ALL;
        result->start = "cold";
        if (plan.language) {
            snprintf(result->language, sizeof result->language, "%s", plan.language->name);
            out->language = HC_TAKE_PTR(plan.language);
        }
        if (request->request->metadata)
            result->metadata = strdup(request->request->metadata);
        fill_timing(result, begun);
        result_judge(result);
        result_summary(result, out->summary, sizeof out->summary);
    }
    plan_release(&plan);
    return status;
}

int hc_run(hc_engine *engine, const hc_request *request, hc_result **out, hc_error **error)
{
    struct hc_err err = {0};
    hc_result *result = calloc(1, sizeof *result);
    if (!result)
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (!result || run(engine, request, result, &err) < 0) {
        hc_result_free(result);
        return engine_give_error(error, &err);
    }
    *out = result;
    return 0;
}

/* ---- results ---- */

void hc_result_free(hc_result *result)
{
    if (!result)
        return;
    result_release(&result->result);
    language_free(result->language);
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
    return result->summary;
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

const char *hc_result_json(const hc_result *result, int pretty)
{
    hc_result *own = (hc_result *)result;
    if (own->language && !own->result.version[0])
        language_version(own->language, own->result.version, sizeof own->result.version);
    free(own->json);
    own->json = result_to_json(&result->result, pretty != 0);
    return own->json;
}

size_t hc_result_file_count(const hc_result *result)
{
    return result->result.file_count;
}
const char *hc_result_file(const hc_result *result, size_t index, const char **content, size_t *length)
{
    const struct result_file *file = &result->result.files[index];
    *content = file->content.data;
    *length = file->content.length;
    return file->path;
}
const char *hc_result_file_type(const hc_result *result, size_t index)
{
    const struct result_file *file = &result->result.files[index];
    return file->truncated ? "truncated" : file->type;
}
