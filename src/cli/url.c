/*
 * Addresses of servers. Strict: a part that would be ignored is an error, because whoever wrote it meant something by
 * it (a user name, a path behind a proxy).
 */
#include "cli/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int wrong(const char *text, const char *why, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the server's address \"%s\" %s", text, why);
    hc_err_field(err, "server");
    return hc_err_remedy(err, "such as http://127.0.0.1:7600, https://HOST:PORT or unix:/run/hotcell/hotcell.sock");
}

bool url_is_local(const char *text)
{
    return strncasecmp(text, "unix:", 5) == 0;
}

int url_of_socket(const char *path, struct url *url, struct hc_err *err)
{
    struct url found = {.scheme = URL_UNIX, .host = "localhost", .authority = "localhost"};

    if (path[0] == '\0')
        return wrong("unix:", "names no socket", err);
    if (strlen(path) >= sizeof found.path) {
        hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the socket's path is longer than %zu bytes: %s",
                sizeof found.path - 1, path);
        hc_err_field(err, "server");
        return -ENAMETOOLONG;
    }
    memcpy(found.path, path, strlen(path) + 1);
    *url = found;
    return 0;
}

/* Names and addresses have only these: nothing that could end the line of a header. */
static bool is_host(const char *host, bool bracketed)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    static const char address[] = "0123456789abcdefABCDEF:.%";

    return host[0] != '\0' && host[strspn(host, bracketed ? address : name)] == '\0';
}

static int set_port(const char *text, const char *port, size_t length, struct url *url, struct hc_err *err)
{
    char *end = NULL;

    if (length == 0 || length >= sizeof url->port || strspn(port, "0123456789") != length)
        return wrong(text, "has no valid port", err);
    unsigned long number = strtoul(port, &end, 10);
    if (number == 0 || number > 65535)
        return wrong(text, "has no valid port", err);
    snprintf(url->port, sizeof url->port, "%lu", number);
    return 0;
}

/* HOST[:PORT] or [ADDRESS][:PORT], and at most one '/' after it. */
static int parse_authority(const char *text, const char *rest, const char *default_port, struct url *url,
                           struct hc_err *err)
{
    size_t length = strcspn(rest, "/?#");
    bool bracketed = rest[0] == '[';

    if (rest[length] != '\0' && strcmp(rest + length, "/") != 0)
        return wrong(text, "has more than a host and a port", err);
    if (memchr(rest, '@', length)) /* the address is not repeated: what stands before the '@' may be a secret */
        return wrong("…", "has a user or a secret in it; a key belongs into $HOTCELL_KEY", err);
    const char *host = bracketed ? rest + 1 : rest;
    size_t host_length = strcspn(host, bracketed ? "]" : ":/");
    if (host_length >= sizeof url->host || host_length > length)
        return wrong(text, "has no valid host", err);
    memcpy(url->host, host, host_length);
    url->host[host_length] = '\0';
    if (!is_host(url->host, bracketed) || (bracketed && host[host_length] != ']'))
        return wrong(text, "has no valid host", err);

    const char *after = host + host_length + bracketed, *end = rest + length;
    int status = 0;
    if (after == end)
        snprintf(url->port, sizeof url->port, "%s", default_port);
    else
        status = after[0] == ':' ? set_port(text, after + 1, (size_t)(end - after - 1), url, err)
                                 : wrong(text, "has no valid host", err);
    snprintf(url->authority, sizeof url->authority, bracketed ? "[%s]:%s" : "%s:%s", url->host, url->port);
    return status;
}

int url_parse(const char *text, struct url *url, struct hc_err *err)
{
    static const struct {
        const char *prefix, *port;
        enum url_scheme scheme;
    } schemes[] = {{"http://", "80", URL_HTTP}, {"https://", "443", URL_HTTPS}};

    if (url_is_local(text)) /* unix:/path and unix:///path */
        return url_of_socket(strncmp(text + 5, "//", 2) == 0 ? text + 7 : text + 5, url, err);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t length = strlen(schemes[i].prefix);
        if (strncasecmp(text, schemes[i].prefix, length) != 0)
            continue;
        struct url found = {.scheme = schemes[i].scheme};
        int status = parse_authority(text, text + length, schemes[i].port, &found, err);
        if (status == 0)
            *url = found;
        return status;
    }
    return wrong(text, "does not begin with http://, https:// or unix:", err);
}
