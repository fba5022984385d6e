/* Read and write a sibling's memory, and trace it. The sibling holds argv[1], a token that must not come out. */
#include "probe.h"
#include <sys/ptrace.h>
#include <sys/uio.h>

static char secret[128];

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    pid_t sibling = fork();
    if (sibling == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (size_t i = 0; i < strlen(argv[1]) && i < sizeof secret - 1; i++)
            secret[i] = argv[1][i] ^ 1; /* so that only memory that was truly read has it in this form */
        nap(3000);
        _exit(0);
    }
    nap(50);
    char copy[sizeof secret] = "";
    struct iovec local = {copy, sizeof copy}, remote = {secret, sizeof secret};
    probe("process_vm_readv", syscall(SYS_process_vm_readv, sibling, &local, 1, &remote, 1, 0));
    fact("read", "%s", copy);
    probe("process_vm_writev", syscall(SYS_process_vm_writev, sibling, &local, 1, &remote, 1, 0));
    long seized = ptrace(PTRACE_SEIZE, sibling, NULL, NULL);
    probe("ptrace_seize", seized);
    int pidfd = (int)syscall(SYS_pidfd_open, sibling, 0);
    probe("pidfd_getfd", pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 1, 0));
    kill(sibling, SIGKILL);
    waitpid(sibling, NULL, 0);
    return 0;
}
