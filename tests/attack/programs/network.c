/*
 * Reach out. Arguments are `name=tcp:ADDRESS:PORT`, `name=udp:…`, `name=abstract:NAME`, `name=path:FILE`,
 * `name=icmp:ADDRESS`, `name=vsock:CID:PORT`. tcp is open when the connection stands or is refused by a peer that was
 * reached; udp when the datagram left. `--own-lo ADDRESS` first raises lo with that address and a listener on port 80,
 * udp 53: the control's stand-in for a network that is there.
 */
#include "probe.h"
#include <arpa/inet.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_un local;
    struct sockaddr_vm machine;
};

static socklen_t parse(char *text, union address *address)
{
    char *port = strrchr(text, ':');
    memset(address, 0, sizeof *address);
    if (!port)
        return 0;
    *port++ = 0;
    if (strchr(text, ':')) {
        address->six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port))};
        return inet_pton(AF_INET6, text, &address->six.sin6_addr) == 1 ? sizeof address->six : 0;
    }
    address->four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    return inet_pton(AF_INET, text, &address->four.sin_addr) == 1 ? sizeof address->four : 0;
}

static int reach(int fd, const union address *address, socklen_t length)
{
    if (fd < 0)
        return -1;
    if (connect(fd, &address->any, length) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -1;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (poll(&ready, 1, 500) == 1)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    return error ? -1 : 0;
}

static int try_door(char *kind)
{
    union address address = {0};
    char *rest = strchr(kind, ':');
    if (!rest)
        return 0;
    *rest++ = 0;
    if (strcmp(kind, "tcp") == 0 || strcmp(kind, "udp") == 0) {
        int type = *kind == 't' ? SOCK_STREAM : SOCK_DGRAM;
        socklen_t length = parse(rest, &address);
        int fd = socket(address.any.sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (type == SOCK_STREAM)
            return reach(fd, &address, length);
        return fd < 0 ? -1 : (int)sendto(fd, "attack", 6, 0, &address.any, length);
    }
    if (strcmp(kind, "icmp") == 0) {
        address.four = (struct sockaddr_in){.sin_family = AF_INET};
        inet_pton(AF_INET, rest, &address.four.sin_addr);
        int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
        if (fd < 0)
            fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
        static const unsigned char echo[8] = {8, 0, 0xf7, 0xff};
        return fd < 0 ? -1 : (int)sendto(fd, echo, sizeof echo, 0, &address.any, sizeof address.four);
    }
    if (strcmp(kind, "vsock") == 0) {
        address.machine = (struct sockaddr_vm){.svm_family = AF_VSOCK, .svm_cid = (unsigned)atoi(rest), .svm_port = 1};
        return socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    bool abstract = strcmp(kind, "abstract") == 0;
    address.local.sun_family = AF_UNIX;
    strncpy(address.local.sun_path + abstract, rest, sizeof address.local.sun_path - 2);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(rest) + 1);
    return reach(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), &address, length);
}

static int own_lo(const char *text)
{
    struct ifreq request = {.ifr_name = "lo"};
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_flags = IFF_UP;
    if (ioctl(control, SIOCSIFFLAGS, &request) < 0)
        return -1;
    struct sockaddr_in *address = (struct sockaddr_in *)(void *)&request.ifr_addr;
    strcpy(request.ifr_name, "lo:1");
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    inet_pton(AF_INET, text, &address->sin_addr);
    if (ioctl(control, SIOCSIFADDR, &request) < 0)
        return -1;
    struct sockaddr_in listen_on = *address;
    listen_on.sin_port = htons(80);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server, (struct sockaddr *)&listen_on, sizeof listen_on) < 0)
        return -1;
    return listen(server, 8);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--own-lo") == 0 && i + 1 < argc) {
            probe("own_lo", own_lo(argv[++i]));
            continue;
        }
        char *kind = strchr(argv[i], '=');
        if (!kind)
            return 2;
        *kind++ = 0;
        probe(argv[i], try_door(kind));
    }
    return 0;
}
