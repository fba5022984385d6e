/*
 * Reads TOML on stdin and prints it as toml-test's tagged JSON on stdout, for the conformance test to compare. Exit
 * status 1 and the error's one line on stderr when the document is refused.
 */
#include "base/fd.h"
#include "text/toml.h"
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static json_t *tagged(const char *type, json_t *value)
{
    return json_pack("{s:s, s:o}", "type", type, "value", value);
}

static json_t *float_to_json(double number)
{
    char text[64];
    if (isnan(number))
        snprintf(text, sizeof text, "nan");
    else
        snprintf(text, sizeof text, "%.17g", number);
    return tagged("float", json_string(text));
}

static json_t *value_to_json(const struct toml_value *value);

static json_t *table_to_json(const struct toml_value *table)
{
    json_t *object = json_object();
    for (size_t i = 0; i < toml_count(table); i++) {
        size_t length;
        const char *key = toml_key(table, i, &length);
        json_object_setn_new(object, key, length, value_to_json(toml_at(table, i)));
    }
    return object;
}

static json_t *array_to_json(const struct toml_value *array)
{
    json_t *list = json_array();
    for (size_t i = 0; i < toml_count(array); i++)
        json_array_append_new(list, value_to_json(toml_at(array, i)));
    return list;
}

static json_t *value_to_json(const struct toml_value *value)
{
    char number[32];
    size_t length;
    switch (toml_type(value)) {
    case TOML_STRING: {
        const char *text = toml_string(value, &length);
        return tagged("string", json_stringn(text, length));
    }
    case TOML_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)toml_integer(value));
        return tagged("integer", json_string(number));
    case TOML_FLOAT:
        return float_to_json(toml_float(value));
    case TOML_BOOLEAN:
        return tagged("bool", json_string(toml_boolean(value) ? "true" : "false"));
    case TOML_OFFSET_DATETIME:
        return tagged("datetime", json_string(toml_datetime(value)));
    case TOML_LOCAL_DATETIME:
        return tagged("datetime-local", json_string(toml_datetime(value)));
    case TOML_LOCAL_DATE:
        return tagged("date-local", json_string(toml_datetime(value)));
    case TOML_LOCAL_TIME:
        return tagged("time-local", json_string(toml_datetime(value)));
    case TOML_ARRAY:
        return array_to_json(value);
    case TOML_TABLE:
        return table_to_json(value);
    }
    abort();
}

int main(void)
{
    char *text hc_cleanup_free = NULL;
    size_t length;
    if (hc_read_all(STDIN_FILENO, 64 * 1024 * 1024, &text, &length) < 0)
        return 2;
    struct hc_err err = {0};
    setlocale(LC_ALL, ""); /* the caller's locale must not matter to the parser; it would to printf below */
    struct toml_value *root HC_CLEANUP(toml_free_ptr) = NULL;
    if (toml_parse(text, length, "stdin", &root, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    setlocale(LC_ALL, "C");
    json_t *object = table_to_json(root);
    int rc = json_dumpf(object, stdout, JSON_INDENT(2));
    json_decref(object);
    return rc == 0 ? 0 : 2;
}
