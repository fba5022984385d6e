/*
 * TOML's grammar: a document is lines, and a line is a header, a key with its value, or blank.
 *
 * What may be defined where is decided by how the table came to be (enum toml_made): a header may pass through any
 * table that is not closed, but opens each only once; a dotted key may pass only through tables that dotted keys made,
 * or that nobody has defined yet. Depth is counted at every step down, by header, dotted key or bracket, so the
 * recursion and the tree are never deeper than TOML_MAX_DEPTH.
 */
#include "base/fd.h"
#include "text/toml_internal.h"
#include <errno.h>
#include <string.h>

struct key_path {
    struct toml_name part[TOML_MAX_DEPTH];
    const char *where[TOML_MAX_DEPTH]; /* each part as it is written, for messages: decoded, it may hold anything */
    size_t written[TOML_MAX_DEPTH];
    size_t count;
};

static int read_value(struct toml_parser *parser, size_t depth, struct toml_value **value);

static void key_path_release(struct key_path *path)
{
    for (size_t i = 0; i < path->count; i++)
        toml_name_release(&path->part[i]);
}

static int fail_depth(struct toml_parser *parser, const char *at)
{
    return toml_fail(parser, at, "nested deeper than %d levels", TOML_MAX_DEPTH);
}

static int read_key_path(struct toml_parser *parser, struct key_path *path)
{
    path->count = 0;
    do {
        toml_skip_blanks(parser);
        if (path->count == TOML_MAX_DEPTH)
            return fail_depth(parser, parser->at);
        path->where[path->count] = parser->at;
        path->part[path->count].data = NULL;
        int rc = toml_read_name(parser, &path->part[path->count]);
        if (rc < 0)
            return rc;
        path->written[path->count] = (size_t)(parser->at - path->where[path->count]);
        path->count++;
        toml_skip_blanks(parser);
    } while (toml_accept(parser, '.'));
    return 0;
}

static int fail_duplicate(struct toml_parser *parser, const struct key_path *path, size_t i,
                          const struct toml_value *first)
{
    const char *type = toml_type_name(first->type);
    int written = path->written[i] > 120 ? 0 : (int)path->written[i];
    return toml_fail(parser, path->where[i], "'%.*s' is already defined as %s %s on line %d", written, path->where[i],
                     strchr("aeiou", type[0]) ? "an" : "a", type, first->line);
}

static int add_member(struct toml_parser *parser, struct toml_value *table, struct toml_name *key,
                      struct toml_value *value)
{
    if (value && toml_insert(table, key, value) == 0)
        return 0;
    toml_free(value);
    return toml_no_memory(parser);
}

/* A new, empty table or array under path->part[i]. */
static int add_container(struct toml_parser *parser, struct toml_value *table, struct key_path *path, size_t i,
                         enum toml_type type, enum toml_made made, struct toml_value **out)
{
    struct toml_value *value = toml_new(type, made, toml_line_here(parser));
    int rc = add_member(parser, table, &path->part[i], value);
    if (rc == 0)
        *out = value;
    return rc;
}

static struct toml_value *find_part(const struct toml_value *table, const struct key_path *path, size_t i)
{
    return toml_find(table, path->part[i].data, path->part[i].length);
}

/* ---- key = value ---- */

/* Steps from *table through all parts but the last, making tables where there are none. */
static int descend_dotted(struct toml_parser *parser, struct key_path *path, struct toml_value **table)
{
    for (size_t i = 0; i + 1 < path->count; i++) {
        struct toml_value *next = find_part(*table, path, i);
        if (!next) {
            int rc = add_container(parser, *table, path, i, TOML_TABLE, MADE_DOTTED, &next);
            if (!next)
                return rc;
        } else if (next->type != TOML_TABLE || (next->made != MADE_DOTTED && next->made != MADE_IMPLICIT)) {
            return fail_duplicate(parser, path, i, next);
        }
        next->made = MADE_DOTTED;
        *table = next;
    }
    return 0;
}

static int read_assignment(struct toml_parser *parser, struct key_path *path, struct toml_value *table, size_t depth)
{
    int rc = read_key_path(parser, path);
    if (rc < 0)
        return rc;
    if (depth + path->count > TOML_MAX_DEPTH)
        return fail_depth(parser, path->where[0]);
    if (!toml_accept(parser, '='))
        return toml_fail_expected(parser, "'=' after the key");
    toml_skip_blanks(parser);
    rc = descend_dotted(parser, path, &table);
    if (rc < 0)
        return rc;
    size_t last = path->count - 1;
    const struct toml_value *first = find_part(table, path, last);
    if (first)
        return fail_duplicate(parser, path, last, first);
    struct toml_value *value = NULL;
    rc = read_value(parser, depth + path->count, &value);
    return rc < 0 ? rc : add_member(parser, table, &path->part[last], value);
}

/* `depth` is that of the table. */
static int read_key_value(struct toml_parser *parser, struct toml_value *table, size_t depth)
{
    struct key_path path;
    int rc = read_assignment(parser, &path, table, depth);
    key_path_release(&path);
    return rc;
}

/* ---- values ---- */

static int read_array_members(struct toml_parser *parser, const char *start, size_t depth, struct toml_value *array)
{
    for (;;) {
        toml_skip_blank_lines(parser);
        if (toml_accept(parser, ']'))
            return 0;
        struct toml_value *value = NULL;
        int rc = toml_at_end(parser) ? toml_fail(parser, start, "this array has no closing ]")
                                     : read_value(parser, depth, &value);
        if (rc < 0)
            return rc;
        if (toml_append(array, value) < 0) {
            toml_free(value);
            return toml_no_memory(parser);
        }
        toml_skip_blank_lines(parser);
        if (toml_accept(parser, ','))
            continue;
        if (toml_accept(parser, ']'))
            return 0;
        return toml_at_end(parser) ? toml_fail(parser, start, "this array has no closing ]")
                                   : toml_fail_expected(parser, "',' or ']'");
    }
}

static int read_inline_members(struct toml_parser *parser, size_t depth, struct toml_value *table)
{
    toml_skip_blanks(parser);
    if (toml_accept(parser, '}'))
        return 0;
    for (;;) {
        int rc = read_key_value(parser, table, depth);
        if (rc < 0)
            return rc;
        toml_skip_blanks(parser);
        if (toml_accept(parser, '}'))
            return 0;
        if (!toml_accept(parser, ','))
            return toml_fail_expected(parser, "',' or '}' (an inline table ends on its line)");
    }
}

static int read_container(struct toml_parser *parser, size_t depth, struct toml_value **value)
{
    const char *start = parser->at;
    if (depth >= TOML_MAX_DEPTH)
        return fail_depth(parser, start);
    bool array = *start == '[';
    struct toml_value *made = toml_new(array ? TOML_ARRAY : TOML_TABLE, MADE_VALUE, toml_line_here(parser));
    if (!made)
        return toml_no_memory(parser);
    parser->at++;
    int rc = array ? read_array_members(parser, start, depth + 1, made) : read_inline_members(parser, depth + 1, made);
    if (rc < 0) {
        toml_free(made);
        return rc;
    }
    *value = made;
    return 0;
}

static int read_string_value(struct toml_parser *parser, struct toml_value **value)
{
    struct toml_value *made = toml_new(TOML_STRING, MADE_VALUE, toml_line_here(parser));
    if (!made)
        return toml_no_memory(parser);
    int rc = toml_read_string(parser, true, &made->as.string.data, &made->as.string.length);
    if (rc < 0) {
        toml_free(made);
        return rc;
    }
    *value = made;
    return 0;
}

static int read_value(struct toml_parser *parser, size_t depth, struct toml_value **value)
{
    char first = toml_at_end(parser) ? '\0' : *parser->at;
    if (first == '"' || first == '\'')
        return read_string_value(parser, value);
    if (first == '[' || first == '{')
        return read_container(parser, depth, value);
    return toml_read_scalar(parser, value);
}

/* ---- [header] and [[header]] ---- */

/* The table that a header's part i names on its way: the table itself, or the newest element of a [[header]] array. */
static int descend_header(struct toml_parser *parser, struct key_path *path, size_t i, struct toml_value **table,
                          size_t *depth)
{
    struct toml_value *next = find_part(*table, path, i);
    *depth += 1;
    if (!next) {
        int rc = add_container(parser, *table, path, i, TOML_TABLE, MADE_IMPLICIT, &next);
        if (rc < 0)
            return rc;
    } else if (next->type == TOML_ARRAY && next->made == MADE_TABLES) {
        next = next->as.members.item[next->as.members.count - 1];
        *depth += 1;
    } else if (next->type != TOML_TABLE || next->made == MADE_VALUE) {
        return fail_duplicate(parser, path, i, next);
    }
    *table = next;
    return 0;
}

static int open_table(struct toml_parser *parser, struct key_path *path, size_t last, struct toml_value **table)
{
    struct toml_value *found = find_part(*table, path, last);
    if (!found)
        return add_container(parser, *table, path, last, TOML_TABLE, MADE_HEADER, table);
    if (found->type != TOML_TABLE || found->made != MADE_IMPLICIT)
        return fail_duplicate(parser, path, last, found);
    found->made = MADE_HEADER;
    found->line = toml_line_here(parser);
    *table = found;
    return 0;
}

static int open_array_table(struct toml_parser *parser, struct key_path *path, size_t last, struct toml_value **table)
{
    struct toml_value *array = find_part(*table, path, last);
    if (!array) {
        int rc = add_container(parser, *table, path, last, TOML_ARRAY, MADE_TABLES, &array);
        if (rc < 0)
            return rc;
    } else if (array->made != MADE_TABLES) {
        return fail_duplicate(parser, path, last, array);
    }
    struct toml_value *element = toml_new(TOML_TABLE, MADE_HEADER, toml_line_here(parser));
    if (!element || toml_append(array, element) < 0) {
        toml_free(element);
        return toml_no_memory(parser);
    }
    *table = element;
    return 0;
}

static int read_header_path(struct toml_parser *parser, struct key_path *path, struct toml_value **table, size_t *depth)
{
    bool array = toml_accept(parser, '[');
    int rc = read_key_path(parser, path);
    if (rc < 0)
        return rc;
    if (!toml_accept(parser, ']') || (array && !toml_accept(parser, ']')))
        return toml_fail_expected(parser, array ? "']]'" : "']'");
    *depth = 0;
    for (size_t i = 0; i + 1 < path->count; i++) {
        rc = descend_header(parser, path, i, table, depth);
        if (rc < 0)
            return rc;
    }
    *depth += array ? 2 : 1;
    if (*depth > TOML_MAX_DEPTH)
        return fail_depth(parser, path->where[0]);
    size_t last = path->count - 1;
    return array ? open_array_table(parser, path, last, table) : open_table(parser, path, last, table);
}

/* The cursor is behind the first '['. *table goes in as the root and comes out as what the header opened. */
static int read_header(struct toml_parser *parser, struct toml_value **table, size_t *depth)
{
    struct key_path path;
    int rc = read_header_path(parser, &path, table, depth);
    key_path_release(&path);
    return rc;
}

/* ---- the document ---- */

static int read_document(struct toml_parser *parser, struct toml_value *root)
{
    struct toml_value *table = root;
    size_t depth = 0;
    for (;;) {
        toml_skip_blank_lines(parser);
        if (toml_at_end(parser))
            return 0;
        int rc;
        if (toml_accept(parser, '[')) {
            table = root;
            rc = read_header(parser, &table, &depth);
        } else {
            rc = read_key_value(parser, table, depth);
        }
        if (rc == 0)
            rc = toml_end_line(parser);
        if (rc < 0)
            return rc;
    }
}

int toml_parse(const char *text, size_t length, const char *name, struct toml_value **root, struct hc_err *err)
{
    if (length > TOML_MAX_SIZE)
        return hc_fail(err, HC_CLASS_REQUEST, EFBIG, "%s:1:1: the file is larger than %d bytes", name, TOML_MAX_SIZE);
    static const char bom[] = "\xEF\xBB\xBF";
    if (length >= 3 && memcmp(text, bom, 3) == 0) {
        text += 3;
        length -= 3;
    }
    struct toml_parser parser = {
        .text = text, .end = text + length, .at = text, .name = name, .mark = text, .line_at_mark = 1, .err = err};
    struct toml_value *document HC_CLEANUP(toml_free_ptr) = NULL;
    int rc = toml_check_text(&parser);
    if (rc < 0)
        return rc;
    document = toml_new(TOML_TABLE, MADE_HEADER, 1);
    if (!document)
        return toml_no_memory(&parser);
    rc = read_document(&parser, document);
    if (rc == 0)
        *root = HC_TAKE_PTR(document);
    return rc;
}
