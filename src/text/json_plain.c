/*
 * See json_plain.h. A value is found by skipping those before it; a container is skipped by counting its brackets
 * outside of strings, so nothing here is recursive, however deep a text is.
 */
#include "text/json_plain.h"

#include "base/fd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct hc_peek none;

/* ---- writing ---- */

int hc_json_add_string(struct hc_buf *buf, const char *bytes, size_t length)
{
    static const char short_forms[] = "\b\t\n\f\r";
    const char *end = bytes + length, *plain = bytes;

    hc_buf_add(buf, "\"", 1);
    for (const char *at = bytes; at < end; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        hc_buf_add(buf, plain, (size_t)(at - plain));
        plain = at + 1;
        const char *letter = byte ? strchr(short_forms, byte) : NULL;
        if (byte == '"' || byte == '\\')
            hc_buf_add(buf, (char[]){'\\', (char)byte}, 2);
        else if (letter)
            hc_buf_add(buf, (char[]){'\\', "btnfr"[letter - short_forms]}, 2);
        else
            hc_buf_printf(buf, "\\u%04X", byte);
    }
    hc_buf_add(buf, plain, (size_t)(end - plain));
    return hc_buf_add(buf, "\"", 1);
}

/* ---- finding ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

/* From the opening quote to what follows the closing one. NULL: it has none. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && ++at == end)
            return NULL;
    return at < end ? at + 1 : NULL;
}

static const char *skip_container(const char *at, const char *end)
{
    size_t depth = 0;

    while (at < end) {
        if (*at == '"') {
            at = skip_string(at, end);
            if (!at)
                return NULL;
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        else if ((*at == '}' || *at == ']') && --depth == 0)
            return at + 1;
        at++;
    }
    return NULL;
}

static const char *skip_value(const char *at, const char *end)
{
    if (at == end)
        return NULL;
    if (*at == '"')
        return skip_string(at, end);
    if (*at == '{' || *at == '[')
        return skip_container(at, end);
    const char *start = at;
    while (at < end && !is_space(*at) && *at != '\0' && !strchr(",:]}[{\"", *at))
        at++;
    return at > start ? at : NULL;
}

struct hc_peek hc_peek_text(const char *text, size_t length)
{
    const char *end = text + length, *at = skip_space(text, end), *after = skip_value(at, end);

    if (!after || skip_space(after, end) != end)
        return none;
    return (struct hc_peek){at, (size_t)(after - at)};
}

static bool begins(struct hc_peek value, char c)
{
    return value.at && value.length > 0 && value.at[0] == c;
}

bool hc_peek_is_object(struct hc_peek value)
{
    return begins(value, '{');
}

bool hc_peek_is_string(struct hc_peek value)
{
    return begins(value, '"');
}

bool hc_peek_is_true(struct hc_peek value)
{
    return value.at && value.length == 4 && memcmp(value.at, "true", 4) == 0;
}

/* One value at *at, and *at moved behind it and the comma, if any. False: there is none. */
static bool take_value(const char **at, const char *end, struct hc_peek *value)
{
    const char *start = skip_space(*at, end), *after = skip_value(start, end);

    if (!after)
        return false;
    *value = (struct hc_peek){start, (size_t)(after - start)};
    after = skip_space(after, end);
    *at = after < end && *after == ',' ? after + 1 : after;
    return true;
}

struct hc_peek hc_peek_member(struct hc_peek object, const char *key)
{
    if (!hc_peek_is_object(object))
        return none;
    const char *at = object.at + 1, *end = object.at + object.length - 1;
    while ((at = skip_space(at, end)) < end && *at == '"') {
        struct hc_peek name = {at, 0}, value;
        const char *after = skip_string(at, end);
        if (!after)
            return none;
        name.length = (size_t)(after - at);
        at = skip_space(after, end);
        if (at == end || *at != ':')
            return none;
        at++;
        if (!take_value(&at, end, &value))
            return none;
        if (hc_peek_is(name, key))
            return value;
    }
    return none;
}

bool hc_peek_next(struct hc_peek list, struct hc_peek *item)
{
    if (!begins(list, '['))
        return false;
    const char *end = list.at + list.length - 1;
    const char *at = item->at ? skip_space(item->at + item->length, end) : list.at + 1;
    if (item->at && (at == end || *at++ != ','))
        return false;
    return take_value(&at, end, item);
}

size_t hc_peek_count(struct hc_peek list)
{
    struct hc_peek item = none;
    size_t count = 0;

    while (hc_peek_next(list, &item))
        count++;
    return count;
}

/* ---- strings ---- */

static int hex4(const char *at, const char *end, uint32_t *out)
{
    uint32_t code = 0;

    if (end - at < 4)
        return -EPROTO;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : 16;
        if (digit == 16)
            return -EPROTO;
        code = code << 4 | digit;
    }
    *out = code;
    return 0;
}

static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* What follows "\u": one unit, or two of a surrogate pair. */
static int take_unicode(const char **at, const char *end, char **out)
{
    uint32_t code, low;

    if (hex4(*at, end, &code) < 0)
        return -EPROTO;
    *at += 4;
    if (code >= 0xdc00 && code <= 0xdfff)
        return -EPROTO;
    if (code >= 0xd800 && code <= 0xdbff) {
        if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' || hex4(*at + 2, end, &low) < 0 || low < 0xdc00 ||
            low > 0xdfff)
            return -EPROTO;
        *at += 6;
        code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
    }
    *out = put_utf8(*out, code);
    return 0;
}

static int take_escape(const char **at, const char *end, char **out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

    if (*at == end)
        return -EPROTO;
    char c = *(*at)++;
    if (c == 'u')
        return take_unicode(at, end, out);
    const char *found = c ? strchr(letters, c) : NULL;
    if (!found)
        return -EPROTO;
    *(*out)++ = meant[found - letters];
    return 0;
}

/* The bytes that a string stands for are never more than those it is written in. */
int hc_peek_string(struct hc_peek value, char **out, size_t *length)
{
    if (!hc_peek_is_string(value) || value.length < 2)
        return -EPROTO;
    const char *at = value.at + 1, *end = value.at + value.length - 1;
    hc_cleanup_free char *text = malloc(value.length);
    if (!text)
        return -ENOMEM;
    char *to = text;
    while (at < end) {
        const char *stop = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((stop ? stop : end) - at);
        memcpy(to, at, plain);
        to += plain;
        at += plain;
        if (at < end) {
            at++;
            if (take_escape(&at, end, &to) < 0)
                return -EPROTO;
        }
    }
    *to = '\0';
    *length = (size_t)(to - text);
    *out = HC_TAKE_PTR(text);
    return 0;
}

const char *hc_peek_copy(struct hc_peek value, char *text, size_t size)
{
    hc_cleanup_free char *whole = NULL;
    size_t length = 0;

    if (hc_peek_string(value, &whole, &length) < 0)
        length = 0;
    if (length >= size)
        length = size - 1;
    if (whole)
        memcpy(text, whole, length);
    text[length] = '\0';
    return text;
}

bool hc_peek_is(struct hc_peek value, const char *word)
{
    size_t length = strlen(word);

    return hc_peek_is_string(value) && value.length == length + 2 && memcmp(value.at + 1, word, length) == 0;
}

/* ---- numbers ---- */

/* strto* want a terminator: no number that is meant for these is longer. */
static bool number_text(struct hc_peek value, char *text, size_t size)
{
    if (!value.at || value.length >= size || !value.length ||
        !(value.at[0] == '-' || (value.at[0] >= '0' && value.at[0] <= '9')))
        return false;
    memcpy(text, value.at, value.length);
    text[value.length] = '\0';
    return true;
}

int hc_peek_integer(struct hc_peek value, int64_t *out)
{
    char text[32], *end;

    if (!number_text(value, text, sizeof text))
        return -EPROTO;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || *end)
        return -EPROTO;
    *out = number;
    return 0;
}

double hc_peek_number(struct hc_peek value)
{
    char text[64], *end;

    if (!number_text(value, text, sizeof text))
        return 0;
    double number = strtod(text, &end);
    return *end ? 0 : number;
}
