/* See http_reader.h. The head is collected whole, then checked line by line and made into strings in place. */
#include "text/http_reader.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>

enum { CHUNK_LINE_MAX = 256 };

void http_reader_start(struct http_reader *reader)
{
    *reader = (struct http_reader){.line = HC_BUF_INIT(HTTP_HEAD_MAX)};
}

void http_reader_release(struct http_reader *reader)
{
    hc_buf_release(&reader->line);
}

/* ---- the head ---- */

/* "HTTP/1.1 200 OK"; the reason may be empty. */
static int parse_status_line(struct http_reader *reader, const char *line)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return -EPROTO;
    reader->minor = (unsigned)(line[7] - '0');
    line += 9;
    for (int i = 0; i < 3; i++)
        if (!isdigit((unsigned char)line[i]))
            return -EPROTO;
    if (line[3] != ' ' && line[3] != '\0')
        return -EPROTO;
    reader->status = (line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0');
    return reader->status >= 100 && reader->status < 600 ? 0 : -EPROTO;
}

int http_read_number(const char *text, unsigned base, uint64_t *value)
{
    uint64_t number = 0;

    if (!*text)
        return -EPROTO;
    for (; *text; text++) {
        unsigned digit = isdigit((unsigned char)*text)    ? (unsigned)(*text - '0')
                         : isxdigit((unsigned char)*text) ? (unsigned)(tolower((unsigned char)*text) - 'a') + 10
                                                          : base;
        if (digit >= base || number > (UINT64_MAX - digit) / base)
            return -EPROTO;
        number = number * base + digit;
    }
    *value = number;
    return 0;
}

/* What says where the body ends. */
static int take_framing(struct http_reader *reader, const char *name, const char *value)
{
    if (strcasecmp(name, "content-length") == 0) {
        if (reader->has_length || http_read_number(value, 10, &reader->length) < 0)
            return -EPROTO;
        reader->has_length = true;
    } else if (strcasecmp(name, "transfer-encoding") == 0) {
        if (reader->chunked || reader->minor == 0 || strcasecmp(value, "chunked") != 0)
            return -EPROTO;
        reader->chunked = true;
    }
    return 0;
}

/* "Name: value" becomes two strings at `*to`, which is not after `line`. */
static int parse_header(struct http_reader *reader, char *line, char **to)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = strspn(line, token);

    if (length == 0 || line[length] != ':')
        return -EPROTO;
    const char *value = line + length + 1;
    value += strspn(value, " \t");
    size_t value_length = strlen(value);
    while (value_length > 0 && (value[value_length - 1] == ' ' || value[value_length - 1] == '\t'))
        value_length--;
    for (size_t i = 0; i < value_length; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7F)
            return -EPROTO;
    char *name = *to;
    memmove(name, line, length);
    name[length] = '\0';
    memmove(name + length + 1, value, value_length);
    name[length + 1 + value_length] = '\0';
    *to = name + length + 1 + value_length + 1;
    return take_framing(reader, name, name + length + 1);
}

static int begin_body(struct http_reader *reader)
{
    bool none = reader->bodiless || reader->status == 204 || reader->status == 304;

    if (reader->status < 200) {
        if (reader->has_length || reader->chunked || (reader->status == 101 && !reader->upgrades))
            return -EPROTO;
        if (reader->status == 101)
            reader->state = HTTP_READER_DONE;
        return 0; /* else another head follows */
    }
    reader->left = reader->length;
    if (none || (reader->has_length && reader->length == 0))
        reader->state = HTTP_READER_DONE;
    else if (reader->chunked)
        reader->state = HTTP_READER_CHUNK_SIZE;
    else
        reader->state = reader->has_length ? HTTP_READER_BODY : HTTP_READER_UNTIL_CLOSE;
    return 0;
}

/* The head is in `line`, whole. */
static int parse_head(struct http_reader *reader)
{
    char *at = reader->line.data, *to = reader->line.data;
    bool first = true;

    if (strlen(at) != reader->line.length)
        return -EPROTO; /* a NUL */
    while (strcmp(at, "\r\n") != 0) {
        char *end = strstr(at, "\r\n");
        *end = '\0';
        if (strpbrk(at, "\r\n"))
            return -EPROTO;
        int status = first ? parse_status_line(reader, at) : parse_header(reader, at, &to);
        if (status < 0)
            return status;
        first = false;
        at = end + 2;
    }
    if (first || (reader->has_length && reader->chunked))
        return -EPROTO;
    reader->line.length = (size_t)(to - reader->line.data);
    reader->head_told = true;
    return begin_body(reader);
}

/* Bytes up to and with the one that ends the head; how many were taken, or -errno. */
static ssize_t take_head(struct http_reader *reader, const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (hc_buf_add(&reader->line, data + i, 1) < 0)
            return reader->line.status == -EFBIG ? -EPROTO : reader->line.status;
        const struct hc_buf *line = &reader->line;
        if (data[i] != '\n' || line->length < 4 || memcmp(line->data + line->length - 4, "\r\n\r\n", 4) != 0)
            continue;
        int status = parse_head(reader);
        return status < 0 ? status : (ssize_t)i + 1;
    }
    return (ssize_t)length;
}

bool http_reader_header(const struct http_reader *reader, size_t *at, const char **name, const char **value)
{
    if (*at >= reader->line.length)
        return false;
    *name = reader->line.data + *at;
    *value = *name + strlen(*name) + 1;
    *at = (size_t)(*value + strlen(*value) + 1 - reader->line.data);
    return true;
}

/* ---- the body ---- */

/* One line of a chunked body into `line`, without its end. 1: it is whole; 0: more is needed. */
static int take_line(struct http_reader *reader, const char *data, size_t length, size_t *taken)
{
    struct hc_buf *line = &reader->line;

    for (*taken = 0; *taken < length;) {
        char byte = data[(*taken)++];
        if (line->length > 0 && line->data[line->length - 1] == '\r') {
            if (byte != '\n')
                return -EPROTO;
            line->data[--line->length] = '\0';
            return 1;
        }
        if (byte == '\n' || byte == '\0' || line->length >= CHUNK_LINE_MAX)
            return -EPROTO;
        if (hc_buf_add(line, &byte, 1) < 0)
            return line->status;
    }
    return 0;
}

static int take_chunk_line(struct http_reader *reader)
{
    char *line = reader->line.data ? reader->line.data : "";

    switch (reader->state) {
    case HTTP_READER_CHUNK_SIZE:
        if (strchr(line, ';')) /* an extension, which says nothing to us */
            *strchr(line, ';') = '\0';
        if (http_read_number(line, 16, &reader->left) < 0)
            return -EPROTO;
        reader->state = reader->left > 0 ? HTTP_READER_CHUNK_DATA : HTTP_READER_TRAILERS;
        break;
    case HTTP_READER_CHUNK_END:
        if (line[0] != '\0')
            return -EPROTO;
        reader->state = HTTP_READER_CHUNK_SIZE;
        break;
    default: /* HTTP_READER_TRAILERS */
        reader->trailers += strlen(line);
        if (reader->trailers > HTTP_HEAD_MAX)
            return -EPROTO;
        if (line[0] == '\0')
            reader->state = HTTP_READER_DONE;
        break;
    }
    hc_buf_reset(&reader->line);
    return 0;
}

static size_t take_data(struct http_reader *reader, size_t length)
{
    bool bounded = reader->state != HTTP_READER_UNTIL_CLOSE;
    size_t count = bounded && length > reader->left ? (size_t)reader->left : length;

    if (bounded)
        reader->left -= count;
    if (bounded && reader->left == 0)
        reader->state = reader->state == HTTP_READER_CHUNK_DATA ? HTTP_READER_CHUNK_END : HTTP_READER_DONE;
    return count;
}

/* What a head left behind, and what belongs to the next one. */
static void drop_head(struct http_reader *reader)
{
    hc_buf_reset(&reader->line);
    reader->head_told = false;
    if (reader->state == HTTP_READER_HEAD)
        reader->status = 0;
}

int http_reader_take(struct http_reader *reader, const char *data, size_t length, size_t *used, const char **piece,
                     size_t *piece_length)
{
    *used = *piece_length = 0;
    *piece = NULL;
    if (reader->head_told)
        drop_head(reader);
    if (reader->state == HTTP_READER_DONE && length > 0 && reader->status != 101)
        return -EPROTO;
    while (reader->state != HTTP_READER_DONE && *used < length) {
        const char *at = data + *used;
        size_t left = length - *used, taken = 0;
        int status;
        switch (reader->state) {
        case HTTP_READER_HEAD: {
            ssize_t count = take_head(reader, at, left);
            if (count < 0)
                return (int)count;
            *used += (size_t)count;
            if (reader->head_told)
                return HTTP_READER_EVENT_HEAD;
            break;
        }
        case HTTP_READER_BODY:
        case HTTP_READER_UNTIL_CLOSE:
        case HTTP_READER_CHUNK_DATA:
            *piece = at;
            *piece_length = take_data(reader, left);
            *used += *piece_length;
            return HTTP_READER_EVENT_PIECE;
        default:
            status = take_line(reader, at, left, &taken);
            if (status > 0)
                status = take_chunk_line(reader);
            if (status < 0)
                return status;
            *used += taken;
            break;
        }
    }
    return reader->state == HTTP_READER_DONE ? HTTP_READER_EVENT_END : HTTP_READER_EVENT_MORE;
}

int http_reader_end(struct http_reader *reader)
{
    if (reader->state == HTTP_READER_UNTIL_CLOSE)
        reader->state = HTTP_READER_DONE;
    return reader->state == HTTP_READER_DONE ? 0 : -ECONNRESET;
}
