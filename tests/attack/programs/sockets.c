/* socket() for every family 0–45 and the usual types: the families that opened, in one line; then raw, packet and
 * netlink by name. */
#include "probe.h"
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(void)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_RDM, SOCK_PACKET};
    char families[512] = "";
    for (int family = 0; family <= 45; family++) {
        char list[64] = "";
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            int fd = socket(family, types[i] | SOCK_CLOEXEC, 0);
            if (fd < 0)
                continue;
            close(fd);
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", *list ? "," : "", types[i]);
        }
        if (*list)
            snprintf(families + strlen(families), sizeof families - strlen(families), "%d:%s ", family, list);
    }
    fact("families", "%s", families);
    probe("raw_icmp", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    probe("raw_ip", socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
    probe("raw_icmp6", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6));
    probe("packet", socket(AF_PACKET, SOCK_RAW, 0));
    probe("netlink_route", socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    probe("netlink_audit", socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT));
    probe("netlink_uevent", socket(AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT));
    int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
    probe("vsock", fd);
    int ends[2];
    probe("pair_unix", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    return 0;
}
