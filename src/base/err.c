/*
 * Errors: filling the caller's struct hc_err, and the one table that says what each class of fault means to the
 * outside. What always holds: nothing here allocates, takes a lock or touches errno, so that every function may be
 * called between a clone and an exec; text that does not fit is cut at a character border and never overflows.
 */
#define HC_BASE_ERR_C
#include "base/err.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Indexed by enum hc_class. NONE stands for success, so that callers need no branch of their own. */
static const struct hc_class_info CLASSES[] = {
    [HC_CLASS_NONE] = {HC_CLASS_NONE, "none", 0, 200, 0},
    [HC_CLASS_OURS] = {HC_CLASS_OURS, "ours", 125, 500, -32603},
    [HC_CLASS_PROGRAM] = {HC_CLASS_PROGRAM, "program", 1, 200, -32001},
    [HC_CLASS_REQUEST] = {HC_CLASS_REQUEST, "request", 2, 400, -32602},
    [HC_CLASS_HOST] = {HC_CLASS_HOST, "host", 125, 503, -32000},
};

const struct hc_class_info *hc_class_info(enum hc_class class)
{
    /* A class may come out of a pipe from another process: an unknown one is a fault of ours. */
    if ((unsigned)class >= sizeof CLASSES / sizeof CLASSES[0])
        return &CLASSES[HC_CLASS_OURS];
    return &CLASSES[class];
}

/* A cut in the middle of a UTF-8 sequence would make the message invalid JSON later. */
static void trim_partial_character(char *text, size_t length)
{
    size_t start = length;
    while (start > 0 && length - start < 4 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (want > 1 && length - (start - 1) < want)
        text[start - 1] = '\0';
}

__attribute__((format(printf, 3, 0))) static void format_into(char *text, size_t size, const char *format,
                                                              va_list arguments)
{
    int saved = errno;
    int length = vsnprintf(text, size, format, arguments);
    if (length < 0)
        text[0] = '\0';
    else if ((size_t)length >= size)
        trim_partial_character(text, size - 1);
    errno = saved;
}

static void append(char *text, size_t size, const char *tail)
{
    size_t used = strnlen(text, size - 1);
    size_t length = strlen(tail);
    size_t room = size - 1 - used;
    size_t copied = length < room ? length : room;
    memcpy(text + used, tail, copied);
    text[used + copied] = '\0';
    if (copied < length)
        trim_partial_character(text, used + copied);
}

/* A code of 0 would read as success further up; some callers hold the code negated. */
static int normal_code(int code)
{
    if (code < 0)
        code = -code;
    return code > 0 ? code : EINVAL;
}

__attribute__((format(printf, 4, 0))) static void fill(struct hc_err *err, enum hc_class class, int code,
                                                       const char *format, va_list arguments)
{
    err->code = code;
    err->class = (uint32_t) class;
    err->field[0] = '\0';
    err->remedy[0] = '\0';
    format_into(err->message, sizeof err->message, format, arguments);
}

int hc_fail(struct hc_err *err, enum hc_class class, int code, const char *format, ...)
{
    code = normal_code(code);
    if (err == NULL || err->code != 0)
        return -code;
    va_list arguments;
    va_start(arguments, format);
    fill(err, class, code, format, arguments);
    va_end(arguments);
    return -code;
}

int hc_fail_errno(struct hc_err *err, enum hc_class class, int code, const char *format, ...)
{
    code = normal_code(code);
    if (err == NULL || err->code != 0)
        return -code;
    va_list arguments;
    va_start(arguments, format);
    fill(err, class, code, format, arguments);
    va_end(arguments);
#ifdef __GLIBC__
    /* glibc's strerror() may allocate and translate; strerrordesc_np() is a constant table, as musl's strerror() is. */
    const char *description = strerrordesc_np(code);
#else
    const char *description = strerror(code);
#endif
    append(err->message, sizeof err->message, ": ");
    append(err->message, sizeof err->message, description != NULL ? description : "unknown error");
    return -code;
}

int hc_err_field(struct hc_err *err, const char *format, ...)
{
    if (err == NULL)
        return -EINVAL;
    va_list arguments;
    va_start(arguments, format);
    format_into(err->field, sizeof err->field, format, arguments);
    va_end(arguments);
    return -err->code;
}

int hc_err_remedy(struct hc_err *err, const char *format, ...)
{
    if (err == NULL)
        return -EINVAL;
    va_list arguments;
    va_start(arguments, format);
    format_into(err->remedy, sizeof err->remedy, format, arguments);
    va_end(arguments);
    return -err->code;
}

int hc_err_context(struct hc_err *err, const char *format, ...)
{
    if (err == NULL)
        return -EINVAL;
    char message[sizeof err->message];
    va_list arguments;
    va_start(arguments, format);
    format_into(message, sizeof message, format, arguments);
    va_end(arguments);
    append(message, sizeof message, ": ");
    append(message, sizeof message, err->message);
    memcpy(err->message, message, sizeof message);
    return -err->code;
}

void hc_err_clear(struct hc_err *err)
{
    if (err != NULL)
        memset(err, 0, sizeof *err);
}

enum hc_class hc_class_of(int code, enum hc_class otherwise)
{
    switch (code) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EIO:
        return HC_CLASS_HOST;
    default:
        return otherwise;
    }
}
