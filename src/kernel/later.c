/* See later.h. */
#include "kernel/later.h"

#include "base/fd.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int hc_later_add(int sender, const int *fds, size_t count)
{
    return hc_send_fds(sender, "", 1, fds, count);
}

int hc_later_open(int pair[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    return hc_later_add(pair[1], pair, 1);
}

/* The holder's last fd does not free it, for it is in its own queue: that is found out when another socket is closed.
 */
void hc_later_release(int holder)
{
    hc_close(holder);
    hc_close(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}
