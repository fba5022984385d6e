/* See explain_place.h. */
#include "run/explain_place.h"

#include "run/plan.h"
#include <stdio.h>
#include <string.h>

static const char *without(const char *file, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(file, prefix, length) == 0 ? file + length : file;
}

/* "/workspace/./main.py" and "./main.py" are main.py. */
static const char *shorten(const struct explain_context *context, const char *file)
{
    char folder[300];
    file = without(file, "file://");
    snprintf(folder, sizeof folder, "%s/", context->work_dir != NULL ? context->work_dir : "/workspace");
    const char *shorter = without(without(without(file, folder), "/sandbox/"), PLAN_APART);
    return without(shorter, "./");
}

static const struct explain_file *find_file(const struct explain_context *context, const char *file)
{
    const char *name = shorten(context, file);
    for (size_t i = 0; i < context->file_count; i++)
        if (strcmp(shorten(context, context->files[i].path), name) == 0)
            return &context->files[i];
    return NULL;
}

bool place_is_own(const struct explain_context *context, const char *file)
{
    return find_file(context, file) != NULL;
}

/* A tool may be given the program under another name (a class of Java decides its file's). Where there is but one file,
 * it is that one. */
static const struct explain_file *only_file(const struct explain_context *context, const char *file)
{
    if (context->file_count != 1 || strchr(shorten(context, file), '/') != NULL)
        return NULL;
    const char *mine = strrchr(context->files[0].path, '.'), *its = strrchr(file, '.');
    return mine != NULL && its != NULL && strcmp(mine, its) == 0 ? &context->files[0] : NULL;
}

static bool take_source(const struct explain_file *file, uint32_t line, char *out, size_t size)
{
    const char *text = file->data, *end = file->data + file->length;
    for (uint32_t number = 1; number < line && text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        text = newline != NULL ? newline + 1 : end;
    }
    if (text >= end)
        return false;
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    size_t length = newline != NULL ? (size_t)(newline - text) : (size_t)(end - text);
    while (length > 0 && strchr(" \t\r", text[length - 1]) != NULL)
        length--;
    length = length < size - 1 ? length : size - 1;
    memcpy(out, text, length);
    out[length] = '\0';
    return memchr(out, '\0', length) == NULL;
}

static size_t indent(const char *line)
{
    return strspn(line, " \t");
}

/* "    print(x", and below it "         ^": the tools show the line with an indent of their own. */
static uint32_t column_of_marker(const char *shown, const char *marker, const char *source)
{
    const char *code = source + indent(source);
    if (code[0] == '\0' || strcmp(shown + indent(shown), code) != 0 || marker[strspn(marker, " \t~^")] != '\0')
        return 0;
    size_t mark = strcspn(marker, "~^");
    if (marker[mark] == '\0' || mark < indent(shown))
        return 0;
    return (uint32_t)(mark - indent(shown) + indent(source) + 1);
}

void place_by_line(const struct explain_context *context, const char *begins, struct diagnosis *found)
{
    const struct explain_file *file = NULL;
    uint32_t place = 0;
    begins += indent(begins);
    size_t length = strlen(begins);
    for (size_t i = 0; i < context->file_count && length > 0; i++) {
        const char *text = context->files[i].data, *end = text + context->files[i].length;
        for (uint32_t number = 1; text < end; number++) {
            while (text < end && (*text == ' ' || *text == '\t'))
                text++;
            if ((size_t)(end - text) >= length && memcmp(text, begins, length) == 0) {
                if (file != NULL)
                    return;
                file = &context->files[i];
                place = number;
            }
            const char *newline = memchr(text, '\n', (size_t)(end - text));
            text = newline != NULL ? newline + 1 : end;
        }
    }
    if (file == NULL)
        return;
    snprintf(found->file, sizeof found->file, "%s", file->path);
    found->line = place;
}

void place_settle(const struct explain_context *context, const struct lines *lines, struct diagnosis *found)
{
    if (shorten(context, found->file)[0] == '\0' || found->line == 0) {
        found->file[0] = '\0';
        found->line = found->column = 0;
        return;
    }
    const struct explain_file *file = find_file(context, found->file);
    if (file == NULL)
        file = only_file(context, found->file);
    char name[sizeof found->file];
    snprintf(name, sizeof name, "%s", shorten(context, found->file));
    memcpy(found->file, name, sizeof name);
    if (file == NULL || !take_source(file, found->line, found->source, sizeof found->source)) {
        found->source[0] = '\0';
        return;
    }
    for (size_t i = 0; i + 1 < lines->count && found->column == 0; i++)
        found->column = column_of_marker(lines->item[i], lines->item[i + 1], found->source);
}
