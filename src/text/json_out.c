/* See json_out.h. */
#include "text/json_out.h"

#include "text/json_plain.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *hc_json_out_take(struct hc_json_out *out)
{
    return hc_buf_take(&out->buf, NULL);
}

void hc_json_out_fail(struct hc_json_out *out)
{
    if (out->buf.status == 0)
        out->buf.status = -ENOMEM;
}

static void new_line(struct hc_json_out *out)
{
    if (out->pretty)
        hc_buf_printf(&out->buf, "\n%*s", (int)out->depth * 2, "");
}

/* What stands before a value, in one piece where the name is an ordinary one: most of a text is names. */
static void begin(struct hc_json_out *out, const char *name)
{
    char piece[48];
    size_t at = 0, start;
    if (out->more)
        piece[at++] = ',';
    out->more = true;
    if (out->pretty && out->depth > 0) {
        hc_buf_add(&out->buf, piece, at);
        at = 0;
        new_line(out);
    }
    start = at;
    if (name) {
        const char *next = name;
        piece[at++] = '"';
        for (; (unsigned char)*next >= 0x20 && *next != '"' && *next != '\\' && at < sizeof piece - 3; next++)
            piece[at++] = *next;
        piece[at++] = '"';
        piece[at++] = ':';
        if (out->pretty)
            piece[at++] = ' ';
        if (!*next) {
            hc_buf_add(&out->buf, piece, at);
            return;
        }
    }
    hc_buf_add(&out->buf, piece, start);
    if (name) {
        hc_json_add_string(&out->buf, name, strlen(name));
        hc_buf_add_str(&out->buf, out->pretty ? ": " : ":");
    }
}

void hc_json_put_open(struct hc_json_out *out, const char *name, char bracket)
{
    begin(out, name);
    hc_buf_add(&out->buf, &bracket, 1);
    out->depth++;
    out->more = false;
}

void hc_json_put_close(struct hc_json_out *out, char bracket)
{
    out->depth--;
    if (out->more)
        new_line(out);
    hc_buf_add(&out->buf, &bracket, 1);
    out->more = true;
}

void hc_json_put_text(struct hc_json_out *out, const char *name, const char *bytes, size_t length)
{
    begin(out, name);
    hc_json_add_string(&out->buf, bytes, length);
}

void hc_json_put_word(struct hc_json_out *out, const char *name, const char *word)
{
    hc_json_put_text(out, name, word, strlen(word));
}

void hc_json_put_lossy(struct hc_json_out *out, const char *name, const char *text)
{
    size_t length = strlen(text);
    if (hc_utf8_valid(text, length)) {
        hc_json_put_text(out, name, text, length);
        return;
    }
    hc_cleanup_json json_t *value = hc_json_text_lossy(text);
    hc_json_put_value(out, name, value);
}

void hc_json_put_known(struct hc_json_out *out, const char *name, const char *text)
{
    if (text && text[0] != '\0')
        hc_json_put_lossy(out, name, text);
    else
        hc_json_put_null(out, name);
}

/* They end before `end`. Returns where they begin. */
static char *write_digits(char *end, uint64_t number)
{
    do
        *--end = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    return end;
}

void hc_json_put_integer(struct hc_json_out *out, const char *name, int64_t number)
{
    char text[24], *end = text + sizeof text;
    char *at = write_digits(end, number < 0 ? -(uint64_t)number : (uint64_t)number);
    if (number < 0)
        *--at = '-';
    begin(out, name);
    hc_buf_add(&out->buf, at, (size_t)(end - at));
}

/* The fewest digits that say it, and one at least. */
static void add_thousandths(struct hc_buf *buf, uint64_t number)
{
    char text[32], *end = text + sizeof text, *at = end;
    for (int digit = 0; digit < 3; digit++, number /= 10)
        *--at = (char)('0' + number % 10);
    *--at = '.';
    at = write_digits(at, number);
    while (end[-1] == '0' && end[-2] != '.')
        end--;
    hc_buf_add(buf, at, (size_t)(end - at));
}

/* As printf would find by trying: so few digits read back as the same number. */
static bool is_plain(int64_t thousandths)
{
    return thousandths >= 0 && thousandths < INT64_C(1000000000000);
}

void hc_json_put_thousandths(struct hc_json_out *out, const char *name, int64_t number)
{
    if (!is_plain(number)) {
        hc_json_put_real(out, name, (double)number / 1000);
        return;
    }
    begin(out, name);
    add_thousandths(&out->buf, (uint64_t)number);
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

void hc_json_put_real(struct hc_json_out *out, const char *name, double number)
{
    begin(out, name);
    int64_t thousandths = number > 0 && number < 1e9 ? (int64_t)(number * 1000 + 0.5) : 0;
    if (thousandths > 0 && (double)thousandths / 1000 == number) { /* most are microseconds as milliseconds */
        add_thousandths(&out->buf, (uint64_t)thousandths);
        return;
    }
    hc_cleanup_json json_t *value = json_real(number);
    if (!value ||
        json_dump_callback(value, add_piece, &out->buf, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits_needed(number))))
        hc_json_out_fail(out);
}

void hc_json_put_bool(struct hc_json_out *out, const char *name, bool value)
{
    begin(out, name);
    hc_buf_add_str(&out->buf, value ? "true" : "false");
}

void hc_json_put_null(struct hc_json_out *out, const char *name)
{
    begin(out, name);
    hc_buf_add(&out->buf, "null", 4);
}

static void put_members(struct hc_json_out *out, const json_t *value)
{
    const char *key;
    const json_t *item;
    size_t index;
    json_object_foreach((json_t *)value, key, item)
    {
        hc_json_put_value(out, key, item);
    }
    json_array_foreach(value, index, item)
    {
        hc_json_put_value(out, NULL, item);
    }
}

void hc_json_put_value(struct hc_json_out *out, const char *name, const json_t *value)
{
    if (!value) {
        hc_json_out_fail(out);
        return;
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        hc_json_put_open(out, name, json_is_object(value) ? '{' : '[');
        put_members(out, value);
        hc_json_put_close(out, json_is_object(value) ? '}' : ']');
        return;
    case JSON_STRING:
        hc_json_put_text(out, name, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        hc_json_put_integer(out, name, json_integer_value(value));
        return;
    case JSON_REAL:
        hc_json_put_real(out, name, json_real_value(value));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        hc_json_put_bool(out, name, json_is_true(value));
        return;
    case JSON_NULL:
        hc_json_put_null(out, name);
        return;
    }
}

struct hc_buf *hc_json_put_raw(struct hc_json_out *out, const char *name)
{
    begin(out, name);
    return &out->buf;
}
