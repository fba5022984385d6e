/* The audit log: a chain that holds, every way of tampering found, torn lines told, several processes at once. */
#include "base/fd.h"
#include "store/audit.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char path[64];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    *state = fixture;
    if (fixture == NULL)
        return -1;
    snprintf(fixture->path, sizeof fixture->path, "/tmp/hotcell-audit-XXXXXX");
    int fd = mkstemp(fixture->path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    unlink(fixture->path);
    free(fixture);
    return 0;
}

static int open_file(const struct fixture *fixture)
{
    int fd = open(fixture->path, O_RDWR | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static struct audit *open_log(const struct fixture *fixture)
{
    struct audit *audit = NULL;
    struct hc_err err = {0};
    if (audit_open(open_file(fixture), &audit, &err) < 0)
        fail_msg("%s", err.message);
    return audit;
}

static char *read_log(const struct fixture *fixture, size_t *length)
{
    char *text = NULL;
    hc_cleanup_fd int fd = open(fixture->path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(hc_read_all(fd, 1 << 26, &text, length), 0);
    return text;
}

static void write_log(const struct fixture *fixture, const char *text, size_t length)
{
    hc_cleanup_fd int fd = open(fixture->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(hc_write_all(fd, text, length), 0);
}

static void append(const struct fixture *fixture, const char *text)
{
    hc_cleanup_fd int fd = open_file(fixture);
    assert_int_equal(hc_write_all(fd, text, strlen(text)), 0);
}

static int verify(const struct fixture *fixture, struct audit_report *report)
{
    hc_cleanup_fd int fd = open(fixture->path, O_RDONLY | O_CLOEXEC);
    return audit_verify(fd, NULL, report);
}

static void add_entries(const struct fixture *fixture, int count)
{
    struct audit *audit = open_log(fixture);
    for (int i = 0; i < count; i++)
        assert_int_equal(audit_add(audit, "mount_denied", "alice", "run_1", "{\"path\":\"/etc\"}"), 0);
    audit_close(audit);
}

/* Line `number`, 1-based, without its newline. */
static char *line_of(char *text, int number, size_t *length)
{
    for (; number > 1; number--)
        text = strchr(text, '\n') + 1;
    *length = (size_t)(strchr(text, '\n') - text);
    return text;
}

static void test_the_chain_holds_over_several_openings(void **state)
{
    struct fixture *fixture = *state;
    struct audit_report report;
    assert_int_equal(verify(fixture, &report), 0); /* an empty one holds, too */
    assert_int_equal(report.lines, 0);
    for (int i = 1; i <= 5; i++) {
        add_entries(fixture, 3);
        assert_int_equal(verify(fixture, &report), 0);
        assert_int_equal(report.lines, 3 * i);
        assert_int_equal(report.torn, 0);
    }
    size_t length;
    char *text hc_cleanup_free = read_log(fixture, &length);
    assert_non_null(memmem(text, length, report.last_hash, 64)); /* what one would keep elsewhere */
}

static void test_an_entry_says_what_it_was_given(void **state)
{
    struct fixture *fixture = *state;
    struct audit *audit = open_log(fixture);
    struct audit_report report;
    size_t length;
    assert_int_equal(audit_add(audit, "key_created", "b\"ob\n", NULL, "{\n \"quota\": 5,\n \"why\": \"\\u00e4\\n\"}"),
                     0);
    assert_int_equal(audit_add(audit, "server_started", "\xff", "run_2", NULL), 0);
    audit_close(audit);
    assert_int_equal(verify(fixture, &report), 0);
    assert_int_equal(report.lines, 2); /* whatever is inside, it is one line each */
    char *text hc_cleanup_free = read_log(fixture, &length);
    json_t *entry = json_loadb(text, length, JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(entry);
    assert_int_equal(json_integer_value(json_object_get(entry, "n")), 1);
    assert_string_equal(json_string_value(json_object_get(entry, "event")), "key_created");
    assert_string_equal(json_string_value(json_object_get(entry, "tenant")), "b\"ob\n");
    assert_true(json_is_null(json_object_get(entry, "run")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(entry, "detail"), "quota")), 5);
    assert_int_equal(json_string_length(json_object_get(entry, "at")), strlen("2026-01-02T03:04:05.678Z"));
    json_decref(entry);
}

static void test_what_is_no_entry_is_not_written(void **state)
{
    struct fixture *fixture = *state;
    struct audit *audit = open_log(fixture);
    char *large hc_cleanup_free = malloc(100000);
    assert_int_equal(audit_add(audit, "made_up", NULL, NULL, NULL), -EINVAL);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, "[1]"), -EINVAL);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, "{\"a\":"), -EINVAL);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, "{}\n{}"), -EINVAL);
    snprintf(large, 100000, "{\"a\":\"%090000d\"}", 0);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, large), -E2BIG);
    audit_close(audit);
    struct stat file;
    assert_int_equal(stat(fixture->path, &file), 0);
    assert_int_equal(file.st_size, 0);
}

static void test_a_descriptor_that_could_overwrite_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct audit *audit = NULL;
    struct hc_err err = {0};
    assert_int_equal(audit_open(open(fixture->path, O_RDWR | O_CLOEXEC), &audit, &err), -EINVAL);
    hc_err_clear(&err);
    assert_int_equal(audit_open(open(fixture->path, O_WRONLY | O_APPEND | O_CLOEXEC), &audit, &err), -EINVAL);
}

static void test_every_changed_byte_is_found(void **state)
{
    struct fixture *fixture = *state;
    struct audit_report report;
    size_t length;
    add_entries(fixture, 3);
    char *text hc_cleanup_free = read_log(fixture, &length);
    for (size_t i = 0; i < length; i++) {
        char before = text[i];
        /* The last newline is no entry's content: without it the last line ends with the file. */
        if (i == length - 1)
            break;
        text[i] = (char)(before ^ 1);
        write_log(fixture, text, length);
        int status = verify(fixture, &report);
        if (status != -EBADMSG)
            fail_msg("byte %zu: %d, %llu lines", i, status, (unsigned long long)report.lines);
        assert_in_range(report.bad_line, 1, 3);
        assert_true(report.why[0] != '\0');
        text[i] = before;
    }
}

static void test_removed_swapped_repeated_and_cut_lines_are_found(void **state)
{
    struct fixture *fixture = *state;
    size_t length, second, third;
    add_entries(fixture, 5);
    char *text hc_cleanup_free = read_log(fixture, &length);
    char *two = line_of(text, 2, &second), *three = line_of(text, 3, &third), *four = three + third + 1;
    struct {
        const char *name;
        uint64_t line; /* where it is found */
        char *made;
        int made_length;
    } cases[5] = {{"the first removed", 1}, {"one removed", 2}, {"swapped", 2}, {"repeated", 3}, {"cut short", 2}};
    int rest = (int)(text + length - four), head = (int)(two - text);
    cases[0].made_length = asprintf(&cases[0].made, "%s", two);
    cases[1].made_length = asprintf(&cases[1].made, "%.*s%s", head, text, three);
    cases[2].made_length =
        asprintf(&cases[2].made, "%.*s%.*s\n%.*s\n%.*s", head, text, (int)third, three, (int)second, two, rest, four);
    cases[3].made_length = asprintf(&cases[3].made, "%.*s%.*s\n%s", head, text, (int)second, two, two);
    cases[4].made_length = asprintf(&cases[4].made, "%.*s%.*s\n%s", head, text, (int)second / 2, two, three);
    for (size_t i = 0; i < 5; i++) {
        struct audit_report report;
        assert_true(cases[i].made_length > 0);
        write_log(fixture, cases[i].made, (size_t)cases[i].made_length);
        assert_int_equal(verify(fixture, &report), -EBADMSG);
        if (report.bad_line != cases[i].line)
            fail_msg("%s: found at %llu", cases[i].name, (unsigned long long)report.bad_line);
        assert_int_equal(report.lines, cases[i].line - 1);
        free(cases[i].made);
    }
}

static void test_forged_lines_at_the_end_are_found(void **state)
{
    struct fixture *fixture = *state;
    static const char *const forged[] = {
        "\n",
        "hello\n",
        "{}\n",
        "{\"n\":4,\"at\":\"2026-01-01T00:00:00.000Z\",\"event\":\"server_stopped\",\"tenant\":null,\"run\":null,"
        "\"detail\":null,\"prev\":\"0000000000000000000000000000000000000000000000000000000000000000\","
        "\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}\n",
    };
    size_t length;
    add_entries(fixture, 3);
    char *text hc_cleanup_free = read_log(fixture, &length);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        struct audit_report report;
        write_log(fixture, text, length);
        append(fixture, forged[i]);
        assert_int_equal(verify(fixture, &report), -EBADMSG);
        assert_int_equal(report.bad_line, 4);
        assert_int_equal(report.lines, 3);
    }
}

static void test_a_forged_last_line_stays_found_when_the_server_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct audit_report report;
    size_t length;
    add_entries(fixture, 3);
    char *text hc_cleanup_free = read_log(fixture, &length);
    char *place = strstr(line_of(text, 3, &length), "/etc");
    memset(place, 'x', 4);
    write_log(fixture, text, strlen(text));
    add_entries(fixture, 2);
    assert_int_equal(verify(fixture, &report), -EBADMSG);
    assert_int_equal(report.bad_line, 3);
}

static void test_a_line_torn_anywhere_is_told_by_the_next_entry(void **state)
{
    struct fixture *fixture = *state;
    struct audit_report report;
    size_t length, last;
    add_entries(fixture, 3);
    char *text hc_cleanup_free = read_log(fixture, &length);
    size_t start = (size_t)(line_of(text, 3, &last) - text);
    for (size_t kept = 1; kept <= last; kept++) {
        write_log(fixture, text, start + kept);
        bool whole = kept == last; /* only its newline is missing */
        assert_int_equal(verify(fixture, &report), 0);
        assert_int_equal(report.lines, whole ? 3 : 2);
        assert_int_equal(report.torn, whole ? 0 : 1);
        assert_int_equal(report.unended, whole ? 0 : kept); /* said, although the chain holds */
        add_entries(fixture, 2);
        if (verify(fixture, &report) != 0)
            fail_msg("kept %zu: line %llu: %s", kept, (unsigned long long)report.bad_line, report.why);
        assert_int_equal(report.lines, 5); /* two or three, what was said of the torn one, two */
        assert_int_equal(report.torn, whole ? 0 : 1);
    }
    /* What was torn cannot be changed afterwards, nor taken away, nor put elsewhere. */
    write_log(fixture, text, start + 40);
    add_entries(fixture, 1);
    char *torn hc_cleanup_free = read_log(fixture, &length);
    torn[start + 20] ^= 1;
    write_log(fixture, torn, length);
    assert_int_equal(verify(fixture, &report), -EBADMSG);
    assert_int_equal(report.bad_line, 3);
    memmove(torn + start, torn + start + 41, length - start - 41);
    write_log(fixture, torn, length - 41);
    assert_int_equal(verify(fixture, &report), -EBADMSG);
}

static void test_entries_cut_off_at_the_end_are_missed_by_a_hash_that_was_kept(void **state)
{
    struct fixture *fixture = *state;
    struct audit_report report;
    size_t length, ignored;
    add_entries(fixture, 2);
    assert_int_equal(verify(fixture, &report), 0);
    char kept[sizeof report.last_hash];
    memcpy(kept, report.last_hash, sizeof kept);
    add_entries(fixture, 2);
    hc_cleanup_fd int fd = open(fixture->path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(audit_verify(fd, kept, &report), 0); /* others may follow */
    char *text hc_cleanup_free = read_log(fixture, &length);
    write_log(fixture, text, (size_t)(line_of(text, 2, &ignored) - text));
    assert_int_equal(audit_verify(fd, NULL, &report), 0); /* the chain alone holds */
    assert_int_equal(audit_verify(fd, kept, &report), -EBADMSG);
    assert_int_equal(report.bad_line, 2);
    write_log(fixture, "", 0);
    assert_int_equal(audit_verify(fd, kept, &report), -EBADMSG);
}

static void test_a_write_that_was_cut_short_is_an_error_and_the_log_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct audit_report report;
    struct rlimit before, small;
    struct stat file;
    add_entries(fixture, 2);
    struct audit *audit = open_log(fixture);
    assert_int_equal(stat(fixture->path, &file), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = (rlim_t)file.st_size + 50; /* as a full disk would: a part is written, then it fails */
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, NULL), -EFBIG);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, NULL), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, old);
    assert_int_equal(verify(fixture, &report), 0);
    assert_int_equal(report.torn, 1);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, NULL), 0);
    audit_close(audit);
    assert_int_equal(verify(fixture, &report), 0);
    assert_int_equal(report.lines, 4);
    assert_int_equal(report.torn, 1);
}

static void test_a_log_that_became_shorter_under_a_server_shows_it(void **state)
{
    struct fixture *fixture = *state;
    struct audit_report report;
    struct stat file;
    add_entries(fixture, 2);
    struct audit *audit = open_log(fixture);
    assert_int_equal(stat(fixture->path, &file), 0);
    assert_int_equal(audit_add(audit, "unauthorized", NULL, NULL, NULL), 0);
    assert_int_equal(truncate(fixture->path, file.st_size), 0); /* the last entry is gone */
    assert_int_equal(verify(fixture, &report), 0);
    assert_int_equal(audit_add(audit, "unauthorized", NULL, NULL, NULL), 0);
    audit_close(audit);
    assert_int_equal(verify(fixture, &report), -EBADMSG);
    assert_int_equal(report.bad_line, 3);
}

static void test_a_file_that_is_no_log_is_refused_and_left_alone(void **state)
{
    struct fixture *fixture = *state;
    struct audit *audit = NULL;
    struct hc_err err = {0};
    size_t length;
    char *text hc_cleanup_free = malloc(2000001);
    memset(text, 'z', 2000000);
    for (size_t i = 100; i < 2000000; i += 100)
        text[i] = '\n';
    write_log(fixture, text, 2000000);
    assert_int_equal(audit_open(open_file(fixture), &audit, &err), -EBADMSG);
    assert_true(err.remedy[0] != '\0');
    char *after hc_cleanup_free = read_log(fixture, &length);
    assert_int_equal(length, 2000000);
    assert_memory_equal(text, after, length);
}

static void append_in_child(struct audit *audit, int count)
{
    for (int i = 0; i < count; i++)
        if (audit_add(audit, "request_refused", "alice", NULL, "{\"from\":\"a child\"}") != 0)
            _exit(1);
    _exit(0);
}

/* `shared`: both have the same open file, as when it was inherited; else each opens it for itself. */
static void append_by_two(const struct fixture *fixture, bool shared)
{
    enum { EACH = 60 };
    struct audit *inherited = shared ? open_log(fixture) : NULL;
    pid_t children[3];
    struct audit_report report;
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            append_in_child(shared ? inherited : open_log(fixture), EACH);
    }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    audit_close(inherited);
    if (verify(fixture, &report) != 0)
        fail_msg("line %llu: %s", (unsigned long long)report.bad_line, report.why);
    assert_int_equal(report.lines, 3 * EACH);
    assert_int_equal(report.torn, 0);
}

static void test_processes_that_append_at_once_keep_the_chain(void **state)
{
    append_by_two(*state, false);
}

static void test_processes_that_inherited_one_file_keep_the_chain(void **state)
{
    append_by_two(*state, true);
}

/* ---- through another ---- */

struct writer { /* who appends for one that may only read */
    struct fixture *fixture;
    int rivals; /* entries of somebody else that come first, each between the question and its answer */
    int tear;   /* bytes of the next write that reach the file; 0: all */
    int calls;
};

static int append_through(void *data, int64_t end, const char *bytes, size_t length)
{
    struct writer *writer = data;
    writer->calls++;
    if (writer->rivals > 0) {
        writer->rivals--;
        add_entries(writer->fixture, 1);
    }
    hc_cleanup_fd int fd = open_file(writer->fixture);
    if (lseek(fd, 0, SEEK_END) != end)
        return -EAGAIN;
    if (writer->tear > 0) {
        assert_int_equal(hc_write_all(fd, bytes, (size_t)writer->tear), 0);
        writer->tear = 0;
        return -ENOSPC;
    }
    return hc_write_all(fd, bytes, length);
}

static struct audit *open_through(struct writer *writer)
{
    struct audit *audit = NULL;
    struct hc_err err = {0};
    int fd = open(writer->fixture->path, O_RDONLY | O_CLOEXEC);
    if (audit_open_through(fd, append_through, writer, &audit, &err) < 0)
        fail_msg("%s", err.message);
    return audit;
}

static void test_one_who_can_only_read_appends_through_another(void **state)
{
    struct writer writer = {.fixture = *state, .rivals = 3};
    struct audit_report report;
    add_entries(writer.fixture, 2);
    struct audit *audit = open_through(&writer);
    assert_int_equal(audit_add(audit, "limit_hit", "alice", NULL, "{\"reason\":\"memory\"}"), 0);
    assert_int_equal(writer.calls, 4);
    assert_int_equal(audit_add(audit, "limit_hit", "alice", NULL, NULL), 0);
    assert_int_equal(writer.calls, 5);
    audit_close(audit);
    assert_int_equal(verify(writer.fixture, &report), 0);
    assert_int_equal(report.lines, 7);
}

static void test_what_was_torn_by_another_is_told_by_the_next_entry(void **state)
{
    struct writer writer = {.fixture = *state, .tear = 40};
    struct audit_report report;
    struct audit *audit = open_through(&writer);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, NULL), -ENOSPC);
    assert_int_equal(audit_add(audit, "limit_hit", NULL, NULL, NULL), 0);
    audit_close(audit);
    assert_int_equal(verify(writer.fixture, &report), 0);
    assert_int_equal(report.lines, 2);
    assert_int_equal(report.torn, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_chain_holds_over_several_openings),
        TEST(test_an_entry_says_what_it_was_given),
        TEST(test_what_is_no_entry_is_not_written),
        TEST(test_a_descriptor_that_could_overwrite_is_refused),
        TEST(test_every_changed_byte_is_found),
        TEST(test_removed_swapped_repeated_and_cut_lines_are_found),
        TEST(test_forged_lines_at_the_end_are_found),
        TEST(test_a_forged_last_line_stays_found_when_the_server_goes_on),
        TEST(test_a_line_torn_anywhere_is_told_by_the_next_entry),
        TEST(test_entries_cut_off_at_the_end_are_missed_by_a_hash_that_was_kept),
        TEST(test_a_write_that_was_cut_short_is_an_error_and_the_log_goes_on),
        TEST(test_a_log_that_became_shorter_under_a_server_shows_it),
        TEST(test_a_file_that_is_no_log_is_refused_and_left_alone),
        TEST(test_one_who_can_only_read_appends_through_another),
        TEST(test_what_was_torn_by_another_is_told_by_the_next_entry),
        TEST(test_processes_that_append_at_once_keep_the_chain),
        TEST(test_processes_that_inherited_one_file_keep_the_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
