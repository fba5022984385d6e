/*
 * TOML 1.0, strict. Parses a whole document from memory into a tree that the caller owns. Refuses what the standard
 * refuses (duplicate keys, bad UTF-8, control characters, mixed redefinition of tables), names line and column, caps
 * nesting depth (64) and total size. No globals.
 */
#ifndef HC_TEXT_TOML_H
#define HC_TEXT_TOML_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum toml_type {
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOLEAN,
    TOML_OFFSET_DATETIME,
    TOML_LOCAL_DATETIME,
    TOML_LOCAL_DATE,
    TOML_LOCAL_TIME,
    TOML_ARRAY,
    TOML_TABLE,
};

struct toml_value; /* opaque; part of the document's tree */

/* `name` is used in messages ("config.toml:3:7: expected a value"). On failure *root is untouched. Class
 * HC_CLASS_REQUEST. */
int toml_parse(const char *text, size_t length, const char *name, struct toml_value **root, struct hc_err *err);
void toml_free(struct toml_value *root);
void toml_free_ptr(struct toml_value **root);

enum toml_type toml_type(const struct toml_value *value);
const char *toml_type_name(enum toml_type type); /* "string", "integer", "local date", ... */
int toml_line(const struct toml_value *value);   /* 1-based line where the value begins */

/* Each returns what it says for a value of that type; calling it on another type is a programming error (assert). */
const char *toml_string(const struct toml_value *value, size_t *length); /* NUL-terminated; length may be NULL */
int64_t toml_integer(const struct toml_value *value);
double toml_float(const struct toml_value *value);
bool toml_boolean(const struct toml_value *value);
const char *toml_datetime(const struct toml_value *value); /* normalised text, any of the four kinds */

/* Members of an array or a table. */
size_t toml_count(const struct toml_value *value);
const struct toml_value *toml_at(const struct toml_value *value, size_t index); /* of an array or table, in order */
const char *toml_key(const struct toml_value *table, size_t index, size_t *length);
const struct toml_value *toml_get(const struct toml_value *table, const char *key); /* NULL when absent */

#endif
