/* Starting what a drive decides on: cells, programs, helpers. Nothing here waits, and every fd that is sent is closed.
 */
#include "base/fd.h"
#include "run/block.h"
#include "run/drive_internal.h"
#include "run/stock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A program as it is to be started: a stage's, or a test's. */
struct program {
    const struct words *argv;
    const struct limits *limits;
    const struct blob *input;
    bool compile, feed; /* both streams are one; stdin comes from the caller's fd */
    bool sweep, last;
    uint64_t warm;
    uint32_t warm_stage;
    int files; /* or -1 */
    enum job_files files_kind;
};

/* What its language's programs look up while they start. Without it they wait for that a little longer: no error. */
static int open_lookups(const struct drive *drive, uint32_t *length)
{
    const struct language *language = drive->options.alone ? drive->plan->language : NULL;
    struct hc_buf names = HC_BUF_INIT(CELL_MAX_LOOKUPS);
    int fd = -1;
    for (size_t i = 0; language && i < language->lookups.count; i++)
        hc_buf_add(&names, language->lookups.item[i], strlen(language->lookups.item[i]) + 1);
    if (hc_buf_status(&names) == 0 && names.length)
        fd = hc_memfd_sealed("hotcell-lookups", names.data, names.length);
    *length = fd < 0 ? 0 : (uint32_t)names.length;
    hc_buf_release(&names);
    return fd;
}

void drive_new_cell(struct drive *drive, const struct cell_spec *spec, uint64_t warm)
{
    const struct plan *plan = drive->plan;
    struct warden_message message = {
        .type = WARDEN_CELL_NEW, .cell_spec = *spec, .isolation = drive->options.required, .warm = warm};
    hc_cleanup_fd int mounts = -1, lookups = -1;
    int fds[2];
    size_t count = 0;
    link_add(drive->link, &drive->owner);
    drive->linked = true;
    drive->done = drive->gone = drive->last = false;
    if (spec->mount_count) {
        mounts = hc_memfd_sealed("hotcell-mounts", plan->mounts, spec->mount_count * sizeof *plan->mounts);
        if (mounts < 0) {
            drive_stop(drive, -mounts, "preparing the mounts");
            return;
        }
        fds[count++] = mounts;
    }
    lookups = open_lookups(drive, &message.cell_spec.lookups);
    if (lookups >= 0)
        fds[count++] = lookups;
    drive_send(drive, &message, fds, count);
}

/* ---- input ---- */

static int open_feed(struct drive *drive)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    drive->feed = malloc(sizeof *drive->feed);
    int result = drive->feed ? feed_start(drive->feed, link_loop(drive->link), drive->options.input, ends[1]) : -ENOMEM;
    if (result == 0)
        return ends[0];
    if (!drive->feed)
        hc_close(ends[1]);
    free(drive->feed);
    drive->feed = NULL;
    hc_close(ends[0]);
    return result;
}

void drive_stop_feeding(struct drive *drive)
{
    if (drive->feed)
        feed_stop(drive->feed);
    free(drive->feed);
    drive->feed = NULL;
}

static int open_input(struct drive *drive, const struct program *program)
{
    if (program->feed)
        return open_feed(drive);
    if (program->compile || program->input->length == 0)
        return stock_null();
    /* A sealed memory file: nothing to pump, so a guest that never reads it keeps nobody waiting. */
    int fd = hc_memfd_sealed("stdin", program->input->data, program->input->length);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* ---- programs ---- */

static void start_program(struct drive *drive, const struct program *program)
{
    struct run_stage *record = drive_record(drive, drive->job);
    record->limits = *program->limits;
    for (int i = 0; i < 2; i++)
        capture_init(&drive->captures[drive->job][i], program->limits->value[LIMIT_OUTPUT]);
    const struct drive_events *events = &drive->options.events;
    if (events->stage)
        events->stage(events->data, drive->job, record->name);

    int fds[5] = {-1, -1, -1, -1, program->files};
    int result = pipes_open(&drive->pipes, drive->job, 2, &fds[2]);
    if (result == 0 && program->compile)
        result = (fds[1] = fcntl(fds[2], F_DUPFD_CLOEXEC, 3)) < 0 ? -errno : 0;
    else if (result == 0)
        result = pipes_open(&drive->pipes, drive->job, 1, &fds[1]);
    if (result == 0)
        result = fds[0] = open_input(drive, program);
    if (result >= 0)
        result = fds[3] = argument_block(plan_cwd(drive->plan), program->argv, &drive->plan->env);
    struct warden_message message = {.type = WARDEN_JOB_START, .job = drive->job};
    message.job_spec.kind = JOB_PROGRAM;
    message.job_spec.sweep = program->sweep;
    message.job_spec.last = program->last;
    message.job_spec.untold =
        program->last && drive->plan->test_count == 0; /* only a test waits for the cell before it */
    message.job_spec.final =
        program->last && drive->options.final && drive->job + 1 == drive->plan->stage_count + drive->plan->test_count;
    message.job_spec.warm = program->warm;
    message.job_spec.stage = program->warm_stage;
    message.job_spec.has_files = program->files >= 0 ? program->files_kind : JOB_FILES_NONE;
    plan_job_limits(program->limits, &message.job_spec.limits);
    message.job_spec.limits.file_size += drive->snapshot.disk; /* it is unpacked under the program's own limits */
    if (result >= 0)
        drive_send(drive, &message, fds, fds[4] >= 0 ? 5 : 4);
    else
        drive_stop(drive, -result, "preparing a stage");
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
}

void drive_start_stage(struct drive *drive)
{
    const struct plan *plan = drive->plan;
    const struct plan_stage *stage = &plan->stages[drive->job];
    struct run_stage *record = &drive->result->stages[drive->job];
    bool kept = drive->first > 0;
    drive->result->stage_count = drive->job + 1;
    snprintf(record->name, sizeof record->name, "%s", stage->name);
    record->compile = stage->compile;
    memcpy(record->own, stage->own, sizeof record->own);
    struct program program = {.argv = &stage->argv,
                              .limits = &stage->limits,
                              .input = &plan->request->input,
                              .compile = stage->compile,
                              .feed = !stage->compile && drive->options.input >= 0,
                              .sweep = drive->job > drive->first && !drive->options.room,
                              .last = !drive->options.room && drive->job + 1 == plan->stage_count &&
                                      plan->request->collect.count == 0 && plan->test_count == 0,
                              .warm = stage->warm,
                              .warm_stage = stage->warm_stage,
                              .files = drive->job > drive->first ? -1
                                       : kept                    ? drive->snapshot.fd
                                                                 : plan->files,
                              .files_kind = kept || plan->request->code_apart ? JOB_FILES_ROOT : JOB_FILES_WORK};
    start_program(drive, &program);
}

/* The disk is the test's own, besides what it begins with. */
void drive_start_test(struct drive *drive)
{
    const struct plan *plan = drive->plan;
    size_t index = drive->job - plan->stage_count;
    const struct plan_test *test = &plan->tests[index];
    struct run_test *record = &drive->result->tests[index];
    drive->result->test_count = index + 1;
    snprintf(record->job.name, sizeof record->job.name, "%s", test->name);
    record->expected = test->expect != NULL;
    struct cell_spec spec = plan->cell;
    spec.disk = test->limits.value[LIMIT_DISK] + drive->snapshot.disk;
    spec.inodes = test->limits.value[LIMIT_INODES] + drive->snapshot.inodes;
    bool compiled = drive->snapshot.fd >= 0;
    struct program program = {.argv = &test->argv,
                              .limits = &test->limits,
                              .input = test->input,
                              .last = true,
                              .warm = test->warm,
                              .warm_stage = test->warm_stage,
                              .files = compiled ? drive->snapshot.fd : plan->files,
                              .files_kind = compiled || plan->request->code_apart ? JOB_FILES_ROOT : JOB_FILES_WORK};
    drive_new_cell(drive, &spec, test->cell_warm);
    if (!drive->failed)
        start_program(drive, &program);
}

/* ---- helpers ---- */

static void start_helper(struct drive *drive, enum helper helper, const char *cwd, const struct words *patterns,
                         uint64_t limit)
{
    uint64_t job = helper == HELPER_KEEP ? HELPER_KEEP_JOB : HELPER_JOB;
    drive->helper = helper;
    int fds[4] = {open("/dev/null", O_RDWR | O_CLOEXEC), -1, -1, -1};
    int result = pipes_open(&drive->pipes, job, 1, &fds[1]);
    if (result == 0)
        result = fds[2] = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
    if (result >= 0)
        result = fds[3] = argument_block(cwd, patterns, NULL);
    struct warden_message message = {.type = WARDEN_JOB_START, .job = job};
    message.job_spec.kind = JOB_COLLECT;
    message.job_spec.sweep = 1;
    message.job_spec.collect_limit = limit;
    plan_job_limits(&drive->plan->stages[drive->job].limits, &message.job_spec.limits);
    message.job_spec.limits.wall = 30 * 1000000ULL;
    message.job_spec.limits.cpu_time = 0;
    if (result >= 0)
        drive_send(drive, &message, fds, 4);
    else
        drive_stop(drive, -result, "collecting files");
    for (int i = 0; i < 4; i++)
        hc_close(fds[i]);
}

void drive_start_collect(struct drive *drive)
{
    collected_init(&drive->collected, DRIVE_COLLECT_LIMIT);
    start_helper(drive, HELPER_COLLECT, drive->plan->cell.work_dir, &drive->plan->request->collect,
                 DRIVE_COLLECT_LIMIT);
}

/* "workspace", with every character that means something in a pattern as itself. */
static int add_tree(struct words *patterns, const char *path)
{
    char pattern[2 * sizeof((struct cell_spec *)0)->work_dir + 4];
    size_t length = 0;
    for (path += *path == '/'; *path && length < sizeof pattern - 5; path++) {
        if (strchr("*?[]\\", *path))
            pattern[length++] = '\\';
        pattern[length++] = *path;
    }
    memcpy(pattern + length, "/**", 4);
    return words_add(patterns, pattern);
}

static void start_snapshot(struct drive *drive, enum helper helper, const char *const *more, size_t count,
                           uint64_t limit)
{
    struct words patterns = {0};
    int result = add_tree(&patterns, drive->plan->cell.work_dir);
    for (size_t i = 0; i < count && result == 0; i++)
        result = words_add(&patterns, more[i]);
    if (result == 0)
        start_helper(drive, helper, "/", &patterns, limit);
    else
        drive_stop(drive, -result, "keeping the workspace");
    words_release(&patterns);
}

/* Compilers leave what they make in /tmp (LANGUAGE_OUT), other stages in the working directory. */
void drive_start_snapshot(struct drive *drive)
{
    static const char *const all[] = {"tmp/**"};
    int result = snapshot_begin(&drive->snapshot);
    if (result < 0)
        drive_stop(drive, -result, "keeping the workspace for the tests");
    else
        start_snapshot(drive, HELPER_SNAPSHOT, all, 1, SNAPSHOT_LIMIT);
}

/* Of a compiler alone: its product, without caches of its own that it had on the way. */
bool drive_start_keep(struct drive *drive)
{
    static const char out[] = LANGUAGE_OUT "*", below[] = LANGUAGE_OUT "*/**";
    const char *const product[] = {out + 1, below + 1};
    if (snapshot_begin(&drive->keeping) < 0)
        return false;
    start_snapshot(drive, HELPER_KEEP, product, 2, drive->options.keep);
    return true;
}
