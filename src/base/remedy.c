/* See remedy.h. */
#include "base/remedy.h"

#include <stdio.h>
#include <string.h>

const char *hc_remedy_typed(const char *hint, char *text, size_t size)
{
    static const struct {
        const char *said, *typed;
    } words[] = {{"`files`", "--file"}, {"`stdin`", "stdin"}};
    const char *const middle = " on the command line)", *open = strchr(hint, '('), *close = strstr(hint, middle);
    size_t length = 0;

    if (strncmp(hint, HC_REMEDY_RAISE, sizeof(HC_REMEDY_RAISE) - 1) == 0 && open && close > open) {
        snprintf(text, size, "raise %.*s%s", (int)(close - open - 1), open + 1, close + strlen(middle));
        return text;
    }
    text[0] = '\0';
    while (*hint && length + 1 < size) {
        const char *typed = NULL;
        for (size_t i = 0; i < sizeof(words) / sizeof(*words) && !typed; i++)
            if (strncmp(hint, words[i].said, strlen(words[i].said)) == 0) {
                typed = words[i].typed;
                hint += strlen(words[i].said);
            }
        int written = typed ? snprintf(text + length, size - length, "%s", typed)
                            : snprintf(text + length, size - length, "%c", *hint++);
        length += (size_t)written;
    }
    return text;
}

bool hc_remedy_is_around(const char *category, const char *hint)
{
    static const char *const around[] = {"import", "permission", "network"};

    if (strncmp(hint, HC_REMEDY_RAISE, sizeof(HC_REMEDY_RAISE) - 1) == 0)
        return true;
    for (size_t i = 0; i < sizeof(around) / sizeof(*around); i++)
        if (strcmp(around[i], category) == 0)
            return hint[0] != '\0';
    return false;
}
