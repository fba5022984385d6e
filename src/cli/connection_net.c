/*
 * What a connection to another machine needs besides connection.c: names, TCP and TLS. Apart, because only
 * hotcell-client has OpenSSL. With TLS, what OpenSSL wants (to read while writing, to write while reading) decides what
 * is waited for.
 */
#include "cli/connection_internal.h"

#include "base/fd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>

/* ---- TLS ---- */

/* OpenSSL writes with write(2): a closed connection would raise SIGPIPE. A signal's disposition is the program's, so it
 * is held back here, and a new one is taken away. */
struct pipe_guard {
    sigset_t before;
    bool pending;
};

static void guard_begin(struct pipe_guard *guard)
{
    sigset_t pipe_set, pending;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    guard->pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_set, &guard->before);
}

static void guard_end(const struct pipe_guard *guard)
{
    const struct timespec at_once = {0};
    sigset_t pipe_set;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    if (!guard->pending)
        sigtimedwait(&pipe_set, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

enum tls_act { TLS_CONNECT, TLS_READ, TLS_WRITE };

/* The count, 0 at the end, -errno. */
static ssize_t tls_do(struct connection *connection, enum tls_act act, char *data, size_t size, uint64_t deadline)
{
    struct pipe_guard guard;

    for (;;) {
        size_t count = 0;
        ERR_clear_error();
        guard_begin(&guard);
        int done = act == TLS_CONNECT ? SSL_connect(connection->tls)
                   : act == TLS_READ  ? SSL_read_ex(connection->tls, data, size, &count)
                                      : SSL_write_ex(connection->tls, data, size, &count);
        int code = errno;
        guard_end(&guard);
        if (done > 0)
            return act == TLS_CONNECT ? 1 : (ssize_t)count;
        int want = SSL_get_error(connection->tls, done);
        if (want == SSL_ERROR_ZERO_RETURN)
            return 0;
        if (want == SSL_ERROR_SYSCALL)
            return code ? -code : -ECONNRESET;
        if (want != SSL_ERROR_WANT_READ && want != SSL_ERROR_WANT_WRITE)
            return -EPROTO;
        int ready = connection_wait(connection, want == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline);
        if (ready < 0)
            return ready;
    }
}

static int no_trust(const char *ca, struct hc_err *err)
{
    if (!ca)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "TLS cannot be set up");
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there are no certificates in %s", ca);
    return hc_err_remedy(err, "--ca (or HOTCELL_CA) names a PEM file that can be read");
}

/* The name, or the address, that the certificate must be for. */
static bool expect_host(SSL *tls, const char *host)
{
    unsigned char address[16];

    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host) == 1;
    return SSL_set_tlsext_host_name(tls, host) == 1 && SSL_set1_host(tls, host) == 1;
}

static int tls_refused(const struct connection *connection, const struct url *url, int status, struct hc_err *err)
{
    long verdict = SSL_get_verify_result(connection->tls);

    if (verdict != X509_V_OK) {
        hc_fail(err, HC_CLASS_HOST, EPROTO, "the certificate of %s is not trusted: %s", url->authority,
                X509_verify_cert_error_string(verdict));
        return hc_err_remedy(err, "if the server's certificate is your own, name it: --ca FILE or HOTCELL_CA");
    }
    if (status != -EPROTO)
        return hc_fail_errno(err, HC_CLASS_HOST, -status, "no TLS with %s", url->authority);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    hc_fail(err, HC_CLASS_HOST, EPROTO, "no TLS with %s: %s", url->authority, reason ? reason : "a broken handshake");
    return hc_err_remedy(err, "does the server speak plain http? then its address begins with http://");
}

static int start_tls(struct connection *connection, const struct url *url, uint64_t deadline, struct hc_err *err)
{
    const char *ca = connection->terms->ca;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    int status = 0;

    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
        status = hc_fail(err, HC_CLASS_OURS, ENOMEM, "TLS cannot be set up");
    else if ((ca ? SSL_CTX_load_verify_file(context, ca) : SSL_CTX_set_default_verify_paths(context)) != 1)
        status = no_trust(ca, err);
    if (status == 0) {
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        connection->tls = SSL_new(context);
        if (!connection->tls || SSL_set_fd(connection->tls, connection->fd) != 1 ||
            !expect_host(connection->tls, url->host))
            status = hc_fail(err, HC_CLASS_OURS, ENOMEM, "TLS cannot be set up");
    }
    SSL_CTX_free(context);
    if (status < 0)
        return status;
    ssize_t done = tls_do(connection, TLS_CONNECT, NULL, 0, deadline);
    return done > 0 ? 0 : tls_refused(connection, url, done < 0 ? (int)done : -ECONNRESET, err);
}

/* ---- connecting ---- */

/* A server that vanished without a word is found out within half a minute, however long a run is silent. */
static void keep_alive(int fd)
{
    static const struct {
        int level, option, value;
    } settings[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                    {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                    {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                    {IPPROTO_TCP, TCP_KEEPCNT, 4},
                    {IPPROTO_TCP, TCP_NODELAY, 1}};

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setsockopt(fd, settings[i].level, settings[i].option, &settings[i].value, sizeof settings[i].value);
}

static int connect_tcp(struct connection *connection, const struct url *url, uint64_t deadline, struct hc_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *list = NULL;
    int status = -EHOSTUNREACH;

    int found = getaddrinfo(url->host, url->port, &hints, &list);
    if (found == EAI_ADDRFAMILY || found == EAI_NONAME) { /* AI_ADDRCONFIG hides loopback where there is nothing else */
        hints.ai_flags = 0;
        found = getaddrinfo(url->host, url->port, &hints, &list);
    }
    if (found != 0)
        return hc_fail(err, HC_CLASS_HOST, EHOSTUNREACH, "there is no host %s: %s", url->host, gai_strerror(found));
    for (const struct addrinfo *at = list; at && status < 0 && status != -EINTR && status != -ETIMEDOUT;
         at = at->ai_next) {
        connection->fd = hc_close(connection->fd);
        status = connection_connect(connection, at->ai_addr, at->ai_addrlen, deadline);
    }
    freeaddrinfo(list);
    if (status < 0)
        return connection_refused(url, status, err);
    keep_alive(connection->fd);
    return 0;
}

static int net_open(struct connection *connection, const struct url *url, uint64_t deadline, struct hc_err *err)
{
    int status = connect_tcp(connection, url, deadline, err);

    return status == 0 && url->scheme == URL_HTTPS ? start_tls(connection, url, deadline, err) : status;
}

static void net_close(struct connection *connection)
{
    SSL_free(connection->tls);
}

static ssize_t net_read(struct connection *connection, char *data, size_t size, uint64_t deadline)
{
    return tls_do(connection, TLS_READ, data, size, deadline);
}

static int net_write(struct connection *connection, const char *data, size_t length, uint64_t deadline)
{
    while (length > 0) {
        ssize_t count = tls_do(connection, TLS_WRITE, (char *)data, length, deadline);
        if (count <= 0)
            return count < 0 ? (int)count : -ECONNRESET;
        data += count;
        length -= (size_t)count;
    }
    return 0;
}

/* tls_do waits no longer than until its deadline, and this one is over. */
static ssize_t net_try_write(struct connection *connection, const char *data, size_t length)
{
    ssize_t count = tls_do(connection, TLS_WRITE, (char *)data, length, 1);

    return count == -ETIMEDOUT ? -EAGAIN : count == 0 ? -ECONNRESET : count;
}

const struct connection_net connection_net = {
    .open = net_open, .close = net_close, .read = net_read, .write = net_write, .try_write = net_try_write};
