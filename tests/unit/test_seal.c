/*
 * What is left to a gateway that was taken over: every call that it must not make is made, in a child, with the seal
 * and without it. Without it they work, else the test would prove nothing. After sealing the child does nothing but
 * system calls, and leaves what it found in memory that it shares with the test.
 */
#include "gateway/seal.h"
#include "kernel/landlock.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LAST_CALL = 600, MAX_FOUND = LAST_CALL + 1, NOT_TRIED = 9999 };

/* What each try came to: 0 or an errno. */
static int *found_in_child(void)
{
    int *found = mmap(NULL, MAX_FOUND * sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(found, MAP_FAILED);
    for (int i = 0; i < MAX_FOUND; i++)
        found[i] = NOT_TRIED;
    return found;
}

static int code_of(long result)
{
    return result < 0 ? errno : 0;
}

/* ---- calls that open a way out ---- */

struct ground { /* made before the seal */
    int listener, unbound, room;
    struct sockaddr_un address;
    void *page;
};

static int try_socket(const struct ground *ground)
{
    (void)ground;
    return code_of(socket(AF_INET, SOCK_STREAM, 0));
}
static int try_unix_socket(const struct ground *ground)
{
    (void)ground;
    return code_of(socket(AF_UNIX, SOCK_DGRAM, 0));
}
static int try_socketpair(const struct ground *ground)
{
    (void)ground;
    int ends[2];
    return code_of(socketpair(AF_NETLINK, SOCK_RAW, 0, ends));
}
static int try_connect(const struct ground *ground)
{
    return code_of(connect(ground->unbound, (const struct sockaddr *)&ground->address, sizeof ground->address));
}
static int try_bind(const struct ground *ground)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    return code_of(bind(ground->room, (const struct sockaddr *)&any, sizeof any.sun_family));
}
static int try_listen(const struct ground *ground)
{
    return code_of(listen(ground->listener, 1));
}
static int try_clone(const struct ground *ground)
{
    (void)ground;
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        syscall(SYS_exit_group, 0);
    return code_of(pid);
}
static int try_kill(const struct ground *ground)
{
    (void)ground;
    return code_of(syscall(SYS_kill, getppid(), 0));
}
static int try_ptrace(const struct ground *ground)
{
    (void)ground;
    return code_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}
static int try_setuid(const struct ground *ground)
{
    (void)ground;
    return code_of(syscall(SYS_setuid, getuid()));
}
static int try_prctl(const struct ground *ground)
{
    (void)ground;
    return code_of(syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0));
}
static int try_prlimit(const struct ground *ground)
{
    (void)ground;
    struct rlimit limit;
    return code_of(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit));
}
static int try_ioctl(const struct ground *ground)
{
    int count;
    return code_of(ioctl(ground->unbound, FIONREAD, &count));
}
static int try_map_code(const struct ground *ground)
{
    (void)ground;
    return code_of(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
}
static int try_make_code(const struct ground *ground)
{
    return code_of(mprotect(ground->page, 4096, PROT_READ | PROT_EXEC));
}
static int try_unshare(const struct ground *ground)
{
    (void)ground;
    return code_of(unshare(CLONE_FILES));
}
static int try_personality(const struct ground *ground) /* one that is not in the table at all */
{
    (void)ground;
    return code_of(syscall(SYS_personality, 0xffffffff));
}
static int try_execve(const struct ground *ground) /* last: where it works there is no way back */
{
    (void)ground;
    char *argv[] = {"true", NULL}, *envp[] = {NULL};
    return code_of(execve("/usr/bin/true", argv, envp));
}

static const struct {
    const char *name;
    int (*make)(const struct ground *ground);
    int refused;
} tries[] = {
    {"socket", try_socket, EPERM},
    {"a unix socket", try_unix_socket, EPERM},
    {"socketpair of another family", try_socketpair, EPERM},
    {"connect", try_connect, EPERM},
    {"bind", try_bind, EPERM},
    {"listen", try_listen, EPERM},
    {"clone", try_clone, EPERM},
    {"kill", try_kill, EPERM},
    {"ptrace", try_ptrace, EPERM},
    {"setuid", try_setuid, EPERM},
    {"prctl", try_prctl, EPERM},
    {"prlimit", try_prlimit, EPERM},
    {"ioctl", try_ioctl, EPERM},
    {"mapping code", try_map_code, EPERM},
    {"making code", try_make_code, EPERM},
    {"unshare", try_unshare, EPERM},
    {"personality", try_personality, ENOSYS},
    {"execve", try_execve, EPERM},
};
enum { TRIES = sizeof tries / sizeof *tries };

static void prepare(struct ground *ground)
{
    ground->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(ground->address.sun_path + 1, sizeof ground->address.sun_path - 1, "hotcell-seal-%d", (int)getpid());
    ground->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ground->unbound = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ground->room = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ground->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bind(ground->listener, (struct sockaddr *)&ground->address, sizeof ground->address) < 0 ||
        listen(ground->listener, 1) < 0 || ground->page == MAP_FAILED)
        _exit(99);
}

/* Returns the child's exit code; `sealed` or not. */
static int run_tries(int *found, bool sealed)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct ground ground;
        struct hc_err err = {0};
        prepare(&ground);
        if (sealed && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seal_calls(&err) < 0))
            _exit(98);
        for (int i = 0; i < TRIES; i++) {
            found[i] = 0; /* of an execve that works nothing else remains */
            found[i] = tries[i].make(&ground);
        }
        _exit(97);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    while (WIFSTOPPED(status)) { /* one that asked to be traced waits after its execve */
        ptrace(PTRACE_CONT, pid, NULL, NULL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_calls_that_lead_out_work_without_the_seal_and_are_refused_with_it(void **state)
{
    (void)state;
    int *found = found_in_child();
    assert_int_equal(run_tries(found, false), 0); /* execve worked: this is true's */
    for (int i = 0; i < TRIES; i++)
        if (found[i] != 0)
            fail_msg("%s fails without a seal: %s", tries[i].name, strerror(found[i]));
    assert_int_equal(run_tries(found, true), 97);
    for (int i = 0; i < TRIES; i++)
        if (found[i] != tries[i].refused)
            fail_msg("%s with the seal: %s", tries[i].name, strerror(found[i]));
    munmap(found, MAX_FOUND * sizeof *found);
}

/* ---- every number ---- */

/* What the table says of a call: 0 it may be made (some of them with some arguments), else the errno. */
static const struct {
    long number;
    int answer;
} table[] = {
#define ALLOW(name) {SYS_##name, 0},
#define DENY(name) {SYS_##name, EPERM},
#define DENY_MASK(name, arg, mask, error) {SYS_##name, 0},
#define ONLY_EQ(name, arg, value, error) {SYS_##name, 0},
#include "kernel/syscalls_gateway.h"
};

/* uretprobe and uprobe of x86-64 are the kernel's own, from Linux 6.14 on not shown to filters: called by anybody else,
 * they end the process. */
static bool is_kernels_own(long number)
{
    return number == 335 || number == 336;
}

static int answer_to(long number)
{
    if (is_kernels_own(number))
        return 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].number == number)
            return table[i].answer;
    return ENOSYS;
}

static void test_every_call_that_the_table_does_not_allow_is_refused(void **state)
{
    (void)state;
    int *found = found_in_child();
    pid_t pid = fork();
    if (pid == 0) {
        struct hc_err err = {0};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seal_calls(&err) < 0)
            _exit(98);
        for (long number = 0; number <= LAST_CALL; number++)
            if (answer_to(number) != 0)
                found[number] = code_of(syscall(number, 0, 0, 0, 0, 0, 0));
        _exit(0);
    }
    int status, refused = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    for (long number = 0; number <= LAST_CALL; number++) {
        if (answer_to(number) == 0)
            continue;
        if (found[number] != answer_to(number))
            fail_msg("system call %ld: %s, not %s", number, strerror(found[number]), strerror(answer_to(number)));
        refused++;
    }
    assert_true(refused > 450); /* the table allows about a hundred */
    munmap(found, MAX_FOUND * sizeof *found);
}

#ifdef __x86_64__
static void test_a_call_of_another_architecture_ends_the_process(void **state)
{
    (void)state;
    for (int sealed = 0; sealed <= 1; sealed++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct hc_err err = {0};
            long result;
            if (sealed && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seal_calls(&err) < 0))
                _exit(98);
            __asm__ volatile("int $0x80" : "=a"(result) : "a"(20 /* getpid */) : "memory", "cc");
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!sealed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
            skip(); /* this kernel has no 32-bit calls */
        assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, sealed ? SIGSYS : 0);
    }
}
#endif

/* ---- files ---- */

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return good ? 0 : -1;
}

/* A root like the gateway's, with one folder more that is not its business. */
static int enter_root(void)
{
    char text[64];
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWNS) < 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || write_text("/proc/self/setgroups", "deny") < 0)
            return -1;
        snprintf(text, sizeof text, "%u %u 1\n", uid, uid);
        if (write_text("/proc/self/uid_map", text) < 0)
            return -1;
        snprintf(text, sizeof text, "%u %u 1\n", gid, gid);
        if (write_text("/proc/self/gid_map", text) < 0)
            return -1;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("none", "/tmp", "tmpfs", 0, NULL) < 0 ||
        chroot("/tmp") < 0 || chdir("/") < 0)
        return -1;
    static const char *const folders[] = {"/state", "/languages", "/usr", "/etc"};
    static const char *const files[] = {"/state/file", "/languages/file", "/usr/file", "/etc/passwd"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (mkdir(folders[i], 0755) < 0 || write_text(files[i], "x") < 0)
            return -1;
    return 0;
}

static int open_code(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    int code = fd < 0 ? errno : 0;
    close(fd);
    return code;
}

static const struct {
    const char *path;
    int flags;
    bool allowed;
} files[] = {
    {"/etc/passwd", O_RDONLY, false},        {"/etc/passwd", O_WRONLY, false},
    {"/etc/new", O_WRONLY | O_CREAT, false}, {"/etc", O_RDONLY | O_DIRECTORY, false},
    {"/", O_RDONLY | O_DIRECTORY, false},    {"/new", O_WRONLY | O_CREAT, false},
    {"/usr/file", O_RDONLY, true},           {"/usr/file", O_WRONLY, false},
    {"/usr/new", O_WRONLY | O_CREAT, false}, {"/languages/file", O_RDONLY, true},
    {"/languages/file", O_RDWR, false},      {"/state/file", O_RDWR, true},
    {"/state/new", O_RDWR | O_CREAT, true},  {"/state/../etc/passwd", O_RDONLY, false},
};
enum { FILES = sizeof files / sizeof *files };

static void test_no_file_is_opened_but_its_own(void **state)
{
    (void)state;
    if (hc_landlock_abi() == 0)
        skip(); /* then its root is all that there is: serve/spawn.c */
    int *found = found_in_child();
    for (int sealed = 0; sealed <= 1; sealed++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct hc_err err = {0};
            if (enter_root() < 0)
                _exit(99);
            if (sealed && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seal_files(&err) < 0))
                _exit(98);
            for (int i = 0; i < FILES; i++)
                found[i] = open_code(files[i].path, files[i].flags);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        for (int i = 0; i < FILES; i++) {
            int expected = !sealed || files[i].allowed ? 0 : EACCES;
            if (found[i] != expected)
                fail_msg("%s (flags %#x), %s: %s, not %s", files[i].path, (unsigned)files[i].flags,
                         sealed ? "sealed" : "not sealed", strerror(found[i]), strerror(expected));
        }
    }
    munmap(found, MAX_FOUND * sizeof *found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_that_lead_out_work_without_the_seal_and_are_refused_with_it),
        cmocka_unit_test(test_every_call_that_the_table_does_not_allow_is_refused),
#ifdef __x86_64__
        cmocka_unit_test(test_a_call_of_another_architecture_ends_the_process),
#endif
        cmocka_unit_test(test_no_file_is_opened_but_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
