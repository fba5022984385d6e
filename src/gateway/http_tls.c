/*
 * TLS, by OpenSSL. What always holds: 1.2 or later; no renegotiation, compression, session cache or tickets, so a
 * connection that ended leaves nothing behind; certificate and key come from memory, and no password is ever asked for.
 */
#include "gateway/http_tls.h"
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

struct http_tls {
    SSL_CTX *context;
    BIO_METHOD *socket; /* OpenSSL's own writes without MSG_NOSIGNAL: a client that hangs up would raise SIGPIPE */
};

/* ---- a socket, as a BIO ---- */

static int bio_result(BIO *bio, ssize_t count)
{
    BIO_clear_retry_flags(bio);
    if (count >= 0)
        return (int)count;
    if (errno == EAGAIN || errno == EINTR)
        BIO_set_flags(bio, BIO_FLAGS_SHOULD_RETRY);
    return -1;
}

static int bio_fd(BIO *bio)
{
    return (int)(intptr_t)BIO_get_data(bio);
}

static int bio_write(BIO *bio, const char *data, int length)
{
    int result = bio_result(bio, send(bio_fd(bio), data, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (BIO_should_retry(bio))
        BIO_set_flags(bio, BIO_FLAGS_WRITE);
    return result;
}

static int bio_read(BIO *bio, char *data, int size)
{
    int result = bio_result(bio, recv(bio_fd(bio), data, (size_t)size, MSG_DONTWAIT));
    if (BIO_should_retry(bio))
        BIO_set_flags(bio, BIO_FLAGS_READ);
    return result;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *new_socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hotcell socket");
    if (method == NULL)
        return NULL;
    if (BIO_meth_set_write(method, bio_write) != 1 || BIO_meth_set_read(method, bio_read) != 1 ||
        BIO_meth_set_ctrl(method, bio_control) != 1) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- certificate and key ---- */

static int tls_fail(struct hc_err *err, const char *what)
{
    unsigned long code = ERR_get_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s: %s", what, reason != NULL ? reason : "it cannot be used");
}

/* A key with a password would otherwise be asked for on the terminal. */
static int no_password(char *text, int size, int writing, void *data)
{
    (void)text;
    (void)size;
    (void)writing;
    (void)data;
    return -1;
}

static int use_certificates(SSL_CTX *context, BIO *pem, struct hc_err *err)
{
    X509 *certificate = PEM_read_bio_X509_AUX(pem, NULL, no_password, NULL);
    if (certificate == NULL)
        return tls_fail(err, "the TLS certificate is not PEM");
    int used = SSL_CTX_use_certificate(context, certificate);
    X509_free(certificate);
    if (used != 1)
        return tls_fail(err, "the TLS certificate cannot be used");
    while ((certificate = PEM_read_bio_X509(pem, NULL, no_password, NULL)) != NULL) {
        if (SSL_CTX_add0_chain_cert(context, certificate) != 1) {
            X509_free(certificate);
            return tls_fail(err, "the chain of the TLS certificate cannot be used");
        }
    }
    if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
        return tls_fail(err, "the chain of the TLS certificate is not PEM");
    ERR_clear_error();
    return 0;
}

static int use_key(SSL_CTX *context, BIO *pem, struct hc_err *err)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_password, NULL);
    if (key == NULL)
        return tls_fail(err, "the TLS key is not a PEM key without a password");
    int used = SSL_CTX_use_PrivateKey(context, key);
    EVP_PKEY_free(key);
    if (used != 1 || SSL_CTX_check_private_key(context) != 1)
        return tls_fail(err, "the TLS key does not fit the certificate");
    return 0;
}

/* A client that offers protocols must offer ours; browsers offer both "h2" and this. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *length, const unsigned char *in,
                           unsigned in_length, void *data)
{
    static const unsigned char OURS[] = "\x08http/1.1";
    (void)ssl;
    (void)data;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, length, OURS, sizeof OURS - 1, in, in_length) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int load(struct http_tls *tls, const char *certificate, size_t certificate_length, const char *key,
                size_t key_length, struct hc_err *err)
{
    tls->context = SSL_CTX_new(TLS_server_method());
    tls->socket = new_socket_method();
    if (tls->context == NULL || tls->socket == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "TLS cannot be set up");
    if (SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION) != 1)
        return tls_fail(err, "TLS 1.2 cannot be asked for");
    SSL_CTX_set_options(tls->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                          SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_num_tickets(tls->context, 0);
    SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(tls->context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(tls->context, choose_protocol, NULL);
    BIO *pem = BIO_new_mem_buf(certificate, (int)certificate_length);
    int status = pem != NULL ? use_certificates(tls->context, pem, err) : -ENOMEM;
    BIO_free(pem);
    if (status < 0)
        return status;
    pem = BIO_new_mem_buf(key, (int)key_length);
    status = pem != NULL ? use_key(tls->context, pem, err) : -ENOMEM;
    BIO_free(pem);
    return status;
}

int http_tls_new(const char *certificate, size_t certificate_length, const char *key, size_t key_length,
                 struct http_tls **out, struct hc_err *err)
{
    if (certificate == NULL || key == NULL || certificate_length > 1 << 20 || key_length > 1 << 20)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "TLS needs a certificate and a key, in PEM, of at most 1 MiB");
    struct http_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "TLS cannot be set up");
    ERR_clear_error();
    int status = load(tls, certificate, certificate_length, key, key_length, err);
    if (status < 0) {
        http_tls_free(tls);
        return hc_fail(err, HC_CLASS_HOST, -status, "TLS cannot be set up");
    }
    *out = tls;
    return 0;
}

void http_tls_free(struct http_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->socket);
    free(tls);
}

/* ---- one connection ---- */

SSL *http_tls_open(struct http_tls *tls, int fd)
{
    SSL *ssl = SSL_new(tls->context);
    BIO *bio = BIO_new(tls->socket);
    if (ssl == NULL || bio == NULL) {
        SSL_free(ssl);
        BIO_free(bio);
        return NULL;
    }
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio); /* gives it away */
    SSL_set_accept_state(ssl);
    return ssl;
}

void http_tls_close(SSL *ssl)
{
    SSL_free(ssl);
}

/* What a call that did not succeed means. */
static int outcome(SSL *ssl, int result, uint32_t *wants)
{
    int error = SSL_get_error(ssl, result);
    ERR_clear_error();
    switch (error) {
    case SSL_ERROR_WANT_READ:
        *wants = EPOLLIN;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *wants = EPOLLOUT;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return -EPIPE;
    }
}

int http_tls_handshake(SSL *ssl, uint32_t *wants)
{
    int result = SSL_do_handshake(ssl);
    if (result == 1)
        return 0;
    int status = outcome(ssl, result, wants);
    return status == 0 ? -EPIPE : status;
}

ssize_t http_tls_read(SSL *ssl, void *data, size_t size, uint32_t *wants)
{
    size_t count;
    return SSL_read_ex(ssl, data, size, &count) == 1 ? (ssize_t)count : outcome(ssl, 0, wants);
}

ssize_t http_tls_write(SSL *ssl, const void *data, size_t length, uint32_t *wants)
{
    size_t count;
    if (SSL_write_ex(ssl, data, length, &count) == 1)
        return (ssize_t)count;
    int status = outcome(ssl, 0, wants);
    return status == 0 ? -EPIPE : status;
}

void http_tls_shutdown(SSL *ssl)
{
    if (SSL_is_init_finished(ssl))
        SSL_shutdown(ssl);
    ERR_clear_error();
}
