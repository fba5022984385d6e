/*
 * What of the configuration is settled when a server starts: sockets, folders, uids and the cells' image are opened or
 * handed over once, so that a reload cannot change them. It must not pretend to, least of all where somebody has taken
 * a right away.
 */
#include "run/config_show.h"
#include "serve/internal.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *section, *name;
} SETTLED[] = {
    {"server", "listen"},
    {"server", "execute_listen"},
    {"server", "socket"},
    {"server", "state"},
    {"server", "workspace"},
    {"server", "tls_certificate"},
    {"server", "tls_key"},
    {"mounts", "allowed_read_paths"},
    {"mounts", "allowed_write_paths"},
    {"languages", "paths"},
    {"isolation", "uid_base"},
    {"isolation", "uid_count"},
    {"image", "etc"},
    {"pool", "min"},
    {"pool", "max"},
    {"warm", "start"},
    {"warm", "forks"},
    {"warm", "age"},
    {"warm", "primed_min"},
    {"warm", "primed_max"},
    {"compile_cache", "prepare"},
};

size_t settled_changed(const struct config *before, const struct config *after, char *names, size_t size)
{
    size_t used = 0, count = 0;
    names[0] = '\0';
    for (size_t i = 0; i < sizeof SETTLED / sizeof *SETTLED; i++) {
        int index = config_key_find(SETTLED[i].section, SETTLED[i].name);
        if (index < 0)
            continue;
        struct config_key key = config_key_at((size_t)index);
        json_t *old hc_cleanup_json = config_show(before, &key), *new hc_cleanup_json = config_show(after, &key);
        if (!old || !new || json_equal(old, new))
            continue;
        count++;
        if (used < size)
            used += (size_t)snprintf(names + used, size - used, "%s%s.%s", used > 0 ? ", " : "", key.section, key.name);
    }
    return count;
}
