/*
 * Errors. A function that can fail returns 0 or more, or -errno, and its last parameter is a struct hc_err that the
 * caller owns. The struct has a fixed size and no pointers: it can be filled after a clone, written whole into a pipe
 * and read on the other side. Where a function returns 0 or more, the struct is untouched.
 */
#ifndef HC_BASE_ERR_H
#define HC_BASE_ERR_H

#include <stdarg.h>
#include <stdint.h>

/* Whose fault it is. It decides the exit code, the HTTP status and the tone of the message; see hc_class_info(). */
enum hc_class {
    HC_CLASS_NONE = 0,
    HC_CLASS_OURS,    /* a fault of hotcell's own */
    HC_CLASS_PROGRAM, /* the guest program did it */
    HC_CLASS_REQUEST, /* what was asked is wrong, or not allowed */
    HC_CLASS_HOST,    /* this machine lacks or forbids something */
};

struct hc_err {
    int32_t code;      /* positive errno, never 0 once set */
    uint32_t class;    /* enum hc_class */
    char field[64];    /* the request or configuration field at fault, or "" */
    char message[448]; /* what happened, naming the value */
    char remedy[256];  /* what to do about it, or "" */
};

struct hc_class_info {
    enum hc_class class;
    const char *word; /* "request", ... */
    int exit_code;    /* of the command line */
    int http_status;
    int jsonrpc_code;
};

const struct hc_class_info *hc_class_info(enum hc_class class);
/* The class of a failure that is `otherwise` the given one: running out of memory, fds or disk is the host's. */
enum hc_class hc_class_of(int code, enum hc_class otherwise);

/* Fill *err and return -code. err may be NULL. The first error wins: a filled struct is replaced only after
 * hc_err_clear. */
int hc_fail(struct hc_err *err, enum hc_class class, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, with ": strerror(code)" added to the message. */
int hc_fail_errno(struct hc_err *err, enum hc_class class, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Name the field at fault, and the remedy, of an error that was just set. Both return -err->code; err may be NULL. */
int hc_err_field(struct hc_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
int hc_err_remedy(struct hc_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Put "context: " before the message, on the way up. Returns -err->code. */
int hc_err_context(struct hc_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hc_err_clear(struct hc_err *err);

/* clang's analyzer looks at one file at a time: tell it that a failure is always negative. */
#if defined(__clang_analyzer__) && !defined(HC_BASE_ERR_C)
#define HC_IS_NEGATIVE(call)                                                                                           \
    ({                                                                                                                 \
        int hc_status = (call);                                                                                        \
        if (hc_status >= 0)                                                                                            \
            __builtin_unreachable();                                                                                   \
        hc_status;                                                                                                     \
    })
#define hc_fail(...) HC_IS_NEGATIVE(hc_fail(__VA_ARGS__))
#define hc_fail_errno(...) HC_IS_NEGATIVE(hc_fail_errno(__VA_ARGS__))
#endif

#endif
