/* One line of the audit log, taken apart. See audit.h for its form. */
#ifndef HC_STORE_AUDIT_LINE_H
#define HC_STORE_AUDIT_LINE_H

#include "store/sha256.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    AUDIT_LINE_MAX = 64 * 1024, /* with its newline, and with what ends a torn line before it */
    AUDIT_DEPTH = 16            /* of `detail` and what is around it */
};

#define AUDIT_FIRST "0000000000000000000000000000000000000000000000000000000000000000" /* prev of the first entry */
#define AUDIT_TORN "torn_line" /* the event that says that what is before it was torn */

struct audit_line {
    uint64_t n;
    char prev[SHA256_HEX + 1];
    char hash[SHA256_HEX + 1];
    size_t hashed; /* so many bytes of the line are what `hash` is of */
    bool torn;     /* an entry that says that the bytes before it were torn: */
    uint64_t torn_bytes;
    char torn_hash[SHA256_HEX + 1];
};

bool audit_event_known(const char *event);

/* Whether it has an entry's beginning and end, whatever is between: then it was written whole, and is right or wrong,
 * but not torn. `line` is without its newline. */
bool audit_line_whole(const char *line, size_t length);
/* A whole entry, strictly: JSON, every member and no other, in order. 0, or -EBADMSG with what is wrong in *why. Does
 * not look at the hashes' values. */
int audit_line_parse(const char *line, size_t length, struct audit_line *out, const char **why);
/* Whether `hash` is the hash of this line. */
bool audit_line_true(const char *line, const struct audit_line *parsed);

#endif
