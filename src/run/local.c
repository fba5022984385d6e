/* See local.h. The places are those that serve/state.c chooses. */
#include "run/local.h"

#include "run/config_internal.h"
#include "run/engine.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { USERS_FILE = 2, NAMED_FILE = 3 }; /* config.c's numbers of files */

static void add(struct local_sockets *sockets, uid_t owner, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(struct local_sockets *sockets, uid_t owner, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(sockets->item[sockets->count].path, sizeof sockets->item[0].path, format, arguments);
    va_end(arguments);
    if (length <= 0 || (size_t)length >= sizeof sockets->item[0].path)
        return;
    sockets->item[sockets->count++].owner = owner;
}

/* What the run's configuration has that a server's does not: a name for it, or NULL. Where a server is, and whether it
 * is wanted, are no part of what a run is like. */
static const char *peculiarity(const struct config *config)
{
    static const char *const variables[] = {"HOTCELL_LANGUAGES", "HOTCELL_SYSCONFDIR"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (getenv(variables[i]))
            return variables[i];
    for (size_t i = 0; i < config_key_count(); i++) {
        const struct config_origin *origin = &config->origins[i];
        struct config_key key = config_key_at(i);
        bool ours = strcmp(key.section, "client") == 0 || strcmp(key.section, "server") == 0;
        bool environment = origin->file == 0 && strncmp(origin->text, "HOTCELL_", 8) == 0;
        if (!ours && (origin->file == NAMED_FILE || environment))
            return origin->text;
    }
    return NULL;
}

/* The folder of a user's settings and languages, empty or not. */
static bool has_own_settings(void)
{
    const char *folder = getenv("XDG_CONFIG_HOME");
    char home[PATH_MAX], path[PATH_MAX + 32];
    if (folder && folder[0] == '/')
        snprintf(path, sizeof path, "%.4000s/hotcell", folder);
    else if (config_home(home, sizeof home) == 0)
        snprintf(path, sizeof path, "%.4000s/.config/hotcell", home);
    else
        return false;
    return access(path, F_OK) == 0;
}

static void add_users_own(struct local_sockets *sockets, const struct config *config)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *state = getenv("XDG_STATE_HOME");
    char home[PATH_MAX];
    if (runtime && runtime[0] == '/')
        add(sockets, geteuid(), "%s/hotcell.sock", runtime);
    else if (config->server.state[0])
        add(sockets, geteuid(), "%s/hotcell.sock", config->server.state);
    else if (state && state[0] == '/')
        add(sockets, geteuid(), "%s/hotcell/hotcell.sock", state);
    else if (config_home(home, sizeof home) == 0)
        add(sockets, geteuid(), "%.100s/.local/state/hotcell/hotcell.sock", home);
}

void local_sockets_find(const hc_config *configuration, struct local_sockets *out)
{
    const struct config *config = configuration->config;
    const char *named = config->server.socket, *own = peculiarity(config);
    *out = (struct local_sockets){.weak = config->allow_weak};
    if (!config->local_server || strcmp(named, "none") == 0) {
        snprintf(out->why, sizeof out->why, "the configuration wants none (%s)",
                 config->local_server ? "server.socket" : "client.local_server");
        return;
    }
    if (own) {
        snprintf(out->why, sizeof out->why, "%s sets something for this run alone", own);
        return;
    }
    if (named[0])
        add(out, geteuid(), "%s", named);
    else if (geteuid() != 0)
        add_users_own(out, config);
    if (!named[0] && (geteuid() == 0 || !has_own_settings()))
        add(out, 0, "/run/hotcell/hotcell.sock");
    snprintf(out->why, sizeof out->why, "none is running");
}
