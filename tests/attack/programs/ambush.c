/*
 * Lie in wait for the next job that enters the cell (argv[1]: a file of the host). Leaves a daemon that stops every
 * other process it may signal, and tries to go through each new one to the host: root, cwd, descriptors, memory. What
 * it finds goes to `found` in the working directory.
 */
#include "probe.h"

static int found = -1;

static void through(const char *pid, const char *way, const char *file)
{
    char path[PATH_MAX], text[256];
    snprintf(path, sizeof path, "/proc/%s/%s%s%s", pid, way, *file ? "/" UP64 : "", *file ? file + 1 : "");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    ssize_t got = read(fd, text, sizeof text);
    if (got > 0)
        dprintf(found, "%s/%s: %.*s\n", pid, way, (int)got, text);
    close(fd);
}

static void descriptors(const char *pid, const char *file)
{
    char folder[300], way[300];
    snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
    DIR *fds = opendir(folder);
    for (struct dirent *entry; fds && (entry = readdir(fds));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) > 2) {
            snprintf(way, sizeof way, "fd/%s", entry->d_name);
            char link[600], target[512];
            snprintf(link, sizeof link, "/proc/%s/%s", pid, way);
            ssize_t length = readlink(link, target, sizeof target);
            dprintf(found, "%s/%s is to be seen -> %.*s\n", pid, way, length < 0 ? 0 : (int)length, target);
            through(pid, way, file);
        }
    if (fds)
        closedir(fds);
}

static void lie_in_wait(const char *file, const char *mode)
{
    char own[16];
    snprintf(own, sizeof own, "%d", getpid());
    time_t end = time(NULL) + 20;
    while (time(NULL) < end) {
        DIR *proc = opendir("/proc");
        for (struct dirent *entry; proc && (entry = readdir(proc));) {
            const char *pid = entry->d_name;
            if (pid[0] < '0' || pid[0] > '9' || strcmp(pid, own) == 0 || strcmp(pid, "1") == 0)
                continue;
            if (strcmp(mode, "stop") == 0)
                kill(atoi(pid), SIGSTOP);
            if (strcmp(mode, "kill") == 0)
                kill(atoi(pid), SIGKILL);
            through(pid, "root", file);
            through(pid, "cwd", file);
            through(pid, "environ", "");
            descriptors(pid, file);
        }
        if (proc)
            closedir(proc);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    found = open("found", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fork() == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
        close(null);
        lie_in_wait(argv[1], argv[2]);
        _exit(0);
    }
    nap(50);
    fact("ambush", "laid");
    return 0;
}
