/* Every namespace flag by unshare, clone and clone3, each in a child of its own. */
#include "probe.h"
#include <linux/sched.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static const struct {
    const char *name;
    uint64_t flag;
} kinds[] = {
    {"mnt", CLONE_NEWNS},
    {"uts", CLONE_NEWUTS},
    {"ipc", CLONE_NEWIPC},
    {"user", CLONE_NEWUSER},
    {"pid", CLONE_NEWPID},
    {"net", CLONE_NEWNET},
    {"cgroup", CLONE_NEWCGROUP},
    {"time", CLONE_NEWTIME},
    {"user+mnt", CLONE_NEWUSER | CLONE_NEWNS},
    {"user+net", CLONE_NEWUSER | CLONE_NEWNET},
};

static void in_child(const char *name, uint64_t flag)
{
    pid_t child = fork();
    if (child == 0) {
        probe(name, unshare((int)flag));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[64];
        snprintf(name, sizeof name, "unshare_%s", kinds[i].name);
        in_child(name, kinds[i].flag);
        if (kinds[i].flag != CLONE_NEWTIME) { /* clone() has the exit signal in that bit */
            snprintf(name, sizeof name, "clone_%s", kinds[i].name);
            long pid = syscall(SYS_clone, kinds[i].flag | SIGCHLD, NULL, NULL, NULL, 0);
            if (pid == 0)
                _exit(0);
            probe(name, pid);
            if (pid > 0)
                waitpid((pid_t)pid, NULL, 0);
        }
        struct clone_args arguments = {.flags = kinds[i].flag, .exit_signal = SIGCHLD};
        snprintf(name, sizeof name, "clone3_%s", kinds[i].name);
        long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (pid == 0)
            _exit(0);
        probe(name, pid);
        if (pid > 0)
            waitpid((pid_t)pid, NULL, 0);
    }
    return 0;
}
