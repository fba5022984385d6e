/* Become somebody else, gain capabilities, raise limits and priority, each in a child. */
#include "probe.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>

static int raise_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    data[0].effective = data[0].permitted = 1u << CAP_SYS_CHROOT | 1u << CAP_SETUID;
    return (int)syscall(SYS_capset, &header, data);
}

static int ambient(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -1;
    data[0].inheritable |= 1u << CAP_SYS_CHROOT;
    if (syscall(SYS_capset, &header, data) < 0)
        return -1;
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_CHROOT, 0, 0);
}

static int raise_limit(int which)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) < 0)
        return -1;
    if (limit.rlim_max == RLIM_INFINITY)
        return 0;
    limit.rlim_max += 1;
    return setrlimit((__rlimit_resource_t)which, &limit);
}

static int adjust(const char *value)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -1 : (int)write(fd, value, strlen(value));
}

static int realtime(void)
{
    struct sched_param parameter = {.sched_priority = 1};
    return sched_setscheduler(0, SCHED_FIFO, &parameter);
}

/* setfsuid never fails: it says what was in force before. */
static int file_identity(void)
{
    setfsuid(0);
    if (setfsuid((uid_t)-1) == 0)
        return 0;
    errno = EPERM;
    return -1;
}
#define DOOR(name, call)                                                                                               \
    static int try_##name(void)                                                                                        \
    {                                                                                                                  \
        return (int)(call);                                                                                            \
    }
static const gid_t root_group[] = {0};
DOOR(setuid, setuid(0))
DOOR(setgid, setgid(0))
DOOR(setresuid, setresuid(0, 0, 0))
DOOR(setuid_other, setuid(65534))
DOOR(setgroups, setgroups(1, root_group))
DOOR(nofile, raise_limit(RLIMIT_NOFILE))
DOOR(core, raise_limit(RLIMIT_CORE))
DOOR(nproc, raise_limit(RLIMIT_NPROC))
DOOR(fsize, raise_limit(RLIMIT_FSIZE))
DOOR(memlock, raise_limit(RLIMIT_MEMLOCK))
DOOR(rtprio, raise_limit(RLIMIT_RTPRIO))
DOOR(oom_score_adj, adjust("-1000"))
DOOR(nice, setpriority(PRIO_PROCESS, 0, -5))
DOOR(securebits, prctl(PR_SET_SECUREBITS, 0))

#define ENTRY(name)                                                                                                    \
    {                                                                                                                  \
#name, try_##name                                                                                              \
    }
static const struct {
    const char *name;
    int (*try)(void);
} doors[] = {
    ENTRY(setuid),
    ENTRY(setgid),
    ENTRY(setresuid),
    ENTRY(setuid_other),
    ENTRY(setgroups),
    ENTRY(nofile),
    ENTRY(core),
    ENTRY(nproc),
    ENTRY(fsize),
    ENTRY(memlock),
    ENTRY(rtprio),
    ENTRY(oom_score_adj),
    ENTRY(nice),
    ENTRY(securebits),
    {"setfsuid", file_identity},
    {"capset", raise_capabilities},
    {"ambient", ambient},
    {"realtime", realtime},
};

int main(void)
{
    for (size_t i = 0; i < sizeof doors / sizeof *doors; i++) {
        pid_t child = fork();
        if (child == 0) {
            probe(doors[i].name, doors[i].try());
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    fact("uid", "%d", (int)getuid());
    return 0;
}
