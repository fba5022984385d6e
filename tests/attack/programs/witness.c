/*
 * Calls that are refused and written down, and pid 1, who does that.
 *
 *   witness calls          each of them once
 *   witness flood N        mount, N times, by two threads
 *   witness against PID    everything a guest could do to the one who counts, then a call that must be refused still
 */
#include "probe.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>

static void try_calls(void)
{
    char space[256] = {0};
    probe("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
    probe("umount2", syscall(SYS_umount2, "/tmp", 0));
    probe("bpf", syscall(SYS_bpf, 0, space, sizeof space));
    probe("unshare", syscall(SYS_unshare, CLONE_NEWUSER));
    probe("setns", syscall(SYS_setns, open("/proc/self/ns/net", O_RDONLY), 0));
    probe("ptrace", syscall(SYS_ptrace, PTRACE_ATTACH, getppid(), 0, 0));
    probe("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    probe("init_module", syscall(SYS_init_module, space, 0, ""));
    probe("open_by_handle_at", syscall(SYS_open_by_handle_at, -1, space, 0));
    probe("userfaultfd", syscall(SYS_userfaultfd, 1));
    probe("perf_event_open", syscall(SYS_perf_event_open, space, 0, -1, -1, 0));
    probe("pidfd_getfd", syscall(438 /* pidfd_getfd */, -1, 0, 0));
    probe("packet", socket(17 /* AF_PACKET */, SOCK_RAW, 0));
    probe("vsock", socket(40 /* AF_VSOCK */, SOCK_STREAM, 0));
    probe("netlink", socket(16 /* AF_NETLINK: C libraries make these */, SOCK_RAW, 0));
    probe("io_uring_setup", syscall(425 /* libuv tries it */, 1, space));
}

static void *flood(void *data)
{
    long *left = data, other = 0;
    while (__atomic_sub_fetch(left, 1, __ATOMIC_RELAXED) >= 0)
        if (syscall(SYS_mount, NULL, NULL, NULL, 0, NULL) == 0 || (errno != EPERM && errno != ENOSYS))
            other++;
    return (void *)other;
}

static void try_flood(long count)
{
    pthread_t thread;
    void *one, *two;
    pthread_create(&thread, NULL, flood, &count);
    one = flood(&count);
    pthread_join(thread, &two);
    fact("other", "%ld", (long)one + (long)two);
}

static long load_filter(unsigned flags, unsigned answer)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* In a process of its own, whose filter is its own. */
static void try_filter(const char *name, unsigned flags, unsigned answer)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char after[64];
        snprintf(after, sizeof after, "%s_mount", name);
        probe(name, load_filter(flags, answer));
        if (!(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)) /* with a listener of its own it would wait for itself */
            probe(after, syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void try_proc(const char *pid)
{
    static const char *const files[] = {"mem",       "fd",      "fd/5",    "fd/6",  "fd/7", "fdinfo/5",
                                        "map_files", "environ", "syscall", "stack", "exe"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[64], name[32];
        snprintf(path, sizeof path, "/proc/%s/%s", pid, files[i]);
        snprintf(name, sizeof name, "proc_%s", files[i]);
        for (char *at = name; *at; at++)
            *at = *at == '/' ? '_' : *at;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        probe(name, fd);
        close(fd);
    }
}

/* So many fds on the way as the kernel lets one user have. */
static void fill_sockets(void)
{
    int ends[2], many = 0;
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    int null = open("/dev/null", O_RDONLY);
    memcpy(CMSG_DATA(header), &null, sizeof null);
    for (int pairs = 0; pairs < 40 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0; pairs++)
        while (sendmsg(ends[0], &message, MSG_DONTWAIT) == 1)
            many++;
    fact("sent", "%d %s", many, errno_word(errno));
}

static void try_against(const char *word)
{
    pid_t pid = (pid_t)atoi(word);
    char space[64];
    struct iovec here = {space, sizeof space}, there = {(void *)0x400000, sizeof space};
    struct rlimit none = {0, 0};
    struct sched_param idle = {0};
    for (int number = 1; number <= 64; number++)
        if (number != SIGKILL && number != SIGSTOP && number != 32 && number != 33) /* which no victim can ignore */
            kill(pid, number);
    probe("stop", kill(pid, SIGSTOP));
    int pidfd = (int)syscall(434 /* pidfd_open */, pid, 0);
    probe("pidfd_stop", syscall(424 /* pidfd_send_signal */, pidfd, SIGSTOP, NULL, 0));
    probe("limit", prlimit(pid, RLIMIT_NOFILE, &none, NULL));
    probe("nice", setpriority(PRIO_PROCESS, (id_t)pid, 19));
    probe("idle", sched_setscheduler(pid, SCHED_IDLE, &idle));
    probe("ptrace", syscall(SYS_ptrace, PTRACE_SEIZE, pid, 0, 0));
    probe("read", process_vm_readv(pid, &here, 1, &there, 1, 0));
    for (int fd = 5; fd < 9; fd++) {
        char name[16];
        snprintf(name, sizeof name, "getfd_%d", fd);
        probe(name, syscall(438 /* pidfd_getfd */, pidfd, fd, 0));
    }
    try_proc(word);
    close_range(3, ~0U, 0);
    try_filter("listener", SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_RET_USER_NOTIF);
    try_filter("listener_sync", SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC | (1 << 4),
               SECCOMP_RET_USER_NOTIF);
    try_filter("asks", 0, SECCOMP_RET_USER_NOTIF);
    try_filter("traces", 0, SECCOMP_RET_TRACE);
    try_filter("allows", 0, SECCOMP_RET_ALLOW);
    try_filter("logs", 0, SECCOMP_RET_LOG);
    fill_sockets();
    probe("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
    probe("kill", kill(pid, SIGKILL));
    probe("mount_after", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "calls") == 0)
        try_calls();
    else if (argc > 2 && strcmp(argv[1], "flood") == 0)
        try_flood(atol(argv[2]));
    else if (argc > 2 && strcmp(argv[1], "against") == 0)
        try_against(argv[2]);
    else
        fact("verdict", "nothing was asked for");
    return 0;
}
