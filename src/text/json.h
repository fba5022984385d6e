/*
 * JSON, by Jansson, with one manner of reading it (strict) and one of writing it. A json_t that is returned is a
 * reference that the caller owns.
 */
#ifndef HC_TEXT_JSON_H
#define HC_TEXT_JSON_H

#include "base/err.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define hc_cleanup_json __attribute__((cleanup(hc_json_release)))

void hc_json_release(json_t **value);

/* Any JSON value. Duplicate keys, nesting deeper than `depth`, numbers that do not fit, invalid UTF-8 and trailing text
 * are errors of HC_CLASS_REQUEST that say where. */
int hc_json_read(const char *text, size_t length, size_t depth, json_t **out, struct hc_err *err);
/* malloc'ed text, keys in their order of insertion, on one line or indented by two; a real number in 15 digits or fewer
 * where they read back as the same number, else in as many as it takes. NULL: out of memory. */
char *hc_json_write(const json_t *value, bool pretty);

/* A string of bytes that may hold NUL; NULL when they are not UTF-8 (or there is no memory). */
json_t *hc_json_text(const char *data, size_t length);
/* The same for a text that must become a string whatever is in it: each byte that is not UTF-8 becomes '?'. */
json_t *hc_json_text_lossy(const char *text);

#endif
