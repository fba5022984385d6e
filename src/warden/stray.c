/*
 * Strays: children of the warden that it does not know of, because the zygote that made one for a job died before it
 * could say so, or because nobody wants it any more. Each must be found, for a cell is not gone before the last process
 * in it was waited for, and a job must not run twice. /proc tells: a process in the cell's pid namespace whose parent
 * is the warden, and which is neither pid 1 there nor a job.
 */
#include "base/fd.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>

static bool same_namespace(pid_t one, pid_t other)
{
    char path[2][32];
    struct stat status[2];
    snprintf(path[0], sizeof path[0], "/proc/%d/ns/pid", (int)one);
    snprintf(path[1], sizeof path[1], "/proc/%d/ns/pid", (int)other);
    return stat(path[0], &status[0]) == 0 && stat(path[1], &status[1]) == 0 && status[0].st_dev == status[1].st_dev &&
           status[0].st_ino == status[1].st_ino;
}

static bool is_our_child(pid_t pid)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (hc_read_file_at(AT_FDCWD, path, text, sizeof text) <= 0)
        return false;
    const char *end = strrchr(text, ')'); /* ") S 1 ..." */
    return end && strlen(end) > 4 && strtol(end + 4, NULL, 10) == getpid();
}

static bool is_known(const struct warden *warden, pid_t pid)
{
    for (const struct held_cell *cell = warden->cells; cell; cell = cell->next) {
        if (cell->cell.pid == pid)
            return true;
        for (const struct held_job *job = cell->jobs; job; job = job->next)
            if (job->running && job->pid == pid)
                return true;
    }
    return false;
}

int stray_find(const struct warden *warden, pid_t cell, pid_t *pid)
{
    int found = -1;
    DIR *list = opendir("/proc");
    for (struct dirent *entry; found < 0 && list && (entry = readdir(list));) {
        *pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (*pid <= 1 || *pid == cell || !is_our_child(*pid) || is_known(warden, *pid) || !same_namespace(*pid, cell))
            continue;
        found = (int)syscall(SYS_pidfd_open, *pid, 0);
        if (found < 0) { /* without an fd nobody could watch it */
            kill(*pid, SIGKILL);
            waitpid(*pid, NULL, 0);
        }
    }
    if (list)
        closedir(list);
    return found;
}

struct ending { /* of a stray */
    struct hc_watch *watch;
};

static void on_exit_of(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct ending *ending = data;
    siginfo_t info = {0};
    if (syscall(SYS_waitid, 3 /* P_PIDFD */, fd, &info, WEXITED | WNOHANG, NULL) == 0 && info.si_pid == 0)
        return;
    hc_watch_remove(ending->watch);
    close(fd);
    free(ending);
}

void stray_end(struct warden *warden, int pidfd)
{
    struct ending *ending = malloc(sizeof *ending);
    hc_pidfd_signal(pidfd, SIGKILL);
    if (ending && (ending->watch = hc_loop_watch(warden->loop, pidfd, EPOLLIN, on_exit_of, ending)))
        return;
    free(ending);
    hc_close(pidfd);
}
