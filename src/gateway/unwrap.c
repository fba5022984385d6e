/*
 * Finding the code in what was sent: see unwrap.h for what counts as a wrapping. The dictionary is tried first, then
 * the fence, once each, so that work and memory are a small multiple of the input. What always holds: a text that is
 * not wrapped comes back byte for byte.
 */
#include "gateway/unwrap.h"
#include "base/buf.h"
#include "gateway/unwrap_literal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct span {
    const char *at;
    size_t length;
};

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n' || byte == '\f';
}

static struct span trim(struct span text)
{
    while (text.length > 0 && is_blank(text.at[0])) {
        text.at++;
        text.length--;
    }
    while (text.length > 0 && is_blank(text.at[text.length - 1]))
        text.length--;
    return text;
}

/* ---- the dictionary ---- */

enum { ENTRY_GENERATED_CODE, ENTRY_CODE, ENTRY_LANGUAGE, ENTRY_COUNT };
static const char *const ENTRY_KEYS[ENTRY_COUNT] = {"generated_code", "code", "language"};

/* A word that is too long, or has a NUL, is no language's name, and must not become one. */
static void set_language(struct unwrapped *out, const char *name, size_t length)
{
    if (length >= sizeof(out->language))
        length = sizeof(out->language) - 1;
    for (size_t i = 0; i < length; i++)
        out->language[i] = name[i] != '\0' ? name[i] : '?';
    out->language[length] = '\0';
}

/* 1 and *out filled; 0: the text is no such dictionary; -ENOMEM. */
static int open_dictionary(struct span text, struct unwrapped *out)
{
    struct literal_entry entries[ENTRY_COUNT + 1] = {0};

    text = trim(text);
    if (text.length == 0 || text.at[0] != '{')
        return 0;
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        entries[i].key = ENTRY_KEYS[i];
    int status = literal_read_dict(text.at, text.length, entries);
    struct literal_entry *code = &entries[entries[ENTRY_GENERATED_CODE].found ? ENTRY_GENERATED_CODE : ENTRY_CODE];
    if (status == 0 && code->found) {
        const struct literal_entry *language = &entries[ENTRY_LANGUAGE];
        out->length = code->value.length;
        out->code = hc_buf_take(&code->value, NULL);
        if (language->found && language->value.length > 0)
            set_language(out, language->value.data, language->value.length);
        status = out->code ? 1 : -ENOMEM;
    }
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        hc_buf_release(&entries[i].value);
    return status == -EINVAL ? 0 : status;
}

/* ---- the fence ---- */

enum { FENCE_LEAST = 3 };

struct fence {
    size_t indent; /* blanks before it, which the lines inside have, too */
    size_t backticks;
    struct span word; /* the first after the backticks */
    size_t line;      /* the length of the whole line with its end */
};

static size_t count_of(struct span text, size_t from, const char *bytes)
{
    size_t at = from;

    while (at < text.length && text.at[at] != '\0' && strchr(bytes, text.at[at]))
        at++;
    return at - from;
}

static bool read_opening(struct span text, struct fence *fence)
{
    const char *end = memchr(text.at, '\n', text.length);

    if (!end)
        return false;
    struct span line = {text.at, (size_t)(end - text.at)};
    fence->line = line.length + 1;
    fence->indent = count_of(line, 0, " \t");
    fence->backticks = count_of(line, fence->indent, "`");
    size_t at = fence->indent + fence->backticks;
    at += count_of(line, at, " \t");
    struct span rest = {line.at + at, line.length - at};
    fence->word = rest;
    for (size_t i = 0; i < rest.length; i++) {
        if (is_blank(rest.at[i])) {
            fence->word.length = i;
            break;
        }
    }
    /* A backtick further on makes it code between backticks rather than a fence. */
    return fence->backticks >= FENCE_LEAST && (rest.length == 0 || !memchr(rest.at, '`', rest.length));
}

/* The code's length: `text` less the backticks at its end, and less what is left of their line if that is blank. False:
 * it does not end with as many as it began with. */
static bool find_closing(struct span text, size_t backticks, size_t *length)
{
    size_t end = trim(text).length > 0 ? (size_t)(trim(text).at - text.at) + trim(text).length : 0;
    size_t run = 0;

    while (run < end && text.at[end - 1 - run] == '`')
        run++;
    if (run < backticks)
        return false;
    size_t line = end - run;
    while (line > 0 && (text.at[line - 1] == ' ' || text.at[line - 1] == '\t'))
        line--;
    bool alone = line == 0 || text.at[line - 1] == '\n';
    *length = alone ? line : end - backticks; /* behind code, more backticks than the fence has are the code's */
    return true;
}

/* Copies the lines, each less at most `indent` blanks at its beginning. */
static void add_lines(struct hc_buf *code, struct span text, size_t indent)
{
    const char *end = text.at + text.length;

    for (const char *at = text.at; at < end;) {
        for (size_t i = 0; i < indent && at < end && (*at == ' ' || *at == '\t'); i++)
            at++;
        const char *next = at;
        while (next < end && *next++ != '\n')
            ;
        hc_buf_add(code, at, (size_t)(next - at));
        at = next;
    }
}

static bool fence_language(const struct fence *fence, unwrap_known *known, void *data, char *name)
{
    if (fence->word.length >= UNWRAP_NAME_SIZE ||
        (fence->word.length > 0 && memchr(fence->word.at, 0, fence->word.length)))
        return false;
    memcpy(name, fence->word.at, fence->word.length);
    name[fence->word.length] = '\0';
    return name[0] == '\0' || known(data, name);
}

/* The first line that is not blank, and all after it: an opening fence may be indented, so trim() is too much. */
static struct span from_first_line(struct span text)
{
    struct span trimmed = trim(text);

    while (trimmed.at > text.at && trimmed.at[-1] != '\n') {
        trimmed.at--;
        trimmed.length++;
    }
    return trimmed;
}

/* 1 and *out filled; 0: the text is not fenced; -ENOMEM. */
static int open_fence(struct span text, unwrap_known *known, void *data, struct unwrapped *out)
{
    struct fence fence;
    char name[UNWRAP_NAME_SIZE];
    size_t length;

    text = from_first_line(text);
    if (!read_opening(text, &fence) || !fence_language(&fence, known, data, name))
        return 0;
    struct span inside = {text.at + fence.line, text.length - fence.line};
    if (!find_closing(inside, fence.backticks, &length))
        return 0;
    struct hc_buf code = HC_BUF_INIT(text.length);
    add_lines(&code, (struct span){inside.at, length}, fence.indent);
    char *taken = hc_buf_take(&code, &length);
    if (!taken)
        return -ENOMEM;
    free(out->code);
    out->code = taken;
    out->length = length;
    if (name[0] != '\0')
        set_language(out, name, strlen(name));
    return 1;
}

int unwrap_code(const char *text, size_t length, unwrap_known *known, void *data, struct unwrapped *out)
{
    struct unwrapped found = {0};
    struct span code = {text, length};

    int status = open_dictionary(code, &found);
    if (status > 0)
        code = (struct span){found.code, found.length};
    if (status >= 0)
        status = open_fence(code, known, data, &found);
    if (status >= 0 && !found.code) {
        struct hc_buf copy = HC_BUF_INIT(length);
        hc_buf_add(&copy, text, length);
        found.code = hc_buf_take(&copy, &found.length);
        status = found.code ? 0 : -ENOMEM;
    }
    if (status < 0) {
        free(found.code);
        return status;
    }
    *out = found;
    return 0;
}
