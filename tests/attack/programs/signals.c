/*
 * Signal and trace what is not ours. `all`: kill(-1). `pids PID…`: SIGKILL each. `init`: everything against pid 1, or
 * against argv[2] where a stand-in is given. What must not be killed is judged from outside.
 */
#include "probe.h"
#include <sys/ptrace.h>
#include <sys/uio.h>

static void attach(pid_t pid)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    probe("pidfd_getfd", pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 0, 0));
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    probe("mem", open(path, O_RDWR | O_CLOEXEC));
    struct iovec local = {&byte, 1}, remote = {(void *)0x400000, 1};
    long got = syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EFAULT) /* the address is not mapped, but the door was open */
        got = 0;
    probe("process_vm_readv", got);
    long seized = ptrace(PTRACE_SEIZE, pid, NULL, NULL);
    probe("ptrace_seize", seized);
    if (seized == 0)
        ptrace(PTRACE_DETACH, pid, NULL, NULL);
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    peek("environ", path);
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    probe("maps", fd < 0 ? -1 : read(fd, &byte, 1));
}

static void against(pid_t pid)
{
    attach(pid);
    for (int number = 1; number < 65; number++) {
        if (number == SIGKILL || number == SIGSTOP || number == 32 || number == 33)
            continue;
        kill(pid, number);
    }
    probe("sigstop", kill(pid, SIGSTOP));
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0)
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    kill(pid, SIGKILL);
    nap(100);
    char path[64], line[256] = "", state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file && fgets(line, sizeof line, file))
        sscanf(line, "%*d (%*[^)]) %c", &state);
    if (file)
        fclose(file);
    fact("state_after", "%c", state);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "init") == 0)
        against(argc > 2 ? atoi(argv[2]) : 1);
    for (int i = 2; i < argc && strcmp(argv[1], "pids") == 0; i++)
        probe(argv[i], kill(atoi(argv[i]), SIGKILL));
    if (strcmp(argv[1], "all") == 0)
        probe("all", kill(-1, SIGKILL));
    fact("alive", "yes");
    return 0;
}
