/* Print the command line and the environment of every process that is to be seen, and how many there are. */
#include "probe.h"

static void show(const char *pid, const char *what)
{
    char path[300], block[65536];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, what);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, block, sizeof block - 1);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < got; i++)
        if (!block[i] || block[i] == '\n')
            block[i] = ' ';
    block[got < 0 ? 0 : got] = 0;
    dprintf(1, "%s %s: %s\n", pid, what, got < 0 ? errno_word(errno) : block);
}

int main(void)
{
    DIR *proc = opendir("/proc");
    int count = 0;
    for (struct dirent *entry; proc && (entry = readdir(proc));)
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') {
            count++;
            show(entry->d_name, "cmdline");
            show(entry->d_name, "environ");
        }
    fact("count", "%d", count);
    return 0;
}
