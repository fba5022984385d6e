/* Base64 as in RFC 4648, section 4: the ordinary alphabet, padded, no line breaks. */
#ifndef HC_TEXT_BASE64_H
#define HC_TEXT_BASE64_H

#include <stddef.h>

/* malloc'ed and NUL-terminated; NULL: out of memory. out_length may be NULL. */
char *hc_base64_encode(const void *data, size_t length, size_t *out_length);
/* Strict: -EINVAL on any other character, wrong padding or stray bits at the end. *data is malloc'ed and
 * NUL-terminated. */
int hc_base64_decode(const char *text, size_t length, char **data, size_t *out_length);

#endif
