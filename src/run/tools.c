/* See tools.h. */
#include "run/tools.h"

#include "text/json.h"
#include <errno.h>
#include <string.h>

enum { TOOLS_DEPTH = 32 };

json_t *tools_load(void)
{
    hc_cleanup_json json_t *document = NULL;
    if (hc_json_read(tools_text, tools_length, TOOLS_DEPTH, &document, NULL) < 0)
        return NULL;
    return json_incref(json_object_get(document, "tools"));
}

static json_t *as_openai(const json_t *tool)
{
    return json_pack("{s:s, s:{s:O, s:O, s:O}}", "type", "function", "function", "name", json_object_get(tool, "name"),
                     "description", json_object_get(tool, "description"), "parameters",
                     json_object_get(tool, "inputSchema"));
}

static json_t *as_anthropic(const json_t *tool)
{
    return json_pack("{s:O, s:O, s:O}", "name", json_object_get(tool, "name"), "description",
                     json_object_get(tool, "description"), "input_schema", json_object_get(tool, "inputSchema"));
}

static json_t *as_it_is(const json_t *tool)
{
    return json_incref((json_t *)tool);
}

static const struct {
    const char *name;
    json_t *(*convert)(const json_t *tool);
} FORMATS[] = {{"json", as_it_is}, {"openai", as_openai}, {"anthropic", as_anthropic}};

int tools_format(const json_t *tools, const char *format, json_t **out, struct hc_err *err)
{
    size_t row = 0, index;
    json_t *tool;
    while (row < sizeof FORMATS / sizeof FORMATS[0] && strcmp(FORMATS[row].name, format) != 0)
        row++;
    if (row == sizeof FORMATS / sizeof FORMATS[0]) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is no format \"%.40s\"; there are json, openai and anthropic",
                format);
        return hc_err_field(err, "format");
    }
    hc_cleanup_json json_t *list = json_array();
    json_array_foreach((json_t *)tools, index, tool)
    {
        if (json_array_append_new(list, FORMATS[row].convert(tool)) < 0)
            return hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    }
    *out = json_incref(list);
    return 0;
}
