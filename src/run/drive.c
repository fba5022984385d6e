/*
 * See drive.h. The life of a run, as the messages tell it:
 *
 *   CELL_NEW, JOB_START (sent together; the warden lets the job wait for the cell)
 *   JOB_STARTED … JOB_ENDED; then the next stage, which first sweeps away what the last one left running; then the
 * collect helper CELL_DESTROY … CELL_GONE: everything that could hold a pipe open is dead end of file on every pipe:
 * the output is whole
 *
 * Output is read as it comes and never limits anything but itself: past its cap it is counted, past sixteen times the
 * cap the run is ended.
 */
#include "run/drive.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/loop.h"
#include "run/collected.h"
#include "run/feed.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { COLLECT_JOB = 1000000 };

struct drive;

struct stream { /* one pipe from the guest */
    struct drive *drive;
    struct hc_watch *watch;
    struct stream *next;
    struct capture *capture; /* NULL: the collect stream */
    int fd, number;
    uint64_t job;
};

struct drive {
    struct hc_loop *loop;
    int warden;
    uint64_t cell; /* its number: another run's, on the same warden, had another */
    const struct plan *plan;
    const struct drive_options *options;
    struct result *result;
    struct stream *streams;
    struct capture (
        *captures)[2]; /* of each stage, stdout and stderr: a pipe may still be draining when the next stage starts */
    struct feed feed;
    bool feeding, cancelled, collecting, last, destroyed, gone, ended, refused;
    size_t stage; /* the current one */
    struct collected collected;
    struct hc_err failure; /* why the run cannot go on; its own fault never */
    struct hc_watch *warden_watch, *cancel_watch;
};

static void fail(struct drive *drive, int code, const char *what)
{
    hc_fail_errno(&drive->failure, HC_CLASS_OURS, code, "%s", what);
    drive->ended = true;
}

static void send_message(struct drive *drive, struct warden_message *message, const int *fds, size_t count)
{
    message->protocol = WARDEN_PROTOCOL;
    message->cell = drive->cell;
    int result = hc_send_fds(drive->warden, message, sizeof *message, fds, count);
    /* A warden that is gone has left its reason, or its end of file, to be read. */
    if (result < 0 && result != -EPIPE && result != -ECONNRESET)
        fail(drive, -result, "talking to the warden");
}

static void end_job(struct drive *drive, enum job_end reason)
{
    struct warden_message message = {.type = WARDEN_JOB_KILL, .job = drive->stage, .reason = reason};
    if (drive->collecting)
        message.job = COLLECT_JOB;
    send_message(drive, &message, NULL, 0);
}

static void destroy_cell(struct drive *drive)
{
    if (drive->destroyed)
        return;
    drive->destroyed = true;
    if (drive->last) /* the warden did it by itself */
        return;
    struct warden_message message = {.type = WARDEN_CELL_DESTROY};
    send_message(drive, &message, NULL, 0);
}

/* ---- output ---- */

static void close_stream(struct stream *stream)
{
    for (struct stream **at = &stream->drive->streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    hc_watch_remove(stream->watch);
    hc_close(stream->fd);
    free(stream);
}

static void take_output(struct stream *stream, const char *data, size_t length)
{
    struct drive *drive = stream->drive;
    struct capture *capture = stream->capture;
    uint64_t before = capture->total;
    if (capture_add(capture, data, length) < 0) {
        fail(drive, ENOMEM, "keeping output");
        return;
    }
    if (drive->options->output && before < capture->cap) {
        size_t shown = capture->cap - before < length ? (size_t)(capture->cap - before) : length;
        if (drive->options->output(drive->options->output_data, stream->number, data, shown) != 0 &&
            !drive->cancelled) {
            drive->cancelled = true;
            end_job(drive, JOB_CANCELLED);
        }
    }
    uint64_t ceiling = (uint64_t)capture->cap * DRIVE_OUTPUT_FACTOR;
    if (before <= ceiling && capture->total > ceiling && stream->job == drive->stage)
        end_job(drive, JOB_OUTPUT);
}

static void on_stream(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct stream *stream = data;
    struct drive *drive = stream->drive;
    char bytes[65536];
    ssize_t count = read(fd, bytes, sizeof bytes);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        close_stream(stream);
    } else if (stream->capture) {
        take_output(stream, bytes, (size_t)count);
    } else {
        if (collected_add(&drive->collected, bytes, (size_t)count, NULL) < 0)
            drive->result->files_skipped++;
    }
}

/* A pipe whose write end goes to the guest; the end to send is stored in *write_end. */
static int open_stream(struct drive *drive, struct capture *capture, int number, uint64_t job, int *write_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream) {
        *stream = (struct stream){.drive = drive, .capture = capture, .fd = ends[0], .number = number, .job = job};
        hc_set_nonblock(ends[0], true);
        stream->watch = hc_loop_watch(drive->loop, ends[0], EPOLLIN, on_stream, stream);
    }
    if (!stream || !stream->watch) {
        free(stream);
        hc_close(ends[0]);
        hc_close(ends[1]);
        return -ENOMEM;
    }
    stream->next = drive->streams;
    drive->streams = stream;
    *write_end = ends[1];
    return 0;
}

/* ---- input ---- */

static int open_input(struct drive *drive, const struct plan_stage *stage)
{
    if (stage->compile)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (drive->options->input < 0) {
        const struct blob *input = &drive->plan->request->input;
        if (input->length == 0)
            return open("/dev/null", O_RDONLY | O_CLOEXEC);
        /* A sealed memory file: nothing to pump, so a guest that never reads it keeps nobody waiting. */
        int fd = hc_memfd_sealed("stdin", input->data, input->length);
        if (fd >= 0)
            lseek(fd, 0, SEEK_SET);
        return fd;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    int result = feed_start(&drive->feed, drive->loop, drive->options->input, ends[1]);
    if (result < 0) {
        hc_close(ends[0]);
        return result;
    }
    drive->feeding = true;
    return ends[0];
}

static void stop_feeding(struct drive *drive)
{
    if (drive->feeding)
        feed_stop(&drive->feed);
    drive->feeding = false;
}

/* ---- jobs ---- */

static int argument_block(const char *cwd, const struct words *argv, const struct words *env)
{
    struct hc_buf buf = HC_BUF_INIT(4 << 20);
    hc_buf_add(&buf, cwd, strlen(cwd) + 1);
    for (size_t i = 0; i < argv->count; i++)
        hc_buf_add(&buf, argv->item[i], strlen(argv->item[i]) + 1);
    for (size_t i = 0; env && i < env->count; i++)
        hc_buf_add(&buf, env->item[i], strlen(env->item[i]) + 1);
    int fd = hc_buf_status(&buf);
    if (fd == 0)
        fd = hc_memfd_sealed("hotcell-arguments", buf.data, buf.length);
    hc_buf_release(&buf);
    return fd;
}

static void start_stage(struct drive *drive)
{
    const struct plan_stage *stage = &drive->plan->stages[drive->stage];
    struct run_stage *record = &drive->result->stages[drive->stage];
    drive->result->stage_count = drive->stage + 1;
    snprintf(record->name, sizeof record->name, "%s", stage->name);
    record->compile = stage->compile;
    record->limits = stage->limits;
    struct capture *captures = drive->captures[drive->stage];
    for (int i = 0; i < 2; i++)
        capture_init(&captures[i], stage->limits.value[LIMIT_OUTPUT]);

    int fds[5] = {-1, -1, -1, -1, -1};
    int result = open_stream(drive, &captures[1], 2, drive->stage, &fds[2]);
    if (result == 0 && stage->compile)
        result = (fds[1] = fcntl(fds[2], F_DUPFD_CLOEXEC, 3)) < 0 ? -errno : 0;
    else if (result == 0)
        result = open_stream(drive, &captures[0], 1, drive->stage, &fds[1]);
    if (result == 0)
        result = fds[0] = open_input(drive, stage);
    if (result >= 0)
        result = fds[3] = argument_block(drive->plan->cell.work_dir, &stage->argv, &drive->plan->env);
    struct warden_message message = {.type = WARDEN_JOB_START, .job = drive->stage};
    message.job_spec.kind = JOB_PROGRAM;
    message.job_spec.sweep = drive->stage > 0;
    message.job_spec.last = drive->stage + 1 == drive->plan->stage_count && drive->plan->request->collect.count == 0;
    message.job_spec.final = message.job_spec.last && drive->options->final;
    message.job_spec.argc = (uint32_t)stage->argv.count;
    message.job_spec.envc = (uint32_t)drive->plan->env.count;
    plan_job_limits(&stage->limits, &message.job_spec.limits);
    if (drive->stage == 0 && drive->plan->files >= 0) {
        message.job_spec.has_files = 1;
        fds[4] = drive->plan->files;
    }
    if (result >= 0)
        send_message(drive, &message, fds, fds[4] >= 0 ? 5 : 4);
    else
        fail(drive, -result, "preparing a stage");
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
}

static void start_collecting(struct drive *drive)
{
    const struct words *patterns = &drive->plan->request->collect;
    drive->collecting = true;
    collected_init(&drive->collected, DRIVE_COLLECT_LIMIT);
    int fds[4] = {open("/dev/null", O_RDWR | O_CLOEXEC), -1, -1, -1};
    int result = open_stream(drive, NULL, 1, COLLECT_JOB, &fds[1]);
    if (result == 0)
        result = fds[2] = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
    if (result >= 0)
        result = fds[3] = argument_block(drive->plan->cell.work_dir, patterns, NULL);
    struct warden_message message = {.type = WARDEN_JOB_START, .job = COLLECT_JOB};
    message.job_spec.kind = JOB_COLLECT;
    message.job_spec.sweep = 1;
    message.job_spec.argc = (uint32_t)patterns->count;
    message.job_spec.collect_limit = DRIVE_COLLECT_LIMIT;
    plan_job_limits(&drive->plan->stages[drive->stage].limits, &message.job_spec.limits);
    message.job_spec.limits.wall = 30 * 1000000ULL;
    message.job_spec.limits.cpu_time = 0;
    if (result >= 0)
        send_message(drive, &message, fds, 4);
    else
        fail(drive, -result, "collecting files");
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
}

/* ---- what the warden says ---- */

static void on_job_ended(struct drive *drive, const struct warden_message *message)
{
    if (message->job == COLLECT_JOB) {
        /* What came is kept. A guest that spoils its own collection (too little memory for it, say) does not make the
         * run our fault. */
        if (message->facts.end != JOB_EXITED || message->facts.exit_code != 0)
            drive->result->files_skipped++;
        destroy_cell(drive);
        return;
    }
    if (message->job != drive->stage)
        return;
    struct run_stage *stage = &drive->result->stages[drive->stage];
    stop_feeding(drive);
    stage->facts = message->facts;
    stage->err = message->err;
    stage->started = message->facts.end != JOB_NOT_STARTED;
    drive->last = message->job_spec.last;
    drive->gone = message->job_spec.final; /* nothing more comes from there */
    stage_judge(stage);
    bool alive = message->facts.end == JOB_EXITED && !drive->cancelled;
    if (alive && stage->status == RUN_COMPLETED && drive->stage + 1 < drive->plan->stage_count) {
        drive->stage++;
        start_stage(drive);
    } else if (alive && drive->plan->request->collect.count) {
        start_collecting(drive);
    } else {
        destroy_cell(drive);
    }
}

static void on_warden(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct drive *drive = data;
    if (drive->gone)
        return;
    struct warden_message message;
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &message, sizeof message, NULL, 0, &count);
    /* A reset is reported once, before what was sent before it: unix(7). */
    if (size == -EAGAIN || size == -EINTR || size == -ECONNRESET)
        return;
    if (size != (ssize_t)sizeof message || message.protocol != WARDEN_PROTOCOL) {
        fail(drive, size < 0 ? (int)-size : EPIPE, "the warden died");
        return;
    }
    if (message.type == WARDEN_HELLO &&
        drive->options->hello(drive->options->hello_data, &message, &drive->failure) < 0)
        drive->refused = drive->ended = true;
    if (message.cell != drive->cell)
        return;
    switch (message.type) {
    case WARDEN_CELL_FAILED:
        drive->failure = message.err;
        drive->ended = true;
        break;
    case WARDEN_JOB_STARTED:
        if (message.job == drive->stage)
            drive->result->stages[drive->stage].started = true;
        break;
    case WARDEN_JOB_ENDED:
        on_job_ended(drive, &message);
        if (drive->gone) {
            hc_watch_remove(drive->warden_watch);
            drive->warden_watch = NULL;
        }
        break;
    case WARDEN_CELL_GONE:
        drive->gone = true;
        break;
    default:
        break;
    }
}

static void on_cancel(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct drive *drive = data;
    hc_watch_remove(drive->cancel_watch);
    drive->cancel_watch = NULL;
    drive->cancelled = true;
    end_job(drive, JOB_CANCELLED);
}

static int begin(struct drive *drive)
{
    drive->loop = hc_loop_new();
    drive->result->stages = calloc(drive->plan->stage_count, sizeof *drive->result->stages);
    drive->captures = calloc(drive->plan->stage_count, sizeof *drive->captures);
    if (!drive->loop || !drive->result->stages || !drive->captures)
        return -ENOMEM;
    drive->warden_watch = hc_loop_watch(drive->loop, drive->warden, EPOLLIN, on_warden, drive);
    if (!drive->warden_watch)
        return -errno;
    if (drive->options->cancel >= 0) {
        drive->cancel_watch = hc_loop_watch(drive->loop, drive->options->cancel, EPOLLIN, on_cancel, drive);
        if (!drive->cancel_watch)
            return -errno;
    }
    const struct plan *plan = drive->plan;
    struct warden_message message = {
        .type = WARDEN_CELL_NEW, .cell_spec = plan->cell, .isolation = drive->options->required};
    hc_cleanup_fd int mounts = -1;
    if (plan->cell.mount_count) {
        mounts = hc_memfd_sealed("hotcell-mounts", plan->mounts, plan->cell.mount_count * sizeof *plan->mounts);
        if (mounts < 0)
            return mounts;
    }
    send_message(drive, &message, &mounts, mounts >= 0 ? 1 : 0);
    if (!drive->ended)
        start_stage(drive);
    return 0;
}

static void finish(struct drive *drive)
{
    struct result *result = drive->result;
    stop_feeding(drive);
    while (drive->streams)
        close_stream(drive->streams);
    hc_watch_remove(drive->warden_watch);
    hc_watch_remove(drive->cancel_watch);
    hc_loop_free(drive->loop);
    for (size_t i = 0; drive->captures && i < result->stage_count; i++) {
        if (i + 1 < result->stage_count) {
            result->stages[i].output = drive->captures[i][1];
            capture_release(&drive->captures[i][0]);
        } else {
            result->out = drive->captures[i][0];
            result->err = drive->captures[i][1];
        }
    }
    free(drive->captures);
    if (drive->collecting) {
        uint64_t spoiled = result->files_skipped;
        if (collected_finish(&drive->collected, result, NULL) < 0)
            spoiled++;
        result->files_skipped += spoiled;
        collected_release(&drive->collected);
    }
    result->internal = drive->failure;
}

int drive_run(int warden, const struct plan *plan, const struct drive_options *options, struct result *result,
              struct hc_err *err)
{
    struct drive drive = {.warden = warden, .cell = hc_now(), .plan = plan, .options = options, .result = result};
    int status = begin(&drive);
    if (status < 0)
        fail(&drive, -status, "starting the run");
    while (!drive.ended && !(drive.gone && !drive.streams)) {
        status = hc_loop_turn(drive.loop, -1);
        if (status < 0 && status != -EINTR)
            fail(&drive, -status, "waiting for events");
    }
    finish(&drive);
    if (drive.refused)
        *err = drive.failure;
    return drive.refused ? -err->code : 0;
}
