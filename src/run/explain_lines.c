/* See explain_lines.h. */
#include "run/explain_lines.h"

#include "base/fd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Past the limit the newest takes the place of what is in the middle: the first half stays, the second half moves. */
static void add_line(struct lines *lines, char *line, size_t length)
{
    if (length > 0 && line[length - 1] == '\r')
        length--;
    line[length < LINE_BYTES ? length : LINE_BYTES] = '\0';
    if (lines->count == LINES_LIMIT) {
        memmove(&lines->item[LINES_LIMIT / 2], &lines->item[LINES_LIMIT / 2 + 1],
                (LINES_LIMIT / 2 - 1) * sizeof *lines->item);
        lines->count--;
    }
    lines->item[lines->count++] = line;
}

static void split(struct lines *lines, char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    while (length > 0) {
        char *newline = memchr(text, '\n', length);
        size_t size = newline != NULL ? (size_t)(newline - text) : length, whole = newline != NULL ? size + 1 : size;
        add_line(lines, text, size);
        text += whole;
        length -= whole;
    }
}

int lines_make(const struct capture *capture, struct lines *lines)
{
    size_t length = 0;
    hc_cleanup_free char *all = capture_text(capture, &length);
    if (all == NULL)
        return -ENOMEM;
    bool whole_fits = length <= (size_t)2 * LINES_HALF;
    size_t first = whole_fits ? length : LINES_HALF, last = whole_fits ? 0 : LINES_HALF;
    *lines = (struct lines){.text = malloc(first + last + 2)};
    if (lines->text == NULL)
        return -ENOMEM;
    char *behind = lines->text + first + 1;
    memcpy(lines->text, all, first);
    memcpy(behind, all + length - last, last);
    split(lines, lines->text, first);
    /* Where the text was cut, half a line says nothing. */
    const char *whole = last > 0 ? memchr(behind, '\n', last) : NULL;
    if (whole != NULL)
        split(lines, behind + (whole + 1 - behind), last - (size_t)(whole + 1 - behind));
    return 0;
}

void lines_release(struct lines *lines)
{
    free(lines->text);
    *lines = (struct lines){0};
}
