/* See listener.h. */
#include "gateway/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

bool listener_is_loopback(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        return false;
    if (address.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)&address)->sin_addr.s_addr) >> 24 == 127;
    if (address.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&address)->sin6_addr);
    return address.ss_family == AF_UNIX;
}

const char *listener_address(int fd, char *text, size_t size)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    getsockname(fd, (struct sockaddr *)&address, &length);
    memcpy(&four, &address, sizeof four);
    memcpy(&six, &address, sizeof six);
    if (address.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, ntohs(six.sin6_port));
    } else {
        inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, ntohs(four.sin_port));
    }
    return text;
}
