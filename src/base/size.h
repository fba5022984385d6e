/* Sizes ("512m", "1.5GiB", 1048576), durations ("30", "1.5s", "500ms", "2m", "1h") and how we print them. */
#ifndef HC_BASE_SIZE_H
#define HC_BASE_SIZE_H

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

/* Bytes. Suffixes b, k, m, g, t, each also as kb/kib; powers of 1024; case does not matter. Negative, NaN, empty,
 * overflow and rubbish fail with HC_CLASS_REQUEST and a message that names the text and gives an example. */
int hc_parse_size(const char *text, uint64_t *bytes, struct hc_err *err);
/* Microseconds. A bare number is in seconds. Suffixes us, ms, s, m, min, h. Zero is accepted; negative is not. */
int hc_parse_duration(const char *text, uint64_t *microseconds, struct hc_err *err);
/* Plain decimal, whole text, within [low, high]. */
int hc_parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *value, struct hc_err *err);
int hc_parse_decimal(const char *text, double low, double high, double *value, struct hc_err *err);

/* "64 MiB", "1.5 GiB", "100 bytes". `text` has room for at least 32 bytes; returned for convenience. */
const char *hc_format_size(uint64_t bytes, char *text, size_t size);
/* "2 s", "1.5 s", "350 ms", "2 min". */
const char *hc_format_duration(uint64_t microseconds, char *text, size_t size);

#endif
