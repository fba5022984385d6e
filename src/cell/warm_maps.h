/* What the kernel says of this process's own memory. */
#ifndef HC_CELL_WARM_MAPS_H
#define HC_CELL_WARM_MAPS_H

#include "cell/warm_pages.h"
#include <stdio.h>

enum { WARM_PAGE = 4096 };
/* An entry of the page map. */
#define WARM_IS_PRESENT (1ull << 63)
#define WARM_IS_SWAPPED (1ull << 62)
#define WARM_IS_FILE (1ull << 61)
#define WARM_IS_ALONE (1ull << 56) /* mapped by this process only */

struct warm_range {
    uint64_t start;
    uint32_t length; /* bytes */
    uint32_t written;
};

struct warm_ranges {
    size_t count, pages;
    struct warm_range range[WARM_MOST_RANGES];
};

/* One page more, behind those that are there; what is too much is left out. */
void warm_maps_add(struct warm_ranges *ranges, uint64_t address, bool written);
/* The next mapping of /proc/self/maps; `rest` is what the kernel says of it behind its addresses. What is left of a
 * line that was too long is passed over. */
bool warm_maps_next(FILE *list, char *line, int size, uint64_t *start, uint64_t *end, char **rest);
/* What the kernel's page map says of each page, until `look` says false. Returns whether it never did. */
bool warm_maps_each_page(int map, uint64_t start, uint64_t end, bool (*look)(uint64_t at, uint64_t entry, void *data),
                         void *data);
/* A mapping of a file that is only read: a fork leaves out its pages, for a child can find them again. */
bool warm_maps_is_left_out(const char *rest);

#endif
