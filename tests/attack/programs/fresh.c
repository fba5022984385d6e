/*
 * Memory and tmpfs pages that were just given to us must be zero. `fill TOKEN MIB`: fill memory and files with a token,
 * then end without wiping. `scan MIB`: count bytes that are not zero in fresh pages. `both`: dirty a page first and
 * scan that, to show that the scan sees.
 */
#include "probe.h"
#include <sys/mman.h>

enum { MIB = 1 << 20 };

static size_t dirt(const char *memory, size_t size)
{
    size_t count = 0;
    const uint64_t *word = (const uint64_t *)(const void *)memory;
    for (size_t i = 0; i < size / sizeof *word; i++)
        count += word[i] != 0;
    return count;
}

static char *of_file(const char *path, size_t size, int flags)
{
    int fd = open(path, O_RDWR | flags | O_CLOEXEC, 0600);
    if (fd < 0 || (flags & O_CREAT && fallocate(fd, 0, 0, (off_t)size) < 0))
        return MAP_FAILED;
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return map;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    bool fill = strcmp(argv[1], "fill") == 0, both = strcmp(argv[1], "both") == 0;
    size_t size = strtoul(argv[fill && argc > 3 ? 3 : 2], NULL, 10) * MIB;
    char *anonymous = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *file = of_file("fresh.file", size / 4, O_CREAT);
    if (anonymous == MAP_FAILED || file == MAP_FAILED) {
        probe("map", -1);
        return 1;
    }
    if (fill) {
        size_t length = strlen(argv[2]);
        for (size_t at = 0; at + length < size; at += length)
            memcpy(anonymous + at, argv[2], length);
        for (size_t at = 0; at + length < size / 4; at += length)
            memcpy(file + at, argv[2], length);
        fact("filled", "yes");
        return 0;
    }
    if (both)
        anonymous[size / 2] = file[size / 8] = 1;
    fact("dirty_memory", "%zu", dirt(anonymous, size));
    fact("dirty_file", "%zu", dirt(file, size / 4));
    unlink("fresh.file");
    return 0;
}
