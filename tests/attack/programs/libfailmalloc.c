/* To preload: the allocation number FAIL_AT (counted over malloc, calloc and realloc) fails, once. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

static long left = -2;

static int fails(void)
{
    if (left == -2) {
        const char *text = getenv("FAIL_AT");
        left = text ? atol(text) : -1;
    }
    if (left <= 0)
        return 0;
    if (--left > 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    extern void *__libc_malloc(size_t);
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    extern void *__libc_calloc(size_t, size_t);
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    extern void *__libc_realloc(void *, size_t);
    return fails() ? NULL : __libc_realloc(old, size);
}
