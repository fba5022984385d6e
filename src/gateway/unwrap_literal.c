/*
 * Reads a dictionary literal of Python's, as ast.literal_eval does, or an object of JSON's, for what unwrap.c needs of
 * it: keys are strings, values are strings, decimal numbers, True, False, None, and lists, tuples and dictionaries of
 * these. Strings may be raw, in triple quotes, in parentheses, and adjacent. What else Python has (bytes, f-strings,
 * sets, hexadecimal, complex) is answered with "no such literal". JSON is a part of that grammar but for three things:
 * true, false and null are taken as well, two \u that make a surrogate pair are one character, and "\/" is a slash,
 * where Python keeps an escape that it does not know and so never writes one.
 *
 * What always holds: every byte is looked at a bounded number of times; recursion ends at UNWRAP_DEPTH; a decoded
 * string is never longer than its source. Two kinds of escape stay in the string as they were written: \N{…}, for there
 * is no table of names here, and half of a surrogate pair, for UTF-8 cannot hold it. In code, both stand inside a
 * string literal, where they mean the same.
 */
#include "gateway/unwrap_literal.h"
#include "gateway/unwrap.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

struct reader {
    const char *at, *end;
    struct hc_buf text; /* the string read last */
};

enum value { VALUE_STRING, VALUE_OTHER }; /* a string's content is in reader.text */

static int peek(const struct reader *reader)
{
    return reader->at < reader->end ? (unsigned char)*reader->at : -1;
}

static int peek_second(const struct reader *reader)
{
    return reader->end - reader->at > 1 ? (unsigned char)reader->at[1] : -1;
}

static bool take(struct reader *reader, char wanted)
{
    if (peek(reader) != wanted)
        return false;
    reader->at++;
    return true;
}

static bool is_digit(int byte)
{
    return byte >= '0' && byte <= '9';
}

/* One line end: LF, CR or CRLF, which Python reads as LF wherever it stands. */
static bool take_line_end(struct reader *reader)
{
    if (take(reader, '\r')) {
        take(reader, '\n');
        return true;
    }
    return take(reader, '\n');
}

/* Between tokens inside brackets: blanks, line ends, comments, joined lines. */
static void skip_space(struct reader *reader)
{
    for (int byte = peek(reader); byte >= 0; byte = peek(reader)) {
        if (byte == '#') {
            while (peek(reader) >= 0 && peek(reader) != '\n' && peek(reader) != '\r')
                reader->at++;
        } else if (byte == '\\' && (peek_second(reader) == '\n' || peek_second(reader) == '\r')) {
            reader->at++;
            take_line_end(reader);
        } else if (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r' || byte == '\f') {
            reader->at++;
        } else {
            return;
        }
    }
}

static void add_character(struct hc_buf *text, uint32_t character)
{
    char bytes[4];
    size_t count;

    if (character < 0x80) {
        bytes[0] = (char)character;
        count = 1;
    } else if (character < 0x800) {
        bytes[0] = (char)(0xc0 | character >> 6);
        count = 2;
    } else if (character < 0x10000) {
        bytes[0] = (char)(0xe0 | character >> 12);
        count = 3;
    } else {
        bytes[0] = (char)(0xf0 | character >> 18);
        count = 4;
    }
    for (size_t i = 1; i < count; i++)
        bytes[i] = (char)(0x80 | (character >> 6 * (count - 1 - i) & 0x3f));
    hc_buf_add(text, bytes, count);
}

/* Exactly `digits` hexadecimal digits from `at` on, or -1. */
static int64_t hex_at(const struct reader *reader, const char *at, int digits)
{
    int64_t number = 0;

    if (reader->end - at < digits)
        return -1;
    for (int i = 0; i < digits; i++) {
        int byte = (unsigned char)at[i];
        int lower = byte | 0x20;
        if (is_digit(byte))
            number = number * 16 + (byte - '0');
        else if (lower >= 'a' && lower <= 'f')
            number = number * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return number;
}

static bool is_high_half(int64_t unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low_half(int64_t unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: `at` is at the letter. Two \u that are a surrogate pair are one character. */
static int read_hex_escape(struct reader *reader, int digits)
{
    const char *letter = reader->at;
    int64_t number = hex_at(reader, letter + 1, digits);
    int64_t second = -1;

    if (number < 0 || number > 0x10ffff)
        return -EINVAL;
    reader->at += 1 + digits;
    if (digits == 4 && is_high_half(number) && peek(reader) == '\\' && peek_second(reader) == 'u')
        second = hex_at(reader, reader->at + 2, 4);
    if (is_low_half(second)) {
        reader->at += 6;
        add_character(&reader->text, (uint32_t)(0x10000 + ((number - 0xd800) << 10) + (second - 0xdc00)));
    } else if (is_high_half(number) || is_low_half(number)) {
        hc_buf_add(&reader->text, letter - 1, (size_t)(reader->at - letter) + 1);
    } else {
        add_character(&reader->text, (uint32_t)number);
    }
    return 0;
}

/* \N{name}: `at` is at the N. Kept as it is. */
static int read_named_escape(struct reader *reader)
{
    const char *letter = reader->at;

    reader->at++;
    if (!take(reader, '{'))
        return -EINVAL;
    const char *name = reader->at;
    while (is_digit(peek(reader)) || (peek(reader) >= 'A' && peek(reader) <= 'Z') ||
           (peek(reader) >= 'a' && peek(reader) <= 'z') || peek(reader) == ' ' || peek(reader) == '-')
        reader->at++;
    if (reader->at == name || !take(reader, '}'))
        return -EINVAL;
    hc_buf_add(&reader->text, letter - 1, (size_t)(reader->at - letter) + 1);
    return 0;
}

static void read_octal_escape(struct reader *reader)
{
    uint32_t number = 0;

    for (int i = 0; i < 3 && peek(reader) >= '0' && peek(reader) <= '7'; i++)
        number = number * 8 + (uint32_t)(*reader->at++ - '0');
    add_character(&reader->text, number);
}

/* `at` is behind the backslash. */
static int read_escape(struct reader *reader, char quote)
{
    static const char letters[] = "\\'\"abfnrtv", meant[] = "\\'\"\a\b\f\n\r\t\v";
    int byte = peek(reader);
    const char *simple;

    if (byte < 0)
        return -EINVAL;
    if (take_line_end(reader))
        return 0;
    if (byte >= '0' && byte <= '7') {
        read_octal_escape(reader);
        return 0;
    }
    if (byte == 'x')
        return read_hex_escape(reader, 2);
    if (byte == 'u')
        return read_hex_escape(reader, 4);
    if (byte == 'U')
        return read_hex_escape(reader, 8);
    if (byte == 'N')
        return read_named_escape(reader);
    simple = strchr(letters, byte);
    if (quote == '"' && byte == '/') {
        hc_buf_add(&reader->text, reader->at++, 1);
    } else if (simple) {
        hc_buf_add(&reader->text, &meant[simple - letters], 1);
        reader->at++;
    } else {
        hc_buf_add(&reader->text, "\\", 1); /* Python keeps the backslash of an escape that it does not know */
    }
    return 0;
}

/* In a raw string the backslash stays, and what follows it does not end the string. */
static int read_raw_pair(struct reader *reader)
{
    if (peek(reader) < 0)
        return -EINVAL;
    hc_buf_add(&reader->text, "\\", 1);
    if (take_line_end(reader))
        hc_buf_add(&reader->text, "\n", 1);
    else
        hc_buf_add(&reader->text, reader->at++, 1);
    return 0;
}

static bool take_triple(struct reader *reader, char quote)
{
    if (reader->end - reader->at < 3 || reader->at[0] != quote || reader->at[1] != quote || reader->at[2] != quote)
        return false;
    reader->at += 3;
    return true;
}

/* From behind the opening quote to behind the closing one. */
static int read_string_body(struct reader *reader, char quote, bool triple, bool raw)
{
    for (;;) {
        const char *run = reader->at;
        while (peek(reader) >= 0 && *reader->at != quote && *reader->at != '\\' && *reader->at != '\n' &&
               *reader->at != '\r')
            reader->at++;
        hc_buf_add(&reader->text, run, (size_t)(reader->at - run));
        if (peek(reader) < 0)
            return -EINVAL;
        if (*reader->at == quote) {
            if (triple ? take_triple(reader, quote) : take(reader, quote))
                return 0;
            hc_buf_add(&reader->text, reader->at++, 1);
        } else if (take(reader, '\\')) {
            int status = raw ? read_raw_pair(reader) : read_escape(reader, quote);
            if (status < 0)
                return status;
        } else if (triple && take_line_end(reader)) {
            hc_buf_add(&reader->text, "\n", 1);
        } else {
            return -EINVAL; /* a line end in a string of one line */
        }
    }
}

static bool is_quote(int byte)
{
    return byte == '\'' || byte == '"';
}

static bool at_string(const struct reader *reader)
{
    int byte = peek(reader);

    if (byte == 'u' || byte == 'U' || byte == 'r' || byte == 'R')
        return is_quote(peek_second(reader));
    return is_quote(byte);
}

/* One string into reader.text: a literal, and those beside it. */
static int read_string(struct reader *reader)
{
    hc_buf_reset(&reader->text);
    if (!at_string(reader))
        return -EINVAL;
    while (at_string(reader)) {
        bool raw = (peek(reader) | 0x20) == 'r';
        if (!is_quote(peek(reader)))
            reader->at++;
        char quote = *reader->at;
        bool triple = take_triple(reader, quote);
        if (!triple)
            reader->at++;
        int status = read_string_body(reader, quote, triple, raw);
        if (status < 0)
            return status;
        skip_space(reader);
    }
    return hc_buf_status(&reader->text);
}

static bool skip_digits(struct reader *reader)
{
    const char *first = reader->at;

    while (is_digit(peek(reader)))
        reader->at++;
    return reader->at > first;
}

/* A decimal number: 30, -1.5, .5, 1e3. */
static int skip_number(struct reader *reader)
{
    if (peek(reader) == '-' || peek(reader) == '+') {
        reader->at++;
        skip_space(reader);
    }
    const char *first = reader->at;
    bool whole = skip_digits(reader), point = take(reader, '.');
    bool fraction = point && skip_digits(reader), exponent = false;
    /* Python refuses 007, and takes 000. */
    const char *zeros = first;
    while (zeros < reader->at && *zeros == '0')
        zeros++;
    bool padded = whole && zeros > first && zeros < reader->at && is_digit((unsigned char)*zeros);
    if (!whole && !fraction)
        return -EINVAL;
    if (take(reader, 'e') || take(reader, 'E')) {
        exponent = true;
        if (peek(reader) == '-' || peek(reader) == '+')
            reader->at++;
        if (!skip_digits(reader))
            return -EINVAL;
    }
    return padded && !point && !exponent ? -EINVAL : VALUE_OTHER;
}

static int skip_word(struct reader *reader)
{
    static const char *const words[] = {"True", "False", "None", "true", "false", "null"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(reader->end - reader->at) >= length && memcmp(reader->at, words[i], length) == 0) {
            reader->at += length;
            return VALUE_OTHER; /* what may follow is a comma or a bracket, which the caller asks for */
        }
    }
    return -EINVAL;
}

static int read_value(struct reader *reader, int depth);
static int read_dict(struct reader *reader, int depth, struct literal_entry *entries);

/* A list, a tuple, or one value in parentheses, which is that value. */
static int read_sequence(struct reader *reader, char close, int depth)
{
    int value = VALUE_OTHER;
    size_t count = 0;
    bool comma = true;

    for (reader->at++, skip_space(reader); !take(reader, close); skip_space(reader)) {
        if (!comma)
            return -EINVAL;
        value = read_value(reader, depth + 1);
        if (value < 0)
            return value;
        count++;
        skip_space(reader);
        comma = take(reader, ',');
    }
    return close == ')' && count == 1 && !comma ? value : VALUE_OTHER;
}

/* enum value, or -errno. */
static int read_value(struct reader *reader, int depth)
{
    int byte = peek(reader), status;

    if (at_string(reader)) {
        status = read_string(reader);
        return status < 0 ? status : VALUE_STRING;
    }
    if (is_digit(byte) || byte == '-' || byte == '+' || byte == '.')
        return skip_number(reader);
    if (byte != '[' && byte != '(' && byte != '{')
        return skip_word(reader);
    if (depth >= UNWRAP_DEPTH)
        return -EINVAL;
    if (byte == '{') {
        status = read_dict(reader, depth, NULL);
        return status < 0 ? status : VALUE_OTHER;
    }
    return read_sequence(reader, byte == '[' ? ']' : ')', depth);
}

static struct literal_entry *entry_of(struct literal_entry *entries, const struct hc_buf *key)
{
    for (; entries && entries->key; entries++) {
        if (strlen(entries->key) == key->length && memcmp(entries->key, key->data ? key->data : "", key->length) == 0)
            return entries;
    }
    return NULL;
}

/* `entries` may be NULL: a dictionary that is only skipped. */
static int read_dict(struct reader *reader, int depth, struct literal_entry *entries)
{
    bool comma = true;

    for (reader->at++, skip_space(reader); !take(reader, '}'); skip_space(reader)) {
        int value = comma ? read_value(reader, depth + 1) : -EINVAL;
        if (value != VALUE_STRING)
            return value < 0 ? value : -EINVAL;
        struct literal_entry *entry = entry_of(entries, &reader->text);
        skip_space(reader);
        if (!take(reader, ':'))
            return -EINVAL;
        skip_space(reader);
        value = read_value(reader, depth + 1);
        if (value < 0)
            return value;
        if (entry) {
            entry->found = value == VALUE_STRING;
            hc_buf_reset(&entry->value);
            if (entry->found)
                hc_buf_add(&entry->value, reader->text.data, reader->text.length);
            if (hc_buf_status(&entry->value) < 0)
                return hc_buf_status(&entry->value);
        }
        skip_space(reader);
        comma = take(reader, ',');
    }
    return 0;
}

int literal_read_dict(const char *text, size_t length, struct literal_entry *entries)
{
    struct reader reader = {.at = text, .end = text + length, .text = HC_BUF_INIT(length)};
    int status = -EINVAL;

    for (struct literal_entry *entry = entries; entry->key; entry++) {
        entry->found = false;
        entry->value = HC_BUF_INIT(length);
    }
    if (peek(&reader) == '{' && !memchr(text, '\0', length)) /* Python refuses a NUL anywhere in its source */
        status = read_dict(&reader, 0, entries);
    if (status == 0) {
        skip_space(&reader);
        status = reader.at == reader.end ? 0 : -EINVAL;
    }
    hc_buf_release(&reader.text);
    return status;
}
