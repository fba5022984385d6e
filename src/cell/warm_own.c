/* See warm_own.h. */
#include "cell/warm_own.h"

#include "base/fd.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_SIGNAL = 64, MAX_EVENTFDS = 8 };

/* A preloaded library has nobody to carry its state. */
static struct {
    uint64_t action[MAX_SIGNAL + 1][4]; /* struct sigaction as the kernel has it: the handler first */
    int eventfd[MAX_EVENTFDS];
    size_t eventfd_count;
} own;

void warm_own_remember(void)
{
    for (int number = 1; number <= MAX_SIGNAL; number++)
        syscall(SYS_rt_sigaction, number, NULL, own.action[number], sizeof(uint64_t));
    DIR *list = opendir("/proc/self/fd");
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char link[32] = "";
        if (readlinkat(dirfd(list), entry->d_name, link, sizeof link - 1) > 0 &&
            strcmp(link, "anon_inode:[eventfd]") == 0 && own.eventfd_count < MAX_EVENTFDS)
            own.eventfd[own.eventfd_count++] = (int)strtol(entry->d_name, NULL, 10);
    }
    if (list)
        closedir(list);
}

/* What wakes threads must not be shared with other children, and an interpreter may close it without asking whether it
 * is there (Ruby dies if it is not): a new eventfd takes the place of each. */
void warm_own_restore(void)
{
    for (int number = 1; number <= MAX_SIGNAL; number++)
        if (own.action[number][0] && syscall(SYS_rt_sigaction, number, own.action[number], NULL, sizeof(uint64_t)) < 0)
            _exit(125);
    for (size_t i = 0; i < own.eventfd_count; i++) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), want = own.eventfd[i];
        if (fd < 0 || (fd != want && (dup3(fd, want, O_CLOEXEC) < 0 || close(fd) < 0)))
            _exit(125);
    }
}
