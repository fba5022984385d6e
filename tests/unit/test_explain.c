/* From what a program wrote to a diagnosis: the search, its conditions, its bounds; and what a language's file may say.
 */
#include "base/fd.h"
#include "run/denied.h"
#include "run/explain.h"
#include "run/explain_lines.h"
#include "run/fingerprint.h"
#include "run/language_diagnosis.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD                                                                                                           \
    "name = \"odd\"\ntitle = \"Odd\"\nextensions = [\".odd\"]\nfile = \"main.odd\"\nneeds = [\"/bin/sh\"]\n"           \
    "[run]\ncommand = [\"/bin/sh\", \"{entry}\"]\n"

static struct language *read_language(const char *text, struct hc_err *err)
{
    char folder[] = "/tmp/hotcell-explain-XXXXXX", path[64];
    struct language *language = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/odd.toml", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(hc_write_all(fd, text, strlen(text)), 0);
    close(fd);
    int status = language_read(path, &language, err);
    unlink(path);
    rmdir(folder);
    return status < 0 ? NULL : language;
}

static const char RULES[] =
    HEAD "\n[diagnosis]\nfrom = \"end\"\n"
         "[[diagnosis.errors]]\npattern = '^(E[a-z]+): (.*)$'\nabove = '^  (at|by) '\nexit = [1, 3]\n"
         "category = \"exception\"\ntype = \"{1}\"\nmessage = \"{2} ({a1})\"\n"
         "[[diagnosis.errors]]\npattern = '^last: (.*)$'\nlast = true\nmessage = \"{1}\"\n"
         "[[diagnosis.errors]]\npattern = '^abort: (.*)$'\nsignal = \"SIGABRT\"\n"
         "category = \"exception\"\nmessage = \"{1}\"\n"
         "[[diagnosis.places]]\npattern = '^  at ([^ :]+):([0-9]+)'\nside = \"above\"\n"
         "file = \"{1}\"\nline = \"{2}\"\n"
         "[[diagnosis.causes]]\npattern = '^Emissing: ([a-z]+)'\ncategory = \"import\"\n"
         "module = \"{1}\"\n"
         "[[diagnosis.causes]]\npattern = 'not permitted'\ncategory = \"permission\"\n"
         "denied = true\n"
         "[[diagnosis.causes]]\npattern = 'full'\ncategory = \"disk\"\nlimit = \"disk\"\n"
         "[diagnosis.packages]\njson = \"odd-json\"\n";

static const char PROGRAM[] = "one\n  two(3)\nthree\n  chroot(\"/\")\n";

/* The diagnosis of a program that wrote this and ended so. */
static struct diagnosis explain(const char *text, size_t length, int exit_code, int number)
{
    struct hc_err err = {0};
    struct language *language = read_language(RULES, &err);
    assert_non_null(language);
    struct run_stage stage = {.name = "run", .started = true};
    stage.facts.end = JOB_EXITED;
    stage.facts.exit_code = exit_code;
    stage.facts.signal = number;
    stage_judge(&stage);
    struct capture out, captured;
    capture_init(&out, 1 << 20);
    capture_init(&captured, 1 << 20);
    assert_int_equal(capture_add(&captured, text, length), 0);
    const struct explain_file file = {"main.odd", PROGRAM, strlen(PROGRAM)};
    const struct explain_context context = {language, "/workspace", &file, 1};
    struct diagnosis diagnosis;
    assert_true(stage_diagnose(&stage, &out, &captured, &diagnosis));
    stage_explain(&stage, &out, &captured, &context, &diagnosis);
    capture_release(&out);
    capture_release(&captured);
    language_free(language);
    return diagnosis;
}

#define EXPLAIN(text, code) explain(text, strlen(text), code, 0)

static void test_the_error_the_place_and_the_source_are_found(void **state)
{
    (void)state;
    struct diagnosis d = EXPLAIN("noise\n  at /workspace/main.odd:2\n  at /usr/lib/x.odd:9\nEodd: it broke\n", 1);
    assert_string_equal(d.category, "exception");
    assert_string_equal(d.error_type, "Eodd");
    assert_string_equal(d.message, "it broke (at)");
    assert_string_equal(d.file, "main.odd"); /* its own file, though another is nearer */
    assert_int_equal(d.line, 2);
    assert_string_equal(d.source, "  two(3)");
    assert_string_equal(d.proof[PROOF_OUTPUT], "Eodd: it broke");
    assert_string_equal(d.hint, "look at main.odd, line 2");
}

static void test_a_marker_below_the_line_gives_the_column(void **state)
{
    (void)state;
    struct diagnosis d = EXPLAIN("  at main.odd:2\n      two(3)\n      ~~~^\n  by\nEodd: it broke\n", 1);
    assert_int_equal(d.line, 0); /* the line above says neither "at …" nor "by …" */
    d = EXPLAIN("  at main.odd:2\n      two(3)\n         ^\n  by x\nEodd: it broke\n", 1);
    assert_int_equal(d.line, 2);
    assert_int_equal(d.column, 6);
}

static void test_a_rule_holds_only_with_its_conditions(void **state)
{
    (void)state;
    static const char told[] = "  at main.odd:2\nEodd: it broke\n";
    assert_non_null(EXPLAIN(told, 3).category);
    assert_null(EXPLAIN(told, 2).category);               /* another exit code */
    assert_null(EXPLAIN("Eodd: it broke\n", 1).category); /* nothing above */
    assert_null(explain(told, strlen(told), 1, SIGABRT).proof[PROOF_OUTPUT][0] ? told : NULL);
    assert_string_equal(explain("abort: x\n", 9, 0, SIGABRT).category, "exception");
    assert_null(EXPLAIN("abort: x\n", 1).category); /* no signal */
    struct diagnosis d = EXPLAIN("last: disk full\nmore\n", 1);
    assert_null(d.category);
    assert_string_equal(d.message, "exited with status 1");
    assert_string_equal(d.proof[PROOF_OUTPUT], "more"); /* its last words */
    assert_string_equal(d.hint, "");
    d = EXPLAIN("last: disk full\n\n  \n", 1);
    assert_string_equal(d.category, "disk");
    assert_int_equal(d.limit, LIMIT_DISK);
    d = EXPLAIN("last: nothing known\n", 1); /* the rule has no category, and no cause has one */
    assert_null(d.category);
}

static void test_causes_name_module_package_and_call(void **state)
{
    (void)state;
    struct diagnosis d = EXPLAIN("  at main.odd:2\nEmissing: json\n", 1);
    assert_string_equal(d.category, "import");
    assert_string_equal(d.proof[PROOF_MODULE], "json");
    assert_string_equal(d.proof[PROOF_PACKAGE], "odd-json");
    assert_string_equal(d.hint, "apt install odd-json on the machine that runs hotcell");
    d = EXPLAIN("  at main.odd:4\nEperm: not permitted\n", 1);
    assert_string_equal(d.proof[PROOF_CALL], "chroot"); /* of the source line */
    d = EXPLAIN("  at main.odd:2\nEperm: not permitted\n", 1);
    assert_string_equal(d.proof[PROOF_CALL], ""); /* nothing certain */
    assert_string_equal(d.category, "permission");
}

static void test_calls_are_named_only_where_that_is_certain(void **state)
{
    (void)state;
    assert_string_equal(denied_in_message("unshare: unshare failed: Operation not permitted"), "unshare");
    assert_string_equal(denied_in_message("mount(): x"), "mount");
    assert_null(denied_in_message("please mount the disk: Operation not permitted"));
    assert_null(denied_in_message("read: Operation not permitted")); /* it is allowed */
    assert_null(denied_in_message("mount: setns: x"));               /* which of the two? */
    assert_string_equal(denied_in_code("    os.chroot('/tmp')"), "chroot");
    assert_null(denied_in_code("chroot = 5"));
    assert_null(denied_in_code("remount(x)"));
    assert_null(denied_in_code(""));
}

static void test_text_of_any_kind_and_size_is_bounded(void **state)
{
    (void)state;
    size_t length = 400000;
    char *text = malloc(length);
    assert_non_null(text);
    memset(text, '\n', length);
    memcpy(text + length - 34, "\n  at main.odd:2\nEodd: at the end\n", 33);
    struct diagnosis d = explain(text, length, 1, 0);
    assert_string_equal(d.message, "at the end (at)");
    memset(text, 'x', length); /* one long line */
    d = explain(text, length, 1, 0);
    assert_null(d.category);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)(i * 7 + i / 251); /* with NULs and what is no UTF-8 */
    d = explain(text, length, 1, 0);
    assert_null(d.category);
    free(text);
}

static void test_lines_keep_the_first_and_the_last(void **state)
{
    (void)state;
    struct capture capture;
    struct lines lines;
    capture_init(&capture, 1 << 20);
    for (int i = 0; i < 5000; i++) {
        char line[16];
        assert_int_equal(capture_add(&capture, line, (size_t)snprintf(line, sizeof line, "%d\r\n", i)), 0);
    }
    assert_int_equal(lines_make(&capture, &lines), 0);
    assert_int_equal(lines.count, LINES_LIMIT);
    assert_string_equal(lines.item[0], "0");
    assert_string_equal(lines.item[LINES_LIMIT / 2 - 1], "511");
    assert_string_equal(lines.item[LINES_LIMIT - 1], "4999");
    lines_release(&lines);
    capture_release(&capture);
    capture_init(&capture, 64);
    assert_int_equal(lines_make(&capture, &lines), 0);
    assert_int_equal(lines.count, 0);
    lines_release(&lines);
    capture_release(&capture);
}

static void test_what_varies_is_not_in_a_fingerprint(void **state)
{
    (void)state;
    static const struct {
        const char *message, *normal;
    } table[] = {
        {"name 'foo' is not defined", "name \"\" is not defined"},
        {"index 17 is out of range 3.5", "index 0 is out of range 0"},
        {"at 0x7fff12ab now", "at 0 now"},
        {"cannot open /tmp/a.b/c: no", "cannot open /: no"},
        {"can't say \"x\" or \xe2\x80\x98y\xe2\x80\x99", "can't say \"\" or \"\""},
        {"a  b\t c", "a b c"},
        {"utf8 int64 x2", "utf8 int64 x2"},
        {"an open 'quote", "an open 'quote"},
        {"", ""},
    };
    char text[64];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        message_normalise(table[i].message, text, sizeof text);
        assert_string_equal(text, table[i].normal);
    }
    struct diagnosis a = {.category = "exception", .error_type = "E", .message = "no 'x'"}, b = a;
    strcpy(b.message, "no 'y'");
    diagnosis_fingerprint(&a, "python");
    diagnosis_fingerprint(&b, "python");
    assert_string_equal(a.fingerprint, b.fingerprint);
    assert_int_equal(strlen(a.fingerprint), 16);
    strcpy(b.proof[PROOF_MODULE], "y");
    diagnosis_fingerprint(&b, "python");
    assert_string_not_equal(a.fingerprint, b.fingerprint);
    b = a;
    diagnosis_fingerprint(&b, "ruby");
    assert_string_not_equal(a.fingerprint, b.fingerprint);
}

static void test_shapes_do_not_depend_on_white_space_and_constants(void **state)
{
    (void)state;
    static const char one[] = "for i in range(10):\n    print('a', i)\n", two[] = "for i in range(99): print(\"bb\",i)";
    struct code_shape a, b;
    shape_begin(&a);
    assert_true(shape_is_empty(&a));
    shape_begin(&b);
    shape_add(&a, one, strlen(one));
    shape_add(&b, two, strlen(two));
    assert_memory_equal(&a, &b, sizeof a);
    shape_add(&b, "other words here now", 20);
    assert_memory_not_equal(&a, &b, sizeof a);
    shape_begin(&b);
    shape_add(&b, "a b", 3); /* no three tokens */
    assert_true(shape_is_empty(&b));
}

static void test_faults_in_a_file_are_named_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *rest, *says;
    } table[] = {
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = '^(a'\n", ":11: \"pattern\" must be"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = 'a\\t'\n", ":11: \"pattern\" must be"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\ncategory = \"exception\"\n", "\"diagnosis.errors.pattern\" is missing"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = 'a'\ncategory = \"odd\"\n", ":12: \"category\" must be"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = 'a'\ntype = \"{1}\"\n",
         "names a group that the pattern has not"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = 'a'\ntype = \"{a1}\"\n", "names a group"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = 'a'\nexit = 0\n", "\"exit\" must be"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = 'a'\nside = \"above\"\n", "unknown key \"side\""},
        {"\n[diagnosis]\n[[diagnosis.causes]]\npattern = 'a'\nlimit = \"luck\"\n", "\"limit\" must be the name"},
        {"\n[diagnosis]\n[[diagnosis.errors]]\npattern = 'a'\nsignal = \"SIGODD\"\n", "\"signal\" must be a signal"},
        {"\n[diagnosis]\nfrom = \"middle\"\n", "\"from\" must be"},
        {"\n[diagnosis]\ncolour = 1\n", "unknown key \"colour\""},
        {"\n[diagnosis]\n[diagnosis.packages]\na = 1\n", "\"a\" must be a text"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[1024];
        struct hc_err err = {0};
        const struct language_diagnosis *found = NULL;
        snprintf(text, sizeof text, "%s%s", HEAD, table[i].rest);
        struct language *language = read_language(text, &err);
        assert_non_null(language);
        assert_int_equal(language_diagnosis(language, &found, &err), -EINVAL);
        if (strstr(err.message, table[i].says) == NULL)
            fail_msg("%s: %s", table[i].says, err.message);
        language_free(language);
    }
}

static void test_the_table_is_the_last_or_refused(void **state)
{
    (void)state;
    struct hc_err err = {0};
    assert_null(read_language(HEAD "\n[diagnosis]\nfrom = \"end\"\n\n[env]\nA = \"b\"\n", &err));
    assert_non_null(strstr(err.message, "must be the last table"));
    struct language *language = read_language(HEAD, &err);
    const struct language_diagnosis *found = NULL;
    hc_err_clear(&err);
    assert_int_equal(language_diagnosis(language, &found, &err), 0);
    assert_null(found);
    language_free(language);
}

static void test_every_language_of_ours_can_be_read(void **state)
{
    (void)state;
    static const char *const names[] = {"bash", "c",      "cpp", "go",   "java", "javascript", "lua",       "perl",
                                        "php",  "python", "r",   "ruby", "rust", "sh",         "typescript"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        struct hc_err err = {0};
        struct language *language = NULL;
        const struct language_diagnosis *found = NULL;
        snprintf(path, sizeof path, "%s/languages/%s.toml", getenv("HOTCELL_SOURCE"), names[i]);
        assert_int_equal(language_read(path, &language, &err), 0);
        if (language_diagnosis(language, &found, &err) < 0)
            fail_msg("%s", err.message);
        assert_true(found->errors.count > 0 && found->causes.count > 0);
        language_free(language);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_error_the_place_and_the_source_are_found),
        cmocka_unit_test(test_a_marker_below_the_line_gives_the_column),
        cmocka_unit_test(test_a_rule_holds_only_with_its_conditions),
        cmocka_unit_test(test_causes_name_module_package_and_call),
        cmocka_unit_test(test_calls_are_named_only_where_that_is_certain),
        cmocka_unit_test(test_text_of_any_kind_and_size_is_bounded),
        cmocka_unit_test(test_lines_keep_the_first_and_the_last),
        cmocka_unit_test(test_what_varies_is_not_in_a_fingerprint),
        cmocka_unit_test(test_shapes_do_not_depend_on_white_space_and_constants),
        cmocka_unit_test(test_faults_in_a_file_are_named_with_their_line),
        cmocka_unit_test(test_the_table_is_the_last_or_refused),
        cmocka_unit_test(test_every_language_of_ours_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
