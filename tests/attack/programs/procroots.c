/* Go through every process's root, cwd and fds, and through one's own threads, to a file of the host. argv[1]: that
 * file. */
#include "probe.h"

static void through(const char *base, const char *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", base, file);
    peek(path, path);
    snprintf(path, sizeof path, "%s/%s%s", base, UP64, file + 1);
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/..%s", base, file);
    peek(name, path);
}

static void through_fds(const char *pid, const char *file)
{
    char folder[PATH_MAX / 2];
    snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
    DIR *fds = opendir(folder);
    if (!fds)
        return;
    for (struct dirent *entry; (entry = readdir(fds));) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(fds))
            continue;
        char base[PATH_MAX / 2 + 300];
        struct stat info;
        snprintf(base, sizeof base, "%s/%s", folder, entry->d_name);
        if (stat(base, &info) == 0 && S_ISDIR(info.st_mode))
            through(base, file);
    }
    closedir(fds);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    DIR *proc = opendir("/proc");
    if (!proc) {
        probe("proc", -1);
        return 1;
    }
    int seen = 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        bool self = strcmp(entry->d_name, "self") == 0 || strcmp(entry->d_name, "thread-self") == 0;
        if (!self && (entry->d_name[0] < '0' || entry->d_name[0] > '9'))
            continue;
        char base[300];
        snprintf(base, sizeof base, "/proc/%s/root", entry->d_name);
        through(base, argv[1]);
        snprintf(base, sizeof base, "/proc/%s/cwd", entry->d_name);
        through(base, argv[1]);
        if (self || seen < 64)
            through_fds(entry->d_name, argv[1]);
        seen++;
    }
    closedir(proc);
    return 0;
}
