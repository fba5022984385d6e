/*
 * Running, of the public library: an engine is a keeper, its warden, and a loop with the line to it. Opening it starts
 * them and does not wait, so that their start overlaps with whatever the caller does next, and hc_run's own
 * preparations.
 */
#include "run/engine.h"

#include "base/fd.h"
#include "run/drive.h"
#include "run/isolation.h"
#include "run/locate.h"
#include "run/plan.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct engine_run { /* the one that is under way */
    const hc_request *request;
    struct drive *drive;
    bool emptied, ended;
};

static uint64_t now_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- the warden and what it says first ---- */

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

/* It may come while a run is under way, which was sent before: a greeting that refuses the run ends it. */
static void on_hello(void *data, const struct warden_message *message)
{
    hc_engine *engine = data;
    struct engine_run *run = engine->run;
    if (take_greeting(engine, message, &engine->refusal) == 0 && run)
        check_isolation(engine, run->request->request, &engine->refusal);
    if (engine->refusal.code && run && run->drive)
        drive_fail(run->drive, &engine->refusal);
}

static void stop_warden(hc_engine *engine)
{
    link_free(engine->link);
    engine->link = NULL;
    keeper_stop(&engine->keeper);
}

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
    hc_err_clear(&engine->refusal);
    result = keeper_start(&start, &engine->keeper, err);
    if (result < 0)
        return result;
    if (!engine->loop) /* made while the warden starts */
        engine->loop = hc_loop_new();
    if (engine->loop)
        engine->link = link_new(engine->loop, engine->keeper.socket, on_hello, NULL, engine);
    if (!engine->link) {
        int code = errno;
        keeper_stop(&engine->keeper);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "watching the warden");
    }
    engine->keeper.socket = -1; /* it is the link's */
    return 0;
}

int engine_greet(hc_engine *engine, struct hc_err *err)
{
    int result = engine->link ? 0 : start_warden(engine, NULL, err);
    while (result == 0 && !engine->greeted && !engine->refusal.code && link_alive(engine->link))
        result = hc_loop_turn(engine->loop, -1);
    if (result < 0)
        return err->code ? result : hc_fail_errno(err, HC_CLASS_OURS, -result, "waiting for the warden");
    if (engine->refusal.code)
        *err = engine->refusal;
    else if (!engine->greeted)
        hc_fail(err, HC_CLASS_OURS, EPIPE, "the warden died before it said anything");
    return -err->code;
}

/* The warden that a plan needs: a running one will do for a run without mounts. */
static int provide_warden(hc_engine *engine, const struct plan *plan, struct hc_err *err)
{
    if (engine->link && link_alive(engine->link) && !plan->hosts.count)
        return 0;
    stop_warden(engine);
    return start_warden(engine, plan, err);
}

/* ---- opening and closing ---- */

int hc_engine_open(const hc_config *config, hc_engine **out, hc_error **error)
{
    struct hc_err err = {0};
    hc_engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
        return engine_give_error(error, &err);
    }
    engine->config = config->config;
    engine->cancel = engine->keeper.socket = engine->keeper.alone = -1;
    engine->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->cancel < 0)
        hc_fail_errno(&err, HC_CLASS_HOST, errno, "making an eventfd");
    /* Where mounts are possible, what the warden is to see is known only with the request. */
    bool mounts = engine->config->read_paths.count || engine->config->write_paths.count;
    if (err.code || (!mounts && start_warden(engine, NULL, &err) < 0)) {
        hc_engine_close(engine);
        return engine_give_error(error, &err);
    }
    *out = engine;
    return 0;
}

/* All else is done before the keeper is waited for. The warden ends when its link does, if it has not. */
static void close_engine(hc_engine *engine, void (*stop)(struct keeper *keeper))
{
    link_free(engine->link);
    hc_loop_free(engine->loop);
    hc_close(engine->cancel);
    stop(&engine->keeper);
    free(engine);
}

void hc_engine_close(hc_engine *engine)
{
    if (engine)
        close_engine(engine, keeper_stop);
}

void hc_engine_leave(hc_engine *engine)
{
    if (engine)
        close_engine(engine, engine->empty ? keeper_leave : keeper_stop);
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

/* ---- a run ---- */

static void on_cancel(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct engine_run *run = data;
    uint64_t times;
    if (read(fd, &times, sizeof times) == sizeof times && run->drive) /* it is used up: it was meant for this run */
        drive_cancel(run->drive);
}

static int on_output(void *data, size_t stage, int stream, const char *bytes, size_t length)
{
    (void)stage;
    const hc_request *request = ((struct engine_run *)data)->request;
    return request->output(request->output_data, stream, bytes, length);
}

static void on_kept(void *data, struct snapshot *files, const struct capture *output)
{
    (void)output;
    const hc_request *request = ((struct engine_run *)data)->request;
    if (request->kept) {
        *request->kept = *files;
        files->fd = -1;
    }
}

static void on_emptied(void *data)
{
    ((struct engine_run *)data)->emptied = true;
}

static void on_ended(void *data)
{
    struct engine_run *run = data;
    run->drive = NULL;
    run->ended = true;
}

static int drive_to_end(hc_engine *engine, struct engine_run *run, const struct plan *plan, struct result *result,
                        struct hc_err *err)
{
    const hc_request *request = run->request;
    struct drive_options options = {.input = request->input,
                                    .required = weak_allowed(engine, request->request) ? 0 : ISOLATION_ALL,
                                    .final = engine->single,
                                    .alone = true,
                                    .keep = request->keep,
                                    .events = {.data = run, .kept = on_kept, .emptied = on_emptied, .ended = on_ended}};
    if (request->output)
        options.events.output = on_output;
    options.passes = request->endless && request->output;
    struct hc_watch *cancel = hc_loop_watch(engine->loop, engine->cancel, EPOLLIN, on_cancel, run);
    int status = cancel ? drive_start(engine->link, plan, &options, result, &run->drive) : -errno;
    if (status < 0)
        hc_fail_errno(err, HC_CLASS_OURS, -status, "starting the run");
    while (status == 0 && !run->ended) {
        int turned = hc_loop_turn(engine->loop, -1);
        if (turned < 0 && run->drive) {
            struct hc_err failure = {0};
            hc_fail_errno(&failure, HC_CLASS_OURS, -turned, "waiting for events");
            drive_fail(run->drive, &failure);
        }
    }
    hc_watch_remove(cancel);
    uint64_t late;
    (void)!read(engine->cancel, &late, sizeof late); /* a cancel that came as it ended was meant for this run */
    engine->empty = run->emptied;
    if (status == 0 && engine->refusal.code) {
        *err = engine->refusal;
        hc_err_clear(&engine->refusal);
        status = -err->code;
    } else if (status == 0 && result->status == RUN_INTERNAL && result->internal.class == HC_CLASS_REQUEST) {
        *err = result->internal; /* a cell that cannot be what was asked for: nothing ran */
        status = -err->code;
    }
    return status;
}

static void fill(const hc_engine *engine, const struct request *request, struct plan *plan, uint64_t begun,
                 hc_result *out)
{
    struct result *result = &out->result;
    result->isolation = engine->isolation;
    result->weak = (engine->isolation & ISOLATION_ALL) != ISOLATION_ALL;
    result->start = result_start(result);
    if (result->status != RUN_COMPLETED)
        out->kept = explain_keep(plan);
    if (plan->language) {
        snprintf(result->language, sizeof result->language, "%s", plan->language->name);
        out->language = HC_TAKE_PTR(plan->language);
    }
    if (request->metadata)
        result->metadata = strdup(request->metadata);
    result->total_us = now_us(CLOCK_MONOTONIC) - begun;
    result_time(result, begun);
    result_summary(result, out->summary, sizeof out->summary);
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
    if (request->endless && !request->request->limits.set[LIMIT_TIMEOUT])
        plan.stages[plan.stage_count - 1].limits.value[LIMIT_TIMEOUT] = 0;
    status = result_id(result->id, sizeof result->id, result->created_at);
    if (status < 0)
        hc_fail_errno(err, HC_CLASS_HOST, -status, "making an id");
    if (status == 0)
        status = provide_warden(engine, &plan, err);
    if (status == 0 && engine->greeted)
        status = check_isolation(engine, request->request, err);
    if (status == 0) {
        struct engine_run under_way = {.request = request};
        engine->run = &under_way;
        status = drive_to_end(engine, &under_way, &plan, result, err);
        engine->run = NULL;
    }
    if (status == 0)
        fill(engine, request->request, &plan, begun, out);
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
