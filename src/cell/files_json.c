/*
 * The JSON writer. What always holds: what comes out is valid JSON and valid UTF-8, whatever bytes went in; nothing is
 * allocated. UTF-8 and base64 are here once more because this layer knows nothing of text/, which the warden is not
 * linked with.
 */
#include "cell/files_json.h"

#include "base/fd.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void files_json_init(struct files_json *json, int fd)
{
    json->fd = fd;
    json->status = 0;
    json->follow = false;
    json->used = 0;
}

int files_json_flush(struct files_json *json)
{
    if (json->status == 0 && json->used > 0)
        json->status = hc_write_all(json->fd, json->data, json->used);
    json->used = 0;
    return json->status;
}

void files_json_raw(struct files_json *json, const char *bytes, size_t length)
{
    while (length > 0 && json->status == 0) {
        size_t room = sizeof json->data - json->used;
        size_t part = length < room ? length : room;
        memcpy(json->data + json->used, bytes, part);
        json->used += part;
        bytes += part;
        length -= part;
        if (json->used == sizeof json->data)
            files_json_flush(json);
    }
}

static void put(struct files_json *json, const char *text)
{
    files_json_raw(json, text, strlen(text));
}

int files_json_line(struct files_json *json)
{
    put(json, "\n");
    json->follow = false;
    return files_json_flush(json);
}

/* How many bytes at `at` are one character, or 0: The Unicode Standard, table 3-7. */
static size_t character(const unsigned char *at, size_t left)
{
    static const struct {
        unsigned char first, last, low, high, count;
    } rows[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (at[0] < rows[i].first || at[0] > rows[i].last)
            continue;
        if (rows[i].count > left)
            return 0;
        for (size_t k = 1; k < rows[i].count; k++)
            if (at[k] < (k == 1 ? rows[i].low : 0x80) || at[k] > (k == 1 ? rows[i].high : 0xbf))
                return 0;
        return rows[i].count;
    }
    return 0;
}

bool files_utf8_valid(const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t count = character((const unsigned char *)bytes + at, length - at);
        if (count == 0)
            return false;
        at += count;
    }
    return true;
}

static void put_escaped(struct files_json *json, const char *bytes, size_t length)
{
    put(json, "\"");
    for (size_t at = 0; at < length;) {
        unsigned char byte = (unsigned char)bytes[at];
        size_t count = character((const unsigned char *)bytes + at, length - at);
        if (count == 0) {
            put(json, "\xef\xbf\xbd");
            count = 1;
        } else if (byte == '"' || byte == '\\') {
            const char pair[2] = {'\\', (char)byte};
            files_json_raw(json, pair, 2);
        } else if (byte < 0x20 || byte == 0x7f) {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", byte);
            put(json, code);
        } else {
            files_json_raw(json, bytes + at, count);
        }
        at += count;
    }
    put(json, "\"");
}

static void put_base64(struct files_json *json, const char *bytes, size_t length)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = (const unsigned char *)bytes;
    put(json, "\"");
    for (size_t at = 0; at < length; at += 3) {
        size_t left = length - at;
        uint32_t bits = (uint32_t)in[at] << 16;
        bits |= left > 1 ? (uint32_t)in[at + 1] << 8 : 0;
        bits |= left > 2 ? in[at + 2] : 0;
        const char group[4] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63],
                               (char)(left > 1 ? alphabet[bits >> 6 & 63] : '='),
                               (char)(left > 2 ? alphabet[bits & 63] : '=')};
        files_json_raw(json, group, sizeof group);
    }
    put(json, "\"");
}

/* Keys are ours, and plain. */
static void put_key(struct files_json *json, const char *key, const char *suffix)
{
    if (json->follow)
        put(json, ",");
    json->follow = true;
    if (!key)
        return;
    put(json, "\"");
    put(json, key);
    put(json, suffix);
    put(json, "\":");
}

void files_json_open(struct files_json *json, const char *key, char bracket)
{
    put_key(json, key, "");
    files_json_raw(json, &bracket, 1);
    json->follow = false;
}

void files_json_close(struct files_json *json, char bracket)
{
    files_json_raw(json, &bracket, 1);
    json->follow = true;
}

void files_json_bytes(struct files_json *json, const char *key, const char *bytes, size_t length)
{
    put_key(json, key, "");
    put_escaped(json, bytes, length);
}

void files_json_text(struct files_json *json, const char *key, const char *text)
{
    files_json_bytes(json, key, text, strlen(text));
}

void files_json_name(struct files_json *json, const char *key, const char *bytes, size_t length)
{
    bool valid = files_utf8_valid(bytes, length);
    put_key(json, key, valid ? "" : "_base64");
    if (valid)
        put_escaped(json, bytes, length);
    else
        put_base64(json, bytes, length);
}

void files_json_number(struct files_json *json, const char *key, int64_t value)
{
    char text[24];
    put_key(json, key, "");
    snprintf(text, sizeof text, "%" PRId64, value);
    put(json, text);
}

void files_json_bool(struct files_json *json, const char *key, bool value)
{
    put_key(json, key, "");
    put(json, value ? "true" : "false");
}

void files_json_null(struct files_json *json, const char *key)
{
    put_key(json, key, "");
    put(json, "null");
}
