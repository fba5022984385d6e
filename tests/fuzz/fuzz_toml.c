/*
 * Feeds bytes to the TOML parser. Besides what the sanitizers see, it checks what the header promises: a refusal is of
 * class "request", has a position and leaves the root untouched; an accepted tree can be walked, and each key of it
 * found again.
 */
#include "base/fd.h"
#include "text/toml.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static void walk(const struct toml_value *value, int depth)
{
    check(depth <= 64);
    check(toml_line(value) >= 1);
    check(toml_type_name(toml_type(value)) != NULL);
    switch (toml_type(value)) {
    case TOML_STRING: {
        size_t length;
        const char *text = toml_string(value, &length);
        check(text[length] == '\0');
        break;
    }
    case TOML_OFFSET_DATETIME:
    case TOML_LOCAL_DATETIME:
    case TOML_LOCAL_DATE:
    case TOML_LOCAL_TIME:
        check(strlen(toml_datetime(value)) >= 8);
        break;
    case TOML_TABLE:
        for (size_t i = 0; i < toml_count(value); i++) {
            size_t length;
            const char *key = toml_key(value, i, &length);
            if (strlen(key) == length)
                check(toml_get(value, key) == toml_at(value, i));
            walk(toml_at(value, i), depth + 1);
        }
        break;
    case TOML_ARRAY:
        for (size_t i = 0; i < toml_count(value); i++)
            walk(toml_at(value, i), depth + 1);
        break;
    case TOML_INTEGER:
    case TOML_FLOAT:
    case TOML_BOOLEAN:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hc_err err = {0};
    struct toml_value *root HC_CLEANUP(toml_free_ptr) = NULL;
    if (toml_parse((const char *)data, size, "fuzz", &root, &err) < 0) {
        check(root == NULL && err.code > 0);
        check(err.class == HC_CLASS_REQUEST && strncmp(err.message, "fuzz:", 5) == 0);
        return 0;
    }
    check(err.code == 0);
    walk(root, 0);
    return 0;
}
