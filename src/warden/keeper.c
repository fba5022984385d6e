/*
 * The keeper: theory of operation.
 *
 * keeper_start forks. The child is the keeper: in a session of its own, so that a terminal's Ctrl-C is for the client
 * alone, and with none of the client's fds. It starts a warden (custody.h) and waits. The warden ends when its client's
 * socket closes, and with it every cell; the keeper removes the control groups and ends too. So whoever is killed,
 * there is somebody left to clear up; and if nobody is, the next keeper does it.
 *
 * A client that has heard that its guests are dead, and ends itself, does not wait for the rest (keeper_leave): the
 * keeper is then a child of pid 1 for the millisecond that it takes. Not so where the caller was moved to another group
 * and has to be moved back; and not where pid 1 does not wait for what it inherits, as in a container whose pid 1 is
 * just any program: there every run would leave a dead process in the table. That is known by the keepers before.
 */
#include "warden/keeper.h"

#include "base/fd.h"
#include "kernel/place.h"
#include "kernel/sys.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { LAST_CHILDREN = 3, LEFT_SECONDS = 1 };

/* Whether this process has ended, and nobody has waited for it: "42 (hotcell) Z …", with its start as the 22nd word, in
 * ticks since the machine's. One that has just ended is nobody's fault; when it did is not known. */
static bool was_left(long pid)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    if (hc_read_file_at(AT_FDCWD, path, text, sizeof text) <= 0)
        return false;
    char *name_end = strrchr(text, ')'), *save = NULL;
    char *word = name_end ? strtok_r(name_end + 1, " ", &save) : NULL;
    if (!word || *word != 'Z')
        return false;
    for (int i = 3; word && i < 22; i++)
        word = strtok_r(NULL, " ", &save);
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return word && strtoll(word, NULL, 10) / sysconf(_SC_CLK_TCK) + LEFT_SECONDS < now.tv_sec;
}

/* What pid 1 has inherited is at the end of the list of its children. Where there is no such list, it is not trusted
 * either. */
static bool is_inherited(void)
{
    char text[8192];
    hc_cleanup_fd int fd = open("/proc/1/task/1/children", O_RDONLY | O_CLOEXEC);
    ssize_t got = 0, length = 0;
    while (fd >= 0 && (got = hc_read_full(fd, text, sizeof text - 1)) > 0)
        length = got;
    if (fd < 0 || got < 0)
        return false;
    text[length] = '\0';
    for (int i = 0; i < LAST_CHILDREN; i++) {
        while (length > 0 && text[length - 1] == ' ')
            text[--length] = '\0';
        while (length > 0 && text[length - 1] != ' ')
            length--;
        if (was_left(strtol(text + length, NULL, 10)))
            return false;
    }
    return true;
}

/* Nothing of the client's: not its terminal, its pipes, its signals. */
static void leave_client(int *client, int *warden, int *alone)
{
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    int ends[3] = {fcntl(*client, F_DUPFD_CLOEXEC, 6), fcntl(*warden, F_DUPFD_CLOEXEC, 6),
                   fcntl(*alone, F_DUPFD_CLOEXEC, 6)};
    *client = dup3(ends[0], 3, O_CLOEXEC);
    *warden = dup3(ends[1], 4, O_CLOEXEC);
    *alone = dup3(ends[2], 5, O_CLOEXEC);
    hc_close_range(6, ~0U, 0);
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

/* `processors`: where the client may run. The keeper is being placed by it, and may find itself on fewer. */
static _Noreturn void keep(const struct keeper_plan *plan, const cpu_set_t *processors, int client, int warden,
                           int alone)
{
    struct hc_err err = {0};
    struct custody custody;
    leave_client(&client, &warden, &alone);
    custody_init(&custody, plan);
    custody.processors = processors;
    if (custody_start(&custody, warden, &err) < 0)
        custody_report(warden, &err);
    hc_close(client);
    hc_close(warden);
    if (!cgroup_base_moved(custody.groups) && is_inherited())
        (void)hc_write_all(alone, "", 1);
    hc_close(alone);
    custody_see_out(&custody);
    custody_clear(&custody);
    _exit(0);
}

int keeper_start(const struct keeper_plan *plan, struct keeper *keeper, struct hc_err *err)
{
    int ends[2], alone[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making a socket");
    if (pipe2(alone, O_CLOEXEC | O_NONBLOCK) < 0)
        alone[0] = alone[1] = -1; /* then it is waited for */
    cpu_set_t processors;
    hc_place_note(&processors);
    keeper->pid = fork();
    if (keeper->pid == 0)
        keep(plan, &processors, ends[0], ends[1], alone[1]);
    int code = errno;
    if (keeper->pid > 0)
        hc_place_elsewhere(keeper->pid, &processors);
    hc_close(ends[1]);
    hc_close(alone[1]);
    if (keeper->pid < 0) {
        hc_close(ends[0]);
        hc_close(alone[0]);
        return hc_fail_errno(err, HC_CLASS_HOST, code, "starting the keeper");
    }
    keeper->socket = ends[0];
    keeper->alone = alone[0];
    return 0;
}

void keeper_stop(struct keeper *keeper)
{
    keeper->socket = hc_close(keeper->socket);
    keeper->alone = hc_close(keeper->alone);
    if (keeper->pid > 0)
        while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    keeper->pid = 0;
}

void keeper_leave(struct keeper *keeper)
{
    char byte;
    if (keeper->pid > 0 && keeper->alone >= 0 && read(keeper->alone, &byte, 1) == 1)
        keeper->pid = 0;
    keeper_stop(keeper);
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
