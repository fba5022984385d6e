/* The little of JSON that the verbs with tables need. What they read was written by the library, so shapes are known.
 */
#include "cli/json.h"

#include "base/buf.h"
#include "base/fd.h"
#include "cli/stream.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAIN_CEILING = 64 * 1024 };

void json_release_ptr(json_t **value)
{
    json_decref(*value);
}

int json_show(const char *text)
{
    json_cleanup json_t *root = isatty(STDOUT_FILENO) ? json_loads(text, 0, NULL) : NULL;
    hc_cleanup_free char *pretty = root ? json_dumps(root, JSON_INDENT(2) | JSON_ENSURE_ASCII) : NULL;
    const char *shown = pretty ? pretty : text;
    size_t length = strlen(shown);

    int status = stream_write(STDOUT_FILENO, shown, length);
    if (status == 0 && (length == 0 || shown[length - 1] != '\n'))
        status = stream_write(STDOUT_FILENO, "\n", 1);
    return status;
}

const char *json_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static void add_plain(struct hc_buf *buf, const json_t *value)
{
    if (json_is_string(value)) {
        hc_buf_add_str(buf, json_string_value(value));
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            hc_buf_add_str(buf, i ? ", " : "");
            add_plain(buf, json_array_get(value, i));
        }
    } else if (value && !json_is_null(value)) {
        hc_cleanup_free char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        hc_buf_add_str(buf, text ? text : "");
    }
}

char *json_plain(const json_t *value)
{
    struct hc_buf buf = HC_BUF_INIT(PLAIN_CEILING);

    add_plain(&buf, value);
    if (buf.length == 0)
        hc_buf_add_str(&buf, "-");
    return hc_buf_take(&buf, NULL);
}
