/*
 * Every system call number from 0 to 600 with zero arguments, each in a child of its own. `number=ERRNO`, `number=OK`,
 * `number=SIG<n>` when a signal ended the child, `number=BLOCKS` when it had not returned within a moment. Those that
 * end, replace or stop the child by their nature are left to its exit status.
 */
#include "probe.h"
#include <poll.h>

static void one(long number)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0)
        _exit(3);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        if (number != SYS_close &&
            number != SYS_read) /* descriptor 0 is the working argument of many: give them a harmless one */
            dup2(pipes[0], 0);
        errno = 0;
        long result = syscall(number, 0L, 0L, 0L, 0L, 0L, 0L);
        if (getpid() != (pid_t)syscall(SYS_getpid))
            _exit(0);
        int answer = result == -1 ? errno : 0;
        if (write(pipes[1], &answer, sizeof answer) < 0)
            _exit(2);
        _exit(0);
    }
    close(pipes[1]);
    struct pollfd ready = {.fd = pipes[0], .events = POLLIN};
    int answer = -1, status = 0;
    const char *patience = getenv("PATIENCE"); /* how many times as long a moment is on a slow machine */
    int polled = poll(&ready, 1, patience ? 60 * atoi(patience) : 60);
    bool told = polled == 1 && read(pipes[0], &answer, sizeof answer) == sizeof answer;
    if (!told && polled == 0)
        kill(child, SIGKILL);
    kill(-child, SIGKILL);
    waitpid(child, &status, 0);
    close(pipes[0]);
    if (told)
        dprintf(1, "%ld=%s\n", number, answer ? errno_word(answer) : "OK");
    else if (polled == 0)
        dprintf(1, "%ld=BLOCKS\n", number);
    else if (WIFSIGNALED(status))
        dprintf(1, "%ld=SIG%d\n", number, WTERMSIG(status));
    else
        dprintf(1, "%ld=ENDS\n", number);
}

int main(void)
{
    for (long number = 0; number <= 600; number++)
        one(number);
    return 0;
}
