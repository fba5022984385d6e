/*
 * The keeper: theory of operation.
 *
 * keeper_start forks. The child is the keeper: in a session of its own, so that a terminal's Ctrl-C is for the client
 * alone, and with none of the client's fds. It starts a warden (custody.h) and waits. The warden ends when its client's
 * socket closes, and with it every cell; the keeper removes the control groups and ends too. So whoever is killed,
 * there is somebody left to clear up; and if nobody is, the next keeper does it.
 */
#include "warden/keeper.h"

#include "base/fd.h"
#include "kernel/sys.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Nothing of the client's: not its terminal, its pipes, its signals. */
static void leave_client(int *client, int *warden)
{
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    int ends[2] = {fcntl(*client, F_DUPFD_CLOEXEC, 5), fcntl(*warden, F_DUPFD_CLOEXEC, 5)};
    *client = dup3(ends[0], 3, O_CLOEXEC);
    *warden = dup3(ends[1], 4, O_CLOEXEC);
    hc_close_range(5, ~0U, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);             /* what is made for guests must be theirs to enter */
    personality(PER_LINUX); /* not the caller's: setarch -R would take address randomisation from every guest */
    /* A caller's real-time priority is not for guests, nor can such a process join a CPU group. */
    struct sched_param ordinary = {0};
    if (sched_getscheduler(0) != SCHED_OTHER)
        sched_setscheduler(0, SCHED_OTHER, &ordinary);
    if (chdir("/") < 0)
        _exit(125);
}

static _Noreturn void keep(const struct keeper_plan *plan, int client, int warden)
{
    struct hc_err err = {0};
    struct custody custody;
    leave_client(&client, &warden);
    custody_init(&custody, plan);
    if (custody_start(&custody, warden, &err) < 0)
        custody_report(warden, &err);
    hc_close(client);
    hc_close(warden);
    if (custody.pid > 0)
        while (waitpid(custody.pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    custody_clear(&custody);
    _exit(0);
}

int keeper_start(const struct keeper_plan *plan, struct keeper *keeper, struct hc_err *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    keeper->pid = fork();
    if (keeper->pid == 0)
        keep(plan, ends[0], ends[1]);
    int code = errno;
    hc_close(ends[1]);
    if (keeper->pid < 0) {
        hc_close(ends[0]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "starting the keeper");
    }
    keeper->socket = ends[0];
    return 0;
}

void keeper_stop(struct keeper *keeper)
{
    keeper->socket = hc_close(keeper->socket);
    if (keeper->pid > 0)
        while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    keeper->pid = 0;
}

uint64_t keeper_uid_range(const struct keeper_plan *plan, char *text, size_t size)
{
    struct uid_plan uids;
    struct hc_err err = {0};
    if (uids_plan(plan->uid_base, plan->uid_count, &uids, &err) < 0) {
        snprintf(text, size, "%s", err.message);
        return 0;
    }
    static const char *const sources[] = {"a range of our own", "from /etc/subuid",
                                          "only your own uid: guests and pid 1 of a cell share it"};
    if (uids.source == UIDS_SINGLE)
        snprintf(text, size, "%s", sources[uids.source]);
    else
        snprintf(text, size, "%llu uids from %llu, %s", (unsigned long long)uids.count,
                 (unsigned long long)uids.uid_base, sources[uids.source]);
    hc_close(uids.lock);
    return uids.count;
}
