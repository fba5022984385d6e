/*
 * JSON that is written value by value, without a tree of values that is made first and thrown away afterwards: for what
 * is written often. The text is the one that hc_json_write (json.h) makes of the same values.
 *
 * Each function adds one value: with its name in an object, with NULL in a list and at the top. A failure (no memory)
 * sticks, and hc_json_out_take says so at the end. That names and brackets fit together is the caller's affair.
 */
#ifndef HC_TEXT_JSON_OUT_H
#define HC_TEXT_JSON_OUT_H

#include "base/buf.h"
#include "text/json.h"
#include <stdbool.h>
#include <stdint.h>

struct hc_json_out {
    struct hc_buf buf;
    unsigned depth;
    bool pretty; /* indented by two; else on one line */
    bool more;   /* something stands before, in the same brackets */
};

/* What is written was bounded when it was gathered. */
#define HC_JSON_OUT(is_pretty) ((struct hc_json_out){.buf = HC_BUF_INIT(SIZE_MAX / 2), .pretty = (is_pretty)})

/* The text, malloc'ed; or NULL: it had failed. Either way nothing is left to be released. */
char *hc_json_out_take(struct hc_json_out *out);
void hc_json_out_fail(struct hc_json_out *out); /* somebody had no memory for a value */

void hc_json_put_open(struct hc_json_out *out, const char *name, char bracket);                     /* '{' or '[' */
void hc_json_put_close(struct hc_json_out *out, char bracket);                                      /* '}' or ']' */
void hc_json_put_text(struct hc_json_out *out, const char *name, const char *bytes, size_t length); /* UTF-8 */
void hc_json_put_word(struct hc_json_out *out, const char *name, const char *word);                 /* UTF-8 */
void hc_json_put_lossy(struct hc_json_out *out, const char *name, const char *text); /* as hc_json_text_lossy */
void hc_json_put_known(struct hc_json_out *out, const char *name, const char *text); /* so; null if NULL or "" */
void hc_json_put_integer(struct hc_json_out *out, const char *name, int64_t number);
void hc_json_put_real(struct hc_json_out *out, const char *name, double number);
/* A real number, and the same text as for number / 1000.0. */
void hc_json_put_thousandths(struct hc_json_out *out, const char *name, int64_t number);
void hc_json_put_bool(struct hc_json_out *out, const char *name, bool value);
void hc_json_put_null(struct hc_json_out *out, const char *name);
void hc_json_put_value(struct hc_json_out *out, const char *name, const json_t *value); /* NULL: a failure */

/* For a string that is not in memory as a whole: the value begins, its bytes are added to `buf`, quotes and all. */
struct hc_buf *hc_json_put_raw(struct hc_json_out *out, const char *name);

#endif
