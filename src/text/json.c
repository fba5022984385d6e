/*
 * Reading and writing JSON. Jansson does the parsing; this adds the depth limit, one error text, and a writer of our
 * own, because Jansson 2.14 prints 3.1 as 3.1000000000000001 unless it is given fewer digits, and then other numbers
 * lose some of theirs; and because it is called anew, with a table of what it has visited, for each value that is
 * written by itself.
 */
#include "text/json.h"
#include "base/buf.h"
#include "text/json_plain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hc_json_release(json_t **value)
{
    json_decref(*value);
    *value = NULL;
}

/* Recursion ends at `left` 0, so the stack is bounded by the limit that the caller chose. */
static bool deeper_than(const json_t *value, size_t left)
{
    const json_t *item;
    const char *key;
    size_t index;

    if (!json_is_object(value) && !json_is_array(value))
        return false;
    if (left == 0)
        return true;
    json_object_foreach((json_t *)value, key, item)
    {
        if (deeper_than(item, left - 1))
            return true;
    }
    json_array_foreach(value, index, item)
    {
        if (deeper_than(item, left - 1))
            return true;
    }
    return false;
}

int hc_json_read(const char *text, size_t length, size_t depth, json_t **out, struct hc_err *err)
{
    json_error_t where;
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);

    if (!value) {
        /* Jansson says nothing at all when most of its allocations fail. */
        if (json_error_code(&where) == json_error_out_of_memory || where.text[0] == '\0')
            return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "not valid JSON: line %d, column %d: %s", where.line,
                       where.column, where.text);
    }
    if (deeper_than(value, depth)) {
        json_decref(value);
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the JSON is nested more than %zu levels deep", depth);
    }
    *out = value;
    return 0;
}

static int add_piece(const char *data, size_t length, void *buf)
{
    return hc_buf_add(buf, data, length) < 0 ? -1 : 0;
}

/* 15 digits are exact for every number that was written with 15 or fewer, and %g drops the zeros; 17 are exact for all.
 */
static int digits_needed(double number)
{
    for (int digits = 15; digits < 17; digits++) {
        char text[64];
        snprintf(text, sizeof(text), "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            return digits;
    }
    return 17;
}

/* A number of whole thousandths, which most are: microseconds as milliseconds. The text is the one that printf would
 * find by trying, for so few digits read back as the same number. */
static bool write_thousandths(double number, struct hc_buf *buf)
{
    char text[32];
    if (!(number > 0 && number < 1e9))
        return false;
    int64_t thousandths = (int64_t)(number * 1000 + 0.5);
    if (thousandths == 0 || (double)thousandths / 1000 != number)
        return false;
    int length = snprintf(text, sizeof(text), "%" PRId64 ".%03d", thousandths / 1000, (int)(thousandths % 1000));
    while (text[length - 1] == '0' && text[length - 2] != '.')
        length--;
    hc_buf_add(buf, text, (size_t)length);
    return true;
}

static void write_scalar(const json_t *value, struct hc_buf *buf)
{
    char text[24];

    switch (json_typeof(value)) {
    case JSON_STRING:
        hc_json_add_string(buf, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        hc_buf_add(buf, text, (size_t)snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(value)));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        hc_buf_add_str(buf, json_is_true(value) ? "true" : "false");
        return;
    case JSON_NULL:
        hc_buf_add_str(buf, "null");
        return;
    default:
        break;
    }
    double number = json_real_value(value);
    if (!write_thousandths(number, buf) &&
        json_dump_callback(value, add_piece, buf, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits_needed(number))) != 0 &&
        buf->status == 0)
        buf->status = -ENOMEM;
}

/* `depth` is 0 or more for indented text, -1 for one line. */
static void new_line(struct hc_buf *buf, int depth)
{
    if (depth >= 0)
        hc_buf_printf(buf, "\n%*s", depth * 2, "");
}

static void write_value(const json_t *value, int depth, struct hc_buf *buf)
{
    bool object = json_is_object(value);
    size_t count = object ? json_object_size(value) : json_array_size(value);
    int inner = depth < 0 ? -1 : depth + 1;
    const char *key, *comma = "";
    const json_t *item;
    size_t index;

    if (!object && !json_is_array(value)) {
        write_scalar(value, buf);
        return;
    }
    hc_buf_add_str(buf, object ? "{" : "[");
    json_object_foreach((json_t *)value, key, item)
    {
        hc_buf_add_str(buf, comma);
        new_line(buf, inner);
        hc_json_add_string(buf, key, strlen(key));
        hc_buf_add_str(buf, depth < 0 ? ":" : ": ");
        write_value(item, inner, buf);
        comma = ",";
    }
    json_array_foreach(value, index, item)
    {
        hc_buf_add_str(buf, comma);
        new_line(buf, inner);
        write_value(item, inner, buf);
        comma = ",";
    }
    if (count > 0)
        new_line(buf, depth);
    hc_buf_add_str(buf, object ? "}" : "]");
}

char *hc_json_write(const json_t *value, bool pretty)
{
    /* What is written was bounded when it was gathered. */
    struct hc_buf buf = HC_BUF_INIT(SIZE_MAX / 2);

    if (!value)
        return NULL;
    write_value(value, pretty ? 0 : -1, &buf);
    return hc_buf_take(&buf, NULL);
}

json_t *hc_json_text(const char *data, size_t length)
{
    return json_stringn(data ? data : "", length);
}

json_t *hc_json_text_lossy(const char *text)
{
    size_t length = strlen(text);
    json_t *whole = json_stringn(text, length);

    if (whole)
        return whole;
    char *copy = malloc(length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length + 1);
    for (size_t at = 0; at < length;) {
        json_t *probe = NULL;
        size_t size = 0;
        while (!probe && size < 4 && at + size < length)
            probe = json_stringn(copy + at, ++size);
        if (!probe) {
            copy[at] = '?';
            size = 1;
        }
        json_decref(probe);
        at += size;
    }
    whole = json_stringn(copy, length);
    free(copy);
    return whole;
}
