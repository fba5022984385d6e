/*
 * Which requests are heard at all, before anyone asks who sent them. A browser on this machine will carry requests for
 * any web page that it shows, and a page can point its own name at 127.0.0.1 (DNS rebinding): so the name that was
 * called (Host) must be one of ours, and a page that calls (Origin) must come from us or be named in the configuration.
 * Programs that are no browsers send no Origin.
 */
#include "gateway/gateway.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_SIZE = 256 };

/* ---- host[:port] ---- */

/* The name alone, without brackets, in `name`; its port, or "", in *port. false: malformed. */
static bool split_host(const char *text, char *name, size_t size, const char **port)
{
    size_t length;
    const char *rest;
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        if (end == NULL)
            return false;
        length = (size_t)(end - ++text);
        rest = end + 1;
    } else {
        length = strcspn(text, ":");
        rest = text + length;
    }
    if (length == 0 || length >= size)
        return false;
    memcpy(name, text, length);
    name[length] = '\0';
    *port = "";
    if (rest[0] == '\0')
        return true;
    size_t digits = strspn(rest + 1, "0123456789");
    if (rest[0] != ':' || digits == 0 || digits > 5 || rest[1 + digits] != '\0')
        return false;
    *port = rest + 1;
    return true;
}

/* 127.0.0.0/8 in its usual spelling. No name resolution: "127.1" or 2130706433 are not how anyone is called. */
static bool loopback_address(const char *name)
{
    if (strcmp(name, "::1") == 0)
        return true;
    int parts = 0;
    for (const char *at = name; *at != '\0';) {
        size_t digits = 0;
        unsigned value = 0;
        for (; digits < 4 && at[digits] >= '0' && at[digits] <= '9'; digits++)
            value = value * 10 + (unsigned)(at[digits] - '0');
        if (digits == 0 || digits > 3 || value > 255 || (digits > 1 && *at == '0'))
            return false;
        parts++;
        at += digits;
        if (*at == '.' && at[1] != '\0')
            at++;
        else if (*at != '\0')
            return false;
    }
    return parts == 4 && strncmp(name, "127.", 4) == 0;
}

bool access_loopback(const char *address)
{
    char name[NAME_SIZE];
    const char *port;
    return split_host(address, name, sizeof name, &port) && loopback_address(name);
}

/* An entry of server.hosts is a name for every port, or a name with its port. */
static bool listed_host(const struct words *hosts, const char *host, const char *name)
{
    for (size_t i = 0; i < hosts->count; i++) {
        char listed[NAME_SIZE];
        const char *port;
        if (!split_host(hosts->item[i], listed, sizeof listed, &port))
            continue;
        if (strcasecmp(port[0] != '\0' ? hosts->item[i] : listed, port[0] != '\0' ? host : name) == 0)
            return true;
    }
    return false;
}

static bool known_host(const struct config *config, const struct http_request *request, const char *host)
{
    char name[NAME_SIZE], local[NAME_SIZE];
    const char *port;
    if (!split_host(host, name, sizeof name, &port))
        return false;
    if (strcasecmp(name, "localhost") == 0 || loopback_address(name))
        return true;
    if (split_host(request->local, local, sizeof local, &port) && strcasecmp(name, local) == 0)
        return true;
    return listed_host(&config->server.hosts, host, name);
}

/* ---- origins ---- */

/* A port that the scheme implies says nothing. */
static size_t authority_length(const char *authority, bool tls)
{
    size_t length = strlen(authority);
    const char *usual = tls ? ":443" : ":80";
    size_t tail = strlen(usual);
    return length > tail && strcmp(authority + length - tail, usual) == 0 ? length - tail : length;
}

static bool same_origin(const struct http_request *request, const char *origin, const char *host)
{
    const char *scheme = request->tls ? "https://" : "http://";
    size_t length = strlen(scheme);
    if (host == NULL || strncasecmp(origin, scheme, length) != 0)
        return false;
    origin += length;
    size_t ours = authority_length(host, request->tls), theirs = authority_length(origin, request->tls);
    return ours == theirs && strncasecmp(origin, host, ours) == 0;
}

static bool listed_origin(const struct words *origins, const char *origin)
{
    for (size_t i = 0; i < origins->count; i++) {
        const char *listed = origins->item[i];
        size_t length = strlen(listed);
        while (length > 0 && listed[length - 1] == '/') /* as people write it */
            length--;
        if (length > 0 && strlen(origin) == length && strncasecmp(origin, listed, length) == 0)
            return true;
    }
    return false;
}

const char *access_refusal(const struct config *config, const struct http_request *request, bool any_origin, char *text,
                           size_t size)
{
    const char *host = http_header(request, "host");
    const char *origin = http_header(request, "origin");
    /* Whoever may open the unix socket calls it as he likes; HTTP/1.0 has no Host, and no browser speaks it. */
    if (request->listener == HTTP_LISTEN_TCP && host != NULL && !known_host(config, request, host)) {
        snprintf(text, size,
                 "Host \"%.80s\" is not a name of this server; use localhost, its address, or add it to server.hosts",
                 host);
        return text;
    }
    if (origin != NULL && !any_origin && !same_origin(request, origin, host) &&
        !listed_origin(&config->server.origins, origin)) {
        snprintf(text, size, "Origin \"%.80s\" may not call this server; add it to server.origins", origin);
        return text;
    }
    return NULL;
}

void access_cors(struct http_request *request)
{
    const char *origin = http_header(request, "origin");
    if (origin == NULL)
        return;
    http_add_header(request, "Access-Control-Allow-Origin", origin);
    http_add_header(request, "Vary", "Origin");
    http_add_header(request, "Access-Control-Expose-Headers", "Location, Retry-After");
    if (request->method != HTTP_OPTIONS)
        return;
    http_add_header(request, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
    http_add_header(request, "Access-Control-Allow-Headers",
                    "Authorization, Content-Type, Last-Event-ID, Prefer, X-API-Key");
    http_add_header(request, "Access-Control-Max-Age", "600");
}
