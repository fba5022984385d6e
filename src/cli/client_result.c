/* What the tables of hotcell-client make of a result. */
#include "base/fd.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/table.h"
#include "text/json.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *result_json_summary(const json_t *result, char *text, size_t size)
{
    hc_cleanup_free char *json = hc_json_write(result, false);

    text[0] = '\0';
    return json ? remote_summary(hc_peek_text(json, strlen(json)), text, size) : text;
}

const char *client_time(const char *rfc3339, char *text, size_t size)
{
    struct tm utc = {0}, local;

    if (!strptime(rfc3339, "%Y-%m-%dT%H:%M:%S", &utc)) {
        snprintf(text, size, "%s", rfc3339[0] ? rfc3339 : "-");
        return text;
    }
    time_t seconds = timegm(&utc);
    if (!localtime_r(&seconds, &local) || strftime(text, size, "%Y-%m-%d %H:%M:%S", &local) == 0)
        snprintf(text, size, "%s", rfc3339);
    return text;
}

/* ---- tests ---- */

enum { TESTS_SHOWN = 12 };

/* What it wrote, in one line, as a table shows text: without what could drive a terminal. */
static void add_one_test(struct table *table, const json_t *test)
{
    char line[320];
    const json_t *diagnosis = json_object_get(test, "diagnosis");
    const char *verdict = json_text(test, "verdict"), *message = json_text(diagnosis, "message");
    int length = snprintf(line, sizeof line, "%s", verdict);

    if (message[0])
        snprintf(line + length, sizeof line - (size_t)length, ": %s", message);
    else if (strcmp(verdict, "failed") == 0)
        snprintf(line + length, sizeof line - (size_t)length, ": its output, \"%.*s\", is not what was expected",
                 (int)strcspn(json_text(test, "stdout"), "\n"), json_text(test, "stdout"));
    table_add(table, TABLE_HEAD, json_text(test, "name"));
    table_add(table, TABLE_BAD, line);
}

void client_add_tests(struct table *table, const json_t *run)
{
    const json_t *tests = json_object_get(run, "tests"), *test;
    int passed = (int)json_integer_value(json_object_get(run, "tests_passed")), shown = 0;
    int total = (int)json_integer_value(json_object_get(run, "tests_total"));
    char text[64];
    size_t i;

    if (!json_is_array(tests) || total == 0)
        return;
    snprintf(text, sizeof text, "%d of %d passed", passed, total);
    table_add(table, TABLE_HEAD, "tests");
    table_add(table, passed == total ? TABLE_GOOD : TABLE_BAD, text);
    json_array_foreach(tests, i, test)
    {
        if (!json_is_true(json_object_get(test, "passed")) && shown++ < TESTS_SHOWN)
            add_one_test(table, test);
    }
}
