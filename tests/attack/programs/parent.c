/* A sibling: a child of the parent's, by clone and clone3. It ends at once, and whoever is its parent must wait for it.
 */
#include "probe.h"
#include <linux/sched.h>

int main(void)
{
    pid_t child = fork(); /* so that the parent outside is ours */
    if (child == 0) {
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0)
            _exit(0);
        probe("clone_parent", pid);
        struct clone_args arguments = {.flags = CLONE_PARENT};
        pid = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (pid == 0)
            _exit(0);
        probe("clone3_parent", pid);
        _exit(0);
    }
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    /* And from the job itself, whose parent is not in its pid namespace. */
    if (getppid() == 0) {
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0)
            _exit(0);
        probe("clone_parent", pid);
    }
    return 0;
}
