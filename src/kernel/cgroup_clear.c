/* See cgroup_clear.h. */
#include "kernel/cgroup_clear.h"

#include "base/fd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = CGROUP_BASE_PREFIX;

/* Whoever is still in there belonged to a keeper that is dead, or to ours which is going. */
static void end_processes(int dir)
{
    if (hc_write_file_at(dir, "cgroup.kill", "1") == 0)
        return;
    char text[65536];
    if (hc_read_file_at(dir, "cgroup.procs", text, sizeof text) <= 0)
        return;
    char *save = NULL;
    for (char *word = strtok_r(text, "\n", &save); word; word = strtok_r(NULL, "\n", &save)) {
        long pid = strtol(word, NULL, 10);
        if (pid > 1)
            kill((pid_t)pid, SIGKILL);
    }
}

/* Remove dir/name and the groups in it; a group whose processes are on their way out is waited for, up to a second in
 * all. */
static int remove_tree(int dir, const char *name)
{
    hc_cleanup_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    int copy = dup(fd);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (!list) {
        hc_close(copy);
        return -errno;
    }
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            remove_tree(fd, entry->d_name);
    closedir(list);
    for (int try = 0; try < 200; try++) {
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            return -errno;
        end_processes(fd);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return -EBUSY;
}

/* hotcell-<pid>-<hexadecimal>, as cgroup_base_open makes them, and nobody else's. */
static bool is_base_name(const char *name)
{
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *pid = name + sizeof prefix - 1;
    size_t length = strspn(pid, "0123456789");
    const char *number = pid + length + 1;
    return length > 0 && pid[length] == '-' && *number && number[strspn(number, "0123456789abcdef")] == '\0';
}

/* A base whose lock nobody holds has no keeper. `lock_dir` is the hierarchy that carries the locks. */
static bool is_stale(int lock_dir, const char *name)
{
    hc_cleanup_fd int fd = openat(lock_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void cgroup_clear_stale(const int *dirs, size_t count)
{
    for (size_t i = count; i-- > 0;) { /* the lock goes last */
        struct stat st;
        if (fstat(dirs[i], &st) == 0 && st.st_nlink == 2)
            continue; /* no group in it at all */
        int copy = openat(dirs[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
        if (!list) {
            hc_close(copy);
            continue;
        }
        for (struct dirent *entry; (entry = readdir(list));)
            if (is_base_name(entry->d_name) && is_stale(dirs[0], entry->d_name))
                remove_tree(dirs[i], entry->d_name);
        closedir(list);
    }
}

/* What an ordinary run leaves is known by name, and gone by a few calls. */
void cgroup_clear_base(int dir, const char *name)
{
    hc_cleanup_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    unlinkat(fd, CGROUP_FIRST_CELL, AT_REMOVEDIR);
    unlinkat(fd, CGROUP_WARDEN, AT_REMOVEDIR);
    if (unlinkat(dir, name, AT_REMOVEDIR) < 0)
        remove_tree(dir, name);
}
