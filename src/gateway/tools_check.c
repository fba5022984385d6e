/*
 * JSON Schema, as much of it as the tools' own schemas use: type, properties, required, additionalProperties, items,
 * enum, anyOf, and the bounds of numbers, strings and lists. A unit test holds tools.json to these.
 */
#include "base/suggest.h"
#include "gateway/tools_internal.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FIELD_SIZE = 64, NAMES = 32 };

static const char *kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return "string";
    case JSON_INTEGER:
        return "integer";
    case JSON_REAL:
        return "number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

static bool kind_fits(const json_t *value, const char *kind)
{
    const char *own = kind_of(value);
    return strcmp(own, kind) == 0 || (strcmp(kind, "number") == 0 && strcmp(own, "integer") == 0) ||
           (strcmp(kind, "integer") == 0 && json_is_real(value) &&
            json_real_value(value) == (double)(json_int_t)json_real_value(value));
}

static int wrong(const char *field, struct hc_err *err)
{
    return field[0] != '\0' ? hc_err_field(err, "%s", field) : -EINVAL;
}

static int check_kind(const json_t *value, const json_t *kinds, const char *field, struct hc_err *err)
{
    char wanted[96] = "";
    if (json_is_string(kinds)) {
        if (kind_fits(value, json_string_value(kinds)))
            return 0;
        snprintf(wanted, sizeof wanted, "%s", json_string_value(kinds));
    }
    size_t index;
    json_t *kind;
    json_array_foreach((json_t *)kinds, index, kind)
    {
        if (kind_fits(value, json_string_value(kind)))
            return 0;
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s%s", used > 0 ? " or " : "", json_string_value(kind));
    }
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s must be of type %s, not %s",
            field[0] != '\0' ? field : "the argument list", wanted, kind_of(value));
    return wrong(field, err);
}

static int check_number(const json_t *value, const json_t *schema, const char *field, struct hc_err *err)
{
    const json_t *least = json_object_get(schema, "minimum"), *most = json_object_get(schema, "maximum");
    const json_t *above = json_object_get(schema, "exclusiveMinimum");
    double number = json_number_value(value);
    if (least != NULL && number < json_number_value(least))
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is %g; it must be %g or more", field, number,
                json_number_value(least));
    else if (above != NULL && number <= json_number_value(above))
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is %g; it must be more than %g", field, number,
                json_number_value(above));
    else if (most != NULL && number > json_number_value(most))
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is %g; it must be %g or less", field, number,
                json_number_value(most));
    else
        return 0;
    return wrong(field, err);
}

static int check_length(size_t length, const json_t *schema, const char *least_key, const char *most_key,
                        const char *field, struct hc_err *err)
{
    const json_t *least = json_object_get(schema, least_key), *most = json_object_get(schema, most_key);
    if (least != NULL && length < (size_t)json_integer_value(least))
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, length == 0 ? "%s is empty" : "%s is too short", field);
    else if (most != NULL && length > (size_t)json_integer_value(most))
        hc_fail(err, HC_CLASS_REQUEST, E2BIG, "%s is too long: %zu, and at most %lld are allowed", field, length,
                (long long)json_integer_value(most));
    else
        return 0;
    return wrong(field, err);
}

static int check_enum(const json_t *value, const json_t *choices, const char *field, struct hc_err *err)
{
    char text[160] = "";
    size_t index;
    json_t *choice;
    json_array_foreach((json_t *)choices, index, choice)
    {
        if (json_equal(value, choice))
            return 0;
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? ", " : "", json_string_value(choice));
    }
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is \"%.40s\"; it must be one of %s", field,
            json_is_string(value) ? json_string_value(value) : kind_of(value), text);
    return wrong(field, err);
}

static int check(const json_t *value, const json_t *schema, const char *field, struct hc_err *err);

static int unknown_member(const char *key, const json_t *properties, const char *field, struct hc_err *err)
{
    const char *names[NAMES], *name;
    size_t count = 0;
    json_t *ignored;
    json_object_foreach((json_t *)properties, name, ignored)
    {
        if (count < NAMES)
            names[count++] = name;
    }
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is no argument \"%.60s\"", key);
    const char *nearest = hc_suggest(key, names, count);
    if (nearest != NULL)
        hc_err_remedy(err, "did you mean \"%s\"?", nearest);
    return wrong(field, err);
}

static int check_object(const json_t *value, const json_t *schema, const char *prefix, struct hc_err *err)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    const char *key;
    json_t *member;
    size_t index;
    json_array_foreach(json_object_get(schema, "required"), index, member)
    {
        if (json_object_get(value, json_string_value(member)) != NULL)
            continue;
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the argument \"%s\" is missing", json_string_value(member));
        return hc_err_field(err, "%s", json_string_value(member));
    }
    json_object_foreach((json_t *)value, key, member)
    {
        char field[FIELD_SIZE];
        const json_t *own = json_object_get(properties, key);
        snprintf(field, sizeof field, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        if (own == NULL && json_is_false(others))
            return unknown_member(key, properties, field, err);
        own = own != NULL ? own : json_is_object(others) ? others : NULL;
        int status = own != NULL ? check(member, own, field, err) : 0;
        if (status < 0)
            return status;
    }
    return 0;
}

static int check_items(const json_t *value, const json_t *schema, const char *prefix, struct hc_err *err)
{
    size_t index;
    json_t *item;
    int status = check_length(json_array_size(value), schema, "minItems", "maxItems", prefix, err);
    json_array_foreach((json_t *)value, index, item)
    {
        char field[FIELD_SIZE];
        snprintf(field, sizeof field, "%.40s[%zu]", prefix, index);
        if (status == 0 && json_object_get(schema, "items") != NULL)
            status = check(item, json_object_get(schema, "items"), field, err);
    }
    return status;
}

static int check_any(const json_t *value, const json_t *schemas, const char *field, struct hc_err *err)
{
    struct hc_err first = {0};
    size_t index;
    json_t *schema;
    json_array_foreach((json_t *)schemas, index, schema)
    {
        struct hc_err this = {0};
        if (check(value, schema, field, &this) == 0)
            return 0;
        /* What is said of the form that it has is of more use than what is said of one that it does not have. */
        bool same = kind_fits(value, json_string_value(json_object_get(schema, "type")));
        if (first.code == 0 || same)
            first = this;
    }
    *err = first;
    return -first.code;
}

static int check(const json_t *value, const json_t *schema, const char *field, struct hc_err *err)
{
    const json_t *kinds = json_object_get(schema, "type"), *choices = json_object_get(schema, "enum");
    int status = kinds != NULL ? check_kind(value, kinds, field, err) : 0;
    if (status == 0 && json_object_get(schema, "anyOf") != NULL)
        status = check_any(value, json_object_get(schema, "anyOf"), field, err);
    if (status == 0 && choices != NULL)
        status = check_enum(value, choices, field, err);
    if (status < 0)
        return status;
    if (json_is_number(value))
        return check_number(value, schema, field, err);
    if (json_is_string(value))
        return check_length(json_string_length(value), schema, "minLength", "maxLength", field, err);
    if (json_is_array(value))
        return check_items(value, schema, field, err);
    return json_is_object(value) ? check_object(value, schema, field, err) : 0;
}

int tool_check(const json_t *value, const json_t *schema, struct hc_err *err)
{
    return check(value, schema, "", err);
}

/* ---- projection ---- */

static json_t *project_object(const json_t *value, const json_t *properties)
{
    json_t *out = json_object();
    const char *key;
    json_t *schema;
    json_object_foreach((json_t *)properties, key, schema)
    {
        const json_t *member = json_object_get(value, key);
        if (member != NULL)
            json_object_set_new(out, key, tool_project(member, schema));
    }
    return out;
}

json_t *tool_project(const json_t *value, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties"), *items = json_object_get(schema, "items");
    const json_t *choices = json_object_get(schema, "anyOf");
    if (json_is_object(value) && choices != NULL)
        return tool_project(value, json_array_get(choices, 0));
    if (json_is_object(value) && properties != NULL)
        return project_object(value, properties);
    if (!json_is_array(value) || items == NULL)
        return json_incref((json_t *)value);
    json_t *out = json_array();
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)value, index, item) json_array_append_new(out, tool_project(item, items));
    return out;
}
