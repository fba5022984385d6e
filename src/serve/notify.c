/* The two small protocols of systemd that a service needs, sd_notify(3) and sd_listen_fds(3), without its library. */
#include "serve/internal.h"

#include "base/fd.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    hc_cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* A manager that does not listen changes nothing for us. */
    if (fd >= 0 && sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        return;
}

int notify_listen_fds(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid())
        return 0;
    long number = strtol(count, NULL, 10);
    return number > 0 && number <= SERVE_MAX_LISTENERS ? (int)number : 0;
}
