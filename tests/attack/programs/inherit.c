/* What the standard streams are good for besides their purpose: write to stdin, climb from it, open it anew, type into
 * a terminal. argv[1]: a file of the host. */
#include "probe.h"
#include <sys/ioctl.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    char path[PATH_MAX], name[64];
    snprintf(path, sizeof path, "%s%s", UP64, argv[1] + 1);
    for (int fd = 0; fd < 3; fd++) {
        snprintf(name, sizeof name, "climb_%d", fd);
        int file = openat(fd, path, O_RDONLY | O_CLOEXEC);
        probe(name, file);
        if (file >= 0)
            dump(file);
        snprintf(name, sizeof name, "type_%d", fd);
        probe(name, ioctl(fd, TIOCSTI, "#"));
        snprintf(name, sizeof name, "terminal_%d", fd);
        struct winsize size;
        probe(name, ioctl(fd, TIOCGWINSZ, &size));
    }
    probe("write_stdin", write(0, "attack", 6));
    probe("truncate_stdin", ftruncate(0, 0));
    int again = open("/proc/self/fd/0", O_RDWR | O_CLOEXEC);
    struct stat info;
    bool file = again >= 0 && fstat(again, &info) == 0 && S_ISREG(info.st_mode);
    if (again >= 0 && !file)
        errno = ESPIPE; /* a pipe of one's own */
    probe("reopen_stdin", file ? write(again, "attack", 6) : -1);
    probe("controlling", open("/dev/tty", O_RDWR | O_CLOEXEC));
    return 0;
}
