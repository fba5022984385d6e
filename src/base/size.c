/*
 * Sizes, durations and plain numbers as people write them. What always holds: only ASCII digits and one '.' make a
 * number (no sign, exponent, "inf", "nan" or hex), the arithmetic is on integers and checked, and the locale has no
 * say.
 */
#include "base/size.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    uint64_t factor;
};

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)
#define SECOND ((uint64_t)1000000)

static const struct unit SIZE_UNITS[] = {
    {"", 1},     {"b", 1},     {"byte", 1}, {"bytes", 1}, {"k", KIB},   {"kb", KIB}, {"kib", KIB}, {"m", MIB},
    {"mb", MIB}, {"mib", MIB}, {"g", GIB},  {"gb", GIB},  {"gib", GIB}, {"t", TIB},  {"tb", TIB},  {"tib", TIB},
};

static const struct unit DURATION_UNITS[] = {
    {"", SECOND},         {"us", 1}, {"ms", 1000}, {"s", SECOND}, {"m", 60 * SECOND}, {"min", 60 * SECOND},
    {"h", 3600 * SECOND},
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* A decimal number as whole + fraction / scale. */
struct decimal {
    uint64_t whole;
    uint64_t fraction;
    uint64_t scale;
};

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits, and a fraction if one follows. Digits of the fraction past the 18th are dropped: no unit here is that fine.
 * Returns where the number ends, NULL with *status -EINVAL (no number) or -ERANGE (too large). */
static const char *read_decimal(const char *text, struct decimal *number, int *status)
{
    *number = (struct decimal){.scale = 1};
    *status = -EINVAL;
    if (!is_digit(*text) && !(*text == '.' && is_digit(text[1])))
        return NULL;
    for (; is_digit(*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (__builtin_mul_overflow(number->whole, 10, &number->whole) ||
            __builtin_add_overflow(number->whole, digit, &number->whole)) {
            *status = -ERANGE;
            return NULL;
        }
    }
    if (*text != '.')
        return text;
    if (!is_digit(text[1]))
        return NULL;
    for (text++; is_digit(*text); text++) {
        if (number->scale < UINT64_C(1000000000000000000)) {
            number->fraction = number->fraction * 10 + (uint64_t)(*text - '0');
            number->scale *= 10;
        }
    }
    return text;
}

static int scale_decimal(const struct decimal *number, uint64_t factor, uint64_t *value)
{
    uint64_t whole, total;
    uint64_t part = (uint64_t)((unsigned __int128)number->fraction * factor / number->scale);
    if (__builtin_mul_overflow(number->whole, factor, &whole) || __builtin_add_overflow(whole, part, &total))
        return -ERANGE;
    *value = total;
    return 0;
}

/* The unit is all that is left of the text but for blanks around it. */
static const struct unit *find_unit(const char *text, const struct unit *units, size_t count)
{
    text = skip_blanks(text);
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == length && strncasecmp(units[i].name, text, length) == 0)
            return &units[i];
    return NULL;
}

static int parse_with_units(const char *text, const struct unit *units, size_t count, uint64_t *value)
{
    struct decimal number;
    int status;
    const char *rest = read_decimal(skip_blanks(text), &number, &status);
    if (rest == NULL)
        return status;
    const struct unit *unit = find_unit(rest, units, count);
    if (unit == NULL)
        return -EINVAL;
    return scale_decimal(&number, unit->factor, value);
}

static int report(struct hc_err *err, int status, const char *text, const char *what, const char *example)
{
    if (status == -ERANGE)
        hc_fail(err, HC_CLASS_REQUEST, ERANGE, "\"%.80s\" is too large for a %s", text, what);
    else if (*skip_blanks(text) == '-')
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.80s\" is negative; a %s is 0 or more", text, what);
    else if (*skip_blanks(text) == '\0')
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "a %s is empty", what);
    else
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.80s\" is not a %s", text, what);
    hc_err_remedy(err, "write it like %s", example);
    return status;
}

int hc_parse_size(const char *text, uint64_t *bytes, struct hc_err *err)
{
    int status = parse_with_units(text, SIZE_UNITS, COUNT_OF(SIZE_UNITS), bytes);
    return status == 0 ? 0 : report(err, status, text, "size", "512m, 1.5GiB or 1048576");
}

int hc_parse_duration(const char *text, uint64_t *microseconds, struct hc_err *err)
{
    int status = parse_with_units(text, DURATION_UNITS, COUNT_OF(DURATION_UNITS), microseconds);
    return status == 0 ? 0 : report(err, status, text, "duration", "30, 1.5s, 500ms, 2m or 1h");
}

int hc_parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *value, struct hc_err *err)
{
    struct decimal number = {0};
    int status = 0;
    const char *rest = read_decimal(text, &number, &status);
    bool whole = rest != NULL && *rest == '\0' && number.scale == 1;
    if (!whole && status != -ERANGE && high == UINT64_MAX) /* nobody is helped by that number */
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.80s\" is not a whole number", text);
    if (!whole && status != -ERANGE)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.80s\" is not a whole number from %" PRIu64 " to %" PRIu64,
                       text, low, high);
    if (!whole || number.whole < low || number.whole > high)
        return hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%.80s is not from %" PRIu64 " to %" PRIu64, text, low, high);
    *value = number.whole;
    return 0;
}

int hc_parse_decimal(const char *text, double low, double high, double *value, struct hc_err *err)
{
    struct decimal number = {0};
    int status = 0;
    bool negative = *text == '-';
    const char *rest = read_decimal(negative ? text + 1 : text, &number, &status);
    if (rest == NULL ? status != -ERANGE : *rest != '\0')
        return high >= 1e9 /* nor by that one */
                   ? hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.80s\" is not a number", text)
                   : hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%.80s\" is not a number from %g to %g", text, low, high);
    double parsed = (double)((long double)number.whole + (long double)number.fraction / (long double)number.scale);
    if (negative)
        parsed = -parsed;
    if (rest == NULL || parsed < low || parsed > high)
        return hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%.80s is not from %g to %g", text, low, high);
    *value = parsed;
    return 0;
}

/* value / factor rounded to `places` decimals (at most 2), without trailing zeros. */
static void format_scaled(uint64_t value, uint64_t factor, unsigned places, const char *unit, char *text, size_t size)
{
    uint64_t scale = places == 0 ? 1 : places == 1 ? 10 : 100;
    uint64_t scaled = (uint64_t)(((unsigned __int128)value * scale + factor / 2) / factor);
    uint64_t whole = scaled / scale;
    uint64_t fraction = scaled % scale;
    while (places > 0 && fraction % 10 == 0) {
        fraction /= 10;
        places--;
    }
    if (places == 0)
        snprintf(text, size, "%" PRIu64 " %s", whole, unit);
    else
        snprintf(text, size, "%" PRIu64 ".%0*" PRIu64 " %s", whole, (int)places, fraction, unit);
}

const char *hc_format_size(uint64_t bytes, char *text, size_t size)
{
    static const struct unit SHOWN[] = {{"KiB", KIB}, {"MiB", MIB}, {"GiB", GIB}, {"TiB", TIB}};
    if (bytes < KIB) {
        snprintf(text, size, "%" PRIu64 " %s", bytes, bytes == 1 ? "byte" : "bytes");
        return text;
    }
    /* The next unit is taken as soon as rounding would print 1024 of this one. */
    size_t i = 0;
    while (i + 1 < COUNT_OF(SHOWN) && bytes >= SHOWN[i + 1].factor - SHOWN[i].factor / 20)
        i++;
    format_scaled(bytes, SHOWN[i].factor, 1, SHOWN[i].name, text, size);
    return text;
}

const char *hc_format_duration(uint64_t microseconds, char *text, size_t size)
{
    /* Minutes and hours start at two of them: "90 s" says more than "1.5 min". The bounds below a unit are where
     * rounding would print 1000 of the smaller one. */
    if (microseconds < 1000)
        format_scaled(microseconds, 1, 0, "us", text, size);
    else if (microseconds < SECOND - 500)
        format_scaled(microseconds, 1000, microseconds < 10000 ? 1 : 0, "ms", text, size);
    else if (microseconds < 120 * SECOND)
        format_scaled(microseconds, SECOND, microseconds < 10 * SECOND ? 2 : 1, "s", text, size);
    else if (microseconds < 7200 * SECOND)
        format_scaled(microseconds, 60 * SECOND, 1, "min", text, size);
    else
        format_scaled(microseconds, 3600 * SECOND, 1, "h", text, size);
    return text;
}
