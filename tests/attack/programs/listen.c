/* Listen on TCP port argv[1] of every address and on the abstract socket argv[2], for argv[3] milliseconds;
 * `accepted=<n>`. */
#include "probe.h"
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(argv[1]))};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strncpy(name.sun_path + 1, argv[2], sizeof name.sun_path - 2);
    int tcp = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0, on = 1;
    setsockopt(tcp, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    probe("bind_tcp", bind(tcp, (struct sockaddr *)&any, sizeof any));
    int local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argv[2]));
    probe("bind_abstract", bind(local, (struct sockaddr *)&name, length));
    listen(tcp, 8);
    listen(local, 8);
    fact("listening", "yes");
    int accepted = 0;
    struct pollfd ready[2] = {{.fd = tcp, .events = POLLIN}, {.fd = local, .events = POLLIN}};
    for (int left = atoi(argv[3]) / 50; left > 0; left--) {
        if (poll(ready, 2, 50) <= 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (ready[i].revents & POLLIN && accept(ready[i].fd, NULL, NULL) >= 0)
                accepted++;
    }
    fact("accepted", "%d", accepted);
    return 0;
}
