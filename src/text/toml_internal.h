/*
 * Shared by the toml_*.c files only: the tree, the cursor, and what each file offers to the others.
 *
 *   toml.c        the tree and the public accessors
 *   toml_lex.c    characters: encoding, blanks, comments, strings, keys, and where an error is
 *   toml_scalar.c numbers, booleans, dates and times
 *   toml_parse.c  the grammar: lines, headers, arrays, inline tables, and who may define what
 */
#ifndef HC_TEXT_TOML_INTERNAL_H
#define HC_TEXT_TOML_INTERNAL_H

#include "text/toml.h"

enum {
    TOML_MAX_DEPTH = 64,
    TOML_MAX_SIZE = 1024 * 1024,
    TOML_MAX_NUMBER = 1024, /* characters of one number; no number that means anything is longer */
};

/* How a table or array came to be. It decides what may still be added to it. */
enum toml_made {
    MADE_IMPLICIT, /* named on the way to a [header]; may be defined once more, by a header or by dotted keys */
    MADE_HEADER,   /* by its own [header]; also the root and each element of [[header]] */
    MADE_DOTTED,   /* on the way of a dotted key; only dotted keys of the same table add to it directly */
    MADE_VALUE,    /* {inline} or [array]: closed where it ends */
    MADE_TABLES,   /* the array of [[header]]: grows by further [[header]]s */
};

struct toml_value {
    enum toml_type type;
    enum toml_made made; /* of tables and arrays */
    int line;
    uint32_t key_length;
    char *key; /* NUL-terminated; NULL for the root and for members of arrays */
    union {
        struct {
            char *data;
            size_t length;
        } string; /* and the normalised text of dates and times */
        int64_t integer;
        double real;
        bool boolean;
        struct {
            struct toml_value **item; /* in the order of the document */
            uint32_t count, capacity;
            void *index; /* tables: a tsearch(3) tree by key, so that no choice of keys makes lookups slow */
        } members;
    } as;
};

struct toml_parser {
    const char *text, *end, *at;
    const char *name;
    const char *mark; /* line_at_mark is the line of *mark; moves forward only */
    int line_at_mark;
    struct hc_err *err;
};

/* One part of a (dotted) key, decoded. */
struct toml_name {
    char *data;
    size_t length;
};

/* toml.c. NULL or -ENOMEM: out of memory. A value that was added is owned by its container. */
struct toml_value *toml_new(enum toml_type type, enum toml_made made, int line);
int toml_append(struct toml_value *array, struct toml_value *value);
int toml_insert(struct toml_value *table, struct toml_name *key, struct toml_value *value); /* takes key->data */
struct toml_value *toml_find(const struct toml_value *table, const char *key, size_t length);

/* toml_lex.c */
int toml_check_text(struct toml_parser *parser);
int toml_fail(struct toml_parser *parser, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int toml_fail_expected(struct toml_parser *parser, const char *expected); /* "expected X, found …" at the cursor */
int toml_no_memory(struct toml_parser *parser);
int toml_line_here(struct toml_parser *parser);
void toml_skip_blanks(struct toml_parser *parser);      /* spaces and tabs */
void toml_skip_blank_lines(struct toml_parser *parser); /* and comments and newlines */
int toml_end_line(struct toml_parser *parser);          /* blanks, a comment, and then a newline or the end */
bool toml_at_end(const struct toml_parser *parser);
bool toml_accept(struct toml_parser *parser, char wanted);
int toml_read_string(struct toml_parser *parser, bool allow_multiline, char **data, size_t *length);
int toml_read_name(struct toml_parser *parser, struct toml_name *name);
void toml_name_release(struct toml_name *name);

/* toml_scalar.c: everything that is neither a string, an array nor a table. */
int toml_read_scalar(struct toml_parser *parser, struct toml_value **value);

#endif
