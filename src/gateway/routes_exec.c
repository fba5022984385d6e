/*
 * POST /v1/sandboxes/{id}/exec: a command or code in a sandbox. It is a run like any other (recorded, counted,
 * streamed), but in a cell that is there already; or, detached, a job that goes on by itself.
 *
 * What always holds: an exec holds its sandbox from the beginning to the end, so that it is not idle meanwhile; and the
 * code's own file is removed when it has ended.
 */
#include "base/fd.h"
#include "gateway/run_internal.h"
#include "gateway/sandboxes.h"
#include "sandbox/errand.h"
#include "sandbox/order.h"
#include "sandbox/work.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const FIELDS[] = {"command", "code",   "language",   "args", "stdin",   "env",      "cwd", "timeout",
                                     "output",  "detach", "stdin_open", "name", "session", "metadata", NULL};

/* ---- what it is to be ---- */

/* The fields that a run has as well, by the code that reads a run's. */
static int read_shared(struct request *asked, const json_t *body, struct hc_err *err)
{
    static const char *const same[] = {"command", "code", "language", "args", "stdin", "env", "stdin_open", "metadata"};
    hc_cleanup_json json_t *object = json_object();
    json_t *limits = json_object();
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (json_object_get(body, same[i]) != NULL)
            json_object_set(object, same[i], json_object_get(body, same[i]));
    if (json_object_get(body, "timeout") != NULL)
        json_object_set(limits, "timeout", json_object_get(body, "timeout"));
    if (json_object_get(body, "output") != NULL)
        json_object_set(limits, "output", json_object_get(body, "output"));
    json_object_set_new(object, "limits", limits);
    hc_cleanup_free char *text = hc_json_write(object, false);
    if (text == NULL)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    int result = request_from_json(asked, text, strlen(text), err);
    if (result < 0 && strncmp(err->field, "limits.", 7) == 0) { /* as it was called here */
        char field[sizeof err->field];
        snprintf(field, sizeof field, "%s", err->field + 7);
        hc_err_field(err, "%s", field);
    }
    return result;
}

/* The sandbox's limits and variables stand for what the exec does not say. */
static int take_settings(struct request *asked, const struct sandbox *sandbox, struct hc_err *err)
{
    for (int id = 0; id < LIMIT_COUNT; id++)
        if (!asked->limits.set[id] && id != LIMIT_CPU_TIME) {
            asked->limits.value[id] = sandbox->limits.value[id];
            asked->limits.set[id] = true;
        }
    struct words own = asked->env;
    int result = 0;
    asked->env = (struct words){0};
    for (size_t i = 0; i < sandbox->request->env.count && result == 0; i++)
        result = words_add(&asked->env, sandbox->request->env.item[i]);
    for (size_t i = 0; i < own.count && result == 0; i++)
        result = words_add(&asked->env, own.item[i]);
    words_release(&own);
    return result < 0 ? hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory") : 0;
}

static int set_cwd(struct request *asked, const struct sandbox *sandbox, const char *cwd, struct hc_err *err)
{
    if (cwd == NULL)
        return 0;
    if (strlen(cwd) > 4000) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "cwd is longer than 4000 bytes");
        return hc_err_field(err, "cwd");
    }
    const char *base = sandbox->plan.cell.work_dir;
    if ((cwd[0] == '/' ? asprintf(&asked->cwd, "%s", cwd) : asprintf(&asked->cwd, "%s/%s", base, cwd)) < 0) {
        asked->cwd = NULL;
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    return 0;
}

static int set_apart(struct request *asked, struct hc_err *err)
{
    char name[48];
    if (!asked->has_code)
        return 0;
    int result = result_id_of("hc_", name, sizeof name, run_time_now());
    asked->code_apart = true;
    asked->apart = result == 0 ? strdup(name) : NULL;
    return asked->apart != NULL ? 0 : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

static bool is_empty(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* NULL: err. */
static struct request *read_exec(struct gateway *gateway, const struct sandbox *sandbox, const json_t *body,
                                 const char *cwd, struct hc_err *err)
{
    struct request *asked = request_new();
    bool command = !is_empty(json_object_get(body, "command")), code = !is_empty(json_object_get(body, "code"));
    if (command == code) { /* in a run's words there would be an entry as well */
        request_free(asked);
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, command ? "command excludes code" : "there is nothing to run");
        hc_err_field(err, command ? "command" : "code");
        hc_err_remedy(err, "give one of code and command");
        return NULL;
    }
    int result = asked != NULL ? read_shared(asked, body, err) : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result == 0)
        result = run_unwrap(gateway, asked, err);
    if (result == 0)
        result = take_settings(asked, sandbox, err);
    if (result == 0)
        result = set_cwd(asked, sandbox, cwd, err);
    if (result == 0)
        result = set_apart(asked, err);
    if (result == 0)
        return asked;
    request_free(asked);
    return NULL;
}

/* ---- where it is to be ---- */

struct exec {
    struct run_place place;
    struct box_job job;
    struct sandbox *sandbox;
    struct drive *drive;
    uint64_t number; /* the drive's own, of the job under way */
    bool running, left;
    char *rubbish; /* what is to be removed afterwards, or NULL */
};

static void exec_free(struct exec *exec)
{
    errand_remove(exec->sandbox, exec->rubbish);
    sandbox_release(exec->sandbox);
    free(exec->rubbish);
    free(exec);
}

static void on_job_ended(struct box_job *job, const struct warden_message *message)
{
    struct exec *exec = job->data;
    exec->running = false;
    if (exec->left || exec->drive == NULL)
        sandbox_calls(exec->sandbox, &message->facts.calls);
    if (exec->left) {
        exec_free(exec);
        return;
    }
    struct warden_message told = *message;
    told.job = exec->number;
    if (exec->drive != NULL)
        drive_room_message(exec->drive, &told);
}

static int room_send(void *data, struct warden_message *message, const int *fds, size_t count)
{
    struct exec *exec = data;
    struct hc_err err = {0};
    if (message->type == WARDEN_JOB_KILL && exec->running)
        box_kill(&exec->job, message->reason);
    if (message->type != WARDEN_JOB_START)
        return 0;
    struct box *box = sandbox_box(exec->sandbox, &err);
    if (box == NULL)
        return -err.code;
    exec->number = message->job;
    exec->job = (struct box_job){.data = exec, .ended = on_job_ended, .reports = true};
    int result = box_start(box, &exec->job, &message->job_spec, fds, count);
    exec->running = result == 0;
    return result;
}

static void room_linger(void *data, int fd)
{
    struct exec *exec = data;
    sandbox_linger(exec->sandbox, fd);
}

static void room_driven(void *data, struct drive *drive)
{
    ((struct exec *)data)->drive = drive;
}

static void room_left(void *data)
{
    struct exec *exec = data;
    exec->drive = NULL;
    exec->left = true;
    if (exec->running) /* nobody wants it any more: it goes, and then we do */
        box_kill(&exec->job, JOB_CANCELLED);
    else
        exec_free(exec);
}

static void room_planned(void *data, const struct plan *plan)
{
    struct exec *exec = data;
    exec->rubbish = plan_rubbish(plan);
}

static struct exec *exec_new(struct sandbox *sandbox)
{
    struct exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return NULL;
    *exec = (struct exec){.sandbox = sandbox,
                          .place = {.room = {.data = exec, .send = room_send, .linger = room_linger},
                                    .planned = room_planned,
                                    .driven = room_driven,
                                    .left = room_left}};
    snprintf(exec->place.sandbox, sizeof exec->place.sandbox, "%s", sandbox->id);
    sandbox_hold(sandbox);
    return exec;
}

/* ---- the three ways ---- */

static void run_in(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox,
                   struct request *asked)
{
    struct exec *exec = exec_new(sandbox);
    if (exec == NULL) {
        request_free(asked);
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    struct run_options options = {
        .place = &exec->place, .caller = *(const struct caller *)request->context, .kind = "exec"};
    run_answer(gateway, request, asked, &options);
}

static void detach(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox,
                   struct request *asked, const json_t *body, const char *name)
{
    struct hc_err err = {0};
    struct plan plan;
    struct work *work = NULL;
    int result = plan_make(gateway->config, asked, &plan, &err);
    if (result == 0) {
        if (json_object_get(body, "timeout") == NULL) /* it goes on until somebody ends it */
            plan.stages[plan.stage_count - 1].limits.value[LIMIT_TIMEOUT] = 0;
        result = work_start(sandbox, &plan, name, asked->stdin_open, &work, &err);
        plan_release(&plan);
    }
    request_free(asked);
    if (result < 0) {
        reply_error(request, &err);
        return;
    }
    char location[128];
    snprintf(location, sizeof location, "/v1/sandboxes/%s/jobs/%s", sandbox->id, work->fixture.id);
    http_add_header(request, "Location", location);
    sandbox_reply(request, 202, work_json(work));
}

void handle_sandbox_exec(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct hc_err err = {0};
    bool bad = false;
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    if (sandbox == NULL)
        return;
    hc_cleanup_json json_t *body = sandbox_body(request);
    if (body == NULL || !sandbox_body_knows(request, body, FIELDS))
        return;
    const char *cwd = sandbox_text(request, body, "cwd", &bad);
    const char *name = bad ? NULL : sandbox_text(request, body, "name", &bad);
    const char *session = bad ? NULL : sandbox_text(request, body, "session", &bad);
    if (bad)
        return;
    const json_t *apart = json_object_get(body, "detach");
    if (apart != NULL && !json_is_null(apart) && !json_is_boolean(apart)) {
        reply_problem(request, 400, "invalid_request", "detach must be true or false");
        return;
    }
    if (name != NULL && sandbox_check_name("name", name, &err) < 0) {
        reply_error(request, &err);
        return;
    }
    if (session != NULL) {
        handle_session_call(gateway, request, sandbox, body, session);
        return;
    }
    struct request *asked = read_exec(gateway, sandbox, body, cwd, &err);
    if (asked == NULL)
        reply_error(request, &err);
    else if (json_is_true(apart))
        detach(gateway, request, sandbox, asked, body, name);
    else
        run_in(gateway, request, sandbox, asked);
}
