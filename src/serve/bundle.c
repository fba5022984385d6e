/*
 * The gateway sees no file of the host, so what it is to know is handed to it as sealed memory: the configuration as it
 * is in force, with its paths as they are in the gateway's root, and the certificate and key.
 */
#include "serve/internal.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 20 };

int bundle_file(const char *path)
{
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    char *data hc_cleanup_free = NULL;
    size_t length;
    int result = hc_read_all(fd, FILE_LIMIT, &data, &length);
    if (result == 0)
        result = hc_memfd_sealed("hotcell-file", data, length);
    if (data)
        explicit_bzero(data, length); /* it may be a private key */
    return result;
}

int bundle_config(const struct config *config, const struct host_list *hosts, size_t language_count)
{
    char *text hc_cleanup_free =
        config_to_bundle(config, SERVE_LANGUAGES, language_count, &hosts->paths, hosts->writable, &hosts->own);
    return text ? hc_memfd_sealed("hotcell-config", text, strlen(text)) : -ENOMEM;
}

/* The first `from`, where it is the beginning of a path. */
static void replace(char *text, size_t size, const char *from, const char *to)
{
    char *at = strstr(text, from);
    size_t length = strlen(from);
    if (!at || (at > text && at[-1] != ' ' && at[-1] != '"') || (at[length] != '/' && at[length] != '\0'))
        return;
    char rest[sizeof((struct hc_err *)NULL)->message];
    snprintf(rest, sizeof rest, "%s", at + length);
    snprintf(at, size - (size_t)(at - text), "%s%s", to, rest);
}

void bundle_name_paths(const struct keeper_server *server, char *text, size_t size)
{
    replace(text, size, SERVE_STATE, server->state.folder);
    for (size_t i = 0; i < server->languages.count; i++) {
        char name[64];
        snprintf(name, sizeof name, SERVE_LANGUAGES "/%zu", i);
        replace(text, size, name, server->languages.item[i]);
    }
}
