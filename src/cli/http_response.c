/*
 * See http_response.h. What always holds: no more than HTTP_HEAD_MAX bytes are kept besides the body, and how the bytes
 * were cut into pieces changes nothing of what is read.
 */
#include "cli/http_response.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { CHUNK_LINE_MAX = 256 };

void http_response_start(struct http_response *response)
{
    *response = (struct http_response){.line = HC_BUF_INIT(HTTP_HEAD_MAX)};
}

void http_response_release(struct http_response *response)
{
    hc_buf_release(&response->line);
}

/* ---- the head ---- */

/* "HTTP/1.1 200 OK"; the reason may be empty. */
static int parse_status_line(struct http_response *response, const char *line)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return -EPROTO;
    line += 9;
    for (int i = 0; i < 3; i++)
        if (!isdigit((unsigned char)line[i]))
            return -EPROTO;
    if (line[3] != ' ' && line[3] != '\0')
        return -EPROTO;
    response->status = (line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0');
    return response->status >= 100 && response->status < 600 ? 0 : -EPROTO;
}

/* Digits alone, no more than fit. */
static int parse_number(const char *text, unsigned base, uint64_t *value)
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

static int take_header(struct http_response *response, const char *name, const char *value)
{
    uint64_t number = 0;

    if (strcasecmp(name, "content-length") == 0) {
        if (response->has_length || parse_number(value, 10, &number) < 0)
            return -EPROTO;
        response->has_length = true;
        response->left = number;
    } else if (strcasecmp(name, "transfer-encoding") == 0) {
        if (response->chunked || strcasecmp(value, "chunked") != 0)
            return -EPROTO;
        response->chunked = true;
    } else if (strcasecmp(name, "content-type") == 0) {
        size_t length = strcspn(value, "; \t");
        snprintf(response->content_type, sizeof response->content_type, "%.*s", (int)length, value);
        for (char *at = response->content_type; *at; at++)
            *at = (char)tolower((unsigned char)*at);
    } else if (strcasecmp(name, "mcp-session-id") == 0 && strlen(value) < sizeof response->session) {
        memcpy(response->session, value, strlen(value) + 1);
    } else if (strcasecmp(name, "retry-after") == 0 && parse_number(value, 10, &number) == 0) {
        response->retry_after = number < 86400 ? (unsigned)number : 86400;
    }
    return 0;
}

/* "Name: value", changed in place. */
static int parse_header(struct http_response *response, char *line)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = strspn(line, token);

    if (length == 0 || line[length] != ':')
        return -EPROTO;
    line[length] = '\0';
    char *value = line + length + 1;
    value += strspn(value, " \t");
    for (char *end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t'); end--)
        end[-1] = '\0';
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at < 0x20 && *at != '\t')
            return -EPROTO;
    return take_header(response, line, value);
}

static void begin_body(struct http_response *response)
{
    bool none = response->status == 204 || response->status == 304 || (response->has_length && response->left == 0);

    if (response->chunked)
        response->state = RESPONSE_CHUNK_SIZE;
    else if (none)
        response->state = RESPONSE_DONE;
    else
        response->state = response->has_length ? RESPONSE_LENGTH : RESPONSE_UNTIL_CLOSE;
}

/* The head is in `line`, whole. */
static int parse_head(struct http_response *response)
{
    char *at = response->line.data;
    bool first = true;

    if (strlen(at) != response->line.length)
        return -EPROTO; /* a NUL */
    while (strcmp(at, "\r\n") != 0) {
        char *end = strstr(at, "\r\n");
        *end = '\0';
        if (strpbrk(at, "\r\n"))
            return -EPROTO;
        int status = first ? parse_status_line(response, at) : parse_header(response, at);
        if (status < 0)
            return status;
        first = false;
        at = end + 2;
    }
    if (first || (response->has_length && response->chunked))
        return -EPROTO;
    hc_buf_reset(&response->line);
    if (response->status >= 200) {
        begin_body(response);
        return 0;
    }
    if (response->has_length || response->chunked || response->status == 101)
        return -EPROTO;
    response->status = 0; /* 100 and its like: another head follows */
    return 0;
}

/* Bytes up to and with the one that ends the head; how many were taken, or -errno. */
static ssize_t feed_head(struct http_response *response, const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (hc_buf_add(&response->line, data + i, 1) < 0)
            return response->line.status == -EFBIG ? -EPROTO : response->line.status;
        const struct hc_buf *line = &response->line;
        if (data[i] != '\n' || line->length < 4 || memcmp(line->data + line->length - 4, "\r\n\r\n", 4) != 0)
            continue;
        int status = parse_head(response);
        return status < 0 ? status : (ssize_t)i + 1;
    }
    return (ssize_t)length;
}

/* ---- the body ---- */

/* One line of a chunked body into `line`, without its end. 1: it is whole; 0: more is needed. */
static int feed_line(struct http_response *response, const char *data, size_t length, size_t *taken)
{
    struct hc_buf *line = &response->line;

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

static int take_chunk_line(struct http_response *response)
{
    char *line = response->line.data ? response->line.data : "";

    switch (response->state) {
    case RESPONSE_CHUNK_SIZE:
        if (strchr(line, ';')) /* an extension, which says nothing to us */
            *strchr(line, ';') = '\0';
        if (parse_number(line, 16, &response->left) < 0)
            return -EPROTO;
        response->state = response->left > 0 ? RESPONSE_CHUNK_DATA : RESPONSE_TRAILERS;
        break;
    case RESPONSE_CHUNK_END:
        if (line[0] != '\0')
            return -EPROTO;
        response->state = RESPONSE_CHUNK_SIZE;
        break;
    default: /* RESPONSE_TRAILERS */
        response->trailers += strlen(line);
        if (response->trailers > HTTP_HEAD_MAX)
            return -EPROTO;
        if (line[0] == '\0')
            response->state = RESPONSE_DONE;
        break;
    }
    hc_buf_reset(&response->line);
    return 0;
}

static ssize_t feed_data(struct http_response *response, const char *data, size_t length, struct hc_buf *body)
{
    bool bounded = response->state != RESPONSE_UNTIL_CLOSE;
    size_t count = bounded && length > response->left ? (size_t)response->left : length;

    if (hc_buf_add(body, data, count) < 0)
        return hc_buf_status(body);
    if (bounded)
        response->left -= count;
    if (bounded && response->left == 0)
        response->state = response->state == RESPONSE_CHUNK_DATA ? RESPONSE_CHUNK_END : RESPONSE_DONE;
    return (ssize_t)count;
}

static ssize_t feed_some(struct http_response *response, const char *data, size_t length, struct hc_buf *body)
{
    size_t taken = 0;
    int whole;

    switch (response->state) {
    case RESPONSE_HEAD:
        return feed_head(response, data, length);
    case RESPONSE_LENGTH:
    case RESPONSE_UNTIL_CLOSE:
    case RESPONSE_CHUNK_DATA:
        return feed_data(response, data, length, body);
    case RESPONSE_CHUNK_SIZE:
    case RESPONSE_CHUNK_END:
    case RESPONSE_TRAILERS:
        whole = feed_line(response, data, length, &taken);
        if (whole > 0)
            whole = take_chunk_line(response);
        return whole < 0 ? whole : (ssize_t)taken;
    case RESPONSE_DONE:
        break;
    }
    return -EPROTO;
}

int http_response_feed(struct http_response *response, const char *data, size_t length, struct hc_buf *body)
{
    while (length > 0) {
        ssize_t taken = feed_some(response, data, length, body);
        if (taken < 0)
            return (int)taken;
        data += taken;
        length -= (size_t)taken;
    }
    return 0;
}

int http_response_end(struct http_response *response)
{
    if (response->state == RESPONSE_UNTIL_CLOSE)
        response->state = RESPONSE_DONE;
    return response->state == RESPONSE_DONE ? 0 : -ECONNRESET;
}
