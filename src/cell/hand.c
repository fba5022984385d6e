/* See hand.h. */
#include "cell/hand.h"

#include "base/fd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int hand_out(int door, int fd, struct hc_err *err)
{
    int result = hc_send_fds(door, "+", 1, &fd, 1);
    return result < 0 ? hc_fail_errno(err, HC_CLASS_OURS, -result, "handing it out") : 0;
}

int hand_terminal(int door, struct hc_err *err)
{
    hc_cleanup_fd int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int number, unlocked = 0;
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlocked) < 0 || ioctl(master, TIOCGPTN, &number) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making a terminal");
    char path[32];
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    hc_cleanup_fd int slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0) /* a session of its own it has since entering */
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "taking the terminal %s", path);
    int result = hand_out(door, master, err);
    for (int fd = 0; fd < 3 && result == 0; fd++)
        if (dup2(slave, fd) < 0)
            result = hc_fail_errno(err, HC_CLASS_OURS, errno, "placing fd %d", fd);
    return result;
}

/* Servers listen on one of the two, or on both. */
int hand_connection(int door, const char *port, struct hc_err *err)
{
    char *end;
    unsigned long number = strtoul(port, &end, 10);
    if (*end || number == 0 || number > 65535)
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "%s is no port", port);
    struct sockaddr_in ipv4 = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)number), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 ipv6 = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)number), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    hc_cleanup_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&ipv4, sizeof ipv4) == 0)
        return hand_out(door, fd, err);
    int code = errno;
    hc_cleanup_fd int other = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (other >= 0 && connect(other, (struct sockaddr *)&ipv6, sizeof ipv6) == 0)
        return hand_out(door, other, err);
    return hc_fail_errno(err, HC_CLASS_PROGRAM, code, "nothing answers on port %lu of the sandbox", number);
}
