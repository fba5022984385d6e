/* See preview.h. */
#include "gateway/preview.h"

#include "store/sha256.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { BLOCK = 64 };

/* RFC 2104. The secret is shorter than a block. */
static int hmac(const char *secret, const char *text, unsigned char mark[SHA256_SIZE])
{
    unsigned char inner[BLOCK + 128], outer[BLOCK + SHA256_SIZE];
    size_t length = strlen(text), size = strlen(secret);
    if (length >= sizeof inner - BLOCK || size > BLOCK)
        return -E2BIG;
    for (size_t i = 0; i < BLOCK; i++) {
        unsigned char byte = i < size ? (unsigned char)secret[i] : 0;
        inner[i] = byte ^ 0x36;
        outer[i] = byte ^ 0x5c;
    }
    memcpy(inner + BLOCK, text, length + 1); /* its NUL is not part of the message */
    int result = sha256(inner, BLOCK + length, outer + BLOCK);
    return result < 0 ? result : sha256(outer, sizeof outer, mark);
}

static int make(const struct sandbox *sandbox, unsigned port, int64_t expires, char *text, size_t size)
{
    unsigned char mark[SHA256_SIZE];
    char hex[SHA256_HEX + 1];
    int length = snprintf(text, size, "%s.%u.%llx", sandbox->id, port, (unsigned long long)expires);
    int result = hmac(sandbox->secret, text, mark);
    if (result < 0)
        return result;
    sha256_hex(mark, hex);
    snprintf(text + length, size - (size_t)length, ".%.40s", hex); /* 160 bits */
    return 0;
}

int preview_token(const struct sandbox *sandbox, unsigned port, int64_t expires, char *text)
{
    return make(sandbox, port, expires, text, PREVIEW_TOKEN_SIZE);
}

static bool equal(const char *one, const char *other)
{
    size_t length = strlen(one);
    unsigned char differ = strlen(other) != length;
    for (size_t i = 0; i < length && other[i]; i++)
        differ |= (unsigned char)(one[i] ^ other[i]);
    return differ == 0;
}

/* "ID.PORT.TIME.MARK", of which the mark is compared and not read. */
static bool split(const char *token, char *id, size_t size, unsigned *port, int64_t *expires)
{
    char *end;
    size_t length = strcspn(token, ".");
    if (length == 0 || length >= size || token[length] != '.')
        return false;
    memcpy(id, token, length);
    id[length] = '\0';
    unsigned long number = strtoul(token + length + 1, &end, 10);
    if (*end != '.' || number == 0 || number > 65535)
        return false;
    *port = (unsigned)number;
    *expires = (int64_t)strtoull(end + 1, &end, 16);
    return *end == '.';
}

struct sandbox *preview_find(const struct sandboxes *all, const char *token, unsigned *port)
{
    char id[40], expected[PREVIEW_TOKEN_SIZE];
    int64_t expires;
    if (strlen(token) >= PREVIEW_TOKEN_SIZE || !split(token, id, sizeof id, port, &expires))
        return NULL;
    struct sandbox *sandbox = sandboxes_find(all, NULL, id);
    if (!sandbox || expires < (int64_t)time(NULL) || make(sandbox, *port, expires, expected, sizeof expected) < 0 ||
        !equal(expected, token))
        return NULL;
    return sandbox;
}

bool preview_host(const char *host, const char *domain, unsigned *port, char *id)
{
    size_t label = strcspn(host, "."), size = strlen(domain);
    const char *rest = host + label;
    char name[64], *dash;
    if (!domain[0] || *rest != '.' || strncasecmp(rest + 1, domain, size) != 0 ||
        (rest[1 + size] != '\0' && rest[1 + size] != ':') || label >= sizeof name)
        return false;
    for (size_t i = 0; i < label; i++)
        name[i] = host[i] >= 'A' && host[i] <= 'Z' ? (char)(host[i] + 32) : host[i];
    name[label] = '\0';
    unsigned long number = strtoul(name, &dash, 10);
    if (dash == name || *dash != '-' || number == 0 || number > 65535 || strlen(dash + 1) >= 40)
        return false;
    *port = (unsigned)number;
    memcpy(id, dash + 1, strlen(dash + 1) + 1);
    return true;
}
