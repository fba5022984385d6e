/* The neighbour: argv[1] beats, each a little work and a short sleep. Prints the 95th percentile and the median of a
 * beat's time in microseconds. */
#include "probe.h"

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
    uint64_t *times = calloc(count, sizeof *times);
    if (!times || count == 0)
        return 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = now();
        nap(2);
        for (volatile int work = 0; work < 400000; work++)
            ;
        for (int call = 0; call < 50; call++)
            syscall(SYS_getppid);
        times[i] = now() - start;
    }
    qsort(times, count, sizeof *times, compare);
    fact("p50", "%lu", (unsigned long)times[count / 2]);
    fact("p95", "%lu", (unsigned long)times[count * 95 / 100]);
    free(times);
    return 0;
}
