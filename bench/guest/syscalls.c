/*
 * syscalls: loops of cheap system calls, timed by itself. Prints "NAME NANOSECONDS_PER_CALL" for each kind and for a
 * mix.
 *
 * What a cell adds to every system call is the seccomp filter. Cheap calls show it best: the dearer the call, the
 * smaller the share. clock_gettime goes through syscall(2), as libc's own does not enter the kernel. The mix keeps to
 * objects that are the same inside and outside, such as /dev/null; what a path in /usr costs, which is another file
 * system in the cell (an overlay), is a loop of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 300 * 1000 };

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static long call_getppid(int zero)
{
    (void)zero;
    return syscall(SYS_getppid) < 0;
}

static long call_clock_gettime(int zero)
{
    (void)zero;
    struct timespec ts;
    return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
}

static long call_read(int zero)
{
    char byte;
    return read(zero, &byte, 1) != 1;
}

static long call_stat(int zero)
{
    (void)zero;
    struct stat st;
    return stat("/dev/null", &st);
}

static long call_stat_usr(int zero)
{
    (void)zero;
    struct stat st;
    return stat("/usr/bin/env", &st);
}

static long call_mix(int zero)
{
    return call_getppid(zero) | call_clock_gettime(zero) | call_read(zero) | call_stat(zero);
}

int main(void)
{
    static const struct {
        const char *name;
        long (*call)(int zero);
        int calls;
    } loops[] = {
        {"getppid", call_getppid, 1}, {"clock_gettime", call_clock_gettime, 1}, {"read", call_read, 1},
        {"stat", call_stat, 1},       {"stat-usr", call_stat_usr, 1},           {"mix", call_mix, 4},
    };
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    if (zero < 0) {
        perror("/dev/zero");
        return 1;
    }
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
        long failed = 0;
        uint64_t started = now_ns();
        for (int repeat = 0; repeat < REPEATS; repeat++)
            failed |= loops[i].call(zero);
        uint64_t ended = now_ns();
        if (failed) {
            fprintf(stderr, "%s: a call failed\n", loops[i].name);
            return 1;
        }
        printf("%s %.2f\n", loops[i].name, (double)(ended - started) / REPEATS / loops[i].calls);
    }
    close(zero);
    return 0;
}
