/*
 * See drive.h. The life of a run, as the messages tell it:
 *
 *   CELL_NEW, JOB_START           sent together; the warden lets the job wait for the cell
 *   JOB_STARTED … JOB_ENDED       then the next stage, which first sweeps away what the last one left running
 *   JOB_START of a helper         after the first stage, if what it left is to be kept for other runs; after the last,
 *                                 if files are wanted, or tests follow that begin with what the stages left
 *   CELL_DESTROY                  unless the last job was marked as such: the warden then does it by itself
 *   end of file on every pipe     everything that could hold one is dead: the output is whole
 *
 * Then the run is over, and the cell's own end (CELL_GONE) is not waited for; or, with tests, it is, and the next test
 * begins with a cell of its own. So no test can meet anything that another one left, nor is one lost because another
 * was killed, which always means the whole cell.
 *
 * A run whose first stage was kept by an earlier one begins with the second, in a cell of its own that has what the
 * first left: nothing but the files comes from the other run.
 *
 * Output is read as it comes and never limits anything but itself: past its cap it is counted, past sixteen times the
 * cap the run is ended.
 *
 * What always holds: whatever happens, an event handler's last act is settle(), which is the only place where a drive
 * ends and is freed. A drive that the link does not know (`linked`) does not use the link, which may be gone.
 */
#include "run/drive_internal.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static void settle(void *data);

void drive_stop(struct drive *drive, int code, const char *what)
{
    hc_fail_errno(&drive->failure, HC_CLASS_OURS, code, "%s", what);
    drive->failed = true;
}

void drive_send(struct drive *drive, struct warden_message *message, const int *fds, size_t count)
{
    const struct drive_room *room = drive->options.room;
    int result = room            ? room->send(room->data, message, fds, count)
                 : drive->linked ? link_send(drive->link, &drive->owner, message, fds, count)
                                 : 0;
    if (result < 0)
        drive_stop(drive, -result, "talking to the warden");
}

struct run_stage *drive_record(struct drive *drive, size_t job)
{
    size_t stages = drive->plan->stage_count;
    return job < stages ? &drive->result->stages[job] : &drive->result->tests[job - stages].job;
}

static void leave_link(struct drive *drive)
{
    if (drive->linked)
        link_remove(drive->link, &drive->owner);
    drive->linked = false;
}

static void end_job(struct drive *drive, enum job_end reason)
{
    struct warden_message message = {.type = WARDEN_JOB_KILL, .job = drive->job, .reason = reason};
    if (drive->helper)
        message.job = drive->helper == HELPER_KEEP ? HELPER_KEEP_JOB : HELPER_JOB;
    drive_send(drive, &message, NULL, 0);
}

static void destroy_cell(struct drive *drive)
{
    if (drive->done)
        return;
    drive->done = true;
    if (drive->last || drive->options.room)
        return;
    struct warden_message message = {.type = WARDEN_CELL_DESTROY};
    drive_send(drive, &message, NULL, 0);
}

static bool more_tests(const struct drive *drive)
{
    return drive->testing && drive->result->test_count < drive->plan->test_count;
}

/* ---- output ---- */

static void take_output(struct drive *drive, uint64_t job, int number, const char *bytes, size_t length)
{
    struct capture *capture = &drive->captures[job][number - 1];
    uint64_t before = capture->total;
    if (drive->options.passes) {
        if (drive->options.events.output(drive->options.events.data, job, number, bytes, length) != 0)
            drive_cancel(drive);
        return;
    }
    if (capture_add(capture, bytes, length) < 0) {
        drive_stop(drive, ENOMEM, "keeping output");
        return;
    }
    const struct drive_events *events = &drive->options.events;
    if (events->output && before < capture->cap) {
        size_t shown = capture->cap - before < length ? (size_t)(capture->cap - before) : length;
        if (events->output(events->data, job, number, bytes, shown) != 0)
            drive_cancel(drive);
    }
    uint64_t ceiling = (uint64_t)capture->cap * DRIVE_OUTPUT_FACTOR;
    if (before <= ceiling && capture->total > ceiling && job == drive->job && !drive->helper)
        end_job(drive, JOB_OUTPUT);
}

static void on_bytes(void *data, uint64_t job, int number, const char *bytes, size_t length)
{
    struct drive *drive = data;
    const struct drive_events *events = &drive->options.events;
    if (job == HELPER_JOB && events->holds && !events->holds(events->data, length))
        return;
    if (job == HELPER_KEEP_JOB)
        snapshot_add(&drive->keeping, bytes, length);
    else if (job != HELPER_JOB)
        take_output(drive, job, number, bytes, length);
    else if (drive->helper == HELPER_SNAPSHOT)
        snapshot_add(&drive->snapshot, bytes, length);
    else if (collected_add(&drive->collected, bytes, length, NULL) < 0)
        drive->result->files_skipped++;
}

/* ---- what the warden says ---- */

static void on_helper_ended(struct drive *drive, const struct warden_message *message)
{
    bool good = message->facts.end == JOB_EXITED && message->facts.exit_code == 0;
    /* What came is kept. A guest that spoils its own collection (too little memory for it, say) does not make the run
     * our fault. */
    if (drive->helper == HELPER_COLLECT && !good)
        drive->result->files_skipped++;
    if (drive->helper == HELPER_SNAPSHOT && !good && !drive->cancelled)
        hc_fail(&drive->snapshot.failure, HC_CLASS_OURS, EIO, "the workspace could not be read for the tests%s%s",
                message->err.message[0] ? ": " : "", message->err.message);
    destroy_cell(drive);
}

/* A stage that somebody did not want any more before it began. */
static void add_cancelled_stage(struct drive *drive)
{
    const struct plan_stage *stage = &drive->plan->stages[drive->result->stage_count];
    struct run_stage *record = &drive->result->stages[drive->result->stage_count++];
    memcpy(record->name, stage->name, sizeof record->name);
    record->compile = stage->compile;
    record->facts.end = JOB_CANCELLED;
    record->limits = stage->limits;
    memcpy(record->own, stage->own, sizeof record->own);
}

/* What the first stage left is read before the next one can change it. Whether it could be is not the run's concern. */
static void on_keep_ended(struct drive *drive, const struct warden_message *message)
{
    drive->helper = HELPER_NONE;
    drive->kept = message->facts.end == JOB_EXITED && message->facts.exit_code == 0;
    if (drive->cancelled) {
        add_cancelled_stage(drive);
        destroy_cell(drive);
        return;
    }
    drive->job++;
    drive_start_stage(drive);
}

static void start_next_stage(struct drive *drive)
{
    if (drive->job == 0 && drive->options.keep && drive_start_keep(drive))
        return;
    drive->job++;
    drive_start_stage(drive);
}

static void on_job_ended(struct drive *drive, const struct warden_message *message)
{
    const struct plan *plan = drive->plan;
    if (message->job == HELPER_JOB) {
        on_helper_ended(drive, message);
        return;
    }
    if (message->job == HELPER_KEEP_JOB) {
        on_keep_ended(drive, message);
        return;
    }
    if (message->job != drive->job)
        return;
    struct run_stage *record = drive_record(drive, drive->job);
    drive_stop_feeding(drive);
    if (drive->job + 1 < plan->stage_count) /* what it wrote is told before the next stage is */
        pipes_drain(&drive->pipes);
    record->facts = message->facts;
    record->err = message->err;
    record->started = message->facts.end != JOB_NOT_STARTED;
    if (drive->cancelled && message->facts.end == JOB_NOT_STARTED)
        record->facts.end = JOB_CANCELLED; /* it waited for its cell when somebody changed their mind */
    drive->last = message->job_spec.last;
    if (message->job_spec.final) { /* nothing more comes from there but the warden's own end */
        leave_link(drive);
        if (drive->options.events.emptied)
            drive->options.events.emptied(drive->options.events.data);
    }
    stage_judge(record);
    bool alive = message->facts.end == JOB_EXITED && !drive->cancelled && drive->job < plan->stage_count;
    if (alive && record->status == RUN_COMPLETED && drive->job + 1 < plan->stage_count) {
        start_next_stage(drive);
    } else if (alive && record->status == RUN_COMPLETED && plan->test_count) {
        drive->testing = true;
        drive_start_snapshot(drive);
    } else if (alive && plan->request->collect.count) {
        drive_start_collect(drive);
    } else {
        destroy_cell(drive);
    }
}

static struct drive *drive_of(struct link_owner *owner)
{
    return (struct drive *)((char *)owner - offsetof(struct drive, owner));
}

static void hear(struct drive *drive, const struct warden_message *message)
{
    switch (message->type) {
    case WARDEN_CELL_FAILED:
        if (!drive->failure.code)
            drive->failure = message->err;
        drive->failed = true;
        break;
    case WARDEN_JOB_ENDED:
        if (!drive->done)
            on_job_ended(drive, message);
        if (drive->pipes.wait)
            pipes_listen(&drive->pipes);
        break;
    case WARDEN_CELL_GONE:
        drive->gone = true;
        break;
    default:
        break;
    }
    settle(drive);
}

static void on_message(struct link_owner *owner, const struct warden_message *message)
{
    hear(drive_of(owner), message);
}

void drive_room_message(struct drive *drive, const struct warden_message *message)
{
    hear(drive, message);
}

void drive_room_gone(struct drive *drive, const struct hc_err *why)
{
    if (!drive->failure.code)
        drive->failure = *why;
    drive->failed = drive->failed || !drive->done;
    settle(drive);
}

static void on_gone(struct link_owner *owner, int code)
{
    struct drive *drive = drive_of(owner);
    drive->linked = false;
    if (!drive->done || more_tests(drive)) /* otherwise its cell has gone with it, and the pipes tell */
        drive_stop(drive, code, "the warden died");
    settle(drive);
}

/* ---- tests ---- */

/* A stage that says why there can be no tests: the stages left too much, say. */
static void add_failed_stage(struct drive *drive, const struct hc_err *err)
{
    struct run_stage *stage = &drive->result->stages[drive->result->stage_count++];
    memcpy(stage->name, "workspace", sizeof "workspace");
    stage->facts.end = JOB_NOT_STARTED;
    stage->facts.exit_code = -1;
    stage->limits = stage[-1].limits;
    stage->err = *err;
}

/* To whom it may be of use again. */
static void tell_kept(struct drive *drive, struct snapshot *files)
{
    const struct drive_events *events = &drive->options.events;
    if (files->fd >= 0 && files->size <= drive->options.keep && events->kept)
        events->kept(events->data, files, &drive->captures[0][1]);
}

/* The tests of this run need it as well. */
static void tell_kept_copy(struct drive *drive)
{
    struct snapshot copy = drive->snapshot;
    copy.fd = drive->options.keep ? fcntl(copy.fd, F_DUPFD_CLOEXEC, 3) : -1;
    tell_kept(drive, &copy);
    hc_close(copy.fd);
}

/* The cell before it is gone, with everything in it. */
static void next_test(struct drive *drive)
{
    if (drive->helper == HELPER_SNAPSHOT) {
        struct hc_err err = {0};
        drive->helper = HELPER_NONE;
        if (snapshot_finish(&drive->snapshot, &err) < 0) {
            drive->testing = false;
            add_failed_stage(drive, &err);
            return;
        }
        tell_kept_copy(drive);
    }
    leave_link(drive);
    drive->job = drive->plan->stage_count + drive->result->test_count;
    drive_start_test(drive);
}

/* The one that would have been next stands for those that somebody did not want any more. */
static void add_cancelled_test(struct drive *drive)
{
    const struct plan_test *test = &drive->plan->tests[drive->result->test_count];
    struct run_test *record = &drive->result->tests[drive->result->test_count++];
    memcpy(record->job.name, test->name, sizeof record->job.name);
    record->job.facts.end = JOB_CANCELLED;
    record->job.limits = test->limits;
}

/* ---- beginning and end ---- */

static void move_output(struct drive *drive)
{
    struct result *result = drive->result;
    size_t stages = drive->plan->stage_count, tried = result->stage_count < stages ? result->stage_count : stages;
    bool more = result->test_count > 0 || result->stage_count > stages; /* something came after the stages */
    for (size_t i = 0; i < tried; i++) {
        struct capture *captures = drive->captures[i];
        if (i + 1 < tried || more) {
            result->stages[i].output = captures[1];
            capture_release(&captures[0]);
        } else {
            result->out = captures[0];
            result->err = captures[1];
        }
    }
    for (size_t i = 0; i < result->test_count; i++) {
        struct run_test *test = &result->tests[i];
        const struct blob *expect = drive->plan->tests[i].expect;
        test->out = drive->captures[stages + i][0];
        test->err = drive->captures[stages + i][1];
        if (expect && capture_missing(&test->out) == 0)
            test->match = test_compare(test->out.head, test->out.head_length, expect->data, expect->length);
    }
    free(drive->captures);
}

static void move_files(struct drive *drive)
{
    struct result *result = drive->result;
    if (drive->helper != HELPER_COLLECT)
        return;
    uint64_t spoiled = result->files_skipped;
    if (collected_finish(&drive->collected, result, NULL) < 0)
        spoiled++;
    result->files_skipped += spoiled;
    collected_release(&drive->collected);
}

/* What remains of a drive that will say nothing more. */
static void drive_free(struct drive *drive)
{
    drive_stop_feeding(drive);
    pipes_close(&drive->pipes);
    hc_timer_remove(drive->failing);
    destroy_cell(drive);
    leave_link(drive);
    if (drive->cancelled && !drive->failed && more_tests(drive))
        add_cancelled_test(drive);
    move_output(drive);
    move_files(drive);
    snapshot_release(&drive->snapshot);
    snapshot_release(&drive->keeping);
    drive->result->internal = drive->failure;
    free(drive);
}

static void settle(void *data)
{
    struct drive *drive = data;
    const struct drive_room *room = drive->options.room;
    if (room && drive->done && !drive->failed) { /* what it left running may hold its pipes for ever */
        pipes_drain(&drive->pipes);
        pipes_leave(&drive->pipes, room->linger, room->data);
    }
    if (!drive->failed && (!drive->done || pipes_busy(&drive->pipes)))
        return;
    if (!drive->failed && !drive->cancelled && more_tests(drive)) {
        if (drive->gone)
            next_test(drive);
        if (!drive->failed && (!drive->gone || !drive->done))
            return;
    }
    struct drive_events events = drive->options.events;
    struct result *result = drive->result;
    struct hc_err err = {0};
    if (drive->kept && snapshot_finish(&drive->keeping, &err) == 0)
        tell_kept(drive, &drive->keeping);
    drive_free(drive);
    result_judge(result);
    if (events.ended)
        events.ended(events.data);
}

static int prepare(struct drive *drive)
{
    const struct plan *plan = drive->plan;
    struct result *result = drive->result;
    drive->owner.message = on_message;
    drive->owner.gone = on_gone;
    drive->pipes = (struct pipes){.loop = link_loop(drive->link),
                                  .quiet = drive->options.quiet,
                                  .data = drive,
                                  .bytes = on_bytes,
                                  .after = settle};
    snapshot_init(&drive->snapshot);
    snapshot_init(&drive->keeping);
    result->tests_total = plan->test_count;
    drive->testing = plan->test_count > 0 && plan->stage_count == 0;
    result->stages = calloc(plan->stage_count + 1, sizeof *result->stages);
    drive->captures = calloc(plan->stage_count + plan->test_count, sizeof *drive->captures);
    if (plan->test_count)
        result->tests = calloc(plan->test_count, sizeof *result->tests);
    return result->stages && drive->captures && (result->tests || !plan->test_count) ? 0 : -ENOMEM;
}

/* The first stage as an earlier run left it. */
static int take_kept(struct drive *drive)
{
    const struct drive_kept *kept = drive->options.kept;
    const struct plan_stage *stage = &drive->plan->stages[0];
    struct run_stage *record = &drive->result->stages[drive->result->stage_count++];
    memcpy(record->name, stage->name, sizeof record->name);
    record->compile = record->started = record->cached = true;
    record->limits = stage->limits;
    memcpy(record->own, stage->own, sizeof record->own);
    drive->snapshot = kept->files;
    drive->snapshot.fd = fcntl(kept->files.fd, F_DUPFD_CLOEXEC, 3);
    if (drive->snapshot.fd < 0)
        return -errno;
    drive->testing = drive->plan->test_count > 0;
    const struct drive_events *events = &drive->options.events;
    if (events->stage)
        events->stage(events->data, 0, record->name);
    for (int i = 0; i < 2; i++)
        capture_init(&drive->captures[0][i], stage->limits.value[LIMIT_OUTPUT]);
    take_output(drive, 0, 2, kept->output.head, kept->output.head_length);
    drive->first = drive->job = 1;
    return 0;
}

/* Its disk is the run's own, besides what it begins with. */
static void start_first_stage(struct drive *drive)
{
    if (drive->options.room) {
        drive_start_stage(drive);
        return;
    }
    struct cell_spec spec = drive->plan->cell;
    spec.disk += drive->snapshot.disk;
    spec.inodes += drive->snapshot.inodes;
    drive_new_cell(drive, &spec, drive->plan->warm);
    if (!drive->failed)
        drive_start_stage(drive);
}

int drive_start(struct link *link, const struct plan *plan, const struct drive_options *options, struct result *result,
                struct drive **out)
{
    if (!link_alive(link))
        return -EPIPE;
    struct drive *drive = calloc(1, sizeof *drive);
    if (!drive)
        return -ENOMEM;
    *drive = (struct drive){.link = link, .plan = plan, .options = *options, .result = result};
    *out = drive;
    int status = prepare(drive);
    if (status == 0 && options->kept)
        status = take_kept(drive);
    if (status == 0 && drive->testing)
        drive_start_test(drive);
    else if (status == 0)
        start_first_stage(drive);
    if (status == 0 && drive->cancelled) /* by who was told of the kept stage */
        end_job(drive, JOB_CANCELLED);
    if (status == 0 && drive->failed)
        status = -drive->failure.code;
    if (status < 0)
        drive_free(drive);
    return status;
}

void drive_cancel(struct drive *drive)
{
    if (drive->cancelled || (drive->done && !more_tests(drive)))
        return;
    drive->cancelled = true;
    if (!drive->done)
        end_job(drive, JOB_CANCELLED);
}

static void on_failing(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct drive *drive = data;
    drive->failing = NULL;
    settle(drive);
}

/* Its end is told from the loop, for who calls this may be in the middle of something. */
void drive_fail(struct drive *drive, const struct hc_err *err)
{
    if (!drive->failure.code)
        drive->failure = *err;
    drive->failed = true;
    if (!drive->failing)
        drive->failing = hc_loop_timer(drive->pipes.loop, hc_now(), on_failing, drive);
}
