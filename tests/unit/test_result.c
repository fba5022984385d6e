/* Results: which facts make which status, and JSON that is exact and valid whatever the guest wrote. */
#include "base/fd.h"
#include "run/result.h"
#include "text/base64.h"
#include "text/json.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct run_stage stage_of(uint32_t end, int exit_code, int signal)
{
    struct run_stage stage = {.name = "run", .facts = {.end = end, .exit_code = exit_code, .signal = signal}};
    limits_resolve(NULL, NULL, NULL, &stage.limits, NULL);
    return stage;
}

static void test_each_way_to_end_has_its_status(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct job_facts facts;
        bool compile;
        enum run_status status;
        int exit_code, signal;
    } cases[] = {
        {"plain success", {.end = JOB_EXITED}, false, RUN_COMPLETED, 0, 0},
        {"non-zero", {.end = JOB_EXITED, .exit_code = 3}, false, RUN_ERROR, 3, 0},
        {"exit 124 of its own", {.end = JOB_EXITED, .exit_code = 124}, false, RUN_ERROR, 124, 0},
        {"exit 137 of its own", {.end = JOB_EXITED, .exit_code = 137}, false, RUN_ERROR, 137, 0},
        {"segfault", {.end = JOB_EXITED, .exit_code = -1, .signal = SIGSEGV}, false, RUN_ERROR, 139, SIGSEGV},
        {"SIGKILL of its own", {.end = JOB_EXITED, .exit_code = -1, .signal = SIGKILL}, false, RUN_ERROR, 137, SIGKILL},
        {"wall clock", {.end = JOB_TIMED_OUT, .exit_code = -1, .signal = SIGKILL}, false, RUN_TIMEOUT, 124, SIGKILL},
        {"CPU time", {.end = JOB_CPU_TIME, .exit_code = -1}, false, RUN_TIMEOUT, 124, SIGKILL},
        {"memory",
         {.end = JOB_OUT_OF_MEMORY, .exit_code = -1, .signal = SIGKILL, .oom_kills = 1},
         false,
         RUN_OOM,
         137,
         SIGKILL},
        {"a child out of memory", {.end = JOB_EXITED, .exit_code = 1, .oom_kills = 1}, false, RUN_OOM, 1, 0},
        {"coped with a lost child", {.end = JOB_EXITED, .exit_code = 0, .oom_kills = 1}, false, RUN_COMPLETED, 0, 0},
        {"flood", {.end = JOB_OUTPUT, .exit_code = -1, .signal = SIGKILL}, false, RUN_OUTPUT_LIMIT, 137, SIGKILL},
        {"cancelled", {.end = JOB_CANCELLED, .exit_code = -1, .signal = SIGKILL}, false, RUN_KILLED, 137, SIGKILL},
        {"shutdown", {.end = JOB_SHUTDOWN, .exit_code = -1}, false, RUN_KILLED, 137, SIGKILL},
        {"forks denied", {.end = JOB_EXITED, .exit_code = 254, .pids_denied = 3}, false, RUN_PIDS_LIMIT, 254, 0},
        {"forks denied, coped", {.end = JOB_EXITED, .exit_code = 0, .pids_denied = 3}, false, RUN_COMPLETED, 0, 0},
        {"no thread, aborted",
         {.end = JOB_EXITED, .exit_code = -1, .signal = SIGABRT, .pids_denied = 1},
         false,
         RUN_PIDS_LIMIT,
         134,
         SIGABRT},
        {"forks denied, then a segfault",
         {.end = JOB_EXITED, .exit_code = -1, .signal = SIGSEGV, .pids_denied = 1},
         false,
         RUN_ERROR,
         139,
         SIGSEGV},
        {"compile error", {.end = JOB_EXITED, .exit_code = 1}, true, RUN_COMPILE_ERROR, 1, 0},
        {"compiler crashed",
         {.end = JOB_EXITED, .exit_code = -1, .signal = SIGSEGV},
         true,
         RUN_COMPILE_ERROR,
         139,
         SIGSEGV},
        {"compile went well", {.end = JOB_EXITED}, true, RUN_COMPLETED, 0, 0},
        {"compile timed out", {.end = JOB_TIMED_OUT, .exit_code = -1}, true, RUN_TIMEOUT, 124, SIGKILL},
        {"compile out of memory",
         {.end = JOB_OUT_OF_MEMORY, .exit_code = -1, .signal = SIGKILL},
         true,
         RUN_OOM,
         137,
         SIGKILL},
        {"facts that nobody writes", {.end = 99}, false, RUN_INTERNAL, 125, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct run_stage stage = {.compile = cases[i].compile, .facts = cases[i].facts};
        stage_judge(&stage);
        if (stage.status != cases[i].status || stage.exit_code != cases[i].exit_code || stage.signal != cases[i].signal)
            fail_msg("%s: %s, exit code %d, signal %d", cases[i].what, run_status_word(stage.status), stage.exit_code,
                     stage.signal);
    }
}

static void test_every_exit_code_and_signal_is_told_truly(void **state)
{
    (void)state;
    for (int code = 1; code < 256; code++) {
        struct run_stage stage = stage_of(JOB_EXITED, code, 0);
        stage_judge(&stage);
        assert_int_equal(stage.status, RUN_ERROR);
        assert_int_equal(stage.exit_code, code);
        assert_int_equal(stage.signal, 0);
    }
    for (int signal = 1; signal <= 64; signal++) {
        struct run_stage stage = stage_of(JOB_EXITED, -1, signal);
        stage_judge(&stage);
        assert_int_equal(stage.status, RUN_ERROR);
        assert_int_equal(stage.exit_code, 128 + signal);
        assert_int_equal(stage.signal, signal);
    }
}

static void test_what_could_not_start_is_judged_by_whose_fault_it_is(void **state)
{
    (void)state;
    static const struct {
        enum hc_class class;
        int code;
        enum run_status status;
        int exit_code;
    } cases[] = {
        {HC_CLASS_PROGRAM, ENOENT, RUN_ERROR, 127},  {HC_CLASS_PROGRAM, EACCES, RUN_ERROR, 126},
        {HC_CLASS_PROGRAM, ENOEXEC, RUN_ERROR, 126}, {HC_CLASS_REQUEST, ENOSPC, RUN_ERROR, 126},
        {HC_CLASS_OURS, ENOENT, RUN_INTERNAL, 125},  {HC_CLASS_HOST, ENOMEM, RUN_INTERNAL, 125},
        {HC_CLASS_NONE, 0, RUN_INTERNAL, 125},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct run_stage stage = stage_of(JOB_NOT_STARTED, -1, 0);
        stage.err.class = cases[i].class;
        stage.err.code = cases[i].code;
        stage_judge(&stage);
        assert_int_equal(stage.status, cases[i].status);
        assert_int_equal(stage.exit_code, cases[i].exit_code);
    }
}

static struct result result_with(const struct run_stage *stages, size_t count)
{
    struct result result = {.id = "run_x", .stage_count = count, .isolation = ISOLATION_ALL};
    result.stages = calloc(count ? count : 1, sizeof(*stages));
    assert_non_null(result.stages);
    if (count > 0)
        memcpy(result.stages, stages, count * sizeof(*stages));
    capture_init(&result.out, 64 * 1024);
    capture_init(&result.err, 64 * 1024);
    result_judge(&result);
    return result;
}

static void test_the_first_stage_that_failed_decides(void **state)
{
    (void)state;
    struct run_stage stages[] = {stage_of(JOB_EXITED, 0, 0), stage_of(JOB_EXITED, 2, 0),
                                 stage_of(JOB_TIMED_OUT, -1, 9)};
    struct result result = result_with(stages, 3);
    assert_int_equal(result.status, RUN_ERROR);
    assert_int_equal(result.exit_code, 2);
    result_release(&result);
    result = result_with(stages, 1);
    assert_int_equal(result.status, RUN_COMPLETED);
    assert_int_equal(result.exit_code, 0);
    result_release(&result);
}

static void test_a_fault_of_ours_goes_before_everything(void **state)
{
    (void)state;
    struct run_stage stage = stage_of(JOB_EXITED, 0, 0);
    struct result result = result_with(&stage, 1);
    hc_fail(&result.internal, HC_CLASS_OURS, EPIPE, "the warden is gone");
    result_judge(&result);
    assert_int_equal(result.status, RUN_INTERNAL);
    assert_int_equal(result.exit_code, 125);
    result_release(&result);
    result = result_with(NULL, 0);
    assert_int_equal(result.status, RUN_INTERNAL);
    result_release(&result);
    stage = stage_of(JOB_NOT_STARTED, -1, 0);
    hc_fail(&stage.err, HC_CLASS_HOST, EPERM, "no user namespaces");
    result = result_with(&stage, 1);
    assert_int_equal(result.status, RUN_INTERNAL);
    assert_string_equal(result.internal.message, "no user namespaces");
    result_release(&result);
}

static void expect_summary(struct run_stage stage, const char *expected)
{
    char text[256];
    struct result result = result_with(&stage, 1);
    assert_string_equal(result_summary(&result, text, sizeof(text)), expected);
    result_release(&result);
}

static void test_the_summary_says_what_happened_and_what_to_change(void **state)
{
    (void)state;
    struct run_stage stage = stage_of(JOB_OUT_OF_MEMORY, -1, SIGKILL);
    expect_summary(stage_of(JOB_EXITED, 0, 0), "");
    expect_summary(stage_of(JOB_EXITED, 3, 0), "exited with status 3");
    stage.limits.value[LIMIT_MEMORY] = 64 << 20;
    expect_summary(stage, "killed: used more than 64 MiB of memory; raise --memory");
    stage = stage_of(JOB_TIMED_OUT, -1, SIGKILL);
    stage.limits.value[LIMIT_TIMEOUT] = 2000000;
    expect_summary(stage, "timed out after 2 s; raise --timeout");
    strcpy(stage.name, "compile");
    stage.compile = true;
    expect_summary(stage, "compile: timed out after 2 s; raise --timeout");
    stage.own[LIMIT_TIMEOUT] = true;
    expect_summary(stage, "compile: timed out after 2 s; raise timeout of [compile] in the language's file");
    stage = stage_of(JOB_CPU_TIME, -1, SIGKILL);
    stage.limits.value[LIMIT_CPU_TIME] = 1000000;
    expect_summary(stage, "used up its 1 s of CPU time; raise --cpu-time");
    expect_summary(stage_of(JOB_EXITED, -1, SIGSEGV), "ended by signal 11 (SIGSEGV, segmentation fault)");
    expect_summary(stage_of(JOB_EXITED, -1, 40), "ended by signal 40");
    expect_summary(stage_of(JOB_CANCELLED, -1, SIGKILL), "killed: the run was cancelled");
    stage = stage_of(JOB_EXITED, 1, 0);
    stage.compile = true;
    strcpy(stage.name, "compile");
    expect_summary(stage, "compile failed with exit code 1");
    stage = stage_of(JOB_EXITED, 1, 0);
    stage.facts.pids_denied = 3;
    stage.limits.value[LIMIT_PIDS] = 20;
    expect_summary(stage, "could not start 3 processes: the limit is 20; raise --pids");
    stage = stage_of(JOB_NOT_STARTED, -1, 0);
    hc_fail(&stage.err, HC_CLASS_PROGRAM, ENOENT, "nosuch: command not found");
    expect_summary(stage, "nosuch: command not found");
    stage = stage_of(JOB_NOT_STARTED, -1, 0);
    hc_fail(&stage.err, HC_CLASS_HOST, EPERM, "no user namespaces");
    hc_err_remedy(&stage.err, "run `hotcell doctor`");
    expect_summary(stage, "internal error: no user namespaces; run `hotcell doctor`");
}

static void test_the_summary_of_truncated_success_counts_both_streams(void **state)
{
    (void)state;
    struct run_stage stage = stage_of(JOB_EXITED, 0, 0);
    struct result result = result_with(&stage, 1);
    char text[256], block[1000];
    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 70; i++)
        capture_add(&result.out, block, sizeof(block));
    for (int i = 0; i < 66; i++)
        capture_add(&result.err, block, sizeof(block));
    assert_string_equal(result_summary(&result, text, sizeof(text)),
                        "output: 4928 bytes over the 64 KiB limit were left out; raise --output");
    result_release(&result);
}

/* ---- JSON ---- */

static json_t *json_of(const struct result *result)
{
    json_error_t error;
    char *pretty = result_to_json(result, true), *line = result_to_json(result, false);
    assert_true(pretty && line && !strchr(line, '\n'));
    json_t *one = json_loads(line, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    json_t *other = json_loads(pretty, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!one || !other)
        fail_msg("not JSON: %s", error.text);
    assert_true(json_equal(one, other));
    /* As it would be written from the values that it was read into. */
    hc_cleanup_free char *line_again = hc_json_write(one, false), *pretty_again = hc_json_write(other, true);
    assert_string_equal(line, line_again);
    assert_string_equal(pretty, pretty_again);
    json_decref(other);
    free(pretty);
    free(line);
    return one;
}

static void test_the_json_has_the_contracts_fields_in_its_order(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "id",        "status",          "success",   "exit_code", "signal",           "timed_out",  "stdout",
        "stderr",    "output_encoding", "truncated", "language",  "language_version", "usage",      "timing",
        "isolation", "stages",          "tests",     "files",     "diagnosis",        "created_at", "metadata",
    };
    struct run_stage stage = stage_of(JOB_EXITED, 0, 0);
    stage.facts = (struct job_facts){.end = JOB_EXITED,
                                     .counted = ISOLATION_MEMORY | ISOLATION_CPU | ISOLATION_PIDS,
                                     .wall = 3100,
                                     .cpu = 2200,
                                     .user = 1100,
                                     .system = 1100,
                                     .memory_peak = 9437184,
                                     .pids_peak = 1};
    struct result result = result_with(&stage, 1);
    strcpy(result.language, "python");
    strcpy(result.version, "3.11.2");
    result.created_at = 1700000000123456;
    result.run_us = 3100;
    result.metadata = strdup("{\"k\":0.1}");
    capture_add(&result.out, "42\n", 3);
    char *text = result_to_json(&result, false);
    assert_string_equal(
        text,
        "{\"id\":\"run_x\",\"status\":\"completed\",\"success\":true,\"exit_code\":0,\"signal\":null,\"timed_out\":"
        "false,"
        "\"stdout\":\"42\\n\",\"stderr\":\"\",\"output_encoding\":\"utf-8\",\"truncated\":{\"stdout\":0,\"stderr\":0},"
        "\"language\":\"python\",\"language_version\":\"3.11.2\",\"usage\":{\"wall_ms\":3.1,\"cpu_ms\":2.2,"
        "\"user_ms\":1.1,\"system_ms\":1.1,\"memory_peak\":9437184,\"pids_peak\":1},\"timing\":{\"start\":\"cold\","
        "\"queue_ms\":0.0,\"prepare_ms\":0.0,\"run_ms\":3.1,\"total_ms\":0.0},\"isolation\":{\"level\":\"full\","
        "\"layers\":[\"user\",\"mount\",\"pid\",\"net\",\"ipc\",\"uts\",\"cgroup\",\"memory\",\"cpu\",\"pids\","
        "\"seccomp\",\"landlock\"]},\"stages\":[{\"name\":\"run\",\"status\":\"completed\",\"exit_code\":0,"
        "\"signal\":null,\"usage\":{\"wall_ms\":3.1,\"cpu_ms\":2.2,\"user_ms\":1.1,\"system_ms\":1.1,"
        "\"memory_peak\":9437184,\"pids_peak\":1},\"limits\":{\"timeout\":30,\"cpu_time\":null,\"memory\":536870912,"
        "\"swap\":0,\"cpus\":1.0,\"cpu_shares\":1024,\"pids\":100,\"output\":1048576,\"disk\":104857600,"
        "\"inodes\":16384,\"files_open\":256}}],\"tests\":null,\"files\":[],\"diagnosis\":null,"
        "\"created_at\":\"2023-11-14T22:13:20.123Z\",\"metadata\":{\"k\":0.1}}");
    free(text);
    json_t *json = json_of(&result);
    void *at = json_object_iter(json);
    for (size_t i = 0; i < COUNT_OF(fields); i++, at = json_object_iter_next(json, at))
        assert_string_equal(json_object_iter_key(at), fields[i]);
    assert_null(at);
    json_decref(json);
    result_release(&result);
}

static void expect_output(const char *bytes, size_t length, const char *encoding)
{
    struct run_stage stage = stage_of(JOB_EXITED, 0, 0);
    struct result result = result_with(&stage, 1);
    capture_release(&result.out);
    capture_init(&result.out, 4 << 20);
    capture_add(&result.out, bytes, length);
    capture_add(&result.err, "plain", 5);
    json_t *json = json_of(&result);
    const json_t *out = json_object_get(json, "stdout"), *err = json_object_get(json, "stderr");
    assert_string_equal(json_string_value(json_object_get(json, "output_encoding")), encoding);
    if (strcmp(encoding, "utf-8") == 0) {
        assert_int_equal(json_string_length(out), length);
        assert_memory_equal(json_string_value(out), bytes, length);
        assert_string_equal(json_string_value(err), "plain");
    } else {
        char *decoded;
        size_t decoded_length;
        assert_int_equal(hc_base64_decode(json_string_value(out), json_string_length(out), &decoded, &decoded_length),
                         0);
        assert_int_equal(decoded_length, length);
        assert_memory_equal(decoded, bytes, length);
        free(decoded);
        assert_string_equal(json_string_value(err), "cGxhaW4=");
    }
    json_decref(json);
    result_release(&result);
}

static void test_every_byte_of_output_survives(void **state)
{
    (void)state;
    expect_output("", 0, "utf-8");
    expect_output("a\0b\0", 4, "utf-8");
    expect_output("\x1b[31mred\x1b[0m\a\b\r\n\x7f", 17, "utf-8");
    expect_output("\"quoted\" \\ / \xf0\x9f\x98\x80 \xef\xbf\xbf", 22, "utf-8");
    expect_output("\xff", 1, "base64");
    expect_output("\xed\xa0\x80", 3, "base64"); /* a lone surrogate */
    expect_output("\xc0\x80", 2, "base64");     /* an overlong NUL */
    expect_output("ends in half \xe2\x82", 15, "base64");
    char *line = malloc(1 << 20);
    assert_non_null(line);
    memset(line, 'l', 1 << 20);
    expect_output(line, 1 << 20, "utf-8");
    memset(line, 0, 1 << 20);
    expect_output(line, 1 << 20, "utf-8");
    free(line);
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    expect_output(all, sizeof(all), "base64");
}

static void test_figures_that_nobody_counted_are_null(void **state)
{
    (void)state;
    struct run_stage stage = stage_of(JOB_EXITED, 0, 0);
    stage.facts.pids_peak = 7; /* not counted, so not believed */
    struct result result = result_with(&stage, 1);
    result.isolation = ISOLATION_USER | ISOLATION_SECCOMP;
    json_t *json = json_of(&result), *usage = json_object_get(json, "usage");
    assert_true(json_is_null(json_object_get(usage, "pids_peak")));
    assert_true(json_is_null(json_object_get(usage, "memory_peak")));
    const json_t *isolation = json_object_get(json, "isolation");
    assert_string_equal(json_string_value(json_object_get(isolation, "level")), "weak");
    assert_int_equal(json_array_size(json_object_get(isolation, "layers")), 2);
    assert_true(json_is_null(json_object_get(json, "language")));
    json_decref(json);
    result_release(&result);
}

static void test_how_it_started_is_the_last_programs_unless_a_stage_was_not_run(void **state)
{
    (void)state;
    struct run_stage stages[] = {stage_of(JOB_EXITED, 0, 0), stage_of(JOB_EXITED, 0, 0)};
    struct result result = result_with(stages, 2), none = {0};
    assert_string_equal(result_start(&none), "cold");
    assert_string_equal(result_start(&result), "cold");
    result.stages[0].facts.start = START_PRIMED;
    assert_string_equal(result_start(&result), "cold");
    result.stages[1].facts.start = START_PRIMED;
    assert_string_equal(result_start(&result), "primed");
    struct run_test test = {.job = stage_of(JOB_EXITED, 0, 0)};
    test.job.facts.start = START_WARM;
    result.tests = &test;
    result.test_count = 1;
    assert_string_equal(result_start(&result), "warm");
    result.stages[0].cached = true;
    assert_string_equal(result_start(&result), "cached");
    result.tests = NULL;
    result.test_count = 0;
    result_release(&result);
}

static void test_usage_adds_times_and_takes_the_largest_peaks(void **state)
{
    (void)state;
    struct run_stage stages[] = {stage_of(JOB_EXITED, 0, 0), stage_of(JOB_EXITED, 0, 0)};
    stages[0].facts.wall = 1000;
    stages[1].facts.wall = 500;
    stages[0].facts.memory_peak = 5;
    stages[1].facts.memory_peak = 3;
    struct result result = result_with(stages, 2);
    json_t *json = json_of(&result), *usage = json_object_get(json, "usage");
    assert_true(json_real_value(json_object_get(usage, "wall_ms")) == 1.5);
    assert_int_equal(json_integer_value(json_object_get(usage, "memory_peak")), 5);
    json_decref(json);
    result_release(&result);
}

static void test_a_diagnosis_names_its_evidence(void **state)
{
    (void)state;
    struct run_stage stage = stage_of(JOB_OUT_OF_MEMORY, -1, SIGKILL);
    stage.facts.oom_kills = 2;
    struct result result = result_with(&stage, 1);
    json_t *json = json_of(&result), *diagnosis = json_object_get(json, "diagnosis");
    assert_string_equal(json_string_value(json_object_get(diagnosis, "category")), "memory");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(diagnosis, "evidence"), "oom_kills")), 2);
    assert_non_null(strstr(json_string_value(json_object_get(diagnosis, "hint")), "limits.memory (--memory"));
    assert_true(json_is_null(json_object_get(diagnosis, "line")));
    assert_int_equal(json_integer_value(json_object_get(json, "signal")), SIGKILL);
    assert_true(json_is_false(json_object_get(json, "success")));
    json_decref(json);
    result_release(&result);
    stage = stage_of(JOB_EXITED, 3, 0);
    result = result_with(&stage, 1);
    json = json_of(&result);
    diagnosis = json_object_get(json, "diagnosis");
    assert_true(json_is_null(json_object_get(diagnosis, "category"))); /* it is not known, and that is said */
    assert_string_equal(json_string_value(json_object_get(diagnosis, "message")), "exited with status 3");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(diagnosis, "evidence"), "exit_code")), 3);
    json_decref(json);
    result_release(&result);
}

static void test_messages_and_paths_that_are_no_text_still_make_json(void **state)
{
    (void)state;
    struct run_stage stage = stage_of(JOB_NOT_STARTED, -1, 0);
    hc_fail(&stage.err, HC_CLASS_PROGRAM, ENOENT, "bad\xff name \xe2\x82\xac");
    struct result result = result_with(&stage, 1);
    result.files = calloc(2, sizeof(*result.files));
    assert_non_null(result.files);
    result.file_count = 2;
    result.files[0] = (struct result_file){strdup("\xff.png"), "file", {strdup("abc"), 3}, 812, true};
    result.files[1] = (struct result_file){strdup("l"), "symlink", {strdup("/etc/shadow"), 11}, 11, false};
    json_t *json = json_of(&result), *files = json_object_get(json, "files"), *first = json_array_get(files, 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "diagnosis"), "message")),
                        "bad? name \xe2\x82\xac");
    assert_true(json_is_null(json_object_get(first, "path")));
    assert_string_equal(json_string_value(json_object_get(first, "path_base64")), "/y5wbmc=");
    assert_string_equal(json_string_value(json_object_get(first, "base64")), "YWJj");
    assert_int_equal(json_integer_value(json_object_get(first, "size")), 812);
    assert_true(json_is_true(json_object_get(first, "truncated")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(files, 1), "type")), "symlink");
    json_decref(json);
    result_release(&result);
}

static void test_ids_are_unique_and_sort_by_time(void **state)
{
    (void)state;
    char last[40] = "", id[40];
    for (int64_t at = 1700000000000000; at < 1700000001000000; at += 1000) {
        assert_int_equal(result_id(id, sizeof(id), at), 0);
        assert_int_equal(strlen(id), 30);
        assert_true(strncmp(id, "run_", 4) == 0);
        assert_true(strcmp(last, id) < 0);
        strcpy(last, id);
    }
    char same[40];
    assert_int_equal(result_id(same, sizeof(same), 1700000000000000), 0);
    assert_int_equal(result_id(id, sizeof(id), 1700000000000000), 0);
    assert_string_not_equal(same, id);
    assert_memory_equal(same, "run_01hf7yat0", 4 + 9); /* 43 of the 48 bits of time, and two zeros before them */
    assert_memory_equal(same, id, 4 + 9);
    assert_int_equal(result_id(id, 30, 0), -ENOSPC);
}

static void test_output_is_compared_exactly_and_then_without_white_space_at_the_ends(void **state)
{
    (void)state;
    static const struct {
        const char *got, *expected;
        enum test_match match;
    } cases[] = {
        {"", "", MATCH_EXACT},
        {"3\n", "3\n", MATCH_EXACT},
        {"3", "3\n", MATCH_WHITESPACE},
        {"3\n\n\n", "3", MATCH_WHITESPACE},
        {"", "\n \n", MATCH_WHITESPACE},
        {"a \t\nb\r\n", "a\nb", MATCH_WHITESPACE},
        {"a\n\nb", "a\n \nb", MATCH_WHITESPACE},
        {"a\nb", "a\n\nb", MATCH_NONE},
        {" a", "a", MATCH_NONE},
        {"a  b", "a b", MATCH_NONE},
        {"a", "a\nb", MATCH_NONE},
        {"a\nb", "a", MATCH_NONE},
        {"ab", "a", MATCH_NONE},
        {"", "a", MATCH_NONE},
        {"A", "a", MATCH_NONE},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (test_compare(cases[i].got, strlen(cases[i].got), cases[i].expected, strlen(cases[i].expected)) !=
            cases[i].match)
            fail_msg("\"%s\" against \"%s\"", cases[i].got, cases[i].expected);
    assert_int_equal(test_compare("a\0b", 3, "a\0c", 3), MATCH_NONE);
    assert_int_equal(test_compare("a\0b\n", 4, "a\0b", 3), MATCH_WHITESPACE);
}

static struct run_test test_with(enum job_end end, int exit_code, enum test_match match)
{
    struct run_test test = {.job = stage_of(end, exit_code, 0), .expected = true, .match = match};
    strcpy(test.job.name, "t");
    return test;
}

static void test_tests_decide_after_the_stages_and_wrong_output_is_no_failure_of_the_run(void **state)
{
    (void)state;
    struct run_stage compile = stage_of(JOB_EXITED, 0, 0);
    struct run_test list[3] = {test_with(JOB_EXITED, 0, MATCH_EXACT), test_with(JOB_EXITED, 0, MATCH_NONE),
                               test_with(JOB_TIMED_OUT, -1, MATCH_EXACT)};
    struct result result = {.stages = &compile, .stage_count = 1, .tests = list, .test_count = 1, .tests_total = 1};
    char text[256];

    result_judge(&result);
    assert_true(result_success(&result));
    assert_int_equal(result.exit_code, 0);

    result.test_count = result.tests_total = 2;
    result_judge(&result);
    assert_int_equal(result.status, RUN_COMPLETED);
    assert_int_equal(result.exit_code, 1);
    assert_false(result_success(&result));
    assert_string_equal(test_verdict(&list[1]), "failed");
    assert_string_equal(result_summary(&result, text, sizeof(text)),
                        "tests: 1 of 2 passed; the first that failed for its output is \"t\"");

    result.test_count = result.tests_total = 3;
    result_judge(&result);
    assert_int_equal(result.status, RUN_TIMEOUT);
    assert_int_equal(result.exit_code, 124);
    assert_false(list[2].passed); /* what it wrote before does not matter */
    assert_int_equal(result_tests_passed(&result), 1);

    result.test_count = 0; /* none was reached */
    compile = stage_of(JOB_EXITED, 1, 0);
    compile.compile = true;
    result_judge(&result);
    assert_int_equal(result.status, RUN_COMPILE_ERROR);
    assert_false(result_success(&result));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_way_to_end_has_its_status),
        cmocka_unit_test(test_every_exit_code_and_signal_is_told_truly),
        cmocka_unit_test(test_what_could_not_start_is_judged_by_whose_fault_it_is),
        cmocka_unit_test(test_the_first_stage_that_failed_decides),
        cmocka_unit_test(test_a_fault_of_ours_goes_before_everything),
        cmocka_unit_test(test_the_summary_says_what_happened_and_what_to_change),
        cmocka_unit_test(test_the_summary_of_truncated_success_counts_both_streams),
        cmocka_unit_test(test_the_json_has_the_contracts_fields_in_its_order),
        cmocka_unit_test(test_every_byte_of_output_survives),
        cmocka_unit_test(test_figures_that_nobody_counted_are_null),
        cmocka_unit_test(test_how_it_started_is_the_last_programs_unless_a_stage_was_not_run),
        cmocka_unit_test(test_usage_adds_times_and_takes_the_largest_peaks),
        cmocka_unit_test(test_a_diagnosis_names_its_evidence),
        cmocka_unit_test(test_messages_and_paths_that_are_no_text_still_make_json),
        cmocka_unit_test(test_ids_are_unique_and_sort_by_time),
        cmocka_unit_test(test_output_is_compared_exactly_and_then_without_white_space_at_the_ends),
        cmocka_unit_test(test_tests_decide_after_the_stages_and_wrong_output_is_no_failure_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
