/* setns to each namespace of argv[1] (a pid), by its files and by a pidfd, each in a child. */
#include "probe.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    static const char *kinds[] = {"mnt", "uts", "ipc", "user", "pid", "net", "cgroup"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pid_t child = fork();
        if (child == 0) {
            char path[64];
            snprintf(path, sizeof path, "/proc/%s/ns/%s", argv[1], kinds[i]);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            probe(kinds[i], fd < 0 ? -1 : setns(fd, 0));
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    pid_t child = fork();
    if (child == 0) {
        int pidfd = (int)syscall(SYS_pidfd_open, atoi(argv[1]), 0);
        probe("pidfd", pidfd < 0 ? -1 : setns(pidfd, CLONE_NEWUTS | CLONE_NEWIPC));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return 0;
}
