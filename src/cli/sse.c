/*
 * See sse.h. What always holds: how the bytes were cut into pieces changes nothing of what is read; an event is told
 * whole or not at all.
 */
#include "cli/sse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { EVENT_MAX = 512 * 1024 * 1024 }; /* a result carries the collected files */

void sse_start(struct sse *sse)
{
    *sse = (struct sse){.line = HC_BUF_INIT(EVENT_MAX), .data = HC_BUF_INIT(EVENT_MAX)};
}

void sse_release(struct sse *sse)
{
    hc_buf_release(&sse->line);
    hc_buf_release(&sse->data);
}

void sse_restart(struct sse *sse)
{
    hc_buf_reset(&sse->line);
    hc_buf_reset(&sse->data);
    sse->name[0] = '\0';
    memcpy(sse->id, sse->told, sizeof sse->id);
    sse->has_data = sse->after_cr = sse->begun = false;
}

/* A name or an id. */
static int set_word(char *word, size_t size, const char *value, size_t length)
{
    if (length >= size || memchr(value, '\0', length))
        return -EPROTO;
    memcpy(word, value, length);
    word[length] = '\0';
    return 0;
}

static int end_event(struct sse *sse, sse_fn fn, void *data)
{
    struct sse_event event = {.name = sse->name[0] ? sse->name : "message", .id = sse->id, .data = "", .length = 0};
    int status = 0;

    if (sse->data.length > 0) {
        event.data = sse->data.data;
        event.length = sse->data.length;
    }
    if (sse->has_data)
        status = fn(data, &event);
    hc_buf_reset(&sse->data);
    memcpy(sse->told, sse->id, sizeof sse->told);
    sse->has_data = false;
    sse->name[0] = '\0';
    return status;
}

static bool is_field(const char *line, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(line, name, length) == 0;
}

static int take_line(struct sse *sse, sse_fn fn, void *data)
{
    const char *line = sse->line.length > 0 ? sse->line.data : "";
    size_t length = sse->line.length;

    if (length == 0)
        return end_event(sse, fn, data);
    const char *colon = memchr(line, ':', length);
    size_t name_length = colon ? (size_t)(colon - line) : length;
    const char *value = colon ? colon + 1 : line + length;
    size_t value_length = length - (size_t)(value - line);
    if (value_length > 0 && value[0] == ' ') {
        value++;
        value_length--;
    }
    if (is_field(line, name_length, "event"))
        return set_word(sse->name, sizeof sse->name, value, value_length);
    if (is_field(line, name_length, "id"))
        return set_word(sse->id, sizeof sse->id, value, value_length);
    if (!is_field(line, name_length, "data"))
        return 0; /* a comment, retry, or what a later server may say */
    if (sse->has_data)
        hc_buf_add(&sse->data, "\n", 1);
    sse->has_data = true;
    hc_buf_add(&sse->data, value, value_length);
    return hc_buf_status(&sse->data) == -EFBIG ? -EPROTO : hc_buf_status(&sse->data);
}

/* The line is whole: without the mark that may stand before the first one. */
static int end_line(struct sse *sse, sse_fn fn, void *data)
{
    static const char mark[] = "\xef\xbb\xbf";
    struct hc_buf *line = &sse->line;

    if (!sse->begun && line->length >= 3 && memcmp(line->data, mark, 3) == 0) {
        memmove(line->data, line->data + 3, line->length - 2);
        line->length -= 3;
    }
    sse->begun = true;
    int status = take_line(sse, fn, data);
    hc_buf_reset(line);
    return status;
}

int sse_feed(struct sse *sse, const char *bytes, size_t length, sse_fn fn, void *data)
{
    const char *at = bytes, *end = bytes + length;

    while (at < end) {
        if (sse->after_cr && *at == '\n')
            at++;
        sse->after_cr = false;
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        if (hc_buf_add(&sse->line, at, (size_t)(stop - at)) < 0)
            return sse->line.status == -EFBIG ? -EPROTO : sse->line.status;
        if (stop == end)
            break;
        sse->after_cr = *stop == '\r';
        int status = end_line(sse, fn, data);
        if (status != 0)
            return status;
        at = stop + 1;
    }
    return 0;
}
