/* One TLS connection over a non-blocking socket, in the terms of http_conn.c: bytes, and what to wait for. */
#ifndef HC_GATEWAY_HTTP_TLS_H
#define HC_GATEWAY_HTTP_TLS_H

#include "gateway/http.h"
#include <sys/types.h>

struct ssl_st; /* OpenSSL's SSL */

/* The fd stays the caller's. NULL: no memory. */
struct ssl_st *http_tls_open(struct http_tls *tls, int fd);
void http_tls_close(struct ssl_st *ssl); /* NULL is fine */

/* 0, or bytes; -EAGAIN with the event to wait for in *wants; -EPIPE when the connection is of no use any more. A read
 * of 0 is the client's end. */
int http_tls_handshake(struct ssl_st *ssl, uint32_t *wants);
ssize_t http_tls_read(struct ssl_st *ssl, void *data, size_t size, uint32_t *wants);
ssize_t http_tls_write(struct ssl_st *ssl, const void *data, size_t length, uint32_t *wants);
void http_tls_shutdown(struct ssl_st *ssl); /* says so to the client; does not wait */

#endif
