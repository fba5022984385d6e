/*
 * The file helper as a program, for tests: `files_helper [--sealed] OPERATION [KEY=VALUE]…`, in the working directory.
 * With --sealed it first puts the system call filter and Landlock in force, as a job has them when the warden calls
 * the helper, with the working directory and /tmp as what may be written.
 */
#include "cell/files.h"
#include "kernel/landlock.h"
#include "kernel/seccomp.h"
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static int seal(void)
{
    const struct landlock_path paths[] = {
        {"/", LANDLOCK_READ}, {".", LANDLOCK_WRITE}, {"/dev/shm", LANDLOCK_WRITE}, {"/proc", LANDLOCK_DEVICE}};
    struct hc_err err = {0};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    if ((hc_landlock_abi() > 0 && hc_landlock_restrict(paths, 4, true, &err) < 0) || hc_seccomp_load(&err) < 0) {
        dprintf(STDERR_FILENO, "%s\n", err.message);
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    umask(022);
    if (argc > 1 && strcmp(argv[1], "--sealed") == 0) {
        if (seal() < 0)
            return 2;
        argc--, argv++;
    }
    files_main(argv + 1, (uint32_t)(argc - 1));
}
