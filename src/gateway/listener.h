/* Where a listening socket listens, by the kernel's word. */
#ifndef HC_GATEWAY_LISTENER_H
#define HC_GATEWAY_LISTENER_H

#include <stdbool.h>
#include <stddef.h>

/* A unix socket is as near. */
bool listener_is_loopback(int fd);
/* "127.0.0.1:7600", "[::1]:7600": as its owner wrote it, or would have. */
const char *listener_address(int fd, char *text, size_t size);

#endif
