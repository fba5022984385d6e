/* See net.h. */
#include "cell/net.h"

#include "base/fd.h"
#include "kernel/sys.h"
#include <net/if.h>
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

/* The child shares our table of fds: what it opens is open here, and its exit status is the number. 0, which is
 * /dev/null, says no. */
int net_make(int owner)
{
    int pidfd = -1;
    pid_t pid = hc_clone(CLONE_FILES, -1, &pidfd);
    if (pid == 0) {
        if (setns(owner, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNET) < 0 || net_raise_loopback(NULL) < 0)
            _exit(0);
        int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        _exit(fd > 0 && fd < 256 ? fd : 0);
    }
    if (pid < 0)
        return -errno;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    hc_close(pidfd);
    return WIFEXITED(status) && WEXITSTATUS(status) > 0 ? WEXITSTATUS(status) : -EPERM;
}
