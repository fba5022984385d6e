/*
 * The TOML tree: what the parser builds and what everyone else reads.
 *
 * A value belongs to the array or table that holds it, and the root to the caller. A table keeps its members in the
 * order of the document, and a balanced tree beside them for lookups. The parser caps the depth, so freeing may
 * recurse.
 */
#include "text/toml_internal.h"
#include <assert.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

static bool is_container(const struct toml_value *value)
{
    return value->type == TOML_ARRAY || value->type == TOML_TABLE;
}

static int compare_keys(const void *left, const void *right)
{
    const struct toml_value *a = left, *b = right;
    if (a->key_length != b->key_length)
        return a->key_length < b->key_length ? -1 : 1;
    return memcmp(a->key, b->key, a->key_length);
}

static void leave_member(void *member)
{
    (void)member; /* the tree only borrows the members */
}

struct toml_value *toml_new(enum toml_type type, enum toml_made made, int line)
{
    struct toml_value *value = calloc(1, sizeof *value);
    if (!value)
        return NULL;
    value->type = type;
    value->made = made;
    value->line = line;
    return value;
}

void toml_free(struct toml_value *root)
{
    if (!root)
        return;
    if (is_container(root)) {
        tdestroy(root->as.members.index, leave_member);
        for (size_t i = 0; i < root->as.members.count; i++)
            toml_free(root->as.members.item[i]);
        free(root->as.members.item);
    } else if (root->type != TOML_INTEGER && root->type != TOML_FLOAT && root->type != TOML_BOOLEAN) {
        free(root->as.string.data);
    }
    free(root->key);
    free(root);
}

void toml_free_ptr(struct toml_value **root)
{
    toml_free(*root);
    *root = NULL;
}

int toml_append(struct toml_value *array, struct toml_value *value)
{
    if (array->as.members.count == array->as.members.capacity) {
        uint32_t capacity = array->as.members.capacity ? array->as.members.capacity * 2 : 4;
        struct toml_value **item = reallocarray(array->as.members.item, capacity, sizeof(struct toml_value *));
        if (!item)
            return -ENOMEM;
        array->as.members.item = item;
        array->as.members.capacity = capacity;
    }
    array->as.members.item[array->as.members.count++] = value;
    return 0;
}

int toml_insert(struct toml_value *table, struct toml_name *key, struct toml_value *value)
{
    if (toml_append(table, value) < 0)
        return -ENOMEM;
    value->key = key->data;
    value->key_length = (uint32_t)key->length;
    if (!tsearch(value, &table->as.members.index, compare_keys)) {
        table->as.members.count--;
        value->key = NULL;
        return -ENOMEM;
    }
    key->data = NULL;
    return 0;
}

struct toml_value *toml_find(const struct toml_value *table, const char *key, size_t length)
{
    struct toml_value wanted = {.key = (char *)key, .key_length = (uint32_t)length};
    struct toml_value *const *found = tfind(&wanted, &table->as.members.index, compare_keys);
    return found ? *found : NULL;
}

enum toml_type toml_type(const struct toml_value *value)
{
    return value->type;
}

const char *toml_type_name(enum toml_type type)
{
    static const char *const names[] = {
        [TOML_STRING] = "string",
        [TOML_INTEGER] = "integer",
        [TOML_FLOAT] = "float",
        [TOML_BOOLEAN] = "boolean",
        [TOML_OFFSET_DATETIME] = "date and time",
        [TOML_LOCAL_DATETIME] = "local date and time",
        [TOML_LOCAL_DATE] = "local date",
        [TOML_LOCAL_TIME] = "local time",
        [TOML_ARRAY] = "array",
        [TOML_TABLE] = "table",
    };
    return names[type];
}

int toml_line(const struct toml_value *value)
{
    return value->line;
}

const char *toml_string(const struct toml_value *value, size_t *length)
{
    assert(value->type == TOML_STRING);
    if (length)
        *length = value->as.string.length;
    return value->as.string.data;
}

int64_t toml_integer(const struct toml_value *value)
{
    assert(value->type == TOML_INTEGER);
    return value->as.integer;
}

double toml_float(const struct toml_value *value)
{
    assert(value->type == TOML_FLOAT);
    return value->as.real;
}

bool toml_boolean(const struct toml_value *value)
{
    assert(value->type == TOML_BOOLEAN);
    return value->as.boolean;
}

const char *toml_datetime(const struct toml_value *value)
{
    assert(value->type >= TOML_OFFSET_DATETIME && value->type <= TOML_LOCAL_TIME);
    return value->as.string.data;
}

size_t toml_count(const struct toml_value *value)
{
    assert(is_container(value));
    return value->as.members.count;
}

const struct toml_value *toml_at(const struct toml_value *value, size_t index)
{
    assert(is_container(value) && index < value->as.members.count);
    return value->as.members.item[index];
}

const char *toml_key(const struct toml_value *table, size_t index, size_t *length)
{
    assert(table->type == TOML_TABLE && index < table->as.members.count);
    if (length)
        *length = table->as.members.item[index]->key_length;
    return table->as.members.item[index]->key;
}

const struct toml_value *toml_get(const struct toml_value *table, const char *key)
{
    assert(table->type == TOML_TABLE);
    return toml_find(table, key, strlen(key));
}
