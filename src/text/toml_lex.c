/*
 * TOML's characters. toml_check_text() runs over the document once, before anything else, and refuses bad UTF-8 and
 * every control character but tab and newline: no context of TOML 1.0 allows one. So whatever the rest of the parser
 * looks at is well-formed text, and a carriage return is always followed by a line feed.
 */
#include "base/buf.h"
#include "text/toml_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Errors happen once, so the position is worked out only then. Columns count characters, not bytes. */
int toml_fail(struct toml_parser *parser, const char *at, const char *format, ...)
{
    int line = 1, column = 1;
    for (const char *p = parser->text; p < at; p++) {
        if (*p == '\n') {
            line++;
            column = 1;
        } else if ((*p & 0xC0) != 0x80) {
            column++;
        }
    }
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return hc_fail(parser->err, HC_CLASS_REQUEST, EINVAL, "%s:%d:%d: %s", parser->name, line, column, message);
}

int toml_no_memory(struct toml_parser *parser)
{
    return hc_fail(parser->err, HC_CLASS_OURS, ENOMEM, "%s: out of memory", parser->name);
}

static size_t utf8_length(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

int toml_fail_expected(struct toml_parser *parser, const char *expected)
{
    const char *at = parser->at;
    if (at == parser->end)
        return toml_fail(parser, at, "expected %s, found the end of the file", expected);
    if (*at == '\n' || *at == '\r')
        return toml_fail(parser, at, "expected %s, found the end of the line", expected);
    if (*at == '#')
        return toml_fail(parser, at, "expected %s, found a comment", expected);
    return toml_fail(parser, at, "expected %s, found '%.*s'", expected, (int)utf8_length((unsigned char)*at), at);
}

int toml_line_here(struct toml_parser *parser)
{
    for (; parser->mark < parser->at; parser->mark++)
        parser->line_at_mark += *parser->mark == '\n';
    return parser->line_at_mark;
}

/* The length of the well-formed UTF-8 sequence at p (RFC 3629: shortest form, no surrogates, up to U+10FFFF), or 0. */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    size_t length = utf8_length(p[0]);
    if (length > left)
        return 0;
    unsigned low = 0x80, high = 0xBF;
    if (p[0] == 0xE0)
        low = 0xA0;
    else if (p[0] == 0xED)
        high = 0x9F;
    else if (p[0] == 0xF0)
        low = 0x90;
    else if (p[0] == 0xF4)
        high = 0x8F;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

int toml_check_text(struct toml_parser *parser)
{
    for (const char *p = parser->text; p < parser->end;) {
        unsigned char c = (unsigned char)*p;
        if (c == '\r' && (p + 1 == parser->end || p[1] != '\n'))
            return toml_fail(parser, p, "a carriage return must be followed by a line feed");
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F)
            return toml_fail(parser, p, "control character 0x%02X is not allowed; write it as \"\\u%04X\" in a string",
                             c, c);
        size_t length = utf8_sequence((const unsigned char *)p, (size_t)(parser->end - p));
        if (!length)
            return toml_fail(parser, p, "byte 0x%02X is not valid UTF-8", c);
        p += length;
    }
    return 0;
}

bool toml_at_end(const struct toml_parser *parser)
{
    return parser->at == parser->end;
}

bool toml_accept(struct toml_parser *parser, char wanted)
{
    if (toml_at_end(parser) || *parser->at != wanted)
        return false;
    parser->at++;
    return true;
}

void toml_skip_blanks(struct toml_parser *parser)
{
    while (!toml_at_end(parser) && (*parser->at == ' ' || *parser->at == '\t'))
        parser->at++;
}

static void skip_comment(struct toml_parser *parser)
{
    if (toml_at_end(parser) || *parser->at != '#')
        return;
    while (!toml_at_end(parser) && *parser->at != '\n' && *parser->at != '\r')
        parser->at++;
}

static bool accept_newline(struct toml_parser *parser)
{
    toml_accept(parser, '\r');
    return toml_accept(parser, '\n');
}

void toml_skip_blank_lines(struct toml_parser *parser)
{
    do {
        toml_skip_blanks(parser);
        skip_comment(parser);
    } while (accept_newline(parser));
}

int toml_end_line(struct toml_parser *parser)
{
    toml_skip_blanks(parser);
    skip_comment(parser);
    if (toml_at_end(parser) || accept_newline(parser))
        return 0;
    return toml_fail_expected(parser, "the end of the line");
}

static void add_codepoint(struct hc_buf *out, uint32_t code)
{
    char bytes[4];
    size_t length;
    if (code < 0x80) {
        bytes[0] = (char)code;
        length = 1;
    } else if (code < 0x800) {
        bytes[0] = (char)(0xC0 | code >> 6);
        length = 2;
    } else if (code < 0x10000) {
        bytes[0] = (char)(0xE0 | code >> 12);
        length = 3;
    } else {
        bytes[0] = (char)(0xF0 | code >> 18);
        length = 4;
    }
    for (size_t i = 1; i < length; i++)
        bytes[i] = (char)(0x80 | (code >> (6 * (length - 1 - i)) & 0x3F));
    hc_buf_add(out, bytes, length);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int read_unicode_escape(struct toml_parser *parser, int digits, struct hc_buf *out)
{
    const char *start = parser->at - 2;
    uint32_t code = 0;
    for (int i = 0; i < digits; i++, parser->at++) {
        int digit = toml_at_end(parser) ? -1 : hex_digit(*parser->at);
        if (digit < 0)
            return toml_fail(parser, start, "expected %d hexadecimal digits after \\%c", digits, start[1]);
        code = code << 4 | (uint32_t)digit;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return toml_fail(parser, start, "%.*s is not a Unicode scalar value", digits + 2, start);
    add_codepoint(out, code);
    return 0;
}

/* A backslash that ends its line (blanks may follow it) takes away everything up to the next character that is not
 * blank. */
static bool skip_line_continuation(struct toml_parser *parser)
{
    const char *back = parser->at;
    toml_skip_blanks(parser);
    if (!accept_newline(parser)) {
        parser->at = back;
        return false;
    }
    do
        toml_skip_blanks(parser);
    while (accept_newline(parser));
    return true;
}

/* The cursor is behind a backslash. */
static int read_escape(struct toml_parser *parser, bool multiline, struct hc_buf *out)
{
    static const char letters[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
    if (multiline && skip_line_continuation(parser))
        return 0;
    if (toml_at_end(parser) || *parser->at == '\n' || *parser->at == '\r')
        return toml_fail_expected(parser, "a character after the backslash");
    const char *known = strchr(letters, *parser->at);
    if (known) {
        parser->at++;
        hc_buf_add(out, &meanings[known - letters], 1);
        return 0;
    }
    if (toml_accept(parser, 'u'))
        return read_unicode_escape(parser, 4, out);
    if (toml_accept(parser, 'U'))
        return read_unicode_escape(parser, 8, out);
    return toml_fail(parser, parser->at - 1, "unknown escape '\\%.*s'; write \\\\ for a backslash",
                     (int)utf8_length((unsigned char)*parser->at), parser->at);
}

/* Ends a multi-line string at its three quotes; up to two more right before them belong to the text. */
static bool accept_closing_quotes(struct toml_parser *parser, char quote, struct hc_buf *out)
{
    size_t run = 0;
    while (parser->at + run < parser->end && run < 5 && parser->at[run] == quote)
        run++;
    if (run < 3)
        return false;
    hc_buf_add(out, parser->at, run - 3);
    parser->at += run;
    return true;
}

static int read_string_body(struct toml_parser *parser, const char *start, char quote, bool multiline,
                            struct hc_buf *out)
{
    for (;;) {
        if (toml_at_end(parser))
            return toml_fail(parser, start, "this string has no closing %s",
                             multiline ? (quote == '"' ? "\"\"\"" : "'''") : (quote == '"' ? "\"" : "'"));
        if (multiline ? accept_closing_quotes(parser, quote, out) : toml_accept(parser, quote))
            return 0;
        if (!multiline && (*parser->at == '\n' || *parser->at == '\r'))
            return toml_fail(parser, start, "this string has no closing %c on its line", quote);
        if (quote == '"' && toml_accept(parser, '\\')) {
            int rc = read_escape(parser, multiline, out);
            if (rc < 0)
                return rc;
            continue;
        }
        const char *run = parser->at++;
        while (!toml_at_end(parser) && *parser->at != quote && *parser->at != '\\' && *parser->at != '\n' &&
               *parser->at != '\r')
            parser->at++;
        hc_buf_add(out, run, (size_t)(parser->at - run));
    }
}

int toml_read_string(struct toml_parser *parser, bool allow_multiline, char **data, size_t *length)
{
    const char *start = parser->at;
    char quote = *parser->at++;
    bool multiline = parser->end - parser->at >= 2 && parser->at[0] == quote && parser->at[1] == quote;
    if (multiline) {
        if (!allow_multiline)
            return toml_fail(parser, start, "a key cannot be a multi-line string");
        parser->at += 2;
        accept_newline(parser);
    }
    struct hc_buf out = HC_BUF_INIT(TOML_MAX_SIZE);
    int rc = read_string_body(parser, start, quote, multiline, &out);
    if (hc_buf_status(&out) < 0)
        rc = toml_no_memory(parser);
    if (rc < 0) {
        hc_buf_release(&out);
        return rc;
    }
    char *taken = hc_buf_take(&out, length);
    if (!taken)
        return toml_no_memory(parser);
    *data = taken;
    return 0;
}

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

int toml_read_name(struct toml_parser *parser, struct toml_name *name)
{
    if (!toml_at_end(parser) && (*parser->at == '"' || *parser->at == '\''))
        return toml_read_string(parser, false, &name->data, &name->length);
    const char *start = parser->at;
    while (!toml_at_end(parser) && is_bare(*parser->at))
        parser->at++;
    if (parser->at == start)
        return toml_fail_expected(parser, "a key");
    name->length = (size_t)(parser->at - start);
    name->data = strndup(start, name->length);
    return name->data ? 0 : toml_no_memory(parser);
}

void toml_name_release(struct toml_name *name)
{
    free(name->data);
    name->data = NULL;
}
