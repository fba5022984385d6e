/* Which descriptors came along, where they lead, and whether 3 to 1023 can be written. argv[1]: a file of the host. */
#include "probe.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    char path[PATH_MAX], link[64], target[PATH_MAX];
    int open_count = 0, foreign = 0, writable = 0;
    snprintf(path, sizeof path, "%s%s", UP64, argv[1] + 1);
    for (int fd = 0; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        open_count++;
        if (fd <= 2)
            continue;
        foreign++;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
        fact("fd", "%d -> %s", fd, target);
        char name[64];
        snprintf(name, sizeof name, "through_%d", fd);
        int file = openat(fd, path, O_RDONLY | O_CLOEXEC);
        if (file < 0 && errno == ENOTDIR) {
            lseek(fd, 0, SEEK_SET);
            dump(fd);
        }
        probe(name, file);
        if (file >= 0)
            dump(file);
    }
    for (int fd = 3; fd < 1024; fd++)
        if (write(fd, "", 0) == 0 || errno != EBADF)
            writable++;
    fact("open", "%d", open_count);
    fact("foreign", "%d", foreign);
    fact("not_ebadf", "%d", writable);
    return 0;
}
