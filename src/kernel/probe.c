/* See probe.h. */
#include "kernel/probe.h"

#include "kernel/sys.h"
#include <sys/wait.h>

int hc_probe_namespace(int flag) {
    pid_t pid = fork();
    if (pid == 0) _exit(unshare(CLONE_NEWUSER | flag) == 0 ? 0 : errno);
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
