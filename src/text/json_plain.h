/*
 * The little of JSON that a program without Jansson needs: strings are written into a buffer, and a text that somebody
 * else made is looked into without a copy of it. What is looked into is not trusted: whatever the bytes are, nothing
 * past their end is read, and what is not as it should be is not there.
 */
#ifndef HC_TEXT_JSON_PLAIN_H
#define HC_TEXT_JSON_PLAIN_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Adds the bytes, which must be UTF-8, as a string with its quotes. 0 or the buffer's failure. */
int hc_json_add_string(struct hc_buf *buf, const char *bytes, size_t length);

/* One value in a text that somebody else owns. `at` NULL: there is none. */
struct hc_peek {
    const char *at;
    size_t length;
};

/* The value that the text is, without the space around it; none when it is no JSON from its first glance. */
struct hc_peek hc_peek_text(const char *text, size_t length);
/* A member of an object; none when it has no such member, or is no object. */
struct hc_peek hc_peek_member(struct hc_peek object, const char *key);
/* The items of a list, in their order: *item is none before the first call. False: there are no more. */
bool hc_peek_next(struct hc_peek list, struct hc_peek *item);
size_t hc_peek_count(struct hc_peek list);

bool hc_peek_is_object(struct hc_peek value);
bool hc_peek_is_string(struct hc_peek value);
bool hc_peek_is_true(struct hc_peek value);
/* A string's bytes, NUL-terminated and malloc'ed. -EPROTO: it is no string, or a broken one; -ENOMEM. */
int hc_peek_string(struct hc_peek value, char **out, size_t *length);
/* The same into an array, cut where it is too long; "" for what is no string. Returned for convenience. */
const char *hc_peek_copy(struct hc_peek value, char *text, size_t size);
/* Whether it is the string `word`. */
bool hc_peek_is(struct hc_peek value, const char *word);
/* -EPROTO: it is no number without a fraction, or does not fit. */
int hc_peek_integer(struct hc_peek value, int64_t *out);
double hc_peek_number(struct hc_peek value); /* 0 for what is no number */

#endif
