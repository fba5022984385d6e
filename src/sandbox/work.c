/* See work.h. */
#include "sandbox/work.h"

#include "base/fd.h"
#include "run/block.h"
#include "sandbox/errand.h"
#include "sandbox/kinds.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DRAIN_READS = 64 };

static struct work *work_of(const struct fixture *fixture)
{
    return (struct work *)fixture;
}

/* ---- output ---- */

static void tell_written(struct work *work)
{
    struct work_watcher *next;
    for (struct work_watcher *watcher = work->watchers; watcher; watcher = next) {
        next = watcher->next;
        watcher->written(watcher);
    }
}

static void close_pipe(struct work *work, int stream)
{
    hc_watch_remove(work->watch[stream]);
    work->watch[stream] = NULL;
    work->pipe[stream] = hc_close(work->pipe[stream]);
}

static bool read_pipe(struct work *work, int stream)
{
    char bytes[65536];
    ssize_t count = work->pipe[stream] < 0 ? -1 : read(work->pipe[stream], bytes, sizeof bytes);
    if (count > 0)
        job_log_add(work->log, stream, bytes, (size_t)count);
    else if (count == 0 || (errno != EAGAIN && errno != EINTR))
        close_pipe(work, stream);
    return count > 0;
}

static void on_readable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct work *work = data;
    if (read_pipe(work, fd == work->pipe[1]))
        tell_written(work);
}

static int watch_pipes(struct work *work)
{
    for (int i = 0; i < 2; i++) {
        hc_set_nonblock(work->pipe[i], true);
        work->watch[i] = hc_loop_watch(sandbox_loop(work->fixture.sandbox), work->pipe[i], EPOLLIN, on_readable, work);
        if (!work->watch[i])
            return -ENOMEM;
    }
    return 0;
}

/* ---- its end ---- */

static void forget_oldest(struct sandbox *sandbox)
{
    size_t count = 0;
    for (struct fixture *fixture = sandbox->fixtures; fixture; fixture = fixture->next) {
        if (fixture->kind != &work_kind || fixture->running || work_of(fixture)->readers)
            continue;
        if (++count > WORK_REMEMBERED) { /* the newest come first */
            fixture_remove(fixture);
            return;
        }
    }
}

static void on_ended(struct box_job *job, const struct warden_message *message)
{
    struct work *work = job->data;
    struct fixture *fixture = &work->fixture;
    /* What its main program wrote is in the pipes. What others write later is read as long as they hold them. */
    for (int stream = 0; stream < 2; stream++)
        for (int i = 0; i < DRAIN_READS && read_pipe(work, stream); i++)
            continue;
    work_end_input(work);
    fixture->running = false;
    work->over = true;
    work->ended_at = sandbox_wall_clock();
    work->stage.facts = message->facts;
    work->stage.err = message->err;
    work->stage.started = message->facts.end != JOB_NOT_STARTED;
    work->stage.limits = work->limits;
    stage_judge(&work->stage);
    sandbox_used(fixture->sandbox);
    struct work_watcher *watchers = HC_TAKE_PTR(work->watchers), *next;
    for (struct work_watcher *watcher = watchers; watcher; watcher = next) {
        next = watcher->next;
        watcher->ended(watcher);
    }
    if (fixture->sandbox->box)
        sandbox_save(fixture->sandbox);
    sandbox_hold(fixture->sandbox); /* it was used until now */
    errand_remove(fixture->sandbox, work->rubbish);
    sandbox_release(fixture->sandbox);
    forget_oldest(fixture->sandbox);
}

static void work_free(struct fixture *fixture)
{
    struct work *work = work_of(fixture);
    for (int i = 0; i < 2; i++)
        close_pipe(work, i);
    hc_close(work->input);
    job_log_free(work->log);
    free(work->name);
    free(work->command);
    free(work->metadata);
    free(work->rubbish);
    free(work);
}

/* ---- for the next gateway ---- */

static json_t *work_save(const struct fixture *fixture)
{
    const struct work *work = work_of(fixture);
    return json_pack("{s:s?, s:s?, s:s?, s:s?, s:b, s:I}", "name", work->name, "command", work->command, "metadata",
                     work->metadata, "rubbish", work->rubbish, "input", work->input >= 0, "timeout",
                     (json_int_t)work->limits.value[LIMIT_TIMEOUT]);
}

static int leave_fds(struct work *work)
{
    int fds[4] = {job_log_fd(work->log), work->pipe[0], work->pipe[1], work->input};
    return box_keep(work->fixture.sandbox->box, &work->fixture.job, fds, work->input >= 0 ? 4 : 3);
}

static char *copy_of(const json_t *saved, const char *key)
{
    const char *text = json_string_value(json_object_get(saved, key));
    return text ? strdup(text) : NULL;
}

static struct fixture *work_restore(struct sandbox *sandbox, const json_t *saved, const struct warden_message *held,
                                    int *fds, size_t count)
{
    (void)held;
    bool input = json_is_true(json_object_get(saved, "input"));
    struct work *work = count == (input ? 4u : 3u) ? calloc(1, sizeof *work) : NULL;
    if (!work)
        return NULL;
    work->fixture.sandbox = sandbox;
    work->fixture.job = (struct box_job){.data = work, .ended = on_ended};
    work->log = job_log_open(HC_TAKE_FD(fds[0]));
    work->pipe[0] = HC_TAKE_FD(fds[1]);
    work->pipe[1] = HC_TAKE_FD(fds[2]);
    work->input = input ? HC_TAKE_FD(fds[3]) : -1;
    work->name = copy_of(saved, "name");
    work->command = copy_of(saved, "command");
    work->metadata = copy_of(saved, "metadata");
    work->rubbish = copy_of(saved, "rubbish");
    work->limits = sandbox->limits;
    work->limits.value[LIMIT_TIMEOUT] = (uint64_t)json_integer_value(json_object_get(saved, "timeout"));
    if (!work->log || watch_pipes(work) < 0) {
        work_free(&work->fixture);
        return NULL;
    }
    return &work->fixture;
}

const struct fixture_kind work_kind = {.word = "job", .save = work_save, .restore = work_restore, .free = work_free};

/* ---- its beginning ---- */

static char *words_for_people(const struct words *argv)
{
    char text[512] = "";
    size_t length = 0;
    for (size_t i = 0; i < argv->count && length < sizeof text - 1; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", i ? " " : "", argv->item[i]);
    return strdup(text);
}

static int open_pipes(struct work *work, bool input, int *fds)
{
    int ends[2];
    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC) < 0)
            return -errno;
        work->pipe[i] = ends[0];
        fds[1 + i] = ends[1];
    }
    if (!input)
        return (fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0 ? -errno : 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    fds[0] = ends[0];
    work->input = ends[1];
    return hc_set_nonblock(work->input, true);
}

static int start(struct work *work, const struct plan *plan, bool input)
{
    struct sandbox *sandbox = work->fixture.sandbox;
    const struct plan_stage *stage = &plan->stages[0];
    int fds[5] = {-1, -1, -1, -1, plan->files};
    int result = open_pipes(work, input, fds);
    if (result == 0)
        result = watch_pipes(work);
    if (result == 0)
        result = fds[3] = argument_block(plan_cwd(plan), &stage->argv, &plan->env);
    struct job_spec spec = {.kind = JOB_PROGRAM,
                            .warm = stage->warm,
                            .has_files = plan->files < 0             ? JOB_FILES_NONE
                                         : plan->request->code_apart ? JOB_FILES_ROOT
                                                                     : JOB_FILES_WORK};
    plan_job_limits(&work->limits, &spec.limits);
    if (result >= 0)
        result = box_start(sandbox->box, &work->fixture.job, &spec, fds, fds[4] >= 0 ? 5 : 4);
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
    return result < 0 ? result : leave_fds(work);
}

int work_start(struct sandbox *sandbox, const struct plan *plan, const char *name, bool input, struct work **out,
               struct hc_err *err)
{
    if (!sandbox_box(sandbox, err))
        return -err->code;
    if (plan->stage_count != 1) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is compiled first, which a detached job cannot wait for",
                plan->language ? plan->language->name : "it");
        hc_err_field(err, "detach");
        return hc_err_remedy(err, "compile it by an exec of its own, then detach the program");
    }
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    work->pipe[0] = work->pipe[1] = work->input = -1;
    work->limits = plan->stages[0].limits;
    work->fixture.job = (struct box_job){.data = work, .ended = on_ended};
    work->name = name ? strdup(name) : NULL;
    work->metadata = plan->request->metadata ? strdup(plan->request->metadata) : NULL;
    work->rubbish = plan_rubbish(plan);
    work->command = words_for_people(&plan->stages[0].argv);
    work->log = job_log_new((uint32_t)plan->output_cap);
    int result = work->log && work->command ? fixture_add(&work->fixture, sandbox, &work_kind, "job_") : -ENOMEM;
    if (result < 0) {
        work_free(&work->fixture);
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "starting the job");
    }
    result = start(work, plan, input);
    if (result < 0) {
        fixture_remove(&work->fixture);
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "starting the job");
    }
    work->fixture.running = true;
    sandbox_used(sandbox);
    sandbox_save(sandbox);
    *out = work;
    return 0;
}

/* ---- what can be done with it ---- */

struct work *work_find(const struct sandbox *sandbox, const char *id)
{
    struct fixture *found = fixture_find(sandbox, &work_kind, id);
    for (struct fixture *fixture = sandbox->fixtures; fixture && !found; fixture = fixture->next)
        if (fixture->kind == &work_kind && work_of(fixture)->name && strcmp(work_of(fixture)->name, id) == 0)
            found = fixture;
    return found ? work_of(found) : NULL;
}

void work_watch(struct work *work, struct work_watcher *watcher)
{
    watcher->next = work->watchers;
    work->watchers = watcher;
}

void work_unwatch(struct work *work, struct work_watcher *watcher)
{
    for (struct work_watcher **at = &work->watchers; *at; at = &(*at)->next)
        if (*at == watcher) {
            *at = watcher->next;
            return;
        }
}

void work_kill(struct work *work)
{
    struct box *box = work->fixture.sandbox->box;
    if (work->fixture.running)
        box_kill(&work->fixture.job, JOB_CANCELLED);
    else if (box)
        box_signal(box, work->fixture.job.number, SIGKILL);
}

int work_signal(struct work *work, int number)
{
    if (!work->fixture.running)
        return -ESRCH;
    box_signal(work->fixture.sandbox->box, work->fixture.job.number, number);
    return 0;
}

ssize_t work_write(struct work *work, const char *data, size_t length)
{
    if (work->input < 0)
        return -EPIPE;
    ssize_t count = write(work->input, data, length);
    return count < 0 ? -errno : count;
}

void work_end_input(struct work *work)
{
    if (work->input < 0)
        return;
    work->input = hc_close(work->input);
    if (work->fixture.running) /* the warden has it as well */
        (void)leave_fds(work);
}

/* ---- as JSON ---- */

json_t *work_json(const struct work *work)
{
    char started[40], ended[40];
    json_t *object = json_pack("{s:s, s:s?, s:s, s:o, s:s}", "id", work->fixture.id, "name", work->name, "state",
                               work->over ? "ended" : "running", "command", hc_json_text_lossy(work->command),
                               "started_at", sandbox_time_text(work->fixture.created_at, started, sizeof started));
    if (!object)
        return NULL;
    json_object_set_new(object, "ended_at",
                        work->over ? json_string(sandbox_time_text(work->ended_at, ended, sizeof ended)) : json_null());
    json_object_set_new(object, "status", work->over ? json_string(run_status_word(work->stage.status)) : json_null());
    json_object_set_new(object, "exit_code", work->over ? json_integer(work->stage.exit_code) : json_null());
    return object;
}
