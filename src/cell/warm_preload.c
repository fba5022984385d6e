/*
 * hotcell-warm.so: theory of operation.
 *
 * An interpreter takes ten times as long to start as to run a small program, so it is started before there is one. This
 * library is preloaded into it and shuts one door behind it: fork() in a zygote, the opening of WARM_PROGRAM in a
 * primed program (warm.h). What is asked through the door is the warden's; nothing of it is text.
 *
 * A zygote's child is a clone of the zygote that is born where a cold job would be: in the cell's pid namespace, in its
 * control group, with the warden as its parent (CLONE_PARENT), so the kernel tells the warden of its end and the zygote
 * has nothing to report. It then does what every job does, entry_seal, and only then returns into the interpreter. A
 * fork by libc cannot be born into a group, and moving a process costs more than the whole start (cgroup.c); so the
 * library makes the clone itself and does by hand what libc would: the handlers that libraries registered
 * (pthread_atfork) are run, and the thread's id and its list of robust locks are put right. Locks of libc itself need
 * no care, because a zygote has one thread: one that has more does not serve.
 *
 * What always holds: the zygote never maps an argument block, never reads a file of a request, and closes every fd of a
 * request before it takes the next. After its door is passed, a process has nothing of the library in force but a test
 * of one variable in the functions below.
 */
#include "base/fd.h"
#include "cell/child.h"
#include "cell/warm.h"
#include "cell/warm_files.h"
#include "cell/warm_last.h"
#include "cell/warm_own.h"
#include "cell/warm_pages.h"
#include "cell/warm_perl.h"
#include "cell/warm_python.h"
#include "cell/warm_usual.h"
#include "kernel/sys.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define EXPORT __attribute__((visibility("default")))
enum { MAX_HANDLERS = 64, ROBUST_HEAD = 24 };

/* A preloaded library has nobody to carry its state. */
static enum { OPEN_DOOR, ZYGOTE_DOOR, PRIMED_DOOR, PASSED_DOOR } door; /* passed: the block is there already, as fd 3 */
static bool wait_at_open, call_later, serve_at_read, usual;
static struct handler {
    void (*prepare)(void), (*parent)(void), (*child)(void);
} handlers[MAX_HANDLERS];
static size_t handler_count;
static bool too_many;            /* handlers: a fork without one of them would be wrong */
static struct entry_words words; /* the program's, once there is one */
static struct prctl_mm_map layout;
static struct warm_pages pages; /* that programs write to */

/* ---- what libc's fork would do ---- */

/* pthread_atfork is this, in every library that calls it. libc hears of it as well, for forks of the program's own. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library) EXPORT;
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library)
{
    int (*real)(void (*)(void), void (*)(void), void (*)(void), void *) =
        (int (*)(void (*)(void), void (*)(void), void (*)(void), void *))dlsym(RTLD_NEXT, "__register_atfork");
    if (handler_count < MAX_HANDLERS)
        handlers[handler_count++] = (struct handler){prepare, parent, child};
    else
        too_many = true;
    return real ? real(prepare, parent, child, library) : ENOMEM;
}

static void run_prepare(void)
{
    for (size_t i = handler_count; i-- > 0;)
        if (handlers[i].prepare)
            handlers[i].prepare();
}

static void run_after(bool in_child)
{
    for (size_t i = 0; i < handler_count; i++) {
        void (*after)(void) = in_child ? handlers[i].child : handlers[i].parent;
        if (after)
            after();
    }
}

static bool one_thread(void)
{
    DIR *list = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; list && (entry = readdir(list));)
        count += entry->d_name[0] != '.';
    if (list)
        closedir(list);
    return count == 1;
}

struct thread { /* what the kernel writes to in libc's description of the thread */
    uint64_t tid;
    void *robust;
    size_t robust_size;
};

static int find_thread(struct thread *thread)
{
    int *tid = NULL;
    if (prctl(40 /* PR_GET_TID_ADDRESS */, &tid, 0, 0, 0) < 0 || !tid ||
        syscall(SYS_get_robust_list, 0, &thread->robust, &thread->robust_size) < 0)
        return -ENOSYS;
    thread->tid = (uint64_t)(uintptr_t)tid;
    return 0;
}

static pid_t clone_into(int group, const struct thread *thread, int *pidfd)
{
    struct hc_clone_args args = {.flags = CLONE_PARENT | CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
                                 .pidfd = (uint64_t)(uintptr_t)pidfd,
                                 .child_tid = thread->tid};
    if (group >= 0) {
        args.flags |= HC_CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)group;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0 && thread->robust && thread->robust_size == ROBUST_HEAD) {
        void **head = thread->robust;
        head[0] = head; /* an empty list: the locks that the zygote held are not ours */
        head[2] = NULL;
        syscall(SYS_set_robust_list, head, thread->robust_size);
    }
    return pid;
}

/* ---- what a process looks like from outside ---- */

/* Where everything of this process lies, its words among it: found out while nobody waits. A zygote's children lie as
 * it does. */
static void look_at_layout(void)
{
    char text[1024];
    unsigned long long field[52] = {0};
    if (hc_read_file_at(AT_FDCWD, "/proc/self/stat", text, sizeof text) <= 0)
        return;
    char *at = strrchr(text, ')');
    for (int number = 3; at && number < 52; number++) { /* as proc(5) counts them; the third is a letter */
        at = strchr(at + 1, ' ');
        field[number] = at ? strtoull(at, NULL, 10) : 0;
    }
    layout = (struct prctl_mm_map){.start_code = field[26],
                                   .end_code = field[27],
                                   .start_stack = field[28],
                                   .start_data = field[45],
                                   .end_data = field[46],
                                   .start_brk = field[47],
                                   .exe_fd = (uint32_t)-1};
}

/* Where the kernel finds the words that ps and /proc show. They were the waiting interpreter's; now they are the
 * program's own, as after an exec. A kernel that cannot do it shows the old ones. */
static void show_words(void)
{
    struct prctl_mm_map map = layout;
    if (!map.start_code)
        return;
    map.brk = (uint64_t)syscall(SYS_brk, 0);
    map.arg_start = (uint64_t)(uintptr_t)words.argv[0];
    map.arg_end = map.env_start = (uint64_t)(uintptr_t)(words.envc ? words.envp[0] : words.end);
    map.env_end = (uint64_t)(uintptr_t)words.end;
    prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0);
}

/* ---- what a process finds of its own ---- */

/* An interpreter that looks after its environment itself frees what it finds there (Perl), so that the list and each of
 * its words are memory of their own. */
static void own_environment(void)
{
    char **list = calloc(words.envc + 1, sizeof *list);
    for (uint32_t i = 0; list && i < words.envc; i++)
        if (!(list[i] = strdup(words.envp[i])))
            _exit(125);
    if (!list)
        _exit(125);
    environ = list;
}

/* ---- a zygote ---- */

static void say(int code, pid_t pid, int pidfd)
{
    struct warm_word word = {.code = code, .pid = pid};
    if (hc_send_fds(WARM_DOOR_FD, &word, sizeof word, &pidfd, pidfd >= 0 ? 1 : 0) < 0)
        _exit(0); /* the warden has gone, or does not want us any more */
}

/* What the warden sent: the program's own fds, its files and its words. Everything here is done as the guest. */
static int receive_program(const struct warm_program *program, const int *fds, struct hc_err *err)
{
    for (int i = 0; i < 3; i++)
        if (dup2(fds[1 + i], i) < 0)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "placing fd %d", i);
    int result = entry_read_block(fds[4], &words, err);
    if (result == 0)
        result = entry_unpack(program->has_files ? fds[5] : -1, program->from_root ? "/" : program->work_dir, err);
    if (result == 0)
        result = entry_chdir(words.cwd, err);
    if (result < 0)
        return result;
    own_environment();
    show_words();
    return 0;
}

/* Waits for a program; returns its block. */
static int wait_for_program(void)
{
    struct warm_program program;
    struct hc_err err = {0};
    int fds[HC_MAX_FDS];
    size_t count = 0;
    ssize_t size;
    if (!layout.start_code)
        look_at_layout();
    entry_make_room();
    say(0, 0, -1);
    do
        size = hc_recv_fds(WARM_DOOR_FD, &program, sizeof program, fds, HC_MAX_FDS, &count);
    while (size == -EINTR);
    if (size != (ssize_t)sizeof program || count != (program.has_files ? 6u : 5u))
        _exit(0);
    program.work_dir[sizeof program.work_dir - 1] = '\0';
    if (!program.last_word)
        warm_last_is_heard(false);
    door = OPEN_DOOR;
    close(WARM_DOOR_FD);
    if (receive_program(&program, fds, &err) < 0)
        child_die(fds[0], &err);
    entry_report_start(fds[0]);
    for (size_t i = 0; i < count; i++)
        if (i != 4)
            hc_close(fds[i]);
    return fds[4];
}

/* The block of the program is where its driver looks for it, or the program itself, where it need not. */
static void open_door(int block)
{
    usual = warm_usual_take(&words, WARM_DOOR_FD);
    if (!usual && dup2(block, WARM_DOOR_FD) < 0)
        _exit(125);
    hc_close(block);
    door = wait_at_open ? PASSED_DOOR : OPEN_DOOR;
    warm_own_restore();
}

static void take_pages(const struct entry *entry)
{
    warm_pages_take(&pages, entry->limits.memory / 8);
}

/* In the child: becomes the guest in its cell, with the block of its program as fd 3. */
static void enter(const struct entry *entry, struct entry_fds *fds)
{
    struct hc_err err = {0};
    entry_seal(entry, fds, &words, take_pages);
    /* A process that has changed its uid is closed to the guest's own tools (/proc/self/fd, gdb); an exec would have
     * opened it. There is nothing in it that is not the guest's. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0) {
        hc_fail_errno(&err, HC_CLASS_HOST, errno, "dumpable");
        child_die(fds->report, &err);
    }
    int block = fds->block;
    entry_report_start(fds->report);
    hc_close(fds->report);
    if (fds->door >= 0) {
        hc_close(fds->block);
        door = PRIMED_DOOR;
        warm_last_is_heard(entry->witness != 0);
        if (wait_at_open) {
            warm_own_restore();
            return;
        }
        block = wait_for_program();
    } else {
        own_environment();
        show_words();
    }
    open_door(block);
}

static bool take_fds(const struct warm_request *request, const int *fds, size_t count, struct entry_fds *out)
{
    *out = (struct entry_fds){.cell = -1,
                              .files = -1,
                              .door = -1,
                              .report = -1,
                              .built = -1,
                              .gate = -1,
                              .witness_door = -1,
                              .witness_bell = -1};
    cgroup_init(&out->group);
    size_t groups = (size_t)__builtin_popcount(request->groups), at = 6;
    if (request->groups >> CGROUP_SLOTS || count != 6 + groups + (request->has_files ? 1 : 0) +
                                                        (request->has_door ? 1 : 0) + (request->entry.witness ? 2 : 0))
        return false;
    out->cell = fds[0];
    out->report = fds[1];
    memcpy(out->stdio, fds + 2, sizeof out->stdio);
    out->block = fds[5];
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        if (request->groups & 1u << slot)
            out->group.dir[slot] = fds[at++];
    if (request->has_files)
        out->files = fds[at++];
    if (request->has_door)
        out->door = fds[at++];
    if (request->entry.witness) {
        out->witness_door = fds[at++];
        out->witness_bell = fds[at];
    }
    return true;
}

/* One child. True in the child. */
static bool serve_one(const struct warm_request *request, const int *fds, size_t count, const struct thread *thread)
{
    struct entry_fds entry_fds;
    if (!take_fds(request, fds, count, &entry_fds)) {
        say(EPROTO, 0, -1);
        return false;
    }
    if (setns(entry_fds.cell, CLONE_NEWPID) < 0) {
        say(errno, 0, -1);
        return false;
    }
    int pidfd = -1;
    warm_files_settle();
    run_prepare();
    pid_t pid = clone_into(cgroup_clone_fd(&entry_fds.group), thread, &pidfd);
    int code = errno;
    run_after(pid == 0);
    if (pid == 0) {
        enter(&request->entry, &entry_fds);
        return true;
    }
    say(pid < 0 ? code : 0, pid < 0 ? 0 : pid, pidfd);
    hc_close(pidfd);
    return false;
}

static pid_t fork_really(void)
{
    int saved = errno; /* a program that forks finds it as it was */
    pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    errno = real ? saved : ENOSYS;
    return real ? real() : -1;
}

/* True in a child that plays a program's part, outside of any cell: it goes on as one that has got its program. */
static bool rehearse(void)
{
    hc_cleanup_fd int block = warm_pages_block();
    struct hc_err err = {0};
    warm_usual_learn(block);
    if (!warm_pages_rehearse(fork_really, &pages))
        return false;
    if (entry_reset_signals(&err) < 0 || entry_read_block(block, &words, &err) < 0)
        _exit(125);
    own_environment();
    show_words();
    open_door(HC_TAKE_FD(block));
    return true;
}

/* Returns in children alone. */
static void serve(void)
{
    static struct warm_request request; /* not the stack, which the child goes on with */
    struct thread thread;
    if (too_many || !one_thread() || find_thread(&thread) < 0)
        _exit(3);
    warm_own_remember();
    look_at_layout();
    if (rehearse())
        return;
    say(0, 0, -1);
    for (;;) {
        int fds[HC_MAX_FDS];
        size_t count = 0;
        ssize_t size = hc_recv_fds(WARM_DOOR_FD, &request, sizeof request, fds, HC_MAX_FDS, &count);
        if (size == -EINTR)
            continue;
        if (size < (ssize_t)offsetof(struct warm_request, entry.mounts))
            _exit(0);
        bool child = size == (ssize_t)(offsetof(struct warm_request, entry) + entry_size(&request.entry)) &&
                     serve_one(&request, fds, count, &thread);
        if (child) {
            memset(&request, 0, (size_t)size);
            return;
        }
        for (size_t i = 0; i < count; i++)
            hc_close(fds[i]);
    }
}

EXPORT pid_t fork(void)
{
    if (door == ZYGOTE_DOOR) {
        serve();
        errno = 0; /* what entering a cell left there is nobody's */
        return 0;
    }
    return fork_really();
}

_Noreturn void warm_leave(int code) __asm__("_exit") EXPORT;
_Noreturn void warm_leave(int code)
{
    warm_pages_report();
    warm_last_say(code);
    for (;;)
        syscall(SYS_exit_group, code, 0);
}

/* ---- the doors ---- */

static bool is_program(const char *path)
{
    return (door == PRIMED_DOOR || door == PASSED_DOOR) && path && strcmp(path, WARM_PROGRAM) == 0;
}

static int open_program(void)
{
    if (door == PRIMED_DOOR)
        return wait_for_program();
    door = OPEN_DOOR;
    return WARM_DOOR_FD;
}

static const struct entry_words *receive_words(void)
{
    hc_close(open_program());
    return &words;
}

static void start_cold(void)
{
    struct hc_err err = {0};
    if (entry_reset_signals(&err) == 0)
        entry_exec(&words, &err);
    dprintf(2, "hotcell: %s\n", err.message);
    _exit(126);
}

static mode_t mode_of(int flags, va_list list)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
}

/* open, open64, openat and openat64 are one thing on a 64-bit machine. */
static int open_really(int folder, const char *path, int flags, mode_t mode)
{
    if (is_program(path))
        return open_program();
    if (words.argv && path && strcmp(path, WARM_COLD) == 0)
        start_cold();
    if (door == ZYGOTE_DOOR && path && strcmp(path, WARM_LATER) == 0)
        call_later = true; /* and there is no such file */
    if (door == ZYGOTE_DOOR && path && strcmp(path, WARM_READ) == 0)
        serve_at_read = true;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

/* By the names that programs call them, whatever our own headers make of these. */
#define STANDS_FOR(name) __asm__(name) EXPORT
int warm_open(const char *path, int flags, ...) STANDS_FOR("open");
int warm_open64(const char *path, int flags, ...) STANDS_FOR("open64");
int warm_openat(int folder, const char *path, int flags, ...) STANDS_FOR("openat");
int warm_openat64(int folder, const char *path, int flags, ...) STANDS_FOR("openat64");
FILE *warm_fopen(const char *path, const char *mode) STANDS_FOR("fopen");
FILE *warm_fopen64(const char *path, const char *mode) STANDS_FOR("fopen64");

#define OPEN_BODY(folder)                                                                                              \
    va_list list;                                                                                                      \
    va_start(list, flags);                                                                                             \
    mode_t mode = mode_of(flags, list);                                                                                \
    va_end(list);                                                                                                      \
    return open_really(folder, path, flags, mode)

int warm_open(const char *path, int flags, ...)
{
    OPEN_BODY(AT_FDCWD);
}

int warm_open64(const char *path, int flags, ...)
{
    OPEN_BODY(AT_FDCWD);
}

int warm_openat(int folder, const char *path, int flags, ...)
{
    OPEN_BODY(folder);
}

int warm_openat64(int folder, const char *path, int flags, ...)
{
    OPEN_BODY(folder);
}

static FILE *fopen_really(const char *path, const char *mode, const char *name)
{
    if (is_program(path))
        return fdopen(open_program(), mode);
    if (words.argv && path && strcmp(path, WARM_COLD) == 0)
        start_cold();
    if (call_later) {
        call_later = false;
        warm_python_serve(&(struct warm_door){.fork = fork, .receive = receive_words, .start_cold = start_cold});
    }
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
    return real ? real(path, mode) : NULL;
}

FILE *warm_fopen(const char *path, const char *mode)
{
    return fopen_really(path, mode, "fopen");
}

FILE *warm_fopen64(const char *path, const char *mode)
{
    return fopen_really(path, mode, "fopen64");
}

ssize_t warm_read(int fd, void *bytes, size_t length) STANDS_FOR("read");
ssize_t __read(int fd, void *bytes, size_t length); /* libc's own */

static void serve_here(void)
{
    serve_at_read = false;
    if (!warm_perl_look_up())
        _exit(3);
    fork();
    warm_perl_begin(usual);
}

ssize_t warm_read(int fd, void *bytes, size_t length)
{
    if (serve_at_read && fd == WARM_DOOR_FD)
        serve_here();
    return __read(fd, bytes, length);
}

void *warm_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) STANDS_FOR("mmap");
void *warm_mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset) STANDS_FOR("mmap64");

void *warm_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (door == ZYGOTE_DOOR && !at && fd < 0 && protection == (PROT_READ | PROT_WRITE))
        at = warm_pages_place(length);
    return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

void *warm_mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    return warm_mmap(at, length, protection, flags, fd, offset);
}

/* ---- at the start of the process ---- */

__attribute__((constructor)) static void look_who_we_are(void)
{
    const char *mode = getenv(WARM_MODE);
    if (mode)
        door = strcmp(mode, "zygote") == 0 ? ZYGOTE_DOOR : strcmp(mode, "primed") == 0 ? PRIMED_DOOR : OPEN_DOOR;
    if (door == ZYGOTE_DOOR) {
        warm_last_at_exit();
        warm_pages_begin();
        warm_usual_begin();
    }
    const char *wait = getenv(WARM_WAIT);
    wait_at_open = wait && strcmp(wait, "open") == 0;
    /* The variables stay until the door is passed: what waits may be the last of a chain of execs. */
}
