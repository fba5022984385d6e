/*
 * Links to previews: who has one may use that port of that sandbox until it expires, and nothing else. A link is the
 * sandbox, the port and the time, with a mark made by a secret that only its sandbox has (HMAC-SHA-256).
 */
#ifndef HC_GATEWAY_PREVIEW_H
#define HC_GATEWAY_PREVIEW_H

#include "sandbox/sandbox.h"

enum { PREVIEW_TOKEN_SIZE = 160 };

/* `text` has PREVIEW_TOKEN_SIZE bytes. `expires`: seconds since the epoch. 0 or -errno. */
int preview_token(const struct sandbox *sandbox, unsigned port, int64_t expires, char *text);
/* The sandbox and the port that a token is for; NULL: it is not valid, or not any more. */
struct sandbox *preview_find(const struct sandboxes *all, const char *token, unsigned *port);
/* "8000-sbx_01….preview.example:80", below `domain`. False: it is no such name. `id` has 40 bytes. */
bool preview_host(const char *host, const char *domain, unsigned *port, char *id);

#endif
