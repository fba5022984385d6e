/* Addresses of servers: what is accepted, and that nothing is ignored. */
#include "cli/url.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void good(const char *text, enum url_scheme scheme, const char *host, const char *port, const char *authority)
{
    struct url url;
    struct hc_err err = {0};

    if (url_parse(text, &url, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    assert_int_equal(url.scheme, scheme);
    assert_string_equal(url.host, host);
    assert_string_equal(url.port, port);
    assert_string_equal(url.authority, authority);
}

static void test_addresses_that_are_accepted(void **state)
{
    (void)state;
    good("http://127.0.0.1:7600", URL_HTTP, "127.0.0.1", "7600", "127.0.0.1:7600");
    good("http://localhost:7600/", URL_HTTP, "localhost", "7600", "localhost:7600");
    good("HTTP://example.org", URL_HTTP, "example.org", "80", "example.org:80");
    good("https://example.org", URL_HTTPS, "example.org", "443", "example.org:443");
    good("https://[::1]:8443", URL_HTTPS, "::1", "8443", "[::1]:8443");
    good("http://[fe80::1%25]", URL_HTTP, "fe80::1%25", "80", "[fe80::1%25]:80");
    good("http://a:00080", URL_HTTP, "a", "80", "a:80");
}

static void test_sockets(void **state)
{
    static const char *const forms[] = {"unix:/run/x.sock", "unix:///run/x.sock"};
    struct url url;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(url_parse(forms[i], &url, NULL), 0);
        assert_int_equal(url.scheme, URL_UNIX);
        assert_string_equal(url.path, "/run/x.sock");
        assert_string_equal(url.authority, "localhost");
    }
    assert_int_equal(url_parse("unix:relative.sock", &url, NULL), 0);
    assert_string_equal(url.path, "relative.sock");
}

static void test_everything_else_is_an_error_that_leaves_the_url_alone(void **state)
{
    static const char *const wrong[] = {
        "",
        "localhost:7600",
        "127.0.0.1:7600",
        "ftp://x:1",
        "http://",
        "http://:80",
        "http://x:",
        "http://x:0",
        "http://x:65536",
        "http://x:80x",
        "http://x:123456",
        "http://x:-1",
        "http://x:80/path",
        "http://x:80?q",
        "http://x#f",
        "http://x/?",
        "http://[::1",
        "http://[::1]x:80",
        "http://[::1]80",
        "http://[host]:80",
        "http://a b:80",
        "http://a\r\nX: y:80",
        "http://ä:80",
        "http://a:80:81",
        "http://x:8 0",
        "unix:",
        "unix://",
    };
    struct url url;

    (void)state;
    memset(&url, 0x5a, sizeof url);
    struct url before = url;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hc_err err = {0};
        if (url_parse(wrong[i], &url, &err) == 0)
            fail_msg("\"%s\" was accepted", wrong[i]);
        assert_int_equal(err.class, HC_CLASS_REQUEST);
        assert_string_equal(err.field, "server");
        assert_memory_equal(&url, &before, sizeof url);
    }
}

static void test_a_secret_in_the_address_is_not_repeated(void **state)
{
    struct hc_err err = {0};
    struct url url;

    (void)state;
    assert_int_equal(url_parse("http://me:s3cret@host:80", &url, &err), -EINVAL);
    assert_null(strstr(err.message, "s3cret"));
    assert_non_null(strstr(err.message, "HOTCELL_KEY"));
}

static void test_names_that_do_not_fit(void **state)
{
    char text[600] = "http://";
    struct url url;

    (void)state;
    memset(text + 7, 'a', 253);
    assert_int_equal(url_parse(text, &url, NULL), 0);
    memset(text + 7, 'a', 254);
    assert_int_equal(url_parse(text, &url, NULL), -EINVAL);
    memcpy(text, "unix:/", 6);
    memset(text + 6, 'a', 106);
    text[112] = '\0';
    assert_int_equal(url_parse(text, &url, NULL), 0);
    text[112] = 'a';
    text[113] = '\0';
    assert_int_equal(url_parse(text, &url, NULL), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_that_are_accepted),
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_everything_else_is_an_error_that_leaves_the_url_alone),
        cmocka_unit_test(test_a_secret_in_the_address_is_not_repeated),
        cmocka_unit_test(test_names_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
