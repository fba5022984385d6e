/*
 * What takes its time with a volume: making its file system, and checking it before it is mounted, in a child of the
 * keeper's, which ends with it. The tools are those of e2fsprogs, in an environment that says nothing; they have the
 * image as an fd, and see no name of it.
 */
#include "base/fd.h"
#include "cell/child.h"
#include "kernel/sys.h"
#include "serve/volume_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    IMAGE_FD = 3,
    TIME = 15 * 60,         /* seconds */
    JOURNAL_FROM = 64 << 20 /* bytes; in a smaller volume a journal would be much of it */
};
#define IMAGE_PATH "/proc/self/fd/3"

struct worker {
    const struct custody *custody;
    int image, report;
};

static int settle(void *plan, struct hc_err *err)
{
    struct worker *worker = plan;
    int *keep[] = {&worker->image, &worker->report};
    sigset_t none;
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "parent-death signal");
    setpriority(PRIO_PROCESS, 0, 5);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return child_keep_fds(IMAGE_FD, keep, 2, err);
}

static void exec_tool(const char *name, char *const *argv)
{
    char *const envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    static const char *const folders[] = {"/usr/sbin", "/sbin"};
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            return;
    if (fcntl(IMAGE_FD, F_SETFD, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return;
    alarm(TIME);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        execve(path, argv, envp);
    }
}

/* Its exit status, or -errno. */
static int run_tool(const char *name, char *const *argv, struct hc_err *err)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        exec_tool(name, argv);
        _exit(errno == ENOENT ? 127 : 126);
    }
    if (pid < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "starting %s", name);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return hc_fail_errno(err, HC_CLASS_OURS, errno, "waiting for %s", name);
    if (WIFEXITED(status) && WEXITSTATUS(status) < 126)
        return WEXITSTATUS(status);
    if (WIFSIGNALED(status))
        return hc_fail(err, HC_CLASS_HOST, EIO, "%s was ended by signal %d", name, WTERMSIG(status));
    hc_fail(err, HC_CLASS_HOST, EOPNOTSUPP, "volumes take %s, which cannot be started", name);
    hc_err_field(err, "volumes");
    return hc_err_remedy(err, "apt install e2fsprogs");
}

static int make_files(void *plan, struct hc_err *err)
{
    const struct worker *worker = plan;
    struct stat st;
    if (fstat(worker->image, &st) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "looking at the image");
    char *features = st.st_size < JOURNAL_FROM ? "^resize_inode,^has_journal" : "^resize_inode";
    char *const argv[] = {
        "mke2fs",   "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-O", features, "-E", "lazy_journal_init=1",
        IMAGE_PATH, NULL};
    int status = run_tool("mke2fs", argv, err);
    if (status <= 0)
        return status;
    hc_fail(err, HC_CLASS_HOST, EIO, "mke2fs failed (exit status %d)", status);
    return hc_err_remedy(err, "see whether the disk of the state folder is full");
}

/* -p: what can be repaired without a question. 1 and 2: it was. */
static int check_files(void *plan, struct hc_err *err)
{
    (void)plan;
    char *const argv[] = {"e2fsck", "-p", IMAGE_PATH, NULL};
    int status = run_tool("e2fsck", argv, err);
    if (status <= 2)
        return status < 0 ? status : 0;
    hc_fail(err, HC_CLASS_HOST, EIO, "its file system is damaged, and e2fsck -p could not repair it (exit status %d)",
            status);
    hc_err_field(err, "volumes");
    return hc_err_remedy(err, "the operator can look at it with e2fsck -f, on the .img file in the state folder's "
                              "volumes/TENANT, or remove the volume");
}

/* The root of it is the guests', and what mke2fs left there is not. That it can be mounted and mapped here is known
 * from then on. */
static int try_mount(void *plan, struct hc_err *err)
{
    const struct worker *worker = plan;
    char path[DEVICE_PATH_SIZE];
    hc_cleanup_fd int device = volume_device_attach(worker->image, path, err);
    hc_cleanup_fd int root = device < 0 ? -1 : volume_device_mount(path, err);
    if (root < 0)
        return -err->code;
    if (fchmodat(root, ".", 0755, 0) < 0 || (unlinkat(root, "lost+found", AT_REMOVEDIR) < 0 && errno != ENOENT) ||
        fchownat(root, ".", CUSTODY_STORED_UID, CUSTODY_STORED_UID, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "giving it to the guests");
    if (custody_map(worker->custody, root, 0, err) < 0) {
        hc_err_field(err, "volumes");
        return hc_err_remedy(err, "volumes take mounts with mapped owners: Linux 5.12 or later");
    }
    return 0;
}

static const struct child_step MAKE[] = {
    {"making a volume", settle}, {"making a volume", make_files}, {"making a volume", try_mount}};
static const struct child_step CHECK[] = {{"checking a volume", settle}, {"checking a volume", check_files}};

int volume_worker_start(const struct custody *custody, int image, bool make, pid_t *pid, int *pidfd, int *report,
                        struct hc_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a pipe");
    *pid = hc_clone(0, -1, pidfd);
    if (*pid == 0) {
        struct worker worker = {.custody = custody, .image = image, .report = ends[1]};
        if (make)
            child_run(MAKE, sizeof MAKE / sizeof *MAKE, &worker, &worker.report);
        else
            child_run(CHECK, sizeof CHECK / sizeof *CHECK, &worker, &worker.report);
        _exit(0);
    }
    int code = errno;
    hc_close(ends[1]);
    if (*pid < 0) {
        *pid = 0;
        hc_close(ends[0]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "starting a process for a volume");
    }
    *report = ends[0];
    return 0;
}
