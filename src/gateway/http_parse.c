/*
 * The parser.
 *
 * Theory of operation. The head is collected line by line in one buffer. A line that is complete is checked at once and
 * written over in place in a shorter form ("name: value\r\n" becomes "name\0value\0"), so that the buffer never moves
 * under a pointer that somebody keeps: pointers are made when the head is complete, by walking the strings. The body is
 * not kept: its pieces are handed on where they lie.
 *
 * What always holds: each decision depends on the bytes up to it and on nothing else, so the cut of the input cannot
 * change an answer; an error sticks; the head never grows past header_bytes.
 */
#include "gateway/http_parse.h"
#include "gateway/http_url.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum state {
    IN_REQUEST_LINE,
    IN_HEADER,
    BEFORE_BODY, /* of a known length, which is not checked yet: the limit may depend on what was asked for */
    IN_BODY,
    IN_CHUNK_SIZE,
    IN_CHUNK_EXTENSION,
    IN_CHUNK_SIZE_LF,
    IN_CHUNK_DATA,
    IN_CHUNK_CR,
    IN_CHUNK_LF,
    IN_LAST_CR, /* of the empty line that ends the chunks */
    IN_LAST_LF,
    AT_END,
    BROKEN,
};

static const struct {
    const char *name;
    enum http_method method;
} METHODS[] = {
    {"GET", HTTP_GET}, {"HEAD", HTTP_HEAD},     {"POST", HTTP_POST},
    {"PUT", HTTP_PUT}, {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS},
};

/* Where a second one would leave it open which of the two counts. */
static const char *const SINGLE[] = {
    "authorization", "content-encoding", "content-length", "content-type",      "expect",
    "host",          "last-event-id",    "origin",         "transfer-encoding", "x-api-key",
};

void http_parser_init(struct http_parser *parser, const struct http_limits *limits)
{
    *parser = (struct http_parser){
        .header_bytes = limits->header_bytes,
        .header_count = limits->header_count,
        .body_bytes = limits->body_bytes,
        .head = HC_BUF_INIT(limits->header_bytes),
    };
}

void http_parser_release(struct http_parser *parser)
{
    hc_buf_release(&parser->head);
    free(parser->path);
    free(parser->headers);
    parser->path = NULL;
    parser->headers = NULL;
}

static enum http_parse_event fail(struct http_parser *parser, int status, const char *why)
{
    parser->status = status;
    parser->why = why;
    parser->state = BROKEN;
    return HTTP_PARSE_ERROR;
}

static bool is_token_character(char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

bool http_is_token(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!is_token_character(text[i]))
            return false;
    return length > 0;
}

/* ---- the request line ---- */

/* "HTTP/1.1" and "HTTP/1.0"; other numbers are a 505. */
static enum http_parse_event read_version(struct http_parser *parser, const char *text)
{
    bool shaped = strlen(text) == 8 && strncmp(text, "HTTP/", 5) == 0 && text[5] >= '0' && text[5] <= '9' &&
                  text[6] == '.' && text[7] >= '0' && text[7] <= '9';
    if (!shaped)
        return fail(parser, 400, "the request line does not end with an HTTP version");
    if (text[5] != '1' || text[7] > '1')
        return fail(parser, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    parser->minor = (unsigned)(text[7] - '0');
    parser->keep_alive = parser->minor == 1;
    return HTTP_PARSE_MORE;
}

static enum http_parse_event read_method(struct http_parser *parser, const char *text, size_t length)
{
    if (!http_is_token(text, length))
        return fail(parser, 400, "the method is not a token");
    if (length >= sizeof parser->method_name)
        return fail(parser, 501, "the method is not known");
    memcpy(parser->method_name, text, length);
    parser->method_name[length] = '\0';
    parser->method = HTTP_OTHER;
    for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++)
        if (strcmp(METHODS[i].name, parser->method_name) == 0)
            parser->method = METHODS[i].method;
    return HTTP_PARSE_MORE;
}

static enum http_parse_event read_target(struct http_parser *parser, const char *target)
{
    size_t length = strlen(target);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)target[i] <= 0x20 || (unsigned char)target[i] >= 0x7F || target[i] == '#')
            return fail(parser, 400, "the target has a character that must be percent-encoded");
    size_t path_length = strcspn(target, "?");
    parser->path = malloc(path_length + 1);
    if (parser->path == NULL)
        return fail(parser, 503, "there is no memory for the request");
    const char *why = http_path_decode(target, path_length, parser->path);
    return why == NULL ? HTTP_PARSE_MORE : fail(parser, 400, why);
}

static enum http_parse_event read_request_line(struct http_parser *parser, char *line)
{
    char *first = strchr(line, ' ');
    char *last = strrchr(line, ' ');
    if (first == NULL || first == last || memchr(first + 1, ' ', (size_t)(last - first - 1)) != NULL)
        return fail(parser, 400, "the request line is not a method, a target and a version with one space between");
    *last = '\0';
    if (read_version(parser, last + 1) == HTTP_PARSE_ERROR)
        return HTTP_PARSE_ERROR;
    if (read_method(parser, line, (size_t)(first - line)) == HTTP_PARSE_ERROR)
        return HTTP_PARSE_ERROR;
    if (read_target(parser, first + 1) == HTTP_PARSE_ERROR)
        return HTTP_PARSE_ERROR;
    size_t length = (size_t)(last - first); /* with its NUL */
    memmove(line, first + 1, length);
    parser->line += length;
    parser->state = IN_HEADER;
    return HTTP_PARSE_MORE;
}

/* ---- headers ---- */

static const char *find(const struct http_parser *parser, const char *name, size_t *count)
{
    const char *found = NULL;
    *count = 0;
    for (size_t i = 0; i < parser->names; i++)
        if (strcmp(parser->headers[i].name, name) == 0 && (*count)++ == 0)
            found = parser->headers[i].value;
    return found;
}

static enum http_parse_event read_header(struct http_parser *parser, char *line, size_t length)
{
    if (line[0] == ' ' || line[0] == '\t')
        return fail(parser, 400, "a header goes on in a second line");
    char *colon = memchr(line, ':', length);
    if (colon == NULL || !http_is_token(line, (size_t)(colon - line)))
        return fail(parser, 400, "a line of the headers is not a name, a colon and a value");
    if (parser->names == parser->header_count)
        return fail(parser, 431, "there are too many headers");
    parser->names++;
    for (char *c = line; c < colon; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    char *value = colon + 1, *end = line + length;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *colon = '\0';
    memmove(colon + 1, value, (size_t)(end - value));
    colon[1 + (end - value)] = '\0';
    parser->line += (size_t)(colon - line) + 1 + (size_t)(end - value) + 1;
    return HTTP_PARSE_MORE;
}

/* The strings of `head`, as pointers. */
static enum http_parse_event index_headers(struct http_parser *parser)
{
    parser->headers = calloc(parser->names > 0 ? parser->names : 1, sizeof *parser->headers);
    if (parser->headers == NULL)
        return fail(parser, 503, "there is no memory for the request");
    char *text = parser->head.data + strlen(parser->head.data) + 1;
    for (size_t i = 0; i < parser->names; i++) {
        parser->headers[i].name = text;
        text += strlen(text) + 1;
        parser->headers[i].value = text;
        text += strlen(text) + 1;
    }
    for (size_t i = 0; i < sizeof SINGLE / sizeof SINGLE[0]; i++) {
        size_t count;
        find(parser, SINGLE[i], &count);
        if (count > 1)
            return fail(parser, 400, "a header that may be there once is there twice");
    }
    return HTTP_PARSE_MORE;
}

static enum http_parse_event check_host(struct http_parser *parser)
{
    size_t count;
    const char *host = find(parser, "host", &count);
    if (host == NULL)
        return parser->minor == 0 ? HTTP_PARSE_MORE : fail(parser, 400, "there is no Host header");
    if (host[0] == '\0')
        return fail(parser, 400, "the Host header is empty");
    for (const char *c = host; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7F || strchr("/?#@\\,\"<>", *c) != NULL)
            return fail(parser, 400, "the Host header is not a host and a port");
    return HTTP_PARSE_MORE;
}

/* Only digits, no leading zero: some read that as octal. A number past 64 bits stands for one that is too large. */
static enum http_parse_event read_length(struct http_parser *parser, const char *text)
{
    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0') || text[strspn(text, "0123456789")] != '\0')
        return fail(parser, 400, "Content-Length is not a plain number");
    uint64_t length = 0;
    for (const char *c = text; *c != '\0'; c++)
        if (__builtin_mul_overflow(length, 10, &length) ||
            __builtin_add_overflow(length, (uint64_t)(*c - '0'), &length)) {
            length = UINT64_MAX;
            break;
        }
    parser->remaining = length;
    parser->has_body = length > 0;
    return HTTP_PARSE_MORE;
}

static enum http_parse_event read_framing(struct http_parser *parser)
{
    size_t count;
    const char *length = find(parser, "content-length", &count);
    const char *coding = find(parser, "transfer-encoding", &count);
    if (length != NULL && coding != NULL)
        return fail(parser, 400, "there is both a Content-Length and a Transfer-Encoding");
    if (length != NULL)
        return read_length(parser, length);
    if (coding == NULL)
        return HTTP_PARSE_MORE;
    if (parser->minor == 0)
        return fail(parser, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (strcasecmp(coding, "chunked") != 0)
        return fail(parser, 400, "the only Transfer-Encoding taken is chunked");
    parser->chunked = parser->has_body = true;
    return HTTP_PARSE_MORE;
}

bool http_list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (*list != '\0') {
        list += strspn(list, " \t,");
        size_t item = strcspn(list, ",");
        size_t trimmed = item;
        while (trimmed > 0 && (list[trimmed - 1] == ' ' || list[trimmed - 1] == '\t'))
            trimmed--;
        if (trimmed == length && strncasecmp(list, word, length) == 0)
            return true;
        list += item;
    }
    return false;
}

static enum http_parse_event read_connection(struct http_parser *parser)
{
    bool close = false, keep = false;
    for (size_t i = 0; i < parser->names; i++) {
        if (strcmp(parser->headers[i].name, "connection") != 0)
            continue;
        close = close || http_list_has(parser->headers[i].value, "close");
        keep = keep || http_list_has(parser->headers[i].value, "keep-alive");
    }
    parser->keep_alive = !close && (parser->minor == 1 || keep);
    size_t count;
    const char *expect = find(parser, "expect", &count);
    if (expect == NULL || parser->minor == 0)
        return HTTP_PARSE_MORE;
    if (strcasecmp(expect, "100-continue") != 0)
        return fail(parser, 417, "the only expectation known is 100-continue");
    parser->expects_continue = true;
    return HTTP_PARSE_MORE;
}

static enum http_parse_event end_head(struct http_parser *parser)
{
    if (index_headers(parser) == HTTP_PARSE_ERROR || check_host(parser) == HTTP_PARSE_ERROR ||
        read_framing(parser) == HTTP_PARSE_ERROR || read_connection(parser) == HTTP_PARSE_ERROR)
        return HTTP_PARSE_ERROR;
    parser->state = parser->chunked ? IN_CHUNK_SIZE : parser->has_body ? BEFORE_BODY : AT_END;
    return HTTP_PARSE_HEAD;
}

static enum http_parse_event end_line(struct http_parser *parser)
{
    struct hc_buf *head = &parser->head;
    head->length--; /* its '\r' */
    head->data[head->length] = '\0';
    char *line = head->data + parser->line;
    size_t length = head->length - parser->line;
    enum http_parse_event event;
    if (parser->state == IN_REQUEST_LINE)
        event = read_request_line(parser, line);
    else if (length > 0)
        event = read_header(parser, line, length);
    else
        event = end_head(parser);
    head->length = parser->line;
    head->data[head->length] = '\0';
    return event;
}

/* How many of the bytes are text of a line. */
static size_t plain_run(const char *data, size_t length)
{
    size_t run = 0;
    while (run < length && (((unsigned char)data[run] >= 0x20 && data[run] != 0x7F) || data[run] == '\t'))
        run++;
    return run;
}

static enum http_parse_event parse_head(struct http_parser *parser, const char *data, size_t length, size_t *used)
{
    struct hc_buf *head = &parser->head;
    while (*used < length) {
        if (parser->head_seen == parser->header_bytes)
            return fail(parser, 431, "the request line and headers are too long");
        bool after_cr = head->length > parser->line && head->data[head->length - 1] == '\r';
        char next = data[*used];
        if (after_cr != (next == '\n'))
            return fail(parser, 400, "a line does not end with a carriage return and a line feed");
        size_t left = length - *used, room = parser->header_bytes - parser->head_seen;
        size_t run = next == '\r' || next == '\n' ? 1 : plain_run(data + *used, left < room ? left : room);
        if (run == 0)
            return fail(parser, 400, "there is a control character in the head");
        if (!after_cr && hc_buf_add(head, data + *used, run) != 0)
            return fail(parser, 503, "there is no memory for the request");
        parser->head_seen += run;
        *used += run;
        enum http_parse_event event = after_cr ? end_line(parser) : HTTP_PARSE_MORE;
        if (event != HTTP_PARSE_MORE)
            return event;
    }
    return HTTP_PARSE_MORE;
}

/* ---- the body ---- */

static enum http_parse_event check_length(struct http_parser *parser)
{
    if (parser->remaining > parser->body_bytes || parser->remaining == UINT64_MAX)
        return fail(parser, 413, "the body is larger than this server takes");
    parser->state = IN_BODY;
    return HTTP_PARSE_MORE;
}

static enum http_parse_event chunk_size(struct http_parser *parser, char c)
{
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
    if (digit >= 0) {
        if (parser->digits++ == HTTP_CHUNK_DIGITS)
            return fail(parser, 400, "the size of a chunk has too many digits");
        parser->remaining = parser->remaining * 16 + (uint64_t)digit;
        return HTTP_PARSE_MORE;
    }
    if (parser->digits == 0 || (c != '\r' && c != ';'))
        return fail(parser, 400, "the size of a chunk is not a hexadecimal number");
    parser->state = c == ';' ? IN_CHUNK_EXTENSION : IN_CHUNK_SIZE_LF;
    return HTTP_PARSE_MORE;
}

static enum http_parse_event chunk_extension(struct http_parser *parser, char c)
{
    if (c == '\r') {
        parser->state = IN_CHUNK_SIZE_LF;
        return HTTP_PARSE_MORE;
    }
    if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7F)
        return fail(parser, 400, "there is a control character in a chunk extension");
    if (parser->extensions++ == HTTP_CHUNK_EXTENSIONS)
        return fail(parser, 400, "there are too many chunk extensions");
    return HTTP_PARSE_MORE;
}

static enum http_parse_event begin_chunk(struct http_parser *parser)
{
    if (parser->remaining > parser->body_bytes - parser->body_seen)
        return fail(parser, 413, "the body is larger than this server takes");
    parser->body_seen += parser->remaining;
    parser->digits = 0;
    parser->state = parser->remaining > 0 ? IN_CHUNK_DATA : IN_LAST_CR;
    return HTTP_PARSE_MORE;
}

/* One byte of what is around the chunks' data. */
static enum http_parse_event chunk_byte(struct http_parser *parser, char c)
{
    switch ((enum state)parser->state) {
    case IN_CHUNK_SIZE:
        return chunk_size(parser, c);
    case IN_CHUNK_EXTENSION:
        return chunk_extension(parser, c);
    case IN_CHUNK_SIZE_LF:
        return c == '\n' ? begin_chunk(parser) : fail(parser, 400, "the size of a chunk does not end its line");
    case IN_CHUNK_CR:
    case IN_CHUNK_LF:
        if (c != (parser->state == IN_CHUNK_CR ? '\r' : '\n'))
            return fail(parser, 400, "a chunk is longer than its size");
        parser->state = parser->state == IN_CHUNK_CR ? IN_CHUNK_LF : IN_CHUNK_SIZE;
        return HTTP_PARSE_MORE;
    case IN_LAST_CR:
    case IN_LAST_LF:
        if (c != (parser->state == IN_LAST_CR ? '\r' : '\n'))
            return fail(parser, 400, "there is something after the last chunk; trailers are not taken");
        parser->state = parser->state == IN_LAST_CR ? IN_LAST_LF : AT_END;
        return HTTP_PARSE_MORE;
    default:
        return fail(parser, 500, "the parser is in no state"); /* not reached: http_parse sends nothing else here */
    }
}

enum http_parse_event http_parse(struct http_parser *parser, const char *data, size_t length, size_t *used,
                                 const char **piece, size_t *piece_length)
{
    *used = 0;
    *piece = NULL;
    *piece_length = 0;
    if (parser->state == IN_REQUEST_LINE || parser->state == IN_HEADER)
        return parse_head(parser, data, length, used);
    if (parser->state == BEFORE_BODY)
        check_length(parser);
    while (parser->state != AT_END && parser->state != BROKEN && *used < length) {
        if (parser->state != IN_BODY && parser->state != IN_CHUNK_DATA) {
            chunk_byte(parser, data[(*used)++]);
            continue;
        }
        size_t left = length - *used;
        *piece = data + *used;
        *piece_length = left < parser->remaining ? left : (size_t)parser->remaining;
        *used += *piece_length;
        parser->remaining -= *piece_length;
        if (parser->remaining == 0)
            parser->state = parser->state == IN_BODY ? AT_END : IN_CHUNK_CR;
        return HTTP_PARSE_BODY;
    }
    return parser->state == AT_END ? HTTP_PARSE_END : parser->state == BROKEN ? HTTP_PARSE_ERROR : HTTP_PARSE_MORE;
}

bool http_header_has(const struct http_request *request, const char *name, const char *word)
{
    for (size_t i = 0; i < request->header_count; i++)
        if (strcmp(request->headers[i].name, name) == 0 && http_list_has(request->headers[i].value, word))
            return true;
    return false;
}

void http_parse_request(const struct http_parser *parser, struct http_request *request)
{
    request->method = parser->method;
    memcpy(request->method_name, parser->method_name, sizeof request->method_name);
    request->target = parser->head.data;
    request->path = parser->path;
    size_t path_length = strcspn(request->target, "?");
    request->query = request->target + path_length + (request->target[path_length] == '?');
    request->headers = parser->headers;
    request->header_count = parser->names;
    request->body_expected = parser->chunked ? HTTP_LENGTH_UNKNOWN : parser->remaining;
}
