/* The address of a server: http://HOST:PORT, https://HOST:PORT, unix:PATH. */
#ifndef HC_CLI_URL_H
#define HC_CLI_URL_H

#include "base/err.h"
#include <stdbool.h>

enum url_scheme { URL_HTTP, URL_HTTPS, URL_UNIX };

struct url {
    enum url_scheme scheme;
    char host[254];      /* a name or an address, without the brackets of IPv6; "localhost" for a socket */
    char port[6];        /* decimal; "" for a socket */
    char path[108];      /* of the socket; "" otherwise */
    char authority[264]; /* what the Host header says */
};

/* Nothing but what is above: no user, no path, no query. *url is written only on success. */
int url_parse(const char *text, struct url *url, struct hc_err *err);
/* unix:PATH as an address. */
int url_of_socket(const char *path, struct url *url, struct hc_err *err);
/* Whether it names a unix socket: no more is needed to reach it. */
bool url_is_local(const char *text);

#endif
