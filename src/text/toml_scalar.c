/*
 * TOML's numbers, booleans, dates and times. The cursor stands at the first character of a value; all characters that
 * such a value can have are taken as one word, and the word must then fit one form to its last character. So "1.5.2",
 * "0x", "12_" and "truely" are refused as a whole, with the word in the message.
 */
#include "text/toml_internal.h"
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    const char *text;
    size_t length;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '+' || c == '-' ||
           c == '.' || c == ':';
}

static bool word_is(struct word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.text, text, word.length) == 0;
}

static int fail_word(struct toml_parser *parser, struct word word, const char *why)
{
    const char *dots = word.length > 40 ? "…" : "";
    return toml_fail(parser, word.text, "'%.*s%s' %s", word.length > 40 ? 40 : (int)word.length, word.text, dots, why);
}

/* ---- dates and times ---- */

/* `count` digits at *p into *value; moves *p. */
static bool take_digits(const char **p, const char *end, int count, int *value)
{
    if (end - *p < count)
        return false;
    *value = 0;
    for (int i = 0; i < count; i++, (*p)++) {
        if (!is_digit(**p))
            return false;
        *value = *value * 10 + (**p - '0');
    }
    return true;
}

static bool take_char(const char **p, const char *end, char wanted)
{
    if (*p == end || **p != wanted)
        return false;
    (*p)++;
    return true;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

static bool take_date(const char **p, const char *end)
{
    int year, month, day;
    return take_digits(p, end, 4, &year) && take_char(p, end, '-') && take_digits(p, end, 2, &month) &&
           take_char(p, end, '-') && take_digits(p, end, 2, &day) && month >= 1 && month <= 12 && day >= 1 &&
           day <= days_in_month(year, month);
}

/* The fraction is written to `fraction` with at least three digits; those past nine are cut, as the standard allows. */
static bool take_time(const char **p, const char *end, char fraction[11])
{
    int hour, minute, second;
    if (!take_digits(p, end, 2, &hour) || !take_char(p, end, ':') || !take_digits(p, end, 2, &minute) ||
        !take_char(p, end, ':') || !take_digits(p, end, 2, &second))
        return false;
    if (hour > 23 || minute > 59 || second > 60) /* RFC 3339 has leap seconds */
        return false;
    fraction[0] = '\0';
    if (!take_char(p, end, '.'))
        return true;
    size_t length = 0;
    const char *first = *p;
    fraction[length++] = '.';
    for (; *p < end && is_digit(**p); (*p)++)
        if (length < 10)
            fraction[length++] = **p;
    if (*p == first)
        return false;
    while (length < 4)
        fraction[length++] = '0';
    fraction[length] = '\0';
    return true;
}

static bool take_offset(const char **p, const char *end, char offset[7])
{
    if (take_char(p, end, 'Z') || take_char(p, end, 'z')) {
        memcpy(offset, "Z", 2);
        return true;
    }
    const char *start = *p;
    int hour, minute;
    if (!take_char(p, end, '+') && !take_char(p, end, '-'))
        return false;
    if (!take_digits(p, end, 2, &hour) || !take_char(p, end, ':') || !take_digits(p, end, 2, &minute) || hour > 23 ||
        minute > 59)
        return false;
    memcpy(offset, start, 6);
    offset[6] = '\0';
    return true;
}

static bool looks_like_date(struct word word)
{
    return word.length >= 5 && is_digit(word.text[0]) && is_digit(word.text[1]) && is_digit(word.text[2]) &&
           is_digit(word.text[3]) && word.text[4] == '-';
}

static bool looks_like_time(struct word word)
{
    return word.length >= 3 && is_digit(word.text[0]) && is_digit(word.text[1]) && word.text[2] == ':';
}

/* Fits the word to one of the four forms and writes it with 'T', 'Z' and a fraction of 3 to 9 digits. */
static bool fit_datetime(struct word word, enum toml_type *type, char normal[48])
{
    const char *p = word.text, *end = word.text + word.length;
    char fraction[11] = "", offset[7] = "";
    if (looks_like_time(word)) {
        *type = TOML_LOCAL_TIME;
        if (!take_time(&p, end, fraction) || p != end)
            return false;
        snprintf(normal, 48, "%.8s%s", word.text, fraction);
        return true;
    }
    if (!take_date(&p, end))
        return false;
    if (p == end) {
        *type = TOML_LOCAL_DATE;
        snprintf(normal, 48, "%.10s", word.text);
        return true;
    }
    if (!take_char(&p, end, 'T') && !take_char(&p, end, 't') && !take_char(&p, end, ' '))
        return false;
    const char *time = p;
    if (!take_time(&p, end, fraction))
        return false;
    *type = p == end ? TOML_LOCAL_DATETIME : TOML_OFFSET_DATETIME;
    if (p != end && (!take_offset(&p, end, offset) || p != end))
        return false;
    snprintf(normal, 48, "%.10sT%.8s%s%s", word.text, time, fraction, offset);
    return true;
}

static int read_datetime(struct toml_parser *parser, struct word word, struct toml_value *value)
{
    char normal[48];
    if (!fit_datetime(word, &value->type, normal))
        return fail_word(parser, word, "is not a valid date or time; write it like 1979-05-27T07:32:00Z");
    value->as.string.data = strdup(normal);
    value->as.string.length = strlen(normal);
    return value->as.string.data ? 0 : toml_no_memory(parser);
}

/* ---- numbers ---- */

static bool is_digit_of(char c, int base)
{
    if (base == 16)
        return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    return c >= '0' && c < '0' + base;
}

/* One or more digits, with single underscores between them only. Copies the digits behind *out; the count, or 0. */
static size_t take_number(const char **p, const char *end, int base, char **out)
{
    size_t count = 0;
    while (*p < end) {
        if (**p == '_') {
            if (count == 0 || *p + 1 == end || !is_digit_of((*p)[1], base))
                return 0;
        } else if (is_digit_of(**p, base)) {
            *(*out)++ = **p;
            count++;
        } else {
            break;
        }
        (*p)++;
    }
    **out = '\0';
    return count;
}

static int read_integer(struct toml_parser *parser, struct word word, const char *digits, int base,
                        struct toml_value *value)
{
    errno = 0;
    long long number = strtoll(digits, NULL, base);
    if (errno == ERANGE)
        return fail_word(parser, word, "does not fit in a 64-bit integer");
    value->type = TOML_INTEGER;
    value->as.integer = number;
    return 0;
}

static int read_float(struct toml_parser *parser, struct word word, const char *digits, struct toml_value *value)
{
    /* The program's locale may write the decimal point as a comma; TOML does not. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return toml_no_memory(parser);
    value->type = TOML_FLOAT;
    value->as.real = strtod_l(digits, NULL, c_locale);
    freelocale(c_locale);
    return isinf(value->as.real) ? fail_word(parser, word, "does not fit in a 64-bit float") : 0;
}

static bool read_special_float(struct word word, struct toml_value *value)
{
    bool negative = word.length && word.text[0] == '-';
    if (word.length && (word.text[0] == '-' || word.text[0] == '+')) {
        word.text++;
        word.length--;
    }
    if (!word_is(word, "inf") && !word_is(word, "nan"))
        return false;
    double number = word_is(word, "inf") ? INFINITY : NAN;
    value->type = TOML_FLOAT;
    value->as.real = negative ? -number : number;
    return true;
}

/* Hexadecimal, octal and binary: "0x", "0o", "0b", no sign. */
static int read_based(struct toml_parser *parser, struct word word, int base, struct toml_value *value)
{
    char digits[TOML_MAX_NUMBER + 1], *out = digits;
    const char *p = word.text + 2, *end = word.text + word.length;
    if (!take_number(&p, end, base, &out) || p != end)
        return fail_word(parser, word, "is not a valid number");
    return read_integer(parser, word, digits, base, value);
}

static int read_decimal(struct toml_parser *parser, struct word word, struct toml_value *value)
{
    static const char bad[] = "is not a valid number; a string needs quotes";
    char digits[TOML_MAX_NUMBER + 1], *out = digits;
    const char *p = word.text, *end = word.text + word.length;
    if (*p == '+' || *p == '-')
        *out++ = *p++;
    const char *whole = p;
    size_t count = take_number(&p, end, 10, &out);
    if (!count)
        return fail_word(parser, word, bad);
    if (*whole == '0' && count > 1)
        return fail_word(parser, word, "has a leading zero");
    if (p == end)
        return read_integer(parser, word, digits, 10, value);
    if (take_char(&p, end, '.')) {
        *out++ = '.';
        if (!take_number(&p, end, 10, &out))
            return fail_word(parser, word, bad);
    }
    if (take_char(&p, end, 'e') || take_char(&p, end, 'E')) {
        *out++ = 'e';
        if (p < end && (*p == '+' || *p == '-'))
            *out++ = *p++;
        if (!take_number(&p, end, 10, &out))
            return fail_word(parser, word, bad);
    }
    return p == end ? read_float(parser, word, digits, value) : fail_word(parser, word, bad);
}

static int read_number(struct toml_parser *parser, struct word word, struct toml_value *value)
{
    if (word.length > TOML_MAX_NUMBER)
        return fail_word(parser, word, "is too long for a number");
    if (word.length > 2 && word.text[0] == '0') {
        char letter = word.text[1];
        int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
        if (base)
            return read_based(parser, word, base, value);
    }
    return read_decimal(parser, word, value);
}

/* ---- the word ---- */

static struct word take_word(struct toml_parser *parser)
{
    struct word word = {parser->at, 0};
    while (parser->at < parser->end && is_word_char(*parser->at))
        parser->at++;
    word.length = (size_t)(parser->at - word.text);
    /* A space may stand for the 'T' between a date and a time. */
    if (word.length == 10 && looks_like_date(word) && parser->end - parser->at >= 2 && parser->at[0] == ' ' &&
        is_digit(parser->at[1])) {
        parser->at++;
        while (parser->at < parser->end && is_word_char(*parser->at))
            parser->at++;
        word.length = (size_t)(parser->at - word.text);
    }
    return word;
}

static int read_word(struct toml_parser *parser, struct word word, struct toml_value *value)
{
    if (word_is(word, "true") || word_is(word, "false")) {
        value->type = TOML_BOOLEAN;
        value->as.boolean = word.length == 4;
        return 0;
    }
    if (looks_like_date(word) || looks_like_time(word))
        return read_datetime(parser, word, value);
    if (read_special_float(word, value))
        return 0;
    if (is_digit(word.text[0]) || word.text[0] == '+' || word.text[0] == '-' || word.text[0] == '.')
        return read_number(parser, word, value);
    return fail_word(parser, word, "is not a value; a string needs quotes");
}

int toml_read_scalar(struct toml_parser *parser, struct toml_value **value)
{
    int line = toml_line_here(parser);
    struct word word = take_word(parser);
    if (word.length == 0)
        return toml_fail_expected(parser, "a value");
    struct toml_value *made = toml_new(TOML_BOOLEAN, MADE_VALUE, line);
    if (!made)
        return toml_no_memory(parser);
    int rc = read_word(parser, word, made);
    if (rc < 0) {
        toml_free(made);
        return rc;
    }
    *value = made;
    return 0;
}
