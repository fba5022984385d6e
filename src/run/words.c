/*
 * Lists of strings. What always holds: a list that was ever added to ends in a NULL, so its item can go to execve as it
 * is; every string and the list are the struct's own.
 */
#include "run/request.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int words_add(struct words *words, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    /* The capacity is not stored: it is the smallest power of two that holds count and the NULL, and grows when they
     * fill it. */
    size_t used = words->count + 1;
    if (words->count == 0 || (used & (used - 1)) == 0) {
        char **item = reallocarray(words->item, used * 2, sizeof *item);
        if (!item) {
            free(copy);
            return -ENOMEM;
        }
        words->item = item;
    }
    words->item[words->count++] = copy;
    words->item[words->count] = NULL;
    return 0;
}

void words_release(struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->item[i]);
    free(words->item);
    *words = (struct words){0};
}
