/* A drive against a warden that is played here: which messages it sends in which order, and what it makes of the
 * answers. What a real warden does with them is for the integration tests. */
#include "run/drive.h"

#include "base/fd.h"
#include "cell/archive.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct hc_loop *loop;
    struct link *link;
    struct config *config;
    struct request *request;
    struct plan plan;
    struct result result;
    struct drive *drive;
    int warden;
    int ended, stages;
    int expect_output_in; /* how many stages must have begun when output comes; 0: any number */
    char output[64];
    int fds[HC_MAX_FDS]; /* of the message that was last taken */
    size_t fd_count;
    struct snapshot kept; /* what it was told of */
    struct hc_err err;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    int ends[2];
    if (!fixture || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    fixture->plan.files = -1;
    snapshot_init(&fixture->kept);
    fixture->loop = hc_loop_new();
    fixture->warden = ends[1];
    hc_set_nonblock(ends[1], true);
    fixture->link = link_new(fixture->loop, ends[0], NULL, NULL, NULL);
    fixture->request = request_new();
    *state = fixture;
    return fixture->link && fixture->request && config_load(NULL, &fixture->config, &fixture->err) == 0 ? 0 : -1;
}

static void drop_fds(struct fixture *fixture)
{
    for (size_t i = 0; i < fixture->fd_count; i++)
        hc_close(fixture->fds[i]);
    fixture->fd_count = 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    drop_fds(fixture);
    snapshot_release(&fixture->kept);
    link_free(fixture->link);
    hc_loop_free(fixture->loop);
    hc_close(fixture->warden);
    result_release(&fixture->result);
    plan_release(&fixture->plan);
    request_free(fixture->request);
    config_free(fixture->config);
    free(fixture);
    return 0;
}

static void on_stage(void *data, size_t index, const char *name)
{
    struct fixture *fixture = data;
    (void)name;
    assert_int_equal(index, fixture->stages);
    fixture->stages++;
}

static int on_output(void *data, size_t stage, int stream, const char *bytes, size_t length)
{
    struct fixture *fixture = data;
    size_t have = strlen(fixture->output);
    if (fixture->expect_output_in)
        assert_int_equal(fixture->stages, fixture->expect_output_in);
    snprintf(fixture->output + have, sizeof fixture->output - have, "%zu.%d:%.*s", stage, stream, (int)length, bytes);
    return strncmp(bytes, "stop", 4) == 0;
}

static void on_ended(void *data)
{
    ((struct fixture *)data)->ended++;
}

static void on_kept(void *data, struct snapshot *files, const struct capture *output)
{
    struct fixture *fixture = data;
    assert_int_equal(fixture->ended, 0);
    assert_int_equal(output->head_length, 3);
    fixture->kept = *files;
    files->fd = -1;
}

static void start_with(struct fixture *fixture, const char *json, uint64_t keep, const struct drive_kept *kept)
{
    struct drive_options options = {
        .input = -1,
        .keep = keep,
        .kept = kept,
        .events = {.data = fixture, .stage = on_stage, .output = on_output, .kept = on_kept, .ended = on_ended}};
    assert_int_equal(request_from_json(fixture->request, json, strlen(json), &fixture->err), 0);
    assert_int_equal(plan_make(fixture->config, fixture->request, &fixture->plan, &fixture->err), 0);
    assert_int_equal(drive_start(fixture->link, &fixture->plan, &options, &fixture->result, &fixture->drive), 0);
}

static void start(struct fixture *fixture, const char *json)
{
    start_with(fixture, json, 0, NULL);
}

/* The next message of the drive, or one of type 0. */
static struct warden_message take(struct fixture *fixture)
{
    struct warden_message message = {0};
    drop_fds(fixture);
    hc_recv_fds(fixture->warden, &message, sizeof message, fixture->fds, HC_MAX_FDS, &fixture->fd_count);
    return message;
}

static struct warden_message expect(struct fixture *fixture, enum warden_type type)
{
    struct warden_message message = take(fixture);
    assert_int_equal(message.type, type);
    return message;
}

static void say(struct fixture *fixture, struct warden_message message)
{
    message.protocol = WARDEN_PROTOCOL;
    assert_int_equal(hc_send_fds(fixture->warden, &message, sizeof message, NULL, 0), 0);
    hc_loop_turn(fixture->loop, 0);
}

/* As the warden reports a job that it was asked to start, whose pipes are closed by then. */
static void end_job(struct fixture *fixture, const struct warden_message *started, enum job_end end, int exit_code)
{
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .cell = started->cell, .job = started->job};
    message.job_spec.last = started->job_spec.last;
    message.job_spec.final = started->job_spec.final;
    message.facts.end = end;
    message.facts.exit_code = exit_code;
    drop_fds(fixture);
    say(fixture, message);
    for (int i = 0; i < 4; i++)
        hc_loop_turn(fixture->loop, 0);
}

static void gone(struct fixture *fixture, const struct warden_message *started)
{
    say(fixture, (struct warden_message){.type = WARDEN_CELL_GONE, .cell = started->cell});
}

static void test_cell_and_job_are_sent_at_once_and_the_end_needs_no_cell_gone(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"]}");
    assert_int_equal(fixture->ended, 0);
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    assert_int_equal(fixture->fd_count, 4);
    assert_true(job.job_spec.last);
    assert_int_equal(write(fixture->fds[1], "out", 3), 3);
    end_job(fixture, &job, JOB_EXITED, 0);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_COMPLETED);
    assert_string_equal(fixture->output, "0.1:out");
    assert_int_equal(take(fixture).type, 0); /* the warden destroys the cell by itself */
    gone(fixture, &job);
}

static void test_a_held_pipe_keeps_the_run_until_it_is_closed(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"]}");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    int held = dup(fixture->fds[2]);
    end_job(fixture, &job, JOB_EXITED, 0);
    assert_int_equal(fixture->ended, 0);
    assert_int_equal(write(held, "late", 4), 4);
    hc_close(held);
    hc_loop_turn(fixture->loop, 0);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->ended, 1);
    assert_string_equal(fixture->output, "0.2:late");
}

static void test_stages_share_a_cell_and_the_first_that_fails_is_the_last(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"],\"stages\":[{\"command\":[\"a\"]},{\"command\":[\"b\"]}]}");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    assert_false(job.job_spec.sweep);
    end_job(fixture, &job, JOB_EXITED, 0);
    job = expect(fixture, WARDEN_JOB_START);
    assert_true(job.job_spec.sweep);
    end_job(fixture, &job, JOB_EXITED, 3);
    expect(fixture, WARDEN_CELL_DESTROY);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_COMPILE_ERROR);
    assert_int_equal(fixture->result.stage_count, 2);
    assert_int_equal(fixture->stages, 2);
}

static void test_what_a_stage_wrote_is_told_before_the_next_begins(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"],\"stages\":[{\"command\":[\"a\"]}]}");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START), ended = {.type = WARDEN_JOB_ENDED, .cell = job.cell};
    ended.protocol = WARDEN_PROTOCOL;
    /* In this order, so that the loop hears of the message first. */
    assert_int_equal(hc_send_fds(fixture->warden, &ended, sizeof ended, NULL, 0), 0);
    assert_int_equal(write(fixture->fds[2], "one", 3), 3);
    drop_fds(fixture);
    fixture->expect_output_in = 1;
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->stages, 2);
    assert_string_equal(fixture->output, "0.2:one");
    drive_cancel(fixture->drive);
    expect(fixture, WARDEN_JOB_START);
    drop_fds(fixture);
    ended.job = 1;
    ended.facts.end = JOB_CANCELLED;
    say(fixture, ended);
    for (int i = 0; i < 4; i++)
        hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->ended, 1);
}

static void test_each_test_has_a_cell_of_its_own_made_when_the_last_is_gone(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"],\"tests\":[{\"expect_stdout\":\"1\"},{\"expect_stdout\":\"1\"},{}]}");
    uint64_t cells[3];
    for (int i = 0; i < 3; i++) {
        cells[i] = expect(fixture, WARDEN_CELL_NEW).cell;
        struct warden_message job = expect(fixture, WARDEN_JOB_START);
        assert_int_equal(job.cell, cells[i]);
        assert_int_equal(job.job, i);
        assert_int_equal(write(fixture->fds[1], i == 0 ? "1" : "2", 1), 1);
        end_job(fixture, &job, i == 2 ? JOB_TIMED_OUT : JOB_EXITED, i == 2 ? -1 : 0);
        assert_int_equal(take(fixture).type, 0);
        assert_int_equal(fixture->ended, i == 2);
        gone(fixture, &job);
    }
    assert_true(cells[0] != cells[1] && cells[1] != cells[2]);
    assert_int_equal(fixture->result.test_count, 3);
    assert_string_equal(test_verdict(&fixture->result.tests[0]), "passed");
    assert_string_equal(test_verdict(&fixture->result.tests[1]), "failed");
    assert_string_equal(test_verdict(&fixture->result.tests[2]), "timeout");
    assert_int_equal(fixture->result.status, RUN_TIMEOUT);
}

static void test_a_cancelled_run_is_killed_wherever_it_stands(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"],\"tests\":[{},{}]}");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    end_job(fixture, &job, JOB_EXITED, 0);
    drive_cancel(fixture->drive); /* between two tests: there is no job to kill */
    assert_int_equal(take(fixture).type, 0);
    gone(fixture, &job);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_KILLED);
    assert_int_equal(fixture->result.test_count, 2);
    assert_string_equal(test_verdict(&fixture->result.tests[1]), "killed");
}

static void test_a_job_that_waited_for_its_cell_when_it_was_cancelled_is_killed_not_broken(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"]}");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    drive_cancel(fixture->drive);
    assert_int_equal(expect(fixture, WARDEN_JOB_KILL).reason, JOB_CANCELLED);
    job.job_spec.last = 0; /* refused, not ended */
    end_job(fixture, &job, JOB_NOT_STARTED, -1);
    expect(fixture, WARDEN_CELL_DESTROY);
    assert_int_equal(fixture->result.status, RUN_KILLED);
}

static void test_a_listener_that_has_enough_ends_the_run(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"]}");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    assert_int_equal(write(fixture->fds[1], "stop", 4), 4);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(expect(fixture, WARDEN_JOB_KILL).reason, JOB_CANCELLED);
    end_job(fixture, &job, JOB_CANCELLED, -1);
    assert_int_equal(fixture->result.status, RUN_KILLED);
}

static void test_output_past_sixteen_caps_is_ended_once(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"],\"limits\":{\"output\":16}}");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    int out = dup(fixture->fds[1]);
    char bytes[256] = {0};
    assert_int_equal(write(out, bytes, sizeof bytes), sizeof bytes);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(take(fixture).type, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(out, bytes, 1), 1);
        hc_loop_turn(fixture->loop, 0);
    }
    assert_int_equal(expect(fixture, WARDEN_JOB_KILL).reason, JOB_OUTPUT);
    assert_int_equal(take(fixture).type, 0);
    hc_close(out);
    end_job(fixture, &job, JOB_OUTPUT, -1);
    assert_int_equal(fixture->result.status, RUN_OUTPUT_LIMIT);
    assert_int_equal(capture_missing(&fixture->result.out), 258 - 16);
}

static void test_a_warden_that_dies_makes_the_run_internal(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, "{\"command\":[\"x\"]}");
    fixture->warden = hc_close(fixture->warden);
    hc_loop_turn(fixture->loop, 0);
    hc_loop_turn(fixture->loop, 0);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_INTERNAL);
    assert_non_null(strstr(fixture->result.internal.message, "the warden died"));
    struct drive_options options = {.input = -1};
    struct result other = {0};
    assert_int_equal(drive_start(fixture->link, &fixture->plan, &options, &other, &fixture->drive), -EPIPE);
}

static void test_a_failure_from_outside_ends_the_run_but_not_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct hc_err err = {0};
    start(fixture, "{\"command\":[\"x\"]}");
    hc_fail(&err, HC_CLASS_HOST, EPERM, "not here");
    drive_fail(fixture->drive, &err);
    assert_int_equal(fixture->ended, 0);
    hc_loop_turn(fixture->loop, 10);
    assert_int_equal(fixture->ended, 1);
    assert_string_equal(fixture->result.internal.message, "not here");
    expect(fixture, WARDEN_CELL_NEW);
    expect(fixture, WARDEN_JOB_START);
    expect(fixture, WARDEN_CELL_DESTROY);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* ---- what the first stage left ---- */

#define TWO_STAGES "{\"command\":[\"x\"],\"stages\":[{\"command\":[\"a\"]}]}"

/* The first stage ends well, and the helper that reads what it left is asked for. */
static struct warden_message keep_begun(struct fixture *fixture)
{
    start_with(fixture, TWO_STAGES, 1000, NULL);
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    assert_int_equal(write(fixture->fds[2], "one", 3), 3);
    end_job(fixture, &job, JOB_EXITED, 0);
    job = expect(fixture, WARDEN_JOB_START);
    assert_int_equal(job.job_spec.kind, JOB_COLLECT);
    assert_int_equal(job.job_spec.collect_limit, 1000);
    assert_true(job.job_spec.sweep);
    return job;
}

static void test_what_the_first_stage_left_is_read_before_the_next_and_told(void **state)
{
    struct fixture *fixture = *state;
    struct warden_message job = keep_begun(fixture);
    archive_put_header(fixture->fds[1], ARCHIVE_FILE, 0644, "tmp/x", 2, 2);
    assert_int_equal(write(fixture->fds[1], "xy", 2), 2);
    archive_put_header(fixture->fds[1], ARCHIVE_END, 0, "", 0, 0);
    end_job(fixture, &job, JOB_EXITED, 0);
    job = expect(fixture, WARDEN_JOB_START);
    assert_int_equal(job.job_spec.kind, JOB_PROGRAM);
    assert_int_equal(job.job, 1);
    assert_true(job.job_spec.last);
    end_job(fixture, &job, JOB_EXITED, 0);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_COMPLETED);
    assert_true(fixture->kept.fd >= 0);
    assert_int_equal(fixture->kept.inodes, 2);
    assert_int_equal(fixture->result.stage_count, 2);
    assert_false(fixture->result.stages[0].cached);
}

static void test_a_run_goes_on_where_nothing_could_be_kept(void **state)
{
    struct fixture *fixture = *state;
    struct warden_message job = keep_begun(fixture);
    end_job(fixture, &job, JOB_EXITED, 1);
    job = expect(fixture, WARDEN_JOB_START);
    end_job(fixture, &job, JOB_EXITED, 0);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_COMPLETED);
    assert_int_equal(fixture->kept.fd, -1);
}

static void test_half_of_what_was_left_is_not_told(void **state)
{
    struct fixture *fixture = *state;
    struct warden_message job = keep_begun(fixture);
    archive_put_header(fixture->fds[1], ARCHIVE_FILE, 0644, "tmp/x", 2, 5000); /* more than the limit */
    assert_int_equal(write(fixture->fds[1], "xy", 2), 2);
    archive_put_header(fixture->fds[1], ARCHIVE_END, 0, "", 0, 0);
    end_job(fixture, &job, JOB_EXITED, 0);
    job = expect(fixture, WARDEN_JOB_START);
    end_job(fixture, &job, JOB_EXITED, 0);
    assert_int_equal(fixture->result.status, RUN_COMPLETED);
    assert_int_equal(fixture->kept.fd, -1);
}

static void test_a_run_that_is_cancelled_while_something_is_kept_is_killed(void **state)
{
    struct fixture *fixture = *state;
    struct warden_message job = keep_begun(fixture);
    drive_cancel(fixture->drive);
    struct warden_message kill = expect(fixture, WARDEN_JOB_KILL);
    assert_int_equal(kill.job, job.job);
    end_job(fixture, &job, JOB_CANCELLED, -1);
    expect(fixture, WARDEN_CELL_DESTROY);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_KILLED);
    assert_int_equal(fixture->result.stage_count, 2);
    assert_int_equal(fixture->kept.fd, -1);
}

static void kept_begin(struct fixture *fixture, const char *json, const char *output)
{
    struct drive_kept kept = {.files = {.fd = hc_memfd_sealed("kept", "xy", 2), .size = 2, .disk = 8192, .inodes = 3}};
    capture_init(&kept.output, 100);
    capture_add(&kept.output, output, strlen(output));
    start_with(fixture, json, 0, &kept);
    hc_close(kept.files.fd); /* the drive has its own */
    capture_release(&kept.output);
}

static void test_a_kept_stage_is_told_and_not_run(void **state)
{
    struct fixture *fixture = *state;
    kept_begin(fixture, TWO_STAGES, "one");
    assert_int_equal(fixture->stages, 2);
    assert_string_equal(fixture->output, "0.2:one");
    struct warden_message cell = expect(fixture, WARDEN_CELL_NEW);
    assert_int_equal(cell.cell_spec.disk, fixture->plan.cell.disk + 8192);
    assert_int_equal(cell.cell_spec.inodes, fixture->plan.cell.inodes + 3);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    assert_int_equal(job.job, 1);
    assert_int_equal(job.job_spec.has_files, JOB_FILES_ROOT);
    assert_int_equal(fixture->fd_count, 5);
    assert_false(job.job_spec.sweep);
    end_job(fixture, &job, JOB_EXITED, 0);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_COMPLETED);
    assert_int_equal(fixture->result.stage_count, 2);
    assert_true(fixture->result.stages[0].cached);
    assert_int_equal(fixture->result.stages[0].output.head_length, 3);
    assert_string_equal(result_start(&fixture->result), "cached");
}

static void test_tests_begin_with_a_kept_stage(void **state)
{
    struct fixture *fixture = *state;
    kept_begin(fixture, "{\"command\":[\"x\"],\"stages\":[{\"command\":[\"a\"]}],\"tests\":[{},{}]}", "one");
    for (unsigned i = 0; i < 2; i++) {
        expect(fixture, WARDEN_CELL_NEW);
        struct warden_message job = expect(fixture, WARDEN_JOB_START);
        assert_int_equal(job.job, 1 + i);
        assert_int_equal(job.job_spec.has_files, JOB_FILES_ROOT);
        end_job(fixture, &job, JOB_EXITED, 0);
        gone(fixture, &job);
    }
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_COMPLETED);
    assert_int_equal(fixture->result.test_count, 2);
}

static void test_a_listener_that_has_enough_of_a_kept_stage_ends_the_run(void **state)
{
    struct fixture *fixture = *state;
    kept_begin(fixture, TWO_STAGES, "stop");
    expect(fixture, WARDEN_CELL_NEW);
    struct warden_message job = expect(fixture, WARDEN_JOB_START);
    struct warden_message kill = expect(fixture, WARDEN_JOB_KILL);
    assert_int_equal(kill.job, job.job);
    end_job(fixture, &job, JOB_CANCELLED, -1);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->result.status, RUN_KILLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_cell_and_job_are_sent_at_once_and_the_end_needs_no_cell_gone),
        TEST(test_a_held_pipe_keeps_the_run_until_it_is_closed),
        TEST(test_stages_share_a_cell_and_the_first_that_fails_is_the_last),
        TEST(test_what_a_stage_wrote_is_told_before_the_next_begins),
        TEST(test_each_test_has_a_cell_of_its_own_made_when_the_last_is_gone),
        TEST(test_a_cancelled_run_is_killed_wherever_it_stands),
        TEST(test_a_job_that_waited_for_its_cell_when_it_was_cancelled_is_killed_not_broken),
        TEST(test_a_listener_that_has_enough_ends_the_run),
        TEST(test_output_past_sixteen_caps_is_ended_once),
        TEST(test_a_warden_that_dies_makes_the_run_internal),
        TEST(test_a_failure_from_outside_ends_the_run_but_not_at_once),
        TEST(test_what_the_first_stage_left_is_read_before_the_next_and_told),
        TEST(test_a_run_goes_on_where_nothing_could_be_kept),
        TEST(test_half_of_what_was_left_is_not_told),
        TEST(test_a_run_that_is_cancelled_while_something_is_kept_is_killed),
        TEST(test_a_kept_stage_is_told_and_not_run),
        TEST(test_tests_begin_with_a_kept_stage),
        TEST(test_a_listener_that_has_enough_of_a_kept_stage_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
