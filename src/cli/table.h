/* Tables for people: aligned columns, and colour only where a person looks on. */
#ifndef HC_CLI_TABLE_H
#define HC_CLI_TABLE_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>

enum table_style { TABLE_PLAIN, TABLE_HEAD, TABLE_GOOD, TABLE_WARN, TABLE_BAD, TABLE_DIM };

struct table_cell {
    char *text;
    enum table_style style;
};

struct table {
    size_t columns;
    bool colour;
    struct table_cell *cells; /* row after row; owned */
    size_t count, capacity;
    int status; /* 0, or -ENOMEM from the first failure on */
};

/* Whether fd is a terminal that wants colour: NO_COLOR is unset, TERM is not "dumb". */
bool table_colour(int fd);
/* Appends text with every control character as '?', so that no name can drive a terminal. */
void table_add_printable(struct hc_buf *buf, const char *text);

void table_start(struct table *table, size_t columns, bool colour);
/* The next cell; rows fill by themselves. Copies. */
void table_add(struct table *table, enum table_style style, const char *text);
/* Writes it to stdout and releases it. 0 or -errno. */
int table_print(struct table *table);

#endif
