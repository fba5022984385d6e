/*
 * Aligned tables. Widths are counted in code points, which is right for everything that hotcell prints; no locale is
 * loaded. The last column is never padded, so no line ends in blanks.
 */
#include "cli/table.h"

#include "base/fd.h"
#include "cli/stream.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TABLE_CEILING = 4 * 1024 * 1024, TABLE_GAP = 2 };

bool table_colour(int fd)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fd) && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0;
}

void table_add_printable(struct hc_buf *buf, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    for (; *at; at++) {
        /* The C1 controls, U+0080 to U+009F, are 0xc2 0x80 to 0xc2 0x9f in UTF-8. */
        bool c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f;
        hc_buf_add(buf, *at < 0x20 || *at == 0x7f || c1 ? "?" : (const char *)at, 1);
        at += c1;
    }
}

void table_start(struct table *table, size_t columns, bool colour)
{
    *table = (struct table){.columns = columns, .colour = colour};
}

void table_add(struct table *table, enum table_style style, const char *text)
{
    struct hc_buf buf = HC_BUF_INIT(TABLE_CEILING);

    if (table->status)
        return;
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 64;
        struct table_cell *cells = reallocarray(table->cells, capacity, sizeof *cells);
        if (!cells) {
            table->status = -ENOMEM;
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    table_add_printable(&buf, text);
    char *copy = hc_buf_take(&buf, NULL);
    if (!copy) {
        table->status = -ENOMEM;
        return;
    }
    table->cells[table->count++] = (struct table_cell){copy, style};
}

static size_t code_points(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += (*text & 0xc0) != 0x80;
    return count;
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t widest = 0;

    for (size_t i = column; i < table->count; i += table->columns) {
        size_t width = code_points(table->cells[i].text);
        if (width > widest)
            widest = width;
    }
    return widest;
}

static const char *style_code(enum table_style style)
{
    static const char *const codes[] = {
        [TABLE_PLAIN] = "",        [TABLE_HEAD] = "\033[1m", [TABLE_GOOD] = "\033[32m",
        [TABLE_WARN] = "\033[33m", [TABLE_BAD] = "\033[31m", [TABLE_DIM] = "\033[2m",
    };
    return codes[style];
}

static void add_row(const struct table *table, size_t first, const size_t *widths, struct hc_buf *buf)
{
    size_t last = table->columns;

    while (last > 0 && (first + last > table->count || !table->cells[first + last - 1].text[0]))
        last--;
    for (size_t column = 0; column < last; column++) {
        const struct table_cell *cell = &table->cells[first + column];
        const char *code = table->colour ? style_code(cell->style) : "";
        hc_buf_printf(buf, "%s%s%s", code, cell->text, code[0] ? "\033[0m" : "");
        if (column + 1 < last)
            hc_buf_printf(buf, "%*s", (int)(widths[column] - code_points(cell->text) + TABLE_GAP), "");
    }
    hc_buf_add_str(buf, "\n");
}

int table_print(struct table *table)
{
    struct hc_buf buf = HC_BUF_INIT(TABLE_CEILING);
    hc_cleanup_free size_t *widths = calloc(table->columns, sizeof *widths);
    int status = widths ? table->status : -ENOMEM;

    for (size_t column = 0; status == 0 && column < table->columns; column++)
        widths[column] = column_width(table, column);
    for (size_t i = 0; status == 0 && i < table->count; i += table->columns)
        add_row(table, i, widths, &buf);
    if (status == 0)
        status = hc_buf_status(&buf);
    if (status == 0)
        status = stream_write(STDOUT_FILENO, buf.data, buf.length);
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i].text);
    free(table->cells);
    hc_buf_release(&buf);
    return status;
}
