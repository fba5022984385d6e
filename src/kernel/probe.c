/* See probe.h. */
#include "kernel/probe.h"

#include "kernel/cgroup.h"
#include "kernel/landlock.h"
#include "kernel/seccomp.h"
#include "kernel/sys.h"
#include <sys/wait.h>

const struct probe_namespace probe_namespaces[] = {
    {"user namespace", "own uids, no power over the host's", 0},
    {"mount namespace", "own file system tree", CLONE_NEWNS},
    {"pid namespace", "own processes", CLONE_NEWPID},
    {"net namespace", "no network but its own loopback", CLONE_NEWNET},
    {"ipc namespace", "own message queues and shared memory", CLONE_NEWIPC},
    {"uts namespace", "own host name", CLONE_NEWUTS},
    {"cgroup namespace", "the host's groups are not shown", CLONE_NEWCGROUP},
};
const size_t probe_namespace_count = sizeof probe_namespaces / sizeof *probe_namespaces;

int probe_namespace(const struct probe_namespace *kind)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER | kind->flag) == 0 ? 0 : errno);
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int probe_landlock(void)
{
    return hc_landlock_abi();
}
int probe_seccomp(struct hc_err *err)
{
    return hc_seccomp_probe(err);
}
const char *probe_cgroup_word(unsigned mode)
{
    return cgroup_mode_word(mode <= CGROUP_V2 ? mode : CGROUP_NONE);
}
