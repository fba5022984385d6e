/* A Python dictionary literal, read for the few keys that unwrap.c wants. */
#ifndef HC_GATEWAY_UNWRAP_LITERAL_H
#define HC_GATEWAY_UNWRAP_LITERAL_H

#include "base/buf.h"
#include <stdbool.h>

struct literal_entry {
    const char *key;
    bool found;          /* and its value is a string, which `value` holds */
    struct hc_buf value; /* released by the caller */
};

/* Reads `text`, which must be one dictionary literal and nothing else, and fills the entries, which end with one
 * without a key. 0; -EINVAL: it is no such literal; -ENOMEM. Whatever it returns, the entries' values are to be
 * released. */
int literal_read_dict(const char *text, size_t length, struct literal_entry *entries);

#endif
