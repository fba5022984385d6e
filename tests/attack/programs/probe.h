/*
 * What every attack program shares: one line for each door that was tried, `name=OK` when it opened, `name=ERRNO` when
 * it did not. Lines go out unbuffered, so that what was found before a kill is kept.
 */
#ifndef PROBE_H
#define PROBE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UP8 "../../../../../../../../"
#define UP64 UP8 UP8 UP8 UP8 UP8 UP8 UP8 UP8

static inline const char *errno_word(int error)
{
    const char *word = strerrorname_np(error);
    return word ? word : "EUNKNOWN";
}

static inline void probe(const char *name, long result)
{
    dprintf(STDOUT_FILENO, "%s=%s\n", name, result < 0 ? errno_word(errno) : "OK");
}

__attribute__((format(printf, 2, 3), unused)) static void fact(const char *name, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(STDOUT_FILENO, "%s=%s\n", name, text);
}

/* Print what a file holds, so that a secret that is reached is seen in the output. */
__attribute__((unused)) static void dump(int fd)
{
    char block[4096];
    ssize_t got = read(fd, block, sizeof block);
    if (got > 0 && write(STDOUT_FILENO, block, (size_t)got) < 0)
        return;
    if (got > 0 && block[got - 1] != '\n')
        dprintf(STDOUT_FILENO, "\n");
}

/* Open, print, close; the probe is whether something could be read. */
__attribute__((unused)) static void peek(const char *name, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    probe(name, fd);
    if (fd >= 0) {
        dump(fd);
        close(fd);
    }
}

/* Open for writing what may be masked by /dev/null: that is as good as shut. */
__attribute__((unused)) static int open_knob(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3)) {
        close(fd);
        errno = ENODEV;
        return -1;
    }
    return fd;
}

__attribute__((unused)) static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0) {
        if (write(fd, text, strlen(text)) < 0)
            fact("put", "%s", errno_word(errno));
        close(fd);
    }
}

__attribute__((unused)) static void nap(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time) < 0 && errno == EINTR)
        ;
}

#endif
