/* The table of watches: a list, since there are some thousand at most. */
#include "cell/files_watch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct watch_item *find(const struct watch_table *table, int wd)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->items[i].wd == wd)
            return &table->items[i];
    return NULL;
}

/* What is left of a path behind the folder, or NULL if it is not in it: "" is the folder itself. */
static const char *rest_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    if (length == 0)
        return path;
    bool below = strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
    return below ? path + length : NULL;
}

int watch_table_put(struct watch_table *table, int wd, const char *path)
{
    struct watch_item *item = find(table, wd);
    if (!item && table->count == table->limit)
        return -ENOSPC;
    if (!item && table->count == table->room) {
        size_t room = table->room ? table->room * 2 : 16;
        struct watch_item *items = realloc(table->items, room * sizeof *items);
        if (!items)
            return -ENOMEM;
        table->items = items;
        table->room = room;
    }
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    if (item)
        free(item->path);
    else
        item = &table->items[table->count++];
    *item = (struct watch_item){.wd = wd, .path = copy};
    return 0;
}

const char *watch_table_path(const struct watch_table *table, int wd)
{
    const struct watch_item *item = find(table, wd);
    return item ? item->path : NULL;
}

int watch_table_find(const struct watch_table *table, const char *path)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->items[i].path, path) == 0)
            return table->items[i].wd;
    return -1;
}

void watch_table_drop(struct watch_table *table, int wd)
{
    struct watch_item *item = find(table, wd);
    if (!item)
        return;
    free(item->path);
    *item = table->items[--table->count];
}

int watch_table_move(struct watch_table *table, const char *from, const char *to)
{
    for (size_t i = 0; i < table->count; i++) {
        const char *rest = rest_below(table->items[i].path, from);
        if (!rest)
            continue;
        size_t size = strlen(to) + strlen(rest) + 1;
        char *path = malloc(size);
        if (!path)
            return -ENOMEM;
        snprintf(path, size, "%s%s", to, rest);
        free(table->items[i].path);
        table->items[i].path = path;
    }
    return 0;
}

int watch_table_below(const struct watch_table *table, const char *path)
{
    for (size_t i = 0; i < table->count; i++)
        if (rest_below(table->items[i].path, path))
            return table->items[i].wd;
    return -1;
}

void watch_table_release(struct watch_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->items[i].path);
    free(table->items);
    *table = (struct watch_table){.limit = table->limit};
}
