/*
 * See proxy_head.h. What always holds: of the headers that frame a message, and of those that are about one connection
 * (RFC 9110, 7.6.1), none passes in either direction: each side gets its own. A key of hotcell's never reaches a cell.
 */
#include "gateway/proxy_head.h"
#include "gateway/http_parse.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    VALUE_MAX = 8192,  /* of a value that is rewritten */
    HEADERS_MAX = 128, /* of an answer: each is looked for in the lists of its Connection headers */
};

/* About this connection or this message, in either direction. */
static const char *const HOP_BY_HOP[] = {
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    NULL,
};

/* Of a request: keys, and what only we may say of where it came from. */
static const char *const KEYS[] = {"authorization", "x-api-key", NULL};
static const char *const ORIGIN_OF_REQUEST[] = {"forwarded", "x-forwarded-", "x-real-ip", "hotcell-", "via", NULL};

/* Of an answer: what speaks for a whole origin, or for hotcell. One that ends with '-' stands for all that begin so. */
static const char *const FOR_AN_ORIGIN[] = {
    "access-control-",
    "alt-svc",
    "clear-site-data",
    "expect-ct",
    "nel",
    "origin-agent-cluster",
    "public-key-pins",
    "public-key-pins-report-only",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "strict-transport-security",
    "www-authenticate",
    NULL,
};
static const char *const OURS[] = {"hotcell-", NULL};

static bool listed(const char *const *names, const char *name)
{
    for (; *names != NULL; names++) {
        size_t length = strlen(*names);
        if ((*names)[length - 1] == '-' ? strncasecmp(name, *names, length) == 0 : strcasecmp(name, *names) == 0)
            return true;
    }
    return false;
}

/* ---- the request ---- */

static bool sendable(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7F)
            return false;
    return text[0] != '\0';
}

static bool request_header_passes(const struct http_request *request, const struct proxy_options *options,
                                  const char *name)
{
    if (listed(HOP_BY_HOP, name) || listed(ORIGIN_OF_REQUEST, name))
        return false;
    if (listed(KEYS, name) && !options->own_authorization)
        return false;
    return !http_header_has(request, "connection", name);
}

/* "127.0.0.1:52114" and "[::1]:52114" without their ports. */
static void add_forwarded(struct hc_buf *out, const struct http_request *request, const struct proxy_options *options)
{
    const char *from = request->peer + (request->peer[0] == '[');
    size_t length = strcspn(from, request->peer[0] == '[' ? "]" : ":");
    const char *host = http_header(request, "host");
    hc_buf_printf(out, "X-Forwarded-For: %.*s\r\nX-Forwarded-Proto: %s\r\n", (int)length, from,
                  request->tls ? "https" : "http");
    if (host != NULL)
        hc_buf_printf(out, "X-Forwarded-Host: %s\r\n", host);
    if (options->prefix[0] != '\0')
        hc_buf_printf(out, "X-Forwarded-Prefix: %s\r\n", options->prefix);
}

int proxy_write_request(struct hc_buf *out, const struct http_request *request, const struct proxy_options *options,
                        bool upgrade)
{
    if (options->target[0] != '/' || !sendable(options->target) || !sendable(options->host) ||
        (options->prefix[0] != '\0' && !sendable(options->prefix)))
        return -EINVAL;
    hc_buf_printf(out, "%s %s HTTP/1.1\r\nHost: %s\r\n", request->method_name, options->target, options->host);
    hc_buf_add_str(out, upgrade ? "Connection: Upgrade\r\nUpgrade: websocket\r\n" : "Connection: close\r\n");
    for (size_t i = 0; i < request->header_count; i++)
        if (request_header_passes(request, options, request->headers[i].name))
            hc_buf_printf(out, "%s: %s\r\n", request->headers[i].name, request->headers[i].value);
    add_forwarded(out, request, options);
    if (request->body_expected == HTTP_LENGTH_UNKNOWN)
        hc_buf_add_str(out, "Transfer-Encoding: chunked\r\n");
    else if (http_header(request, "content-length") != NULL)
        hc_buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)request->body_expected);
    hc_buf_add_str(out, "\r\n");
    return hc_buf_status(out);
}

/* ---- the answer ---- */

bool proxy_answer_has(const struct http_reader *reader, const char *name, const char *word)
{
    const char *found, *value;
    for (size_t at = 0; http_reader_header(reader, &at, &found, &value);)
        if (strcasecmp(found, name) == 0 && http_list_has(value, word))
            return true;
    return false;
}

/* A redirect within the server inside leads, for the client, below the prefix. */
static void rewrite_location(const struct proxy_answer *answer, const char *value, char *text, size_t size)
{
    size_t host = strlen(answer->host), prefix = strlen(answer->prefix);
    const char *path = value;
    if (strncasecmp(path, "http://", 7) == 0 && strncasecmp(path + 7, answer->host, host) == 0 &&
        (path[7 + host] == '/' || path[7 + host] == '\0'))
        path += 7 + host;
    bool inside = path[0] == '/' && path[1] != '/' && path[1] != '\\';
    bool already = strncmp(path, answer->prefix, prefix) == 0 && (path[prefix] == '/' || path[prefix] == '\0');
    if (path != value && path[0] == '\0')
        snprintf(text, size, "%s/", answer->prefix);
    else if (inside && !already)
        snprintf(text, size, "%s%s", answer->prefix, path);
    else
        snprintf(text, size, "%s", inside ? path : value);
}

/* A cookie is for what is below the prefix: other previews are others' business. Its name and value, and what is not
 * about where it goes. */
static void rewrite_cookie(const struct proxy_answer *answer, const char *value, char *text, size_t size)
{
    size_t used = 0;
    for (const char *at = value; *at != '\0';) {
        size_t length = strcspn(at, ";");
        const char *word = at + strspn(at, " \t");
        bool place = at != value && (strncasecmp(word, "path", 4) == 0 || strncasecmp(word, "domain", 6) == 0);
        if (!place)
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used > 0 ? ";" : "", (int)length, at);
        at += length + (at[length] == ';');
    }
    snprintf(text + used, size - used, "; Path=%s/", answer->prefix);
}

static int pass_one(const struct proxy_answer *answer, const char *name, const char *value,
                    int (*pass)(void *data, const char *name, const char *value), void *data)
{
    char text[VALUE_MAX];
    bool location = strcasecmp(name, "location") == 0, cookie = strcasecmp(name, "set-cookie") == 0;
    if (answer->own_origin || answer->prefix[0] == '\0' || (!location && !cookie))
        return pass(data, name, value);
    if (strlen(value) + strlen(answer->prefix) + 16 > sizeof text)
        return -E2BIG;
    if (location)
        rewrite_location(answer, value, text, sizeof text);
    else
        rewrite_cookie(answer, value, text, sizeof text);
    return pass(data, name, text);
}

int proxy_pass_headers(const struct http_reader *reader, const struct proxy_answer *answer,
                       int (*pass)(void *data, const char *name, const char *value), void *data)
{
    const char *name, *value;
    size_t count = 0;
    for (size_t at = 0; http_reader_header(reader, &at, &name, &value);) {
        if (++count > HEADERS_MAX)
            return -E2BIG;
        bool dropped = listed(HOP_BY_HOP, name) || listed(OURS, name) ||
                       (!answer->own_origin && listed(FOR_AN_ORIGIN, name)) ||
                       proxy_answer_has(reader, "connection", name);
        int status = dropped ? 0 : pass_one(answer, name, value, pass, data);
        if (status < 0)
            return status;
    }
    return 0;
}
