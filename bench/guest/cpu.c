/*
 * cpu: about a second of single-threaded work, timed by itself. Prints "cpu NANOSECONDS CHECKSUM".
 *
 * The work is integer mixing over a table of 256 KiB, so that it feels lost processor time and lost cache, and makes no
 * system call while the clock runs. The checksum shows that all of it was done.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { WORDS = 32 * 1024, STEPS = 220 * 1000 * 1000 };

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(void)
{
    static uint64_t table[WORDS];
    for (uint64_t i = 0; i < WORDS; i++)
        table[i] = i * UINT64_C(0x9e3779b97f4a7c15);

    uint64_t started = now_ns();
    uint64_t state = 1;
    for (long i = 0; i < STEPS; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        table[state % WORDS] += state;
    }
    uint64_t ended = now_ns();

    uint64_t sum = 0;
    for (int i = 0; i < WORDS; i++)
        sum ^= table[i];
    printf("cpu %llu %llx\n", (unsigned long long)(ended - started), (unsigned long long)sum);
    return 0;
}
