/* Which folder each inotify watch is on. */
#ifndef HC_CELL_FILES_WATCH_H
#define HC_CELL_FILES_WATCH_H

#include <stddef.h>

struct watch_table {
    struct watch_item {
        int wd;
        char *path; /* below the root of all; "" is the root itself */
    } * items;
    size_t count, room, limit;
};

/* 0; -ENOSPC when the table is full; -ENOMEM. A watch that is there already gets the path. */
int watch_table_put(struct watch_table *table, int wd, const char *path);
/* NULL: it is not, or no longer, ours. */
const char *watch_table_path(const struct watch_table *table, int wd);
/* Whether some watch has this path. */
int watch_table_find(const struct watch_table *table, const char *path);
void watch_table_drop(struct watch_table *table, int wd);
/* A folder has another path now, and with it all that are in it. 0 or -ENOMEM. */
int watch_table_move(struct watch_table *table, const char *from, const char *to);
/* The next watch on `path` or below it, or -1: to be removed and dropped, one after the other. */
int watch_table_below(const struct watch_table *table, const char *path);
void watch_table_release(struct watch_table *table);

#endif
