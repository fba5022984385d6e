/*
 * The growing byte buffer. What always holds: length <= ceiling; data is NULL or holds length bytes and a NUL after
 * them (capacity counts that NUL); once status is set, the content no longer changes until hc_buf_reset.
 */
#include "base/buf.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

void hc_buf_release(struct hc_buf *buf)
{
    free(buf->data);
    *buf = HC_BUF_INIT(buf->ceiling);
}

/* Makes room for `extra` more bytes and the NUL. */
static int reserve(struct hc_buf *buf, size_t extra)
{
    if (buf->status != 0)
        return buf->status;
    if (extra > buf->ceiling - buf->length || buf->length + extra == SIZE_MAX)
        return buf->status = -EFBIG;
    size_t needed = buf->length + extra + 1;
    if (needed <= buf->capacity)
        return 0;
    size_t capacity = buf->capacity < FIRST_CAPACITY ? FIRST_CAPACITY : buf->capacity;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
    /* Never hold more than the ceiling asks for: the ceiling is the caller's memory budget. */
    if (buf->ceiling < SIZE_MAX && capacity > buf->ceiling + 1)
        capacity = buf->ceiling + 1;
    char *data = realloc(buf->data, capacity);
    if (data == NULL)
        return buf->status = -ENOMEM;
    buf->data = data;
    buf->capacity = capacity;
    buf->data[buf->length] = '\0';
    return 0;
}

int hc_buf_room(struct hc_buf *buf, size_t extra)
{
    return reserve(buf, extra);
}

int hc_buf_add(struct hc_buf *buf, const void *data, size_t length)
{
    bool fits = buf->status == 0 && length < buf->capacity - buf->length; /* below the ceiling, as the capacity is */
    int status = fits ? 0 : reserve(buf, length);
    if (status != 0)
        return status;
    if (length > 0)
        memcpy(buf->data + buf->length, data, length);
    buf->length += length;
    buf->data[buf->length] = '\0';
    return 0;
}

int hc_buf_add_str(struct hc_buf *buf, const char *text)
{
    return hc_buf_add(buf, text, strlen(text));
}

int hc_buf_printf(struct hc_buf *buf, const char *format, ...)
{
    if (buf->status != 0)
        return buf->status;
    va_list arguments;
    size_t room = buf->capacity - buf->length;
    va_start(arguments, format);
    int length = vsnprintf(room > 0 ? buf->data + buf->length : NULL, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < room) {
        buf->length += (size_t)length;
        return 0;
    }
    if (room > 0)
        buf->data[buf->length] = '\0';
    if (length < 0)
        return buf->status = -ENOMEM;
    int status = reserve(buf, (size_t)length);
    if (status != 0)
        return status;
    va_start(arguments, format);
    vsnprintf(buf->data + buf->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buf->length += (size_t)length;
    return 0;
}

void hc_buf_reset(struct hc_buf *buf)
{
    buf->length = 0;
    buf->status = 0;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

char *hc_buf_take(struct hc_buf *buf, size_t *length)
{
    if (reserve(buf, 0) != 0) {
        hc_buf_release(buf);
        return NULL;
    }
    char *data = buf->data;
    if (length != NULL)
        *length = buf->length;
    buf->data = NULL;
    hc_buf_release(buf);
    return data;
}

int hc_buf_status(const struct hc_buf *buf)
{
    return buf->status;
}
