/*
 * Percent-decoding, and the one place that decides which paths are plain enough. What always holds: an accepted path
 * begins with '/', is UTF-8 without control characters, and has no empty, "." or ".." component (one slash at its end
 * may stay); decoding it once more would not change it.
 */
#include "gateway/http_url.h"
#include <errno.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool is_escape(const char *text, size_t length)
{
    return length >= 3 && text[0] == '%' && hex_digit(text[1]) >= 0 && hex_digit(text[2]) >= 0;
}

/* The length of the UTF-8 sequence at `text`, or 0. Overlong forms, surrogates and what is past U+10FFFF have none. */
static size_t utf8_sequence(const unsigned char *text, size_t length)
{
    unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || length < want)
        return 0;
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < want; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    return want;
}

static bool is_utf8(const char *text, size_t length)
{
    for (size_t i = 0, step; i < length; i += step) {
        step = utf8_sequence((const unsigned char *)text + i, length - i);
        if (step == 0)
            return false;
    }
    return true;
}

int http_percent_decode(const char *raw, size_t length, bool plus, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        char c = raw[i];
        if (c == '%') {
            if (!is_escape(raw + i, length - i))
                return -EINVAL;
            c = (char)(hex_digit(raw[i + 1]) * 16 + hex_digit(raw[i + 2]));
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == '\0')
            return -EINVAL;
        if (used + 1 >= size)
            return -ENAMETOOLONG;
        text[used++] = c;
    }
    if (used >= size)
        return -ENAMETOOLONG;
    text[used] = '\0';
    return is_utf8(text, used) ? (int)used : -EINVAL;
}

/* pchar of RFC 3986, without the escapes, and the slash. */
static bool is_path_character(char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c != '\0' && strchr("-._~!$&'()*+,;=:@/", c) != NULL;
}

static const char *check_raw(const char *raw, size_t length)
{
    if (length == 0 || raw[0] != '/')
        return "the target must be a path that begins with a slash";
    for (size_t i = 0; i < length; i++) {
        if (raw[i] != '%') {
            if (!is_path_character(raw[i]))
                return "the path has a character that must be percent-encoded";
            continue;
        }
        if (!is_escape(raw + i, length - i))
            return "the path has a broken percent-encoding";
        int byte = hex_digit(raw[i + 1]) * 16 + hex_digit(raw[i + 2]);
        if (byte < 0x20 || byte == 0x7F)
            return "the path has an encoded control character";
        if (byte == '/' || byte == '\\')
            return "the path has an encoded slash";
        i += 2;
    }
    return NULL;
}

static const char *check_components(const char *path)
{
    for (const char *start = path + 1; *start != '\0';) {
        size_t length = strcspn(start, "/");
        if (length == 0)
            return "the path has an empty component";
        if ((length == 1 && start[0] == '.') || (length == 2 && start[0] == '.' && start[1] == '.'))
            return "the path has a . or .. component";
        start += length;
        if (*start == '/')
            start++;
    }
    return NULL;
}

const char *http_path_decode(const char *raw, size_t length, char *path)
{
    const char *why = check_raw(raw, length);
    if (why != NULL)
        return why;
    int decoded = http_percent_decode(raw, length, false, path, length + 1);
    if (decoded < 0)
        return "the path is not UTF-8";
    for (size_t i = 0; i < (size_t)decoded; i++)
        if (is_escape(path + i, (size_t)decoded - i))
            return "the path is percent-encoded twice";
    return check_components(path);
}
