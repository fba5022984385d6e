/* UTF-8, where bytes must become text whatever they are. */
#ifndef HC_TEXT_UTF8_H
#define HC_TEXT_UTF8_H

#include "base/buf.h"
#include <stdbool.h>

/* Adds the bytes, with U+FFFD for each part of them that is not UTF-8. A part is what a decoder would have read before
 * it had to give up (The Unicode Standard, 3.9, "maximal subpart"), as in Python, in browsers and in Go's range loop. 0
 * or the buffer's failure. */
int hc_utf8_replace(struct hc_buf *buf, const char *bytes, size_t length);
/* Whether all of it is UTF-8. */
bool hc_utf8_valid(const char *bytes, size_t length);

#endif
