/* TLS: certificates from memory, and the server behind them, with a client of OpenSSL's own over a real socket. */
#include "http_fixture.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct pem {
    char *certificate, *key;
    size_t certificate_length, key_length;
};

static char *take_text(BIO *bio, size_t *length)
{
    char *data;
    long size = BIO_get_mem_data(bio, &data);
    char *text = strndup(data, (size_t)size);
    *length = (size_t)size;
    BIO_free(bio);
    return text;
}

static struct pem make_certificate(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    assert_non_null(key);
    assert_non_null(certificate);
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_set_pubkey(certificate, key);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    BIO *text = BIO_new(BIO_s_mem()), *key_text = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_X509(text, certificate), 1);
    assert_int_equal(PEM_write_bio_PrivateKey(key_text, key, NULL, NULL, 0, NULL, NULL), 1);
    struct pem pem;
    pem.certificate = take_text(text, &pem.certificate_length);
    pem.key = take_text(key_text, &pem.key_length);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return pem;
}

static void release_pem(struct pem *pem)
{
    free(pem->certificate);
    free(pem->key);
}

/* ---- a server with TLS, and a client ---- */

struct tls_fixture {
    void *plain; /* struct fixture */
    struct http_tls *tls;
};

static int make_tls(void **state)
{
    struct tls_fixture *both = calloc(1, sizeof *both);
    assert_non_null(both);
    make_fixture(&both->plain);
    struct fixture *fixture = both->plain;
    HC_CLEANUP(release_pem) struct pem pem = make_certificate();
    struct hc_err err = {0};
    assert_int_equal(http_tls_new(pem.certificate, pem.certificate_length, pem.key, pem.key_length, &both->tls, &err),
                     0);
    int fd = listen_on_loopback(&fixture->port);
    assert_int_equal(http_server_listen(fixture->server, fd, HTTP_LISTEN_TCP, both->tls, &err), 0);
    *state = both;
    return 0;
}

static int free_tls(void **state)
{
    struct tls_fixture *both = *state;
    free_fixture(&both->plain);
    http_tls_free(both->tls);
    free(both);
    return 0;
}

struct tls_client {
    struct client client; /* `got` is what was decrypted */
    SSL_CTX *context;
    SSL *ssl;
};

static void release_tls_client(struct tls_client *tls)
{
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    release_client(&tls->client);
}

/* One turn of the server; what OpenSSL made of what came. */
static void turn(struct tls_client *tls)
{
    assert_int_equal(hc_loop_turn(tls->client.fixture->loop, 5), 0);
    char data[16384];
    int count;
    while ((count = SSL_read(tls->ssl, data, sizeof data)) > 0)
        hc_buf_add(&tls->client.got, data, (size_t)count);
    int error = SSL_get_error(tls->ssl, count);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        tls->client.closed = true;
    ERR_clear_error();
}

static int shake_hands(struct tls_client *tls, struct fixture *fixture, int version)
{
    *tls = (struct tls_client){.client = connect_client(fixture)};
    assert_int_equal(hc_set_nonblock(tls->client.fd, true), 0);
    tls->context = SSL_CTX_new(TLS_client_method());
    assert_non_null(tls->context);
    SSL_CTX_set_security_level(tls->context, 0); /* so that old versions are refused by the server, not by us */
    SSL_CTX_set_min_proto_version(tls->context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(tls->context, version);
    tls->ssl = SSL_new(tls->context);
    SSL_set_alpn_protos(tls->ssl, (const unsigned char *)"\x02h2\x08http/1.1", 12);
    SSL_set_fd(tls->ssl, tls->client.fd);
    SSL_set_connect_state(tls->ssl);
    for (int i = 0; i < 500; i++) {
        int result = SSL_do_handshake(tls->ssl);
        if (result == 1)
            return 0;
        int error = SSL_get_error(tls->ssl, result);
        ERR_clear_error();
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
            return -EPROTO;
        assert_int_equal(hc_loop_turn(fixture->loop, 5), 0);
    }
    return -ETIME;
}

static void write_all(struct tls_client *tls, const char *data, size_t length)
{
    while (length > 0) {
        size_t chunk = length < 16384 ? length : 16384;
        int count = SSL_write(tls->ssl, data, (int)chunk);
        if (count > 0) {
            data += count;
            length -= (size_t)count;
        } else {
            ERR_clear_error();
            turn(tls);
        }
    }
}

static void ask(struct tls_client *tls, const char *text)
{
    write_all(tls, text, strlen(text));
}

#define turn_until(tls, condition)                                                                                     \
    do {                                                                                                               \
        uint64_t until_end = hc_now() + MS(5000);                                                                      \
        while (!(condition)) {                                                                                         \
            assert_true(hc_now() < until_end);                                                                         \
            turn(tls);                                                                                                 \
        }                                                                                                              \
    } while (0)

/* ---- tests ---- */

static void test_requests_are_served_over_tls_1_2_and_1_3(void **state)
{
    struct tls_fixture *both = *state;
    struct fixture *fixture = both->plain;
    static const int VERSIONS[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int i = 0; i < 2; i++) {
        HC_CLEANUP(release_tls_client) struct tls_client tls;
        assert_int_equal(shake_hands(&tls, fixture, VERSIONS[i]), 0);
        assert_int_equal(SSL_version(tls.ssl), VERSIONS[i]);
        const unsigned char *protocol;
        unsigned length;
        SSL_get0_alpn_selected(tls.ssl, &protocol, &length);
        assert_int_equal(length, 8);
        assert_memory_equal(protocol, "http/1.1", 8);
        size_t at = 0;
        struct reply reply;
        for (int j = 0; j < 3; j++) { /* on one connection */
            ask(&tls, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
            turn_until(&tls, next_reply(&tls.client, &at, &reply));
            assert_int_equal(reply.status, 200);
            assert_memory_equal(reply.body, "hello", 5);
        }
        ask(&tls, "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        turn_until(&tls, tls.client.closed);
        assert_int_equal(SSL_get_shutdown(tls.ssl) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
    }
}

static void test_large_bodies_and_replies_pass_through_tls(void **state)
{
    struct tls_fixture *both = *state;
    struct fixture *fixture = both->plain;
    HC_CLEANUP(release_tls_client) struct tls_client tls;
    assert_int_equal(shake_hands(&tls, fixture, TLS1_3_VERSION), 0);
    ask(&tls, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n");
    write_all(&tls, fixture->big, 3000000);
    size_t at = 0;
    struct reply reply;
    turn_until(&tls, next_reply(&tls.client, &at, &reply));
    assert_int_equal(reply.length, 3000000);
    ask(&tls, "GET /big HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 0; i < 20; i++) /* it does not read for a while */
        hc_loop_turn(fixture->loop, 5);
    turn_until(&tls, next_reply(&tls.client, &at, &reply));
    assert_int_equal(reply.length, BIG);
    assert_memory_equal(reply.body, fixture->big, BIG);
    turn_until(&tls, next_reply(&tls.client, &at, &reply));
    assert_int_equal(reply.length, 0);
}

/* Takes the connection over, or the body, and sends back what comes. */
static void echo(struct http_request *request, const char *data, size_t length)
{
    http_stream_write(request, data, length);
    if (http_stream_pending(request) > 0)
        http_body_pause(request);
}

static void echo_more(struct http_request *request)
{
    http_body_resume(request);
}

static bool streams_everything(const struct http_request *request)
{
    return request != NULL;
}

static bool echo_stream(struct fixture *fixture, struct http_request *request)
{
    request->data = fixture;
    request->on_gone = on_gone;
    request->on_body = echo;
    request->on_body_end = http_stream_end;
    request->on_drained = echo_more;
    if (http_upgrade(request, "echo") < 0)
        http_stream_begin(request, 200, "text/plain");
    http_body_resume(request);
    return true;
}

static void echo_through_tls(struct fixture *fixture, const char *head, size_t framing)
{
    HC_CLEANUP(release_tls_client) struct tls_client tls;
    assert_int_equal(shake_hands(&tls, fixture, TLS1_3_VERSION), 0);
    ask(&tls, head);
    turn_until(&tls, tls.client.got.length > 0 && strstr(tls.client.got.data, "\r\n\r\n") != NULL);
    size_t before = (size_t)(strstr(tls.client.got.data, "\r\n\r\n") + 4 - tls.client.got.data);
    write_all(&tls, fixture->big, BIG);
    turn_until(&tls, tls.client.got.length >= before + BIG + framing);
}

static void test_streams_and_upgrades_pass_through_tls(void **state)
{
    struct tls_fixture *both = *state;
    struct fixture *fixture = both->plain;
    fixture->streams = streams_everything;
    fixture->own_handle = echo_stream;
    echo_through_tls(fixture, "PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n", 5);
    echo_through_tls(fixture, "GET /up HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", 0);
    fixture->own_handle = NULL;
}

static void test_refusals_pass_through_tls(void **state)
{
    struct tls_fixture *both = *state;
    HC_CLEANUP(release_tls_client) struct tls_client tls;
    assert_int_equal(shake_hands(&tls, both->plain, TLS1_3_VERSION), 0);
    ask(&tls, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
    size_t at = 0;
    struct reply reply;
    turn_until(&tls, next_reply(&tls.client, &at, &reply));
    assert_int_equal(reply.status, 413);
    turn_until(&tls, tls.client.closed);
}

static void test_a_client_that_hangs_up_is_noticed_under_tls(void **state)
{
    struct tls_fixture *both = *state;
    struct fixture *fixture = both->plain;
    HC_CLEANUP(release_tls_client) struct tls_client tls;
    assert_int_equal(shake_hands(&tls, fixture, TLS1_3_VERSION), 0);
    ask(&tls, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    turn_until(&tls, fixture->kept != NULL);
    SSL_shutdown(tls.ssl);
    shutdown(tls.client.fd, SHUT_RDWR);
    for (int i = 0; i < 200 && fixture->gone == 0; i++)
        hc_loop_turn(fixture->loop, 5);
    assert_int_equal(fixture->gone, 1);
}

static void test_old_versions_and_plain_requests_get_no_answer(void **state)
{
    struct tls_fixture *both = *state;
    struct fixture *fixture = both->plain;
    HC_CLEANUP(release_tls_client) struct tls_client old;
    assert_int_equal(shake_hands(&old, fixture, TLS1_1_VERSION), -EPROTO);
    hc_cleanup_client struct client plain = connect_client(fixture);
    say(&plain, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&plain, plain.closed);
    assert_true(plain.got.data == NULL || strstr(plain.got.data, "HTTP") == NULL);
    assert_int_equal(fixture->admitted, 0);
}

static void test_a_handshake_that_does_not_end_is_closed(void **state)
{
    struct tls_fixture *both = *state;
    struct fixture *fixture = both->plain;
    fixture->limits.header_time = MS(100);
    http_server_set_limits(fixture->server, &fixture->limits);
    hc_cleanup_client struct client client = connect_client(fixture);
    send_bytes(&client, "\x16\x03\x01\x02", 4);
    until(&client, client.closed);
    assert_int_equal(client.got.length, 0);
}

static void test_certificates_that_cannot_be_used_are_refused_with_a_reason(void **state)
{
    (void)state;
    HC_CLEANUP(release_pem) struct pem pem = make_certificate();
    HC_CLEANUP(release_pem) struct pem other = make_certificate();
    static const char RUBBISH[] = "this is not PEM";
    const struct {
        const char *certificate, *key, *says;
    } CASES[] = {
        {NULL, pem.key, "needs a certificate"},         {RUBBISH, pem.key, "certificate is not PEM"},
        {pem.certificate, RUBBISH, "key is not a PEM"}, {pem.certificate, other.key, "does not fit"},
        {pem.certificate, NULL, "needs a certificate"}, {"", pem.key, "certificate is not PEM"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct http_tls *tls = NULL;
        struct hc_err err = {0};
        size_t certificate_length = CASES[i].certificate != NULL ? strlen(CASES[i].certificate) : 0;
        size_t key_length = CASES[i].key != NULL ? strlen(CASES[i].key) : 0;
        assert_int_equal(http_tls_new(CASES[i].certificate, certificate_length, CASES[i].key, key_length, &tls, &err),
                         -EINVAL);
        assert_null(tls);
        if (strstr(err.message, CASES[i].says) == NULL)
            fail_msg("expected \"%s\" in: %s", CASES[i].says, err.message);
        assert_int_equal(ERR_peek_error(), 0);
    }
}

static void test_a_chain_of_certificates_is_read(void **state)
{
    (void)state;
    HC_CLEANUP(release_pem) struct pem pem = make_certificate();
    HC_CLEANUP(release_pem) struct pem above = make_certificate();
    struct hc_buf chain = HC_BUF_INIT(65536);
    hc_buf_printf(&chain, "%s%s", pem.certificate, above.certificate);
    struct http_tls *tls = NULL;
    struct hc_err err = {0};
    assert_int_equal(http_tls_new(chain.data, chain.length, pem.key, pem.key_length, &tls, &err), 0);
    http_tls_free(tls);
    tls = NULL;
    hc_buf_add_str(&chain, "-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n");
    assert_int_equal(http_tls_new(chain.data, chain.length, pem.key, pem.key_length, &tls, &err), -EINVAL);
    assert_non_null(strstr(err.message, "chain"));
    hc_buf_release(&chain);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_tls, free_tls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_requests_are_served_over_tls_1_2_and_1_3),
        TEST(test_large_bodies_and_replies_pass_through_tls),
        TEST(test_streams_and_upgrades_pass_through_tls),
        TEST(test_refusals_pass_through_tls),
        TEST(test_a_client_that_hangs_up_is_noticed_under_tls),
        TEST(test_old_versions_and_plain_requests_get_no_answer),
        TEST(test_a_handshake_that_does_not_end_is_closed),
        cmocka_unit_test(test_certificates_that_cannot_be_used_are_refused_with_a_reason),
        cmocka_unit_test(test_a_chain_of_certificates_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
