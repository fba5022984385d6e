/*
 * Gain an identity by a setuid file: argv[1] is one of the system's that waits for input (su). Its euid is read from
 * /proc while it waits. With no argument: print the euid (so that a setuid copy of this program tells its own).
 */
#include "probe.h"

static int status_euid(pid_t pid)
{
    char path[64], line[256];
    int real, effective = -1;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Uid: %d %d", &real, &effective) == 2)
            break;
    if (file)
        fclose(file);
    return effective;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fact("euid", "%d", (int)geteuid());
        return 0;
    }
    fact("own_euid", "%d", (int)geteuid());
    if (argc > 2) { /* a setuid copy of this program */
        probe("chmod_setuid", chmod(argv[2], 04755));
        pid_t child = fork();
        if (child == 0) {
            execl(argv[2], argv[2], NULL);
            probe("exec_copy", -1);
            _exit(1);
        }
        waitpid(child, NULL, 0);
    }
    int pipes[2];
    if (pipe(pipes) < 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        dup2(pipes[0], STDIN_FILENO);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        close(pipes[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(argv[1], argv[1], NULL);
        _exit(127);
    }
    close(pipes[0]);
    int lowest = (int)geteuid();
    for (int i = 0; i < 100; i++) { /* su sleeps on the password prompt: the euid shows once it was exec'ed */
        int euid = status_euid(child);
        if (euid >= 0 && euid < lowest)
            lowest = euid;
        if (lowest == 0)
            break;
        nap(2);
    }
    kill(child, SIGKILL);
    fact("system_euid", "%d", lowest);
    waitpid(child, NULL, 0);
    return 0;
}
