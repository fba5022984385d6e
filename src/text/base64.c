/* Base64, both ways. What is decoded came from outside: one byte string has exactly one accepted encoding. */
#include "text/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *hc_base64_encode(const void *data, size_t length, size_t *out_length)
{
    const unsigned char *in = data;

    if (length > SIZE_MAX / 4 * 3 - 8)
        return NULL;
    size_t size = (length + 2) / 3 * 4;
    char *text = malloc(size + 1);
    if (!text)
        return NULL;
    char *out = text;
    for (size_t at = 0; at < length; at += 3) {
        size_t left = length - at;
        uint32_t bits = (uint32_t)in[at] << 16;
        bits |= left > 1 ? (uint32_t)in[at + 1] << 8 : 0;
        bits |= left > 2 ? in[at + 2] : 0;
        *out++ = alphabet[bits >> 18];
        *out++ = alphabet[bits >> 12 & 63];
        *out++ = left > 1 ? alphabet[bits >> 6 & 63] : '=';
        *out++ = left > 2 ? alphabet[bits & 63] : '=';
    }
    *out = '\0';
    if (out_length)
        *out_length = size;
    return text;
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* One group of four characters with `padding` of them '='. The bits that padding leaves over must be 0. */
static int decode_group(const char *text, size_t padding, char *out)
{
    uint32_t bits = 0;

    for (size_t i = 0; i < 4; i++) {
        int value = i < 4 - padding ? value_of(text[i]) : 0;
        if (value < 0)
            return -EINVAL;
        bits = bits << 6 | (uint32_t)value;
    }
    if ((padding == 1 && bits & 0xff) || (padding == 2 && bits & 0xffff))
        return -EINVAL;
    for (size_t i = 0; i < 3 - padding; i++)
        out[i] = (char)(bits >> (16 - 8 * i));
    return 0;
}

int hc_base64_decode(const char *text, size_t length, char **data, size_t *out_length)
{
    if (length % 4 != 0)
        return -EINVAL;
    size_t padding = length == 0 || text[length - 1] != '=' ? 0 : text[length - 2] != '=' ? 1 : 2;
    size_t size = length / 4 * 3 - padding;
    char *out = malloc(size + 1);
    if (!out)
        return -ENOMEM;
    for (size_t group = 0; group < length / 4; group++) {
        size_t pad = group == length / 4 - 1 ? padding : 0;
        if (decode_group(text + group * 4, pad, out + group * 3) < 0) {
            free(out);
            return -EINVAL;
        }
    }
    out[size] = '\0';
    *data = out;
    *out_length = size;
    return 0;
}
