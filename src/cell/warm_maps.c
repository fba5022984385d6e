/* See warm_maps.h. */
#include "cell/warm_maps.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE = 512 }; /* entries of the page map */

void warm_maps_add(struct warm_ranges *ranges, uint64_t address, bool written)
{
    struct warm_range *last = ranges->count ? &ranges->range[ranges->count - 1] : NULL;
    if (ranges->pages == WARM_MOST_PAGES)
        return;
    if (last && last->written == written && address == last->start + last->length)
        last->length += WARM_PAGE;
    else if (ranges->count < WARM_MOST_RANGES)
        ranges->range[ranges->count++] = (struct warm_range){address, WARM_PAGE, written};
    else
        return;
    ranges->pages++;
}

bool warm_maps_next(FILE *list, char *line, int size, uint64_t *start, uint64_t *end, char **rest)
{
    char *next;
    while (list && fgets(line, size, list)) {
        *start = strtoull(line, &next, 16);
        if (next == line || *next != '-')
            continue;
        *end = strtoull(next + 1, rest, 16);
        return *end > *start && strlen(*rest) > 4;
    }
    return false;
}

bool warm_maps_each_page(int map, uint64_t start, uint64_t end, bool (*look)(uint64_t at, uint64_t entry, void *data),
                         void *data)
{
    uint64_t entry[AT_ONCE];
    for (uint64_t at = start; at < end;) {
        size_t want = (end - at) / WARM_PAGE < AT_ONCE ? (end - at) / WARM_PAGE : AT_ONCE;
        ssize_t got = pread(map, entry, want * sizeof *entry, (off_t)(at / WARM_PAGE * sizeof *entry));
        if (got < (ssize_t)sizeof *entry)
            return false;
        for (size_t i = 0; i < (size_t)got / sizeof *entry; i++, at += WARM_PAGE)
            if (!look(at, entry[i], data))
                return false;
    }
    return true;
}

bool warm_maps_is_left_out(const char *rest) /* " r-xp 00000000 fe:00 1234 …" */
{
    if (rest[1] != 'r' || rest[2] != '-' || rest[4] != 'p')
        return false;
    const char *inode = rest;
    for (int field = 0; inode && field < 3; field++)
        inode = strchr(inode + 1, ' ');
    return inode && strtoul(inode, NULL, 10) != 0;
}
