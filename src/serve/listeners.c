/*
 * Where the server listens: addresses of the configuration or the command line, the older clients' port, a unix socket;
 * or whatever systemd has opened for it. Opened by the keeper, so that a port below 1024 needs no rights of the
 * gateway, and so that they stay open while a gateway is started again.
 */
#include "serve/internal.h"

#include "base/fd.h"
#include "base/size.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

struct endpoint {
    struct sockaddr_storage address;
    socklen_t length;
    bool loopback;
};

static int bad_address(const char *text, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_REQUEST, EINVAL,
            "expected an address and a port such as 127.0.0.1:7600 or [::1]:7600, found \"%.100s\"", text);
    hc_err_remedy(err, "numbers, for no name but localhost is looked up; port 0 is one that is free, and 0.0.0.0 and "
                       "[::] are all interfaces");
    return -EINVAL;
}

/* Numbers only, and localhost: a name that needs a resolver may change under a server that runs for a year. */
static int parse_address(const char *text, struct endpoint *out, struct hc_err *err)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    bool brackets = text[0] == '[' && colon && colon > text + 1 && colon[-1] == ']';
    uint64_t port;
    if (!colon || (size_t)(colon - text) >= sizeof host || hc_parse_count(colon + 1, 0, 65535, &port, NULL) < 0)
        return bad_address(text, err);
    snprintf(host, sizeof host, "%.*s", (int)(colon - text) - (brackets ? 2 : 0), text + (brackets ? 1 : 0));
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    memset(out, 0, sizeof *out);
    struct sockaddr_in *four = (struct sockaddr_in *)&out->address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out->address;
    if (!brackets && inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        out->length = sizeof *four;
        out->loopback = (ntohl(four->sin_addr.s_addr) >> 24) == 127;
    } else if (brackets && inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        out->length = sizeof *six;
        out->loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    } else {
        return bad_address(text, err);
    }
    return 0;
}

static struct listener *add(struct listeners *listeners, struct hc_err *err)
{
    if (listeners->count == SERVE_MAX_LISTENERS) {
        hc_fail(err, HC_CLASS_REQUEST, E2BIG, "a server listens on %d addresses at most", SERVE_MAX_LISTENERS);
        return NULL;
    }
    struct listener *listener = &listeners->item[listeners->count++];
    *listener = (struct listener){.fd = -1, .source = ""};
    return listener;
}

/* What the kernel says it is, which tells the port when 0 was asked for. */
static int name_listener(struct listener *listener, struct hc_err *err)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN];
    if (getsockname(listener->fd, (struct sockaddr *)&address, &length) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "looking at a listening socket");
    const char *scheme = listener->is_tls ? "https" : "http";
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        listener->loopback = (ntohl(four->sin_addr.s_addr) >> 24) == 127;
        snprintf(listener->address, sizeof listener->address, "%s://%s:%u", scheme, host, ntohs(four->sin_port));
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        listener->loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
        snprintf(listener->address, sizeof listener->address, "%s://[%s]:%u", scheme, host, ntohs(six->sin6_port));
    } else {
        listener->is_unix = true;
        listener->is_tls = false;
        const struct sockaddr_un *local = (const struct sockaddr_un *)&address;
        snprintf(listener->address, sizeof listener->address, "unix:%.200s",
                 listener->path[0] ? listener->path : local->sun_path);
    }
    return 0;
}

static uint16_t port_of(const struct sockaddr_storage *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    memcpy(&four, address, sizeof four);
    memcpy(&six, address, sizeof six);
    return ntohs(address->ss_family == AF_INET ? four.sin_port : six.sin6_port);
}

static bool is_any(const struct sockaddr_storage *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    memcpy(&four, address, sizeof four);
    memcpy(&six, address, sizeof six);
    return address->ss_family == AF_INET ? four.sin_addr.s_addr == INADDR_ANY : IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr);
}

/* Which of those that are open already is where this one wants to be. The last one is its own; NULL: none. */
static const struct listener *same_address(const struct listeners *listeners, const struct endpoint *wanted)
{
    for (size_t i = 0; i + 1 < listeners->count; i++) {
        struct sockaddr_storage has = {0};
        socklen_t length = sizeof has;
        if (getsockname(listeners->item[i].fd, (struct sockaddr *)&has, &length) == 0 &&
            has.ss_family == wanted->address.ss_family && port_of(&has) == port_of(&wanted->address) &&
            (is_any(&has) || is_any(&wanted->address) || memcmp(&has, &wanted->address, length) == 0))
            return &listeners->item[i];
    }
    return NULL;
}

static int fail_listen(const char *text, const struct listener *same, bool older, int code, struct hc_err *err)
{
    const char *port = strrchr(text, ':') + 1;
    if (code == EADDRINUSE && same) {
        hc_fail(err, HC_CLASS_REQUEST, code, "%s is listened on already, by %s (%s)", text, same->source,
                same->address);
        return hc_err_remedy(err, older ? "name another port for POST /execute with SANDBOX_PORT=PORT, or do without "
                                          "it: execute_listen = \"\" in [server]"
                                        : "leave one of them out");
    }
    hc_fail_errno(err, HC_CLASS_HOST, code, "listening on %s", text);
    if (code == EADDRINUSE && older)
        hc_err_remedy(
            err,
            "another program has it (ss -ltnp 'sport = :%s' names it): stop that one, choose another port for "
            "POST /execute with SANDBOX_PORT=PORT, or do without it: execute_listen = \"\" in [server]",
            port);
    else if (code == EADDRINUSE)
        hc_err_remedy(err,
                      "another program has it (ss -ltnp 'sport = :%s' names it): stop that one, or choose another port "
                      "with --listen 127.0.0.1:PORT or server.listen",
                      port);
    else if (code == EADDRNOTAVAIL)
        hc_err_remedy(err, "this machine has no such address: ip address lists those that it has");
    else if (code == EACCES)
        hc_err_remedy(err, "a port below 1024 is root's: choose another one");
    return -code;
}

/* older: where older clients look for POST /execute. */
static int open_address(struct listeners *listeners, const char *text, const char *source, bool older, bool tls,
                        struct hc_err *err)
{
    struct endpoint endpoint;
    int result = parse_address(text, &endpoint, err);
    struct listener *listener = result < 0 ? NULL : add(listeners, err);
    if (!listener)
        return result < 0 ? result : -E2BIG;
    int on = 1;
    listener->is_tls = tls;
    listener->source = source;
    listener->fd = socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0 || setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (endpoint.address.ss_family == AF_INET6 &&
         setsockopt(listener->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0) ||
        bind(listener->fd, (struct sockaddr *)&endpoint.address, endpoint.length) < 0 ||
        listen(listener->fd, BACKLOG) < 0)
        return fail_listen(text, same_address(listeners, &endpoint), older, errno, err);
    return name_listener(listener, err);
}

/* A socket that nobody answers is left over from a crash and is replaced; one that answers is somebody's. The path may
 * be longer than a socket address: it is named through its folder. */
static int open_unix(struct listeners *listeners, const char *path, struct hc_err *err)
{
    struct listener *listener = add(listeners, err);
    if (!listener)
        return -E2BIG;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "server.socket: expected a path in a folder, found \"%s\"", path);
    *slash = '\0';
    hc_cleanup_fd int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (dir < 0 || (size_t)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir, slash + 1) >=
                       sizeof address.sun_path)
        return hc_fail_errno(err, HC_CLASS_HOST, dir < 0 ? errno : ENAMETOOLONG, "opening the folder of %s", path);
    hc_cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making a socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN) {
        hc_fail(err, HC_CLASS_HOST, EADDRINUSE, "another server answers at %s", path);
        return hc_err_remedy(err, "stop it, or name another socket (server.socket)");
    }
    struct stat st;
    if (fstatat(dir, slash + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode))
        unlinkat(dir, slash + 1, 0);
    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177);
    int bound = listener->fd < 0 ? -1 : bind(listener->fd, (struct sockaddr *)&address, sizeof address);
    int code = errno;
    umask(before);
    if (bound < 0 || listen(listener->fd, BACKLOG) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, bound < 0 ? code : errno, "listening on %s", path);
    listener->is_unix = true;
    listener->source = "server.socket";
    snprintf(listener->path, sizeof listener->path, "%s", path);
    return name_listener(listener, err);
}

static int take_activated(struct listeners *listeners, int count, bool tls, struct hc_err *err)
{
    for (int i = 0; i < count; i++) {
        struct listener *listener = add(listeners, err);
        if (!listener)
            return -E2BIG;
        listener->fd = 3 + i;
        listener->activated = true;
        listener->source = "a socket of systemd";
        listener->is_tls = tls;
        fcntl(listener->fd, F_SETFD, FD_CLOEXEC);
        int result = name_listener(listener, err);
        if (result < 0)
            return result;
    }
    return 0;
}

/* What the address came from, for whoever wrote it. A key of the configuration is named with its line, by config_blame.
 */
static int name_source(int result, const char *source, struct hc_err *err)
{
    if (result < 0 && !strchr(source, '.'))
        hc_err_context(err, "%s", source);
    if (result < 0)
        hc_err_field(err, "%s", source);
    return result;
}

static const char *execute_source(void)
{
    const char *host = getenv("SANDBOX_HOST"), *port = getenv("SANDBOX_PORT");
    bool has_host = host && host[0], has_port = port && port[0];
    return has_host && has_port ? "SANDBOX_HOST and SANDBOX_PORT"
           : has_port           ? "SANDBOX_PORT"
           : has_host           ? "SANDBOX_HOST"
                                : "server.execute_listen";
}

/* The older clients' port: SANDBOX_HOST and SANDBOX_PORT name it when they are set. "": none. */
static void execute_address(const struct config *config, bool private_instance, char *text, size_t size)
{
    const char *host = getenv("SANDBOX_HOST"), *port = getenv("SANDBOX_PORT");
    if (host && host[0] == '\0')
        host = NULL;
    if (port && port[0])
        snprintf(text, size, strchr(host ? host : "", ':') ? "[%s]:%s" : "%s:%s", host ? host : "127.0.0.1", port);
    else if (private_instance)
        text[0] = '\0';
    else if (host)
        snprintf(text, size, strchr(host, ':') ? "[%s]:6000" : "%s:6000", host);
    else
        snprintf(text, size, "%s", config->server.execute_listen);
}

int listeners_open(struct listeners *listeners, const struct config *config, const struct serve_options *options,
                   const char *socket_path, struct hc_err *err)
{
    listeners->count = 0;
    bool tls = config->server.tls_certificate[0] != '\0';
    int activated = notify_listen_fds();
    if (activated > 0)
        return take_activated(listeners, activated, tls, err);
    int result = 0;
    for (size_t i = 0; i < options->listen_count && result == 0; i++)
        result = name_source(open_address(listeners, options->listen[i], "--listen", false, tls, err), "--listen", err);
    for (size_t i = 0; i < config->server.listen.count && options->listen_count == 0 && result == 0; i++)
        result = name_source(open_address(listeners, config->server.listen.item[i], "server.listen", false, tls, err),
                             "server.listen", err);
    char execute[128];
    execute_address(config, options->listen_count > 0, execute, sizeof execute);
    if (result == 0 && execute[0])
        result = name_source(open_address(listeners, execute, execute_source(), true, tls, err), execute_source(), err);
    if (result == 0 && socket_path[0])
        result = open_unix(listeners, socket_path, err);
    if (result == 0 && listeners->count == 0)
        result = hc_fail(err, HC_CLASS_REQUEST, EINVAL, "server.listen: there is no address to listen on");
    return result;
}

int listeners_check(const struct config *config, const struct serve_options *options, struct hc_err *err)
{
    struct endpoint endpoint;
    char execute[128];
    int result = 0;
    for (size_t i = 0; i < options->listen_count && result == 0; i++)
        result = name_source(parse_address(options->listen[i], &endpoint, err), "--listen", err);
    for (size_t i = 0; i < config->server.listen.count && result == 0; i++)
        result = name_source(parse_address(config->server.listen.item[i], &endpoint, err), "server.listen", err);
    execute_address(config, options->listen_count > 0, execute, sizeof execute);
    if (result == 0 && execute[0])
        result = name_source(parse_address(execute, &endpoint, err), execute_source(), err);
    return result;
}

bool listeners_need_keys(const struct config *config, const struct serve_options *options)
{
    struct endpoint endpoint;
    char execute[128];
    const char *const *given =
        options->listen_count > 0 ? options->listen : (const char *const *)config->server.listen.item;
    size_t count = options->listen_count > 0 ? options->listen_count : config->server.listen.count;
    bool need = false;
    for (size_t i = 0; i < count && !need; i++)
        need = parse_address(given[i], &endpoint, NULL) == 0 && !endpoint.loopback;
    execute_address(config, options->listen_count > 0, execute, sizeof execute);
    return need || (execute[0] && parse_address(execute, &endpoint, NULL) == 0 && !endpoint.loopback);
}

void listeners_close(struct listeners *listeners)
{
    for (size_t i = 0; i < listeners->count; i++) {
        hc_close(listeners->item[i].fd);
        if (listeners->item[i].path[0])
            unlink(listeners->item[i].path);
    }
    listeners->count = 0;
}
