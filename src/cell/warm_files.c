/* See warm_files.h. */
#include "cell/warm_files.h"

#include "base/fd.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define POPULATE_READ 22 /* MADV_POPULATE_READ, Linux 5.14 */
enum {
    SPLIT_MOST = 40000, /* a process may have 65530 mappings */
    SMALL = 2 << 20,    /* as are libc and whatever else a zygote itself runs while it serves */
};

/* A preloaded library has nobody to carry its state. */
static struct mappings {
    size_t count;
    struct {
        uint64_t start, end;
    } list[WARM_MOST_RANGES];
} in_pieces;

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* Every other page has advice of its own. Nobody heeds it: what is read has been read already. */
static size_t split(uint64_t start, uint64_t end, size_t most)
{
    size_t count = 0;
    for (uint64_t at = start + WARM_PAGE; at < end && count < most; at += 2UL * WARM_PAGE)
        count += madvise(pointer(at), WARM_PAGE, MADV_RANDOM) == 0 ? 2 : 0;
    return count;
}

static void add_mapping(struct mappings *all, uint64_t start, uint64_t end)
{
    if (all->count == WARM_MOST_RANGES)
        return;
    all->list[all->count].start = start;
    all->list[all->count++].end = end;
}

/* Read to the end before anything is changed: the list is the kernel's, and would go on with what is new. */
static void list_mappings(struct mappings *all)
{
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end;
    all->count = 0;
    while (warm_maps_next(list, line, sizeof line, &start, &end, &rest))
        if (warm_maps_is_left_out(rest))
            add_mapping(all, start, end);
    if (list)
        fclose(list);
}

/* Nothing was written to it, by a linker for instance: what is there is what the file has. */
static bool is_as_in_file(uint64_t at, uint64_t entry, void *unused)
{
    (void)at, (void)unused;
    return !(entry & (WARM_IS_PRESENT | WARM_IS_SWAPPED)) || entry & WARM_IS_FILE;
}

/* What it was shown until now, with neighbours, it has to ask for once more. */
void warm_files_begin(void)
{
    hc_cleanup_fd int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    size_t made = 0;
    list_mappings(&in_pieces);
    for (size_t i = 0; i < in_pieces.count && made < SPLIT_MOST; i++)
        made += split(in_pieces.list[i].start, in_pieces.list[i].end, SPLIT_MOST - made);
    for (size_t i = 0; i < in_pieces.count && map >= 0; i++)
        if (warm_maps_each_page(map, in_pieces.list[i].start, in_pieces.list[i].end, is_as_in_file, NULL))
            (void)madvise(pointer(in_pieces.list[i].start), in_pieces.list[i].end - in_pieces.list[i].start,
                          MADV_DONTNEED);
}

static bool add_present(uint64_t at, uint64_t entry, void *found)
{
    if (entry & WARM_IS_PRESENT && entry & WARM_IS_FILE)
        warm_maps_add(found, at, false);
    return true;
}

void warm_files_find(struct warm_ranges *found)
{
    hc_cleanup_fd int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end;
    while (map >= 0 && warm_maps_next(list, line, sizeof line, &start, &end, &rest))
        if (warm_maps_is_left_out(rest))
            warm_maps_each_page(map, start, end, add_present, found);
    if (list)
        fclose(list);
}

/* ---- handing down ---- */

/* What overlaps this mapping. Each piece is a mapping of its own, so that no neighbours come along. */
static bool for_each_part(const struct warm_ranges *found, uint64_t start, uint64_t end, bool take)
{
    bool any = false;
    for (size_t i = 0; i < found->count; i++) {
        const struct warm_range *range = &found->range[i];
        uint64_t from = range->start > start ? range->start : start, to = range->start + range->length;
        to = to < end ? to : end;
        if (range->written || from >= to)
            continue;
        any = true;
        if (take) {
            (void)madvise(pointer(from), to - from, MADV_RANDOM);
            (void)madvise(pointer(from), to - from, POPULATE_READ);
        }
    }
    return any;
}

/* One mapping. False: none can be handed down. */
static bool hand_down(const struct warm_ranges *found, int memory, uint64_t start, uint64_t end)
{
    char byte;
    (void)madvise(pointer(start), WARM_PAGE, MADV_RANDOM);
    if (pread(memory, &byte, 1, (off_t)start) != 1 || pwrite(memory, &byte, 1, (off_t)start) != 1) {
        (void)madvise(pointer(start), WARM_PAGE, MADV_NORMAL);
        return false;
    }
    (void)madvise(pointer(start + WARM_PAGE), end - start - WARM_PAGE, MADV_DONTNEED);
    for_each_part(found, start, end, true);
    (void)madvise(pointer(start), end - start, MADV_NORMAL);
    if (end - start <= SMALL && split(start, end, SPLIT_MOST))
        add_mapping(&in_pieces, start, end);
    return true;
}

/* A mapping in which one page is the process's own has all its pages copied to a child (vma_needs_copy in the kernel's
 * mm/memory.c), at a fifth of the price at which the child would find them. So one page of each mapping is written over
 * by itself, pages that programs do not need are let go, and those that they do are there. What the zygote needs for
 * itself it gets one by one, for smaller mappings are left in pieces for now. */
void warm_files_hand_down(const struct warm_ranges *found)
{
    static struct mappings all;
    hc_cleanup_fd int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    hc_cleanup_fd int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    bool good = map >= 0 && memory >= 0;
    list_mappings(&all);
    in_pieces.count = 0;
    for (size_t i = 0; i < all.count && good; i++)
        if (for_each_part(found, all.list[i].start, all.list[i].end, false) &&
            warm_maps_each_page(map, all.list[i].start, all.list[i].end, is_as_in_file, NULL))
            good = hand_down(found, memory, all.list[i].start, all.list[i].end);
}

void warm_files_settle(void)
{
    for (size_t i = 0; i < in_pieces.count; i++)
        (void)madvise(pointer(in_pieces.list[i].start), in_pieces.list[i].end - in_pieces.list[i].start, MADV_NORMAL);
    in_pieces.count = 0;
}
