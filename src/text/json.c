/*
 * Reading and writing JSON. Jansson does the parsing; this adds the depth limit, one error text, and a writer of our
 * own (json_out.h), because Jansson 2.14 prints 3.1 as 3.1000000000000001 unless it is given fewer digits, and then
 * other numbers lose some of theirs; and because it is called anew, with a table of what it has visited, for each value
 * that is written by itself.
 */
#include "text/json.h"
#include "text/json_out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void hc_json_release(json_t **value)
{
    json_decref(*value);
    *value = NULL;
}

/* Recursion ends at `left` 0, so the stack is bounded by the limit that the caller chose. */
static bool deeper_than(const json_t *value, size_t left)
{
    const json_t *item;
    const char *key;
    size_t index;

    if (!json_is_object(value) && !json_is_array(value))
        return false;
    if (left == 0)
        return true;
    json_object_foreach((json_t *)value, key, item)
    {
        if (deeper_than(item, left - 1))
            return true;
    }
    json_array_foreach(value, index, item)
    {
        if (deeper_than(item, left - 1))
            return true;
    }
    return false;
}

int hc_json_read(const char *text, size_t length, size_t depth, json_t **out, struct hc_err *err)
{
    json_error_t where;
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);

    if (!value) {
        /* Jansson says nothing at all when most of its allocations fail. */
        if (json_error_code(&where) == json_error_out_of_memory || where.text[0] == '\0')
            return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "not valid JSON: line %d, column %d: %s", where.line,
                       where.column, where.text);
    }
    if (deeper_than(value, depth)) {
        json_decref(value);
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the JSON is nested more than %zu levels deep", depth);
    }
    *out = value;
    return 0;
}

char *hc_json_write(const json_t *value, bool pretty)
{
    struct hc_json_out out = HC_JSON_OUT(pretty);

    if (!value)
        return NULL;
    hc_json_put_value(&out, NULL, value);
    return hc_json_out_take(&out);
}

json_t *hc_json_text(const char *data, size_t length)
{
    return json_stringn(data ? data : "", length);
}

json_t *hc_json_text_lossy(const char *text)
{
    size_t length = strlen(text);
    json_t *whole = json_stringn(text, length);

    if (whole)
        return whole;
    char *copy = malloc(length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length + 1);
    for (size_t at = 0; at < length;) {
        json_t *probe = NULL;
        size_t size = 0;
        while (!probe && size < 4 && at + size < length)
            probe = json_stringn(copy + at, ++size);
        if (!probe) {
            copy[at] = '?';
            size = 1;
        }
        json_decref(probe);
        at += size;
    }
    whole = json_stringn(copy, length);
    free(copy);
    return whole;
}
