/* Percent-decoding of a request's target. Pure; nothing here allocates. */
#ifndef HC_GATEWAY_HTTP_URL_H
#define HC_GATEWAY_HTTP_URL_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes `length` bytes into `text`, NUL-terminated. `plus`: '+' means a space, as in a query. The length; -EINVAL for
 * a broken escape, an encoded NUL, or what is not UTF-8; -ENAMETOOLONG when it does not fit. */
int http_percent_decode(const char *raw, size_t length, bool plus, char *text, size_t size);

/* The path of a target, which holds no query, decoded into `path`, which has room for `length` + 1 bytes. NULL, or why
 * it is refused: whatever a file system, a proxy or a second decoding could take for another path. */
const char *http_path_decode(const char *raw, size_t length, char *path);

#endif
