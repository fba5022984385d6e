/*
 * Makes one system call of one process of a command fail, and says so: what strace's injection cannot do, which counts
 * in every process at once, so that the first process to make its n-th call of a kind ends the run, and the same call
 * of the processes that it would have started is never tried.
 *
 *     inject LOG list COMMAND…                        writes "PROCESS CALL" for each call before the guest begins
 *     inject LOG PROCESS CALL NUMBER ERRNO COMMAND…   the NUMBER-th CALL of PROCESS fails; writes "fired" when it did
 *
 *     inject LOG list -p PID                          the same for a process that is there, and its next child
 *     inject LOG PROCESS CALL NUMBER ERRNO -p PID     "ready" is written when it is traced; ends with the child
 *
 * Processes are counted from 0 in the order of their births. The guest is who execs GUEST; it is let go then, and what
 * is born after it does not count. The command's exit status is passed on. When this ends, so does everything that it
 * traces.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUEST "./sealed"
enum { MOST = 256, CALLS = 600 };

struct process {
    pid_t pid;
    bool execs_guest, failing;
    int counts[CALLS];
};

struct tracer {
    FILE *log;
    bool list, guest_began;
    bool attached; /* to a process that goes on when this ends */
    int process, call, number, error;
    struct process processes[MOST];
    int count;
    int gone; /* processes that ended or were let go */
};

static struct process *process_of(struct tracer *tracer, pid_t pid)
{
    for (int i = tracer->count - 1; i >= 0; i--)
        if (tracer->processes[i].pid == pid)
            return &tracer->processes[i];
    if (tracer->count == MOST)
        exit(99);
    struct process *process = &tracer->processes[tracer->count++];
    *process = (struct process){.pid = pid};
    return process;
}

static bool is_guest(pid_t pid, uint64_t path)
{
    char text[sizeof GUEST] = "";
    struct iovec here = {text, sizeof text}, there = {(void *)path, sizeof text};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof text && strcmp(text, GUEST) == 0;
}

static void on_entry(struct tracer *tracer, struct process *process, const struct __ptrace_syscall_info *info)
{
    uint64_t call = info->entry.nr;
    int index = (int)(process - tracer->processes);
    if (call >= CALLS)
        return;
    if (call == SYS_execve)
        process->execs_guest = is_guest(process->pid, info->entry.args[0]);
    process->counts[call]++;
    if (tracer->list && !tracer->guest_began)
        fprintf(tracer->log, "%d %d\n", index, (int)call);
    if (tracer->list || index != tracer->process || (int)call != tracer->call ||
        process->counts[call] != tracer->number)
        return;
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, process->pid, NULL, &registers) < 0)
        return;
    registers.orig_rax = (unsigned long long)-1; /* no call at all */
    process->failing = ptrace(PTRACE_SETREGS, process->pid, NULL, &registers) == 0;
    fprintf(tracer->log, "fired\n");
}

static void on_exit_of_call(struct tracer *tracer, struct process *process)
{
    struct user_regs_struct registers;
    if (!process->failing)
        return;
    process->failing = false;
    if (ptrace(PTRACE_GETREGS, process->pid, NULL, &registers) < 0)
        return;
    registers.rax = (unsigned long long)-tracer->error;
    ptrace(PTRACE_SETREGS, process->pid, NULL, &registers);
}

/* Returns the signal to deliver, or -1 when the process was let go. */
static int on_stop(struct tracer *tracer, struct process *process, int status, bool known)
{
    int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_EXEC && process->execs_guest) {
        tracer->guest_began = true;
        ptrace(PTRACE_DETACH, process->pid, NULL, NULL);
        tracer->gone++;
        return -1;
    }
    if (event != 0)
        return 0;
    if (signal == (SIGTRAP | 0x80)) {
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, process->pid, sizeof info, &info) <= 0)
            return 0;
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
            on_entry(tracer, process, &info);
        else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
            on_exit_of_call(tracer, process);
        return 0;
    }
    return signal == SIGSTOP && !known ? 0 : signal; /* a child's first stop is the tracer's doing */
}

static int trace(struct tracer *tracer, pid_t command)
{
    int code = 125, status;
    pid_t pid;
    while (!(tracer->attached && tracer->gone > 0) && ((pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR)) {
        if (pid < 0)
            continue;
        int before = tracer->count;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            tracer->gone++;
            if (pid == command)
                code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            for (int i = 0; i < tracer->count; i++)
                if (tracer->processes[i].pid == pid)
                    tracer->processes[i].pid = -1; /* its number may be given again */
            continue;
        }
        struct process *process = process_of(tracer, pid);
        int signal = on_stop(tracer, process, status, tracer->count == before);
        if (signal >= 0)
            ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal);
    }
    return code;
}

static int attach(struct tracer *tracer, pid_t pid, long options)
{
    int status;
    tracer->attached = true;
    if (ptrace(PTRACE_SEIZE, pid, NULL, options) < 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0 ||
        waitpid(pid, &status, __WALL) != pid)
        return 99;
    fprintf(tracer->log, "ready\n");
    process_of(tracer, pid);
    ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    trace(tracer, -1);
    return 0;
}

static int start(struct tracer *tracer, char **command, long options)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execvp(command[0], command);
        _exit(99);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid ||
        ptrace(PTRACE_SETOPTIONS, pid, NULL, options | PTRACE_O_EXITKILL) < 0)
        return 99;
    process_of(tracer, pid);
    ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    return trace(tracer, pid);
}

int main(int argc, char **argv)
{
    static struct tracer tracer;
    const long options =
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    tracer.list = argc > 3 && strcmp(argv[2], "list") == 0;
    char **command = argv + (tracer.list ? 3 : 6);
    if (argc < (tracer.list ? 4 : 7) || !(tracer.log = fopen(argv[1], "we")))
        return 99;
    setvbuf(tracer.log, NULL, _IOLBF, 0); /* it may be ended at any time */
    if (!tracer.list) {
        tracer.process = atoi(argv[2]);
        tracer.call = atoi(argv[3]);
        tracer.number = atoi(argv[4]);
        tracer.error = atoi(argv[5]);
    }
    bool there = strcmp(command[0], "-p") == 0 && command[1];
    int code = there ? attach(&tracer, atoi(command[1]), options) : start(&tracer, command, options);
    return fclose(tracer.log) == 0 ? code : 99;
}
