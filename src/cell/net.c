/* See net.h. */
#include "cell/net.h"

#include "base/fd.h"
#include "kernel/sys.h"
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

int net_raise_loopback(struct hc_err *err)
{
    hc_cleanup_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "lo");
    return 0;
}

/* Runs on its parent's memory while that waits (CLONE_VFORK), and shares its table of fds: what it opens is open there.
 */
static int make(void *data)
{
    int *owner_then_fd = data;
    if (setns(*owner_then_fd, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNET) < 0 || net_raise_loopback(NULL) < 0)
        return 1;
    *owner_then_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return *owner_then_fd < 0;
}

int net_make(int owner)
{
    char stack[16384] __attribute__((aligned(64)));
    int owner_then_fd = owner, status = 0;
    pid_t pid = clone(make, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &owner_then_fd);
    int code = errno;
    if (pid < 0)
        return -code;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0 ? owner_then_fd : -EPERM;
}
